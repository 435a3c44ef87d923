package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) toolsCommand() *cobra.Command {
	var schema, connect bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "tools [server]",
		Short: "Show the tools of servers",
		Long: `Show the tools of all servers, under the names that agents see. Nothing is
started or contacted: the tools are those of each server's last connection, which
is what "cached" says. With the name of a server, or with --connect, servers are
connected first.

A tool that is "changed" is not the one that was accepted, and cannot be called
until you accept it. The badges are what servers say of their tools themselves.`,
		Example: `  patchbay tools
  patchbay tools files --schema
  patchbay tools --connect --json | jq -r '.tools[].name'`,
		Args: atMostOne(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(connect || len(args) > 0)(cmd.Context(), func(c *control.Client) error {
				var list toolList
				var err error
				list.servers, list.Failed, err = gather(cmd.Context(), c, args, connect, limit)
				if err != nil {
					return err
				}
				if list.Tools, err = c.Tools(cmd.Context()); err != nil {
					return err
				}
				if len(args) > 0 {
					list.Tools = slices.DeleteFunc(list.Tools, func(t patchbay.Tool) bool { return t.Server != list.servers[0].Name })
				}
				return a.print(list, func(p *printer) {
					if schema {
						p.toolSchemas(list.Tools)
					} else {
						p.toolTable(list.Tools)
					}
					p.unknown(list.servers, list.Failed, "patchbay tools --connect")
				})
			})
		},
		ValidArgsFunction: a.usableServer(),
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print descriptions and input schemas")
	connectFlags(cmd, &connect, &limit)
	return cmd
}

// toolList is what the command prints as JSON.
type toolList struct {
	Tools  []patchbay.Tool `json:"tools"`
	Failed failures        `json:"failed,omitempty"` // servers that could not be connected

	servers []patchbay.ServerStatus // that the list is about
}

// gather connects the servers that a list is about, if any are to be: the one
// that is named, or all. It returns how they stand.
func gather(ctx context.Context, c *control.Client, names []string, connect bool, limit time.Duration) ([]patchbay.ServerStatus, failures, error) {
	bound, stop := within(ctx, limit)
	defer stop()
	if len(names) > 0 {
		if err := c.Connect(bound, names[0]); err != nil {
			return nil, nil, err
		}
		s, err := c.Server(ctx, names[0], false)
		return []patchbay.ServerStatus{s}, nil, err
	}
	var failed failures
	if connect {
		var err error
		if failed, err = connectAll(bound, c); err != nil {
			return nil, nil, err
		}
	}
	snap, err := c.Snapshot(ctx, false)
	return slices.DeleteFunc(snap.Servers, func(s patchbay.ServerStatus) bool { return !usable(s) }), failed, err
}

func (p *printer) toolTable(tools []patchbay.Tool) {
	if len(tools) == 0 {
		p.line("No tools.")
		return
	}
	rows := make([][]cell, 0, len(tools))
	for _, t := range tools {
		m := t.ForModel()
		badges := cell{text: strings.Join(badgesOf(t, m), " ")}
		if t.Changed {
			badges.style = yellow
		}
		rows = append(rows, []cell{{text: t.Name}, {text: orDash(t.Server)}, badges, {text: firstLine(m.Description), style: dim}})
	}
	p.table([]string{"NAME", "SERVER", "ABOUT", "DESCRIPTION"}, rows)
}

// badgesOf says in words what is special about a tool.
func badgesOf(t patchbay.Tool, m patchbay.ModelTool) []string {
	badges := claims(m.Annotations)
	if t.Changed {
		badges = append(badges, "changed")
	}
	if t.Cached {
		badges = append(badges, "cached")
	}
	return badges
}

// claims says in words what a server claims of a tool: in brackets, and only
// what it does claim.
func claims(a patchbay.ToolAnnotations) []string {
	var words []string
	for _, claim := range []struct {
		says *bool
		word string
	}{{a.ReadOnly, "[read-only]"}, {a.Destructive, "[destructive]"}, {a.OpenWorld, "[open-world]"}} {
		if claim.says != nil && *claim.says {
			words = append(words, claim.word)
		}
	}
	return words
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (p *printer) toolSchemas(tools []patchbay.Tool) {
	for i, t := range tools {
		if i > 0 {
			p.line("")
		}
		m := t.ForModel()
		badges := strings.Join(badgesOf(t, m), " ")
		p.line("%s", strings.TrimSpace(t.Name+"  "+badges))
		p.block("  ", m.Description)
		p.jsonBlock("  ", m.InputSchema)
	}
}

// unknown says of which servers a list cannot tell, and of which tools the
// definition was not accepted.
func (p *printer) unknown(servers []patchbay.ServerStatus, failed failures, command string) {
	var never []string
	for _, s := range servers {
		if s.Counts == nil && failed[s.Name] == nil {
			never = append(never, s.Name)
		}
	}
	if len(never)+len(failed) > 0 {
		p.line("")
	}
	if len(never) > 0 {
		p.line("%s never been connected: %s", count(len(never), "server has", "servers have"), command)
	}
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		p.line(p.paint("%s", red)+" %s", fmt.Sprintf("%s:", name), failed[name].Message)
	}
}
