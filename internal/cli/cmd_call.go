package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) callCommand() *cobra.Command {
	var object string
	var raw bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "call <tool> [name=text | name:=json | -]...",
		Short: "Call a tool",
		Long: `Connect to a tool's server, call the tool and print what it answers. The tool is
written server.tool, or by the name that agents see.

Arguments are name=text for strings and name:=json for anything else; --args
takes all of them as one JSON object, and - reads such an object from standard
input. All can be combined: words win over --args, and --args over the input.

A name that means no tool is never taken for another: you get suggestions. The
exit code is 7 if the tool itself says that it failed.`,
		Example: `  patchbay call files.read path=README.md
  patchbay call calc.add a:=2 b:=3
  patchbay call mcp__github__create_issue --args '{"title": "It works"}'
  jq -n '{text: "hi"}' | patchbay call chat.send - channel=general --raw`,
		Args: atLeastOne("tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := parseToolArgs(args[1:], object, a.in)
			if err != nil {
				return usagef(cmd.CommandPath(), "%v", err)
			}
			return a.withServers(cmd.Context(), func(c *control.Client) error {
				ctx, stop := within(cmd.Context(), limit)
				defer stop()
				return a.call(ctx, c, args[0], given, raw)
			})
		},
		ValidArgsFunction: a.completed(toolArguments),
	}
	cmd.Flags().StringVar(&object, "args", "", "arguments as one `JSON` object")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the result as the server sent it")
	timeoutFlag(cmd, &limit)
	return cmd
}

func (a *app) call(ctx context.Context, c *control.Client, tool string, given toolArgs, raw bool) error {
	arguments, err := given.object()
	if err != nil {
		return err
	}
	if err := lookUp(ctx, c, tool); err != nil && kindOf(err) != patchbay.KindToolNotFound {
		return err
	}
	r, err := c.Call(ctx, patchbay.Call{Tool: tool, Arguments: arguments, Progress: a.showProgress()}, a.callOptions())
	if err != nil && kindOf(err) == patchbay.KindToolNotFound { // now that its server is connected it may be known
		if denied := lookUp(ctx, c, tool); denied != nil && kindOf(denied) == patchbay.KindDenied {
			return denied
		}
		return unknownTool(ctx, c, tool, err)
	}
	if err != nil {
		if e := asError(err); e.Kind == patchbay.KindServer {
			if known, unknown := c.Why(ctx, tool); unknown == nil {
				e.Hint = strings.TrimSpace(e.Hint + " " + given.suspect(known.Tool))
			}
		}
		return err
	}
	switch {
	case raw:
		_, err = fmt.Fprintf(a.env.Stdout, "%s\n", r.Raw)
	case a.json:
		err = a.print(r, nil)
	case r.IsError():
		fmt.Fprintln(a.env.Stderr, "Error: "+escapeLines(resultText(r.Raw)))
		if hint := given.suspect(r.Tool); hint != "" {
			fmt.Fprintln(a.env.Stderr, config.Escape(hint))
		}
	default:
		err = a.print(nil, func(p *printer) { p.text(a.foreign(resultText(r.Raw))) })
	}
	if err == nil && r.IsError() {
		err = reported(&patchbay.Error{Kind: patchbay.KindServer, Message: resultText(r.Raw)})
	}
	return err
}

// suspect names arguments that were given as text where the tool's schema wants
// something else, which may be why the call failed.
func (a toolArgs) suspect(t patchbay.Tool) string {
	properties := schemaProperties(t)
	for _, name := range a.texts {
		if p, ok := properties[name]; ok && !p.isText() {
			return fmt.Sprintf("The schema of %s wants %s as %s: write %s:=%s", t.Name, name, p.Type, name, strings.Trim(string(a.members[name]), `"`))
		}
	}
	return ""
}
