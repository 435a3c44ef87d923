package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) uninstallCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "uninstall <product> | --service",
		Short: "Remove Patchbay from a product's configuration",
		Long: `Remove the entry that "patchbay install" wrote into the configuration of an agent
or editor. Everything else in the file stays, and the file as it was is kept in
your state directory.`,
		Example: `  patchbay uninstall claude-code
  patchbay uninstall cursor --scope project
  patchbay uninstall codex --dry-run
  patchbay uninstall --service`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.service && len(args) > 0 {
				return usagef(cmd.CommandPath(), "--service takes no product")
			}
			if f.service {
				return nil
			}
			return exactly("product")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.service {
				return a.uninstallService(cmd.Context(), f.dryRun)
			}
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				i, err := c.Uninstall(cmd.Context(), patchbay.InstallRequest{Product: args[0], Scope: config.Scope(f.scope), DryRun: f.dryRun})
				if err != nil {
					return err
				}
				return a.print(i, func(p *printer) { p.installation(i) })
			})
		},
		ValidArgsFunction: completeInstallable,
	}
	f.define(cmd)
	return cmd
}
