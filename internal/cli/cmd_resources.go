package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) resourcesCommand() *cobra.Command {
	var connect bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "resources [server]",
		Short: "Show the resources of servers",
		Long: `Show the resources of all servers, as of each server's last connection. With the
name of a server, or with --connect, servers are connected first.`,
		Example: `  patchbay resources
  patchbay resources docs --json`,
		Args: atMostOne(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(connect || len(args) > 0)(cmd.Context(), func(c *control.Client) error {
				servers, failed, err := gather(cmd.Context(), c, args, connect, limit)
				if err != nil {
					return err
				}
				list := resourceList{Failed: failed}
				if list.Resources, err = c.Resources(cmd.Context(), first(args)); err != nil {
					return err
				}
				return a.print(list, func(p *printer) {
					p.resourceTable(list.Resources)
					p.unknown(servers, failed, "patchbay resources --connect")
				})
			})
		},
		ValidArgsFunction: a.usableServer(),
	}
	connectFlags(cmd, &connect, &limit)
	return cmd
}

// resourceList is what the command prints as JSON.
type resourceList struct {
	Resources []patchbay.Resource `json:"resources"`
	Failed    failures            `json:"failed,omitempty"` // servers that could not be connected
}

func (p *printer) resourceTable(resources []patchbay.Resource) {
	if len(resources) == 0 {
		p.line("No resources.")
		return
	}
	rows := make([][]cell, 0, len(resources))
	for _, r := range resources {
		rows = append(rows, []cell{{text: r.URI}, {text: r.Server}, {text: orDash(r.MIMEType)}, {text: firstLine(r.Name), style: dim}})
	}
	p.table([]string{"URI", "SERVER", "TYPE", "NAME"}, rows)
}

// first is the optional argument of a command.
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
