package cli

import (
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
					return a.unknownTool(cmd, c, args[0], err)
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

// unknownTool adds to an error that a tool's server may have it all the same,
// if nobody ever asked that server.
func (a *app) unknownTool(cmd *cobra.Command, c *control.Client, tool string, err error) error {
	e := asError(err)
	if e.Kind != patchbay.KindToolNotFound {
		return err
	}
	snap, failure := c.Snapshot(cmd.Context(), false)
	if failure != nil {
		return failure
	}
	name := serverOf(tool, snap.Servers)
	for _, s := range snap.Servers {
		if s.InForce && s.Name == name && s.Counts == nil {
			e.Hint = fmt.Sprintf("The tools of %q are not known yet: patchbay tools %s", name, name)
		}
	}
	return err
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
