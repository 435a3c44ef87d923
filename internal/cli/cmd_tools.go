package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) toolsCommand() *cobra.Command {
	var schema bool
	cmd := a.offering(&cobra.Command{
		Use:   "tools",
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
	}, "tools/list", func(ctx context.Context, c *control.Client, of offer) (any, func(*printer), error) {
		tools, err := c.Tools(ctx)
		if of.server != "" {
			tools = slices.DeleteFunc(tools, func(t patchbay.Tool) bool { return t.Server != of.server })
		}
		return toolList{tools, of}, func(p *printer) {
			switch {
			case len(tools) == 0:
				p.noTools(of.servers)
			case schema:
				p.toolSchemas(tools)
			default:
				p.toolTable(tools)
			}
		}, err
	})
	cmd.Flags().BoolVar(&schema, "schema", false, "print descriptions and input schemas")
	return cmd
}

// toolList is what the command prints as JSON.
type toolList struct {
	Tools []patchbay.Tool `json:"tools"`
	offer
}

// noTools says that there are none, and whether there would be some.
func (p *printer) noTools(servers []patchbay.ServerStatus) {
	hidden := 0
	for _, s := range servers {
		if s.Counts != nil {
			hidden += s.Counts.Tools
		}
	}
	if hidden == 0 {
		p.line("No tools.")
		return
	}
	p.line("No tools: %s hidden. `patchbay why <tool>` says by what.", count(hidden, "is", "are"))
}

func (p *printer) toolTable(tools []patchbay.Tool) {
	rows := make([][]cell, 0, len(tools))
	for _, t := range tools {
		m := t.ForModel()
		badges := cell{text: strings.Join(badgesOf(t, m), " ")}
		if t.Changed {
			badges.style = yellow
		}
		rows = append(rows, []cell{{text: t.Name}, {text: orDash(t.Server)}, badges, p.about(m.Description)})
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
		for l := range strings.SplitSeq(strings.TrimRight(m.Description, "\n"), "\n") {
			p.line("  %s", strings.ReplaceAll(l, "\t", "    "))
		}
		p.jsonBlock("  ", m.InputSchema)
	}
}
