package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) approveCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "approve <name>...",
		Short: "Allow servers of this project to be used",
		Long: `Show exactly what a server from this project's files would run or contact, and
allow it. The approval holds for what was shown: if the entry changes, you are
asked again. Approvals are kept in your own state directory; nothing in a
project can give or widen one.`,
		Example: `  patchbay approve files
  patchbay approve files --yes     for scripts: prints what it approves`,
		Args: atLeastOne("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				return a.changeEach(args, func(name string) (patchbay.Change, error) {
					return a.approve(cmd.Context(), c, name, yes)
				})
			})
		},
		ValidArgsFunction: a.serversIn(config.NeedsApproval),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
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
				Kind: patchbay.KindDenied, Message: fmt.Sprintf("Server %q needs approval, and there is no terminal to ask on.", req.Name),
				Hint: "After reading what is shown above, run `patchbay approve " + req.Name + " --yes`.",
			}
		}
		ok, err := a.confirm(ctx, fmt.Sprintf("Approve %q?", config.Escape(req.Name)))
		if err != nil {
			return patchbay.Change{}, err
		}
		if !ok {
			return patchbay.Change{}, &patchbay.Error{Kind: patchbay.KindDenied, Message: "Not approved."}
		}
	}
	return c.Approve(ctx, name, req.Hash)
}
