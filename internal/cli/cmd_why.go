package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why <tool>",
		Short: "Explain whether a tool may be called",
		Long: `Say what would happen to a call of a tool from here, and which rule of which file
decides that. Nothing is called, started or contacted: the tool is looked up
among the tools of earlier connections. Rules that fit nothing are named, too.`,
		Example: `  patchbay why files.delete
  patchbay why mcp__github__create_issue --json`,
		Args: exactly("tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				e, err := c.Why(cmd.Context(), args[0])
				if err != nil {
					return unknownTool(cmd.Context(), c, args[0], err)
				}
				snap, err := c.Snapshot(cmd.Context(), false)
				if err != nil {
					return err
				}
				return a.print(e, func(p *printer) {
					p.explanation(e)
					p.problems(aboutRules(snap.Problems)) // one of them may be meant to decide
				})
			})
		},
		ValidArgsFunction: a.completed(toolNames),
	}
}

// aboutRules are the problems of permission rules and hooks.
func aboutRules(all []config.Problem) []config.Problem {
	return slices.DeleteFunc(slices.Clone(all), func(p config.Problem) bool {
		return !strings.HasPrefix(p.Pointer, "/permissions/") && p.Pointer != "/hooks"
	})
}

// unknownTool says more of a tool that is not known: that there is no such server,
// that nobody ever asked the server, or where its tools are listed.
func unknownTool(ctx context.Context, c *control.Client, tool string, err error) error {
	e := asError(err)
	if e.Kind != patchbay.KindToolNotFound || e.Hint != "" {
		return err
	}
	snap, failure := c.Snapshot(ctx, false)
	if failure != nil {
		return failure
	}
	name := serverOf(tool, snap.Servers)
	if name == "" {
		return noSuchServer(ctx, c, tool, e, snap.Servers)
	}
	e.Hint = fmt.Sprintf("Its server's tools: patchbay tools %s", shellName(name))
	for _, s := range snap.Servers {
		if s.InForce && s.Name == name && s.Counts == nil {
			e.Hint = fmt.Sprintf("The tools of %q are not known yet: patchbay tools %s", name, shellName(name))
		}
	}
	return err
}

// noSuchServer is unknownTool for a name that begins with no server's.
func noSuchServer(ctx context.Context, c *control.Client, tool string, e *patchbay.Error, servers []patchbay.ServerStatus) error {
	server, _, qualified := strings.Cut(tool, ".")
	if rest, ok := strings.CutPrefix(tool, "mcp__"); ok {
		server, _, qualified = strings.Cut(rest, "__")
	}
	if qualified && server != "" {
		if _, err := c.Server(ctx, server, false); err != nil {
			return err
		}
	}
	e.Hint = "A tool is called server.tool; `patchbay tools` lists them."
	if slices.ContainsFunc(servers, func(s patchbay.ServerStatus) bool { return s.InForce && s.Name == tool }) {
		e.Hint = fmt.Sprintf("%q is a server; its tools: patchbay tools %s", tool, shellName(tool))
	}
	return e
}

func (p *printer) explanation(e control.Explanation) {
	colors := map[patchbay.Effect]style{patchbay.Allow: green, patchbay.Ask: yellow, patchbay.Deny: red}
	p.line("%s: "+p.paint("%s", colors[e.Decision.Effect]), e.Tool.Name, string(e.Decision.Effect))
	r := e.Decision.Rule
	if r == nil {
		p.line("Reason: %s", e.Decision.Reason)
		return
	}
	p.line("Rule: %s %s", string(r.Effect), r.Pattern)
	p.line("File: %s", p.path(r.Source))
}
