package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// installFlags are what `install` and `uninstall` can be told.
type installFlags struct {
	scope  string
	http   bool
	url    string
	dryRun bool

	service bool
}

func (f *installFlags) define(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.scope, "scope", "s", "user", "`scope` of the file: user or project")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, change nothing")
	cmd.Flags().BoolVar(&f.service, "service", false, "the daemon as a service of systemd or launchd, in place of a product")
	scopes(cmd, "user", "project")
}

func (a *app) installCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "install [product]",
		Short: "Connect a product to Patchbay, in its own configuration",
		Long: `Write an entry for Patchbay into the configuration of an agent or editor, so that
it gets every server through Patchbay: the command "patchbay serve --stdio", or
with --http the address of a gateway that runs and its token. A file that holds
the token can be read by you alone from then on.

Only the entry is written. Comments, order and everything else in the file stay,
and the file as it was is kept in your state directory. In TOML and YAML files the
entry is a block between "# >>> patchbay" and "# <<< patchbay". Doing it again
changes nothing.

The product names tools after the entry, the server and the tool, as Claude Code
does: mcp__patchbay__github__create_issue. Its own rules about tools have to say so.

Servers that the product has itself it then has twice, and "install" says which;
"patchbay adopt" has it use those through Patchbay, under their own names.
To leave them to Patchbay, import them and remove them from the product's file; to
leave them to the product, disable them, which hides them from all agents that
Patchbay serves.

Without a product, those are listed for which this works.

With --service nothing is written into a product: the daemon becomes a service of
yours, of systemd or launchd, that runs from your login on. It is not needed: the
daemon is started by the first agent, too.`,
		Example: `  patchbay install                        which products there are
  patchbay install claude-code
  patchbay install cursor --scope project
  patchbay install codex --dry-run
  patchbay install vscode --http          a gateway that runs, with its token
  patchbay install --service              the daemon runs from your login on`,
		Args: atMostOne(),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.service && len(args) > 0:
				return usagef(cmd.CommandPath(), "--service takes no product")
			case f.service:
				return a.installService(cmd.Context(), f.dryRun)
			case len(args) == 0:
				return a.listInstallable()
			}
			r := patchbay.InstallRequest{Product: args[0], Scope: config.Scope(f.scope), HTTP: f.http || f.url != "", URL: f.url, DryRun: f.dryRun}
			if !r.HTTP {
				if err := a.installCommandLine(&r); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				i, err := c.Install(cmd.Context(), r)
				if err != nil {
					return err
				}
				return a.print(i, func(p *printer) {
					p.installation(i)
					p.twice(i)
					if r.HTTP && !i.DryRun && i.Action != "unchanged" {
						p.line("The file has your token: after `patchbay token --rotate`, install again.")
					}
				})
			})
		},
		ValidArgsFunction: completeInstallable,
	}
	f.define(cmd)
	cmd.Flags().BoolVar(&f.http, "http", false, "write the address of a gateway that runs, and its token")
	cmd.Flags().StringVar(&f.url, "url", "", "that `address`; implies --http (default: gateway of the settings, else http://"+config.DefaultListen+"/mcp)")
	return cmd
}

// installCommandLine is how the product will start Patchbay. In a file that
// others share it is by name; in the user's own it is by path, because programs
// that are not started from a shell often have another PATH.
func (a *app) installCommandLine(r *patchbay.InstallRequest) error {
	self := a.itself()
	if self.temporary {
		return &patchbay.Error{Message: "The entry would name a program that is about to be gone.", Hint: installFirst}
	}
	program := self.path
	if program == "" || r.Scope == config.ScopeProject {
		program = programName
	}
	r.Command = []string{program, "serve", "--stdio"}
	return nil
}

func (a *app) listInstallable() error {
	products := patchbay.InstallableProducts()
	return a.print(products, func(p *printer) {
		var rows [][]cell
		for _, x := range products {
			var scopes []string
			for _, s := range x.Scopes {
				scopes = append(scopes, string(s))
			}
			rows = append(rows, []cell{{text: x.ID}, {text: strings.Join(scopes, ", ")}, {text: x.Product}})
		}
		p.table([]string{"ID", "SCOPES", "PRODUCT"}, rows)
		p.line("\nAny other: the command `patchbay serve --stdio`, or http://%s/mcp with the header", config.DefaultListen)
		p.line("Authorization: Bearer $(patchbay token).")
	})
}

func completeInstallable(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, p := range patchbay.InstallableProducts() {
		if len(args) == 0 {
			words = append(words, p.ID+"\t"+p.Product)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// twice says which servers the product has twice now, and what to do about it.
func (p *printer) twice(i patchbay.Installation) {
	if len(i.Twice) == 0 {
		return
	}
	names := make([]string, len(i.Twice))
	for n, name := range i.Twice {
		names[n] = shellName(name)
	}
	remove := "`patchbay remove <name> --from " + i.ID + "`"
	if ext := filepath.Ext(i.File); ext != ".json" && ext != ".jsonc" {
		remove = "take them out of " + p.path(i.File)
	}
	p.line("\n%s has servers itself that Patchbay offers too, so its agent sees their tools twice: %s", i.Product, strings.Join(i.Twice, ", "))
	p.line("To leave them to Patchbay: `patchbay import %s %s`, then %s.", i.ID, strings.Join(names, " "), remove)
}

// installation says what was done to a product's file.
func (p *printer) installation(i patchbay.Installation) {
	word := map[string]string{"installed": "Installed in", "updated": "Updated in", "removed": "Removed from"}[i.Action]
	switch {
	case i.Action == "unchanged":
		p.line("Nothing to change in %s (%s scope): %s", i.Product, string(i.Scope), p.path(i.File))
		return
	case i.DryRun:
		p.line("Would be %s %s (%s scope):", strings.ToLower(word), i.Product, string(i.Scope))
		p.text(escapeLines(i.Diff))
		if i.Closed {
			p.line("Others can read the file; then only you could, because of the token.")
		}
		return
	}
	p.line("%s %s (%s scope)", word, i.Product, string(i.Scope))
	verb := "File modified:"
	if i.Deleted { // it held nothing else
		verb = "File removed: "
	}
	p.line("%s %s", verb, p.path(i.File))
	if i.Closed {
		p.line("Others could read it; now only you can, because of the token.")
	}
	if i.Backup != "" {
		p.line("As it was:     %s", p.path(i.Backup))
	}
}
