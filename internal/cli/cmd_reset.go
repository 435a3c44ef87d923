package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) resetCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "reset-project-choices",
		Short:             "Forget what was approved and rejected in this project",
		Example:           `  patchbay reset-project-choices`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				f, err := c.ResetProjectChoices(cmd.Context())
				if err != nil {
					return err
				}
				return a.print(f, func(p *printer) {
					p.line("Forgot %s of this project.", count(f.Forgotten, "choice", "choices"))
					if f.File != "" {
						p.line("File modified: %s", p.path(f.File))
					}
				})
			})
		},
	}
}
