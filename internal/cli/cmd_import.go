package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) importCommand() *cobra.Command {
	var scope string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "import <product> [name...]",
		Short: "Copy a product's servers into Patchbay's own file",
		Long: `Copy the servers of another product into Patchbay's own file, with placeholders
rewritten to mean the same there. The product's file does not change. Importing
is not needed to use a server; it makes a copy that is yours to edit.`,
		Example: `  patchbay import cursor --dry-run
  patchbay import codex files
  patchbay import vscode -s project`,
		Args: atLeastOne("product"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				r := patchbay.ImportRequest{Provider: args[0], Scope: config.Scope(scope), DryRun: dryRun}
				if len(args) > 1 {
					r.Names = args[1:]
				}
				changes, err := c.Import(cmd.Context(), r)
				if err != nil {
					return err
				}
				return a.print(changes, func(p *printer) {
					for _, ch := range changes {
						p.change(ch)
					}
				})
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return products(), cobra.ShellCompDirectiveNoFileComp
			}
			return a.servers(func(args []string, s patchbay.ServerStatus) bool { return s.Origin.Provider == args[0] })(cmd, args, word)
		},
	}
	cmd.Flags().StringVarP(&scope, "scope", "s", "user", "`scope` to copy into: local, user or project")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be copied, change nothing")
	scopes(cmd, "local", "user", "project")
	return cmd
}
