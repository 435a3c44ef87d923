package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) approveCommand() *cobra.Command {
	var yes, tools, hooks bool
	var ignore []string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "approve <name>... | --hooks",
		Short: "Allow servers or hooks of this project, or changed tools, to be used",
		Long: `Show exactly what a server from this project's files would run or contact, and
allow it. The approval holds for what was shown: if the entry changes, you are
asked again. Approvals are kept in your own state directory; nothing in a
project can give or widen one.

With --hooks, do the same for the hooks in this project's settings: the commands
that run around calls of tools.

With --tools, connect to a server and show how the definitions of its tools and
its instructions differ from those that were accepted, and accept them as they
are now. Until then what is new or changed of a project's server is held back:
agents do not see it, and it cannot be called. Some servers define a tool
otherwise at every start, with the time as a default, for example: --ignore names
a member of such a tool that does not count from then on, as a JSON pointer.`,
		Example: `  patchbay approve files
  patchbay approve files --yes     for scripts: prints what it approves
  patchbay approve --tools files   accept new and changed tools
  patchbay approve --tools log --ignore query:/inputSchema/properties/until/default
  patchbay approve --hooks         let the project's hooks run`,
		Args: namesUnless(&hooks, "hooks"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(ignore) > 0 && (!tools || len(args) != 1) {
				return usagef(cmd.CommandPath(), "--ignore goes with --tools and one server")
			}
			if tools {
				return a.withServers(cmd.Context(), func(c *control.Client) error {
					return a.changeEach(args, func(name string) (patchbay.Change, error) {
						return a.approveTools(cmd.Context(), c, name, ignore, yes, limit)
					})
				})
			}
			if hooks {
				args = []string{patchbay.ProjectHooks}
			}
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				return a.changeEach(args, func(name string) (patchbay.Change, error) {
					return a.approve(cmd.Context(), c, name, yes)
				})
			})
		},
		ValidArgsFunction: a.serversIn(config.NeedsApproval),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&tools, "tools", false, "accept the tools of the servers as they are now")
	cmd.Flags().StringArrayVar(&ignore, "ignore", nil, "with --tools: a member that does not count, `tool:/pointer` (repeatable)")
	cmd.Flags().BoolVar(&hooks, "hooks", false, "the hooks of this project's settings")
	cmd.MarkFlagsMutuallyExclusive("tools", "hooks")
	timeoutFlag(cmd, &limit)
	return cmd
}

// approve shows what one server would do and, if that is wanted, approves it.
func (a *app) approve(ctx context.Context, c *control.Client, name string, yes bool) (patchbay.Change, error) {
	req, err := c.Approval(ctx, name)
	if err != nil {
		return patchbay.Change{}, err
	}
	if req.Approved {
		return patchbay.Change{Action: "unchanged", Name: req.Name, Scope: req.Origin.Scope, Note: "already approved"}, nil
	}
	// Nobody is asked about what was not shown, however quiet the run is to be.
	if !yes || !a.quiet {
		// The text is safe to print as it is: the host escaped it.
		fmt.Fprintln(a.env.Stderr, req.Text)
	}
	if !yes {
		if !a.env.Interactive {
			return patchbay.Change{}, &patchbay.Error{
				Kind: patchbay.KindDenied, Message: fmt.Sprintf("%s, and there is no terminal to ask on.", needsApproval(req.Name)),
				Hint: "After reading what is shown above, run `patchbay approve " + approveArgument(req.Name) + " --yes`.",
			}
		}
		question := fmt.Sprintf("Approve %q?", config.Escape(req.Name))
		if req.Name == patchbay.ProjectHooks {
			question = "Let these commands run?"
		}
		ok, err := a.confirm(ctx, question)
		if err != nil {
			return patchbay.Change{}, err
		}
		if !ok {
			return patchbay.Change{}, &patchbay.Error{Kind: patchbay.KindDenied, Message: "Not approved."}
		}
	}
	return c.Approve(ctx, name, req.Hash)
}

func needsApproval(name string) string {
	if name == patchbay.ProjectHooks {
		return "The project's hooks need approval"
	}
	return fmt.Sprintf("Server %q needs approval", name)
}

// approveArgument is how the commands are told what to approve or reject.
func approveArgument(name string) string {
	if name == patchbay.ProjectHooks {
		return "--hooks"
	}
	return name
}

// approveTools shows how the tools of one server changed and, if that is wanted,
// accepts them, but for what is to be ignored.
func (a *app) approveTools(ctx context.Context, c *control.Client, name string, ignore []string, yes bool, limit time.Duration) (patchbay.Change, error) {
	bound, stop := within(ctx, limit)
	defer stop()
	changes, err := c.ToolChanges(bound, name)
	if err != nil {
		return patchbay.Change{}, err
	}
	s, err := c.Server(ctx, name, false)
	if err != nil {
		return patchbay.Change{}, err
	}
	if len(changes) == 0 {
		return patchbay.Change{Action: "unchanged", Name: s.Name, Scope: s.Origin.Scope, Note: "its tools are as they were accepted"}, nil
	}
	if err := ignoreMembers(changes, ignore); err != nil {
		return patchbay.Change{}, err
	}
	if !yes || !a.quiet { // as in approve
		for _, ch := range changes {
			what := config.Escape(ch.Tool) + " changed"
			switch {
			case ch.Instructions:
				what = "The instructions changed"
			case ch.New:
				what = config.Escape(ch.Tool) + " is new"
			}
			// The host made the diff safe to print.
			fmt.Fprintf(a.env.Stderr, "%s:\n%s\n", what, ch.Diff)
			if len(ch.Members) > 0 && len(ch.Ignore) == 0 {
				fmt.Fprintf(a.env.Stderr, "If it changes so at every start: --ignore '%s'\n\n", config.Escape(ch.Tool+":"+ch.Members[0]))
			}
		}
	}
	if !yes {
		if !a.env.Interactive {
			return patchbay.Change{}, &patchbay.Error{
				Kind: patchbay.KindDenied, Message: fmt.Sprintf("%q offers what was not accepted, and there is no terminal to ask on.", s.Name),
				Hint: "After reading what is shown above, run `patchbay approve --tools " + s.Name + " --yes`.",
			}
		}
		ok, err := a.confirm(ctx, fmt.Sprintf("Accept the tools of %q as they are now?", config.Escape(s.Name)))
		if err != nil {
			return patchbay.Change{}, err
		}
		if !ok {
			return patchbay.Change{}, &patchbay.Error{Kind: patchbay.KindDenied, Message: "Not accepted."}
		}
	}
	// The person may have taken a while to read.
	bound, stop = within(ctx, limit)
	defer stop()
	return c.AcceptTools(bound, s.Name, changes)
}

// ignoreMembers adds to changes what is not to count of them, written as
// tool:/pointer.
func ignoreMembers(changes []patchbay.ToolChange, ignore []string) error {
	for _, text := range ignore {
		at := strings.LastIndex(text, ":/")
		if at < 0 {
			return &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: fmt.Sprintf("--ignore %q: expected tool:/pointer", text)}
		}
		i := slices.IndexFunc(changes, func(ch patchbay.ToolChange) bool { return ch.Tool == text[:at] && !ch.Instructions })
		if i < 0 {
			return &patchbay.Error{Kind: patchbay.KindNotFound, Message: fmt.Sprintf("--ignore %q: no tool of that name has changed", text)}
		}
		changes[i].Ignore = append(changes[i].Ignore, text[at+1:])
	}
	return nil
}
