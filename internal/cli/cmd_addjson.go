package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) addJSONCommand() *cobra.Command {
	var scope string
	var replace bool
	cmd := &cobra.Command{
		Use:   "add-json [flags] <name> <json>",
		Short: "Add a server given as JSON",
		Long: `Add an MCP server given in the form of mcp.json. The type must be said: without
one a server is stdio. - reads the JSON from standard input.`,
		Example: `  patchbay add-json files '{"command":"npx","args":["-y","@acme/files"]}'
  patchbay add-json docs '{"type":"http","url":"https://docs.example.com/mcp"}' -s user
  patchbay get docs --json --show-secrets | jq .config | patchbay add-json docs2 -`,
		Args: exactly("name", "json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw := []byte(args[1])
			if args[1] == "-" {
				var err error
				if raw, err = io.ReadAll(io.LimitReader(a.in, config.MaxFileSize)); err != nil {
					return err
				}
			}
			node, err := config.ParseJSON(raw)
			if err != nil {
				return &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: "Invalid server config: " + err.Error()}
			}
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				return a.add(cmd.Context(), c, patchbay.AddRequest{Name: args[0], Scope: config.Scope(scope), Server: node.JSON(), Replace: replace}, nil)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVarP(&scope, "scope", "s", "local", "`scope`: local, user or project")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace a server of the same name in that file")
	complete(cmd, "scope", "local", "user", "project")
	return cmd
}
