package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) rejectCommand() *cobra.Command {
	var hooks bool
	cmd := &cobra.Command{
		Use:   "reject <name>... | --hooks",
		Short: "Refuse servers or hooks of this project",
		Long: `Refuse a server from this project's files, or the hooks of its settings: it stays
switched off for you and you are not asked again, unless the entry changes.`,
		Example: `  patchbay reject files
  patchbay reject --hooks`,
		Args: namesUnless(&hooks, "hooks"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if hooks {
				args = []string{patchbay.ProjectHooks}
			}
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				return a.changeEach(args, func(name string) (patchbay.Change, error) {
					req, err := c.Approval(cmd.Context(), name)
					if err != nil {
						return patchbay.Change{}, err
					}
					return c.Reject(cmd.Context(), name, req.Hash)
				})
			})
		},
		ValidArgsFunction: a.serversIn(config.NeedsApproval),
	}
	cmd.Flags().BoolVar(&hooks, "hooks", false, "the hooks of this project's settings")
	return cmd
}
