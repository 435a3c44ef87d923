package cli

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) promptCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:     "prompt <server> <name> [argument=text]...",
		Short:   "Show a prompt with its arguments filled in",
		Long:    `Connect to a server and print one of its prompts, filled in with arguments.`,
		Example: `  patchbay prompt docs review file=main.go`,
		Args: func(cmd *cobra.Command, args []string) error {
			return exactly("server", "name")(cmd, args[:min(len(args), 2)])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			arguments, err := parsePromptArgs(args[2:])
			if err != nil {
				return usagef(cmd.CommandPath(), "%v", err)
			}
			return a.withServers(cmd.Context(), func(c *control.Client) error {
				ctx, stop := within(cmd.Context(), limit)
				defer stop()
				result, err := c.Prompt(ctx, args[0], args[1], arguments)
				if err != nil {
					return err
				}
				return a.print(result, func(p *printer) {
					for i, m := range promptMessages(result) {
						if i > 0 {
							p.line("")
						}
						p.line("%s:", m.role)
						p.text(a.foreign(m.text))
					}
				})
			})
		},
		ValidArgsFunction: a.completed(promptArguments),
	}
	timeoutFlag(cmd, &limit)
	return cmd
}

// message is one message of a prompt as people read it.
type message struct{ role, text string }

// promptMessages reads the result of prompts/get.
func promptMessages(result json.RawMessage) []message {
	var prompt struct {
		Messages []struct {
			Role    string  `json:"role"`
			Content content `json:"content"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(result, &prompt) // what cannot be understood is not shown
	var messages []message
	for _, m := range prompt.Messages {
		messages = append(messages, message{m.Role, m.Content.text()})
	}
	return messages
}
