package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) rejectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reject <name>...",
		Short: "Refuse servers of this project",
		Long: `Refuse a server from this project's files: it stays switched off for you and you
are not asked again, unless the entry changes.`,
		Example: `  patchbay reject files`,
		Args:    atLeastOne("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
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
}
