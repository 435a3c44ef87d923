package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// A caller that waits for a limited time wants to know what it waited for in
// vain, and only the host can say. So the host is told of the limit, keeps it,
// and gets a moment more to answer.

// timeoutHeader says how long the client waits.
const timeoutHeader = "Patchbay-Timeout"

// patient is a transport to a host that keeps the time itself.
type patient struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	deadline, ok := ctx.Deadline()
	if !ok {
		return p.Transport.RoundTrip(r)
	}
	longer, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	undo := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			patience := time.NewTimer(farewell)
			defer patience.Stop()
			select {
			case <-patience.C:
			case <-longer.Done():
			}
		}
		stop(context.Cause(ctx))
	})
	end := func() {
		undo()
		stop(nil)
	}
	r = r.Clone(longer)
	r.Header.Set(timeoutHeader, time.Until(deadline).Round(10*time.Millisecond).String())
	resp, err := p.Transport.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = lastClosed{resp.Body, end}
	return resp, nil
}

// lastClosed does something more when it is closed.
type lastClosed struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (c lastClosed) Close() error {
	defer c.end()
	return c.ReadCloser.Close()
}

// keepTime ends a request when the time of its client is up.
func keepTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if limit, err := time.ParseDuration(r.Header.Get(timeoutHeader)); err == nil {
			ctx, stop := patchbay.WithTimeout(r.Context(), limit)
			defer stop()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
