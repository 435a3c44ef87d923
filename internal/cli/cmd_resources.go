package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) resourcesCommand() *cobra.Command {
	return a.offering(&cobra.Command{
		Use:   "resources",
		Short: "Show the resources of servers",
		Long: `Show the resources of all servers, as of each server's last connection. With the
name of a server, or with --connect, servers are connected first.`,
		Example: `  patchbay resources
  patchbay resources docs --json`,
	}, "resources/list", func(ctx context.Context, c *control.Client, of offer) (any, func(*printer), error) {
		resources, err := c.Resources(ctx, of.server)
		return resourceList{resources, of}, func(p *printer) { p.resourceTable(resources) }, err
	})
}

// resourceList is what the command prints as JSON.
type resourceList struct {
	Resources []patchbay.Resource `json:"resources"`
	offer
}

func (p *printer) resourceTable(resources []patchbay.Resource) {
	if len(resources) == 0 {
		p.line("No resources.")
		return
	}
	rows := make([][]cell, 0, len(resources))
	for _, r := range resources {
		rows = append(rows, []cell{{text: r.URI}, {text: r.Server}, {text: orDash(r.MIMEType)}, p.about(r.Name)})
	}
	p.table([]string{"URI", "SERVER", "TYPE", "NAME"}, rows)
}
