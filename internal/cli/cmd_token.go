package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) tokenCommand() *cobra.Command {
	var rotate bool
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print the token for clients of the gateway",
		Long: `Print the bearer token that clients present to the gateway over HTTP, and nothing
else. The first call makes it. It is kept in your state directory, readable by
you alone; nobody needs it over stdio.

--rotate replaces it. Gateways that run take the new one within a second.`,
		Example: `  patchbay token
  curl -H "Authorization: Bearer $(patchbay token)" http://127.0.0.1:7332/mcp
  patchbay token --rotate`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				token, err := c.Token(cmd.Context(), rotate)
				if err != nil {
					return err
				}
				if a.json {
					return writeJSON(a.env.Stdout, map[string]string{"token": token.Reveal()})
				}
				// The token is what was asked for, however quiet the run.
				_, err = fmt.Fprintln(a.env.Stdout, token.Reveal())
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&rotate, "rotate", false, "replace the token by a new one")
	return cmd
}
