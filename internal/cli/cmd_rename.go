package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) renameCommand() *cobra.Command {
	var scope, from string
	cmd := &cobra.Command{
		Use:   "rename <server> <new name>",
		Short: "Give a server another name",
		Long: `Change the name of a server in the file that declares it; comments and everything
else in it stay. The file of another product is edited only when --from names
that product, which then calls the server so, too.

Your approval, accepted tools, and whether the server is disabled or shared follow
it, and its process goes on. Rules and profiles of your settings.json that name
it do not: they are listed.`,
		Example: `  patchbay rename gh github
  patchbay rename gh github -s user
  patchbay rename gh github --from cursor`,
		Args: exactly("server", "new name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				change, err := c.Rename(cmd.Context(), patchbay.RenameRequest{
					RemoveRequest: patchbay.RemoveRequest{Name: args[0], Scope: config.Scope(scope), From: from}, NewName: args[1],
				})
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
	cmd.Flags().StringVarP(&scope, "scope", "s", "", "`scope` of the one that is meant: local, user or project")
	cmd.Flags().StringVar(&from, "from", "", "edit the file of this `product` (see patchbay list --sources)")
	complete(cmd, "scope", "local", "user", "project")
	complete(cmd, "from", products()...)
	return cmd
}
