package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

func (a *app) disableCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "disable <name>...",
		Short: "Switch servers or single tools off",
		Long: `Switch servers off, or single tools, which are written server.tool. A disabled server keeps its name: another declaration of the
same name does not take its place. For a server of another product the switch is
kept in Patchbay's own file: the product's file does not change. A tool is switched
off for every agent, by a rule under "permissions" of your settings that denies it.`,
		Example: `  patchbay disable github
  patchbay disable github.delete_repository`,
		Args:              atLeastOne("name"),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.setEnabled(cmd, args, false) },
		ValidArgsFunction: a.servers(func(_ []string, s patchbay.ServerStatus) bool { return s.InForce && s.State != config.Disabled }),
	}
}
