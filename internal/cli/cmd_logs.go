package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) logsCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "logs <name>",
		Short: "Show what a server writes to its standard error",
		Long: `Connect to a server and print what its process wrote to its standard error, at
most the last 1 MiB. That the server cannot be connected is an error, but its
words are printed first.`,
		Example: `  patchbay logs files`,
		Args:    exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServers(cmd.Context(), func(c *control.Client) error {
				ctx, stop := within(cmd.Context(), limit)
				defer stop()
				failure := c.Connect(ctx, args[0])
				text, err := c.Logs(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				out := serverLogs{Name: args[0], Stderr: text}
				if failure != nil {
					out.Error = asError(failure)
				}
				err = a.print(out, func(p *printer) {
					if text != "" {
						p.text(a.foreign(text))
					} else if failure == nil {
						p.line("The server wrote nothing.")
					}
				})
				switch {
				case err != nil:
					return err
				case failure != nil && a.json:
					return reported(failure)
				}
				return failure
			})
		},
		ValidArgsFunction: a.usableServer(),
	}
	timeoutFlag(cmd, &limit)
	return cmd
}

// serverLogs is what the command prints as JSON.
type serverLogs struct {
	Name   string          `json:"name"`
	Stderr string          `json:"stderr"`
	Error  *patchbay.Error `json:"error,omitempty"` // why the server could not be connected
}
