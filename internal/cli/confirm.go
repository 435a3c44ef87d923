package cli

import (
	"context"
	"fmt"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// ui is how the host reaches the person at the terminal, if there is one.
func (a *app) ui() *patchbay.UI {
	if !a.env.Interactive {
		return nil
	}
	return &patchbay.UI{Confirm: a.confirmCall}
}

// confirmCall asks whether a call that a rule is doubtful about may go ahead.
func (a *app) confirmCall(ctx context.Context, r patchbay.ConfirmRequest) (bool, error) {
	fmt.Fprintf(a.env.Stderr, "%s\n  %s\n", config.Escape(r.Tool.Name), config.Escape(string(r.Arguments)))
	fmt.Fprintf(a.env.Stderr, "  %s\n", config.Escape(r.Decision.Reason))
	return a.confirm(ctx, "Call it?")
}
