package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) adoptCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "adopt <product>",
		Short: "Have a product use its own servers through Patchbay, under their own names",
		Long: `Take the place of each server that an agent or editor has in your own files: its
entry then starts "patchbay serve --stdio --endpoint <product>/<server>", which is
that server as if nothing were in between. The product sees the same servers and
tools under the same names, its rules about them hold, and they share processes
with everything else that Patchbay serves.

Only the members that say how a server is reached are replaced: timeouts, lists
of tools and the like stay. The original entries are kept in your state directory,
and are what "patchbay list" goes on showing. "patchbay release" puts them back,
byte for byte.

Skipped, with the reason, is what is disabled, a project's, an administrator's or
Patchbay itself, what needs a login that only the product has, and what is written
in a way that is not edited. Files of projects never change. Doing it again
changes nothing; after Patchbay was moved it writes the new path.`,
		Example: `  patchbay adopt cursor --dry-run         what would be adopted, and what not
  patchbay adopt claude-code
  patchbay adopt codex --json`,
		Args: exactly("product"),
		RunE: func(cmd *cobra.Command, args []string) error {
			install := patchbay.InstallRequest{Scope: config.ScopeUser}
			if err := a.installCommandLine(&install); err != nil {
				return err
			}
			r := patchbay.AdoptRequest{Product: args[0], Command: install.Command, DryRun: dryRun}
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				done, err := c.Adopt(cmd.Context(), r)
				if err != nil {
					return err
				}
				return a.print(done, func(p *printer) {
					p.adoption(done)
					if len(done.Files) > 0 {
						p.line("%s has them through Patchbay when it is started next; `patchbay release %s` puts them back.", done.Product, done.ID)
					}
				})
			})
		},
		ValidArgsFunction: completeAdoptable,
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be adopted, change nothing")
	return cmd
}

func (a *app) releaseCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "release <product>",
		Short: "Give a product's adopted servers back to it",
		Long: `Put the entries back that "patchbay adopt" replaced in the files of an agent or
editor, byte for byte. An entry that was edited since is left as it is, and named:
put it in order by hand, and release again. Nothing else in the files changes.`,
		Example: `  patchbay release cursor --dry-run
  patchbay release claude-code`,
		Args: exactly("product"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				done, err := c.Release(cmd.Context(), patchbay.AdoptRequest{Product: args[0], DryRun: dryRun})
				if err != nil {
					return err
				}
				return a.print(done, func(p *printer) {
					if len(done.Servers) == 0 {
						p.line("Nothing of %s is adopted.", done.Product)
						return
					}
					p.adoption(done)
				})
			})
		},
		ValidArgsFunction: completeAdoptable,
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be put back, change nothing")
	return cmd
}

func completeAdoptable(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return patchbay.AdoptableProducts(), cobra.ShellCompDirectiveNoFileComp
}

// adoption says what became of a product's servers.
func (p *printer) adoption(done patchbay.Adoption) {
	var rows [][]cell
	for _, s := range done.Servers {
		action := s.Action
		if done.DryRun && slices.Contains([]string{"adopted", "updated", "released"}, action) {
			action = "would be " + action
		}
		about := s.Reason
		if about == "" {
			about = strings.TrimSuffix(s.Target+"  "+p.place(config.Origin{File: s.File, Line: s.Line}), "  ")
			about = strings.TrimPrefix(about, "  ")
		}
		rows = append(rows, []cell{{text: s.Name}, {text: action}, {text: about}})
	}
	p.table([]string{"SERVER", "RESULT", "ABOUT"}, rows)
	if done.DryRun {
		p.line("\nNothing was changed in %s.", done.Product)
	}
	for _, f := range done.Files {
		p.line("\nFile modified: %s\nAs it was:     %s", p.path(f.File), p.path(f.Backup))
	}
}
