package patchbay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// How long a request may take is decided here. What a program asks for itself may
// be silent for a while; what it passes on (Forward) is as long as its sender
// wants it to be. The timeout of an entry is the whole limit for both, and
// WithTimeout goes over all of them.

const (
	// callSilence is how long a server may be silent, unless its entry or the
	// settings say otherwise. Progress renews it.
	callSilence = 30 * time.Second

	// callWhole is how long progress can make a call.
	callWhole = 10 * time.Minute
)

// WithTimeout is context.WithTimeout for a user who has said how long to wait:
// connecting and each request made with the context may take that long, whatever
// the limits of the server's entry and of the settings are.
func WithTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeoutCause(ctx, limit, timeUp(limit))
	return conn.WithTimeout(ctx, limit), stop
}

// timeUp is the end of a wait that its user has bounded.
type timeUp time.Duration

func (d timeUp) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(d)) }

func (d timeUp) Is(target error) bool { return target == context.DeadlineExceeded }

// ownContext is a context for a request that the program makes for itself.
type ownContext struct {
	context.Context
	silence time.Duration // that the server may have; 0 means any
}

type ownKey struct{}

// Value implements context.Context: under ownKey it has itself.
func (c *ownContext) Value(key any) any {
	if key == (ownKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// own is ctx for a request that is not just passed on.
func (h *Host) own(ctx context.Context) context.Context {
	silence := callSilence
	if ms := h.Settings().Limits.CallTimeout; ms != nil {
		silence = time.Duration(*ms) * time.Millisecond
	}
	return &ownContext{ctx, silence}
}

// limit gives a request to a server its limits.
func limit(ctx context.Context, sv *conn.Server, c *wire.Call) {
	if whole, said := sv.Timeout(); said {
		if conn.Timeout(ctx) == 0 {
			c.MaxTimeout = whole
		}
		return
	}
	own, _ := ctx.Value(ownKey{}).(*ownContext)
	if own == nil || own.silence == 0 || conn.Timeout(ctx) > 0 {
		return
	}
	c.Timeout, c.MaxTimeout = own.silence, max(own.silence, callWhole)
	if c.Progress == nil && c.Method == "tools/call" {
		c.Progress = func(json.RawMessage) {} // so that the server reports it, which renews the time
	}
}

// bound is limit for what is asked with a method of the connection.
func bound(ctx context.Context, sv *conn.Server, method string) (context.Context, context.CancelFunc) {
	c := wire.Call{Method: method}
	if limit(ctx, sv, &c); c.MaxTimeout == 0 {
		return ctx, func() {}
	}
	after := c.Timeout
	if after == 0 {
		after = c.MaxTimeout
	}
	return context.WithTimeoutCause(ctx, after, &wire.TimeoutError{Method: method, After: after})
}
