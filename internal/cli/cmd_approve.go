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
				for _, name := range args {
					if err := a.approve(cmd.Context(), c, name, yes); err != nil {
						return err
					}
				}
				return nil
			})
		},
		ValidArgsFunction: a.serverNames,
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// decision is what approve and reject print as JSON.
type decision struct {
	Name     string `json:"name"`
	Decision string `json:"decision"` // approved, rejected, unchanged
	Hash     string `json:"hash"`
}

func (a *app) approve(ctx context.Context, c *control.Client, name string, yes bool) error {
	req, err := c.Approval(ctx, name)
	if err != nil {
		return err
	}
	if req.Approved {
		return a.print(decision{req.Name, "unchanged", req.Hash}, func(p *printer) {
			p.line("Server %q is already approved.", req.Name)
		})
	}
	if !a.json && !a.quiet {
		// The text is safe to print as it is: the host escaped it.
		fmt.Fprintln(a.env.Stderr, req.Text)
	}
	if !yes {
		if !a.env.Interactive {
			return &patchbay.Error{
				Kind: patchbay.KindDenied, Message: fmt.Sprintf("Server %q needs approval, and there is no terminal to ask on.", req.Name),
				Hint: "Review it with `patchbay get`, then run `patchbay approve " + req.Name + " --yes`.",
			}
		}
		ok, err := a.confirm(fmt.Sprintf("Approve %q?", config.Escape(req.Name)))
		if err != nil {
			return err
		}
		if !ok {
			return &patchbay.Error{Kind: patchbay.KindDenied, Message: "Not approved."}
		}
	}
	if err := c.Approve(ctx, name, req.Hash); err != nil {
		return err
	}
	return a.print(decision{req.Name, "approved", req.Hash}, func(p *printer) { p.line("Approved %q.", req.Name) })
}
