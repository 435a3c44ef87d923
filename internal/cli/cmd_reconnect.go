package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) reconnectCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "reconnect <name>",
		Short: "Drop a server's connection and make a new one",
		Long: `Drop a server's connection, if there is one, and make a new one. What the server
offers is read anew.`,
		Example: `  patchbay reconnect github`,
		Args:    exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServers(cmd.Context(), func(c *control.Client) error {
				ctx, stop := within(cmd.Context(), limit)
				defer stop()
				if err := c.Reconnect(ctx, args[0]); err != nil {
					return err
				}
				s, err := c.Server(cmd.Context(), args[0], false)
				if err != nil {
					return err
				}
				return a.print(s, func(p *printer) { p.line("Reconnected %q: %s", s.Name, offers(s)) })
			})
		},
		ValidArgsFunction: a.usableServer(),
	}
	timeoutFlag(cmd, &limit)
	return cmd
}
