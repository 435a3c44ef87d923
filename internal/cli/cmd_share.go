package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) shareCommand() *cobra.Command {
	var off bool
	cmd := &cobra.Command{
		Use:   "share <name>...",
		Short: "Have one process of a server for all directories",
		Long: `Have one process of a server for all directories. A server of your own is
started in the directory of whoever uses it, as its product would, so that two
projects have two processes. One that does not look at its directory can be
shared: it runs in your home directory then.

Agents with different environments still have their own. The switch is kept in
Patchbay's own file: the product's file does not change.`,
		Example: `  patchbay share github
  patchbay share github --off     each directory has its own again`,
		Args: atLeastOne("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				return a.changeEach(args, func(name string) (patchbay.Change, error) {
					return c.SetShared(cmd.Context(), name, !off)
				})
			})
		},
		ValidArgsFunction: a.servers(func(_ []string, s patchbay.ServerStatus) bool {
			return s.InForce && s.Origin.Project == "" && s.Transport == config.Stdio
		}),
	}
	cmd.Flags().BoolVar(&off, "off", false, "no longer")
	return cmd
}
