package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// slowly is a server that takes its time before it answers anything.
type slowly struct {
	patchbay.LocalServer
	wait time.Duration
}

func (s slowly) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	select {
	case <-time.After(s.wait):
		return s.LocalServer.Serve(ctx, rw)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The first list waits for servers of which nothing is known, all together for as
// long as the settings say. Who takes longer is announced, and a server's own
// endpoint waits for it.
func TestFirstList(t *testing.T) {
	for _, tt := range []struct {
		settings string
		takes    time.Duration // of the slower of two servers
		waits    time.Duration // of the first list
	}{
		{`{}`, 4 * time.Second, 4 * time.Second},
		{`{}`, 20 * time.Second, 5 * time.Second},
		{`{"gateway": {"firstList": 10000}}`, 20 * time.Second, 10 * time.Second},
		{`{"gateway": {"firstList": 0}}`, 4 * time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, map[string]patchbay.LocalServer{
				"fast": slowly{newUpstream(t, "fast"), time.Second}, "slow": slowly{newUpstream(t, "slow"), tt.takes},
			}, nil, func(o *patchbay.Options) { settings(t, o, tt.settings) })
			a := w.connect(t, "stdio", wire.Version20251125, "", `{}`)
			begun := time.Now()
			list := names(t, a)
			if took := time.Since(begun); took.Round(time.Second) != tt.waits {
				t.Errorf("%s: %v, want %v", tt.settings, took, tt.waits)
			}
			if got, want := slices.Contains(list, "fast__echo"), tt.waits >= time.Second; got != want {
				t.Errorf("%s: fast is there: %v", tt.settings, got)
			}
			if got, want := slices.Contains(list, "slow__echo"), tt.waits >= tt.takes; got != want {
				t.Errorf("%s: slow is there: %v", tt.settings, got)
			}
			own := w.connect(t, "stdio", wire.Version20251125, "slow", `{}`)
			if list := names(t, own); !slices.Contains(list, "echo") || time.Since(begun).Round(time.Second) != tt.takes {
				t.Errorf("%s: at its own endpoint %q after %v", tt.settings, list, time.Since(begun))
			}
			if tt.waits < tt.takes {
				a.await(t, "changed tools")
			}
			if list := names(t, a); !slices.Contains(list, "slow__echo") {
				t.Errorf("%s: slow is not there in the end", tt.settings)
			}
		})
	}
}

// A call of a tool, or a request for a prompt, of a server that has not listed yet
// waits for that server alone.
func TestCallDoesNotWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[string]patchbay.LocalServer{
			"fast": slowly{newUpstream(t, "fast"), 7 * time.Second}, "slow": slowly{newUpstream(t, "slow"), 20 * time.Second},
		}, nil, nil)
		a := w.connect(t, "stdio", wire.Version20251125, "", `{}`)
		begun := time.Now()
		a.call(t, "fast__echo", `{}`)
		if took := time.Since(begun).Round(time.Second); took != 7*time.Second {
			t.Errorf("the call took %v", took)
		}
		if _, err := a.GetPrompt(t.Context(), "slow__greet", nil); err != nil || time.Since(begun).Round(time.Second) != 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if _, err := a.CallTool(t.Context(), "fast__ecoh", json.RawMessage(`{}`)); err == nil || !strings.Contains(err.Error(), "fast__echo") || strings.Contains(err.Error(), "slow") {
			t.Errorf("a name that is misspelt: %v", err)
		}
	})
}
