package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Read all configuration again",
		Long: `Read all configuration again. Servers whose entries did not change keep their
connections; those that have failed or want credentials are tried again, with
what the commands of their entries print now.`,
		Example:           `  patchbay reload`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				if err := c.Reload(cmd.Context()); err != nil {
					return err
				}
				snap, err := c.Snapshot(cmd.Context(), false)
				if err != nil {
					return err
				}
				r := reloaded{Files: len(snap.Files), Errors: diagnose(snap).Errors, Problems: wrongFiles(snap)}
				for _, s := range snap.Servers {
					if s.InForce {
						r.Servers++
					}
				}
				return a.print(r, func(p *printer) {
					p.line("Read %s: %s, %s.", count(r.Files, "file", "files"), count(r.Servers, "server", "servers"), count(r.Errors, "error", "errors"))
					p.wrong(r.Problems)
				})
			})
		},
	}
}

// reloaded is what the command prints as JSON.
type reloaded struct {
	Files    int              `json:"files"`
	Servers  int              `json:"servers"` // in force
	Errors   int              `json:"errors"`
	Problems []config.Problem `json:"problems,omitempty"` // of files as a whole
}
