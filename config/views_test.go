package config_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestViews(t *testing.T) {
	for _, tt := range []struct {
		state                  config.State
		claude, electric, xcsh string
	}{
		{config.Disabled, "disabled", "disabled", "disconnected"},
		{config.NeedsApproval, "pending", "disabled", "disconnected"},
		{config.Pending, "pending", "connecting", "connecting"},
		{config.Connecting, "connecting", "connecting", "connecting"},
		{config.Connected, "connected", "ready", "connected"},
		{config.NeedsAuth, "needs-auth", "authenticating", "disconnected"},
		{config.Failed, "failed", "error", "disconnected"},
	} {
		if c, e, x := tt.state.Claude(), tt.state.Electric(), tt.state.Xcsh(); c != tt.claude || e != tt.electric || x != tt.xcsh {
			t.Errorf("%s: %s, %s, %s", tt.state, c, e, x)
		}
	}
}
