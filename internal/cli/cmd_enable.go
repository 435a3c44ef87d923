package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) enableCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "enable <name>...",
		Short: "Switch servers or single tools on",
		Long: `Switch servers on, or single tools that were switched off. For a server of another product the switch is kept in
Patchbay's own file: the product's file does not change.`,
		Example: `  patchbay enable github
  patchbay enable github.delete_repository`,
		Args:              atLeastOne("name"),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.setEnabled(cmd, args, true) },
		ValidArgsFunction: a.serversIn(config.Disabled),
	}
}

func (a *app) setEnabled(cmd *cobra.Command, names []string, on bool) error {
	return a.withClient(cmd.Context(), func(c *control.Client) error {
		return a.changeEach(names, func(name string) (patchbay.Change, error) {
			return c.SetEnabled(cmd.Context(), name, on)
		})
	})
}
