package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) removeCommand() *cobra.Command {
	var scope, from string
	cmd := &cobra.Command{
		Use:     "remove <name>",
		Aliases: []string{"rm"},
		Short:   "Remove a server",
		Long: `Remove a server from Patchbay's own files. The file of another product is edited
only when --from names that product; comments and everything else in it stay.`,
		Example: `  patchbay remove files
  patchbay remove files -s user
  patchbay remove github --from cursor`,
		Args: exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				change, err := c.Remove(cmd.Context(), patchbay.RemoveRequest{Name: args[0], Scope: config.Scope(scope), From: from})
				if err != nil {
					return err
				}
				return a.print(change, func(p *printer) { p.change(change) })
			})
		},
		ValidArgsFunction: onlyFirst(a.servers(func(_ []string, s patchbay.ServerStatus) bool {
			return s.Origin.Provider == cmp.Or(from, "patchbay")
		})),
	}
	cmd.Flags().StringVarP(&scope, "scope", "s", "", "`scope` to remove it from: local, user or project")
	cmd.Flags().StringVar(&from, "from", "", "edit the file of this `product` (see patchbay list --sources)")
	scopes(cmd, "local", "user", "project")
	complete(cmd, "from", products()...)
	return cmd
}
