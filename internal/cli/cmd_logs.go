package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) logsCommand() *cobra.Command {
	var limit time.Duration
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs <name>",
		Short: "Show what a server writes to its standard error",
		Long: `Connect to a server and print what its process wrote to its standard error, at
most the last 1 MiB. That the server cannot be connected is an error, but its
words are printed first. With --follow, go on with what it writes from then on,
until Ctrl-C.`,
		Example: `  patchbay logs files
  patchbay logs -f files`,
		Args: exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow && a.json {
				return usagef(cmd.CommandPath(), "--follow has no end, and --json prints one document; use one of them")
			}
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
					} else if failure == nil && !follow {
						p.line("The server wrote nothing.")
					}
				})
				switch {
				case err != nil:
					return err
				case failure != nil && a.json:
					return reported(failure)
				case failure == nil && follow:
					return a.followLogs(cmd.Context(), c, args[0], text)
				}
				return failure
			})
		},
		ValidArgsFunction: a.usableServer(),
	}
	timeoutFlag(cmd, &limit)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what the server writes from now on")
	return cmd
}

// lookAtLogs is how often a server's words are looked at.
const lookAtLogs = 300 * time.Millisecond

// followLogs prints what a server writes after what is known, until a person has
// enough of it.
func (a *app) followLogs(ctx context.Context, c *control.Client, name, known string) error {
	for tick := time.Tick(lookAtLogs); ; {
		select {
		case <-tick:
		case <-ctx.Done():
			return nil
		}
		text, err := c.Logs(ctx, name)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := io.WriteString(a.env.Stdout, a.foreign(written(known, text))); err != nil {
			return err
		}
		known = text
	}
}

// written is what text has that comes after what was known. Only the last of what
// a server writes is kept, so that the beginning of what was known may be gone;
// and of a server that was started anew all is new.
func written(known, text string) string {
	if rest, ok := strings.CutPrefix(text, known); ok {
		return rest
	}
	const sure = 4 << 10 // that much does not come again by chance
	end := known[max(0, len(known)-sure):]
	if _, rest, ok := strings.Cut(text, end); ok && len(end) == sure {
		return rest
	}
	return text
}

// serverLogs is what the command prints as JSON.
type serverLogs struct {
	Name   string          `json:"name"`
	Stderr string          `json:"stderr"`
	Error  *patchbay.Error `json:"error,omitempty"` // why the server could not be connected
}
