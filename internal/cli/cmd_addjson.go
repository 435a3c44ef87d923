package cli

import (
	"errors"
	"fmt"
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
		Use:   "add-json [flags] [name] <json>",
		Short: "Add a server given as JSON",
		Long: `Add an MCP server given in the form of mcp.json. The type must be said: without
one a server is stdio. - reads the JSON from standard input. The name may stand in
the JSON instead, as "name"; "timeoutMs" is read as "timeout". Members that are
not known are kept, and named.`,
		Example: `  patchbay add-json files '{"command":"npx","args":["-y","@acme/files"]}'
  patchbay add-json docs '{"type":"http","url":"https://docs.example.com/mcp"}' -s user
  patchbay get docs --json --show-secrets | jq .config | patchbay add-json docs2 -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("name", "json")(cmd, args)
			}
			return exactly("name", "json")(cmd, append([]string{""}, args...)[len(args)/2:])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[len(args)-1]
			raw := []byte(text)
			if text == "-" {
				var err error
				if raw, err = io.ReadAll(io.LimitReader(a.in, config.MaxFileSize)); err != nil {
					return err
				}
			}
			node, err := config.ParseJSON(raw)
			if err != nil {
				return &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: "Invalid server config: " + err.Error()}
			}
			name, err := otherNames(&node, args[:len(args)-1])
			if err != nil {
				return usagef(cmd.CommandPath(), "%v", err)
			}
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				return a.add(cmd.Context(), c, patchbay.AddRequest{Name: name, Scope: config.Scope(scope), Server: node.JSON(), Replace: replace}, nil)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVarP(&scope, "scope", "s", "local", "`scope`: local, user or project")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace a server of the same name in that file")
	scopes(cmd, "local", "user", "project")
	return cmd
}

// otherNames takes the name out of an entry, which its key has in a file, and gives
// a member the name by which it is read there. The name that is given, if any is,
// has to be the same.
func otherNames(node *config.Node, given []string) (name string, err error) {
	if len(given) > 0 {
		name = given[0]
	}
	var members []config.Member
	for _, m := range node.Members {
		_, known := node.Get("timeout")
		switch {
		case m.Name == "name" && m.Value.Kind == config.String:
			if name != "" && name != m.Value.Text {
				return "", fmt.Errorf("the JSON has the name %q, not %q", m.Value.Text, name)
			}
			name = m.Value.Text
			continue
		case m.Name == "timeoutMs" && !known:
			m.Name = "timeout"
		}
		members = append(members, m)
	}
	node.Members = members
	if name == "" {
		return "", errors.New("missing argument: name")
	}
	return name, nil
}
