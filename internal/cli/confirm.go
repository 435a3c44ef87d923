package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// ui is how the command's own host reaches the person at the terminal, if there
// is one: by way of the call, as a daemon would.
func (a *app) ui() *patchbay.UI {
	if !a.env.Interactive {
		return nil
	}
	return control.UI(true)
}

// callOptions are what a call asks and tells the person at the terminal, if
// there is one.
func (a *app) callOptions() control.CallOptions {
	o := control.CallOptions{Model: a.json}
	if a.env.Interactive {
		o.Confirm, o.Elicit = a.confirmCall, a.elicit
	}
	return o
}

// showProgress returns what shows the person how far a call is; nil if there is
// nobody to see it.
func (a *app) showProgress() func(json.RawMessage) {
	if !a.env.Interactive || a.quiet || a.json {
		return nil
	}
	return func(params json.RawMessage) {
		var p struct {
			Progress float64 `json:"progress"`
			Total    float64 `json:"total"`
			Message  string  `json:"message"`
		}
		if json.Unmarshal(params, &p) != nil {
			return
		}
		text := strconv.FormatFloat(p.Progress, 'f', -1, 64)
		if p.Total > 0 {
			text = fmt.Sprintf("%.0f%%", 100*p.Progress/p.Total)
		}
		fmt.Fprintf(a.env.Stderr, "%s\n", strings.TrimSpace(text+" "+config.Escape(p.Message)))
	}
}

// confirmCall asks whether a call that a rule is doubtful about may go ahead.
func (a *app) confirmCall(ctx context.Context, r patchbay.ConfirmRequest) (bool, error) {
	a.asking.Lock()
	defer a.asking.Unlock()
	fmt.Fprintf(a.env.Stderr, "%s\n  %s\n", config.Escape(r.Tool.Name), config.Escape(string(r.Arguments)))
	fmt.Fprintf(a.env.Stderr, "  %s\n", config.Escape(r.Decision.Reason))
	return a.confirm(ctx, "Call it?")
}
