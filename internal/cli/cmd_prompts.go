package cli

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) promptsCommand() *cobra.Command {
	return a.offering(&cobra.Command{
		Use:   "prompts",
		Short: "Show the prompts of servers",
		Long: `Show the prompts of all servers, as of each server's last connection. With the
name of a server, or with --connect, servers are connected first. Arguments in
brackets may be left out.`,
		Example: `  patchbay prompts
  patchbay prompts docs --json`,
	}, "prompts/list", func(ctx context.Context, c *control.Client, of offer) (any, func(*printer), error) {
		prompts, err := c.Prompts(ctx, of.server)
		return promptList{prompts, of}, func(p *printer) { p.promptTable(prompts) }, err
	})
}

// promptList is what the command prints as JSON.
type promptList struct {
	Prompts []patchbay.Prompt `json:"prompts"`
	offer
}

// promptDefinition is what people are told of a prompt.
type promptDefinition struct {
	Description string `json:"description"`
	Arguments   []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Required    bool   `json:"required"`
	} `json:"arguments"`
}

// promptAbout reads a prompt's definition as far as it can be understood.
func promptAbout(p patchbay.Prompt) (d promptDefinition) {
	_ = json.Unmarshal(p.Definition, &d)
	return d
}

func (p *printer) promptTable(prompts []patchbay.Prompt) {
	if len(prompts) == 0 {
		p.line("No prompts.")
		return
	}
	rows := make([][]cell, 0, len(prompts))
	for _, prompt := range prompts {
		about := promptAbout(prompt)
		var args []string
		for _, arg := range about.Arguments {
			if arg.Required {
				args = append(args, arg.Name+"=")
			} else {
				args = append(args, "["+arg.Name+"=]")
			}
		}
		rows = append(rows, []cell{{text: prompt.Name}, {text: prompt.Server}, {text: orDash(strings.Join(args, " "))}, p.about(about.Description)})
	}
	p.table([]string{"NAME", "SERVER", "ARGUMENTS", "DESCRIPTION"}, rows)
}
