package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	// ownPatience is how long a server may take to answer what we ask on our own
	// account.
	ownPatience = 30 * time.Second

	// readPause is before a read is tried a second time.
	readPause = 500 * time.Millisecond

	// maxReadPause is the longest that a read waits because the server asks
	// for patience.
	maxReadPause = 30 * time.Second

	// reasonPatience is how long a call that died waits to be told of what. It
	// is longer than exitPatience.
	reasonPatience = 1500 * time.Millisecond

	// maxTimeouts is how many calls in a row may go unanswered before the
	// server has to show that it lives.
	maxTimeouts = 3
)

// call is Server.CallListed.
func (s *line) call(ctx context.Context, c wire.Call, accept func(*Catalog) error) (json.RawMessage, error) {
	for {
		l, err := s.acquire(ctx, accept != nil)
		if err != nil {
			return nil, s.unreachable(err)
		}
		headers, begun := l.headers.issued(), time.Now()
		result, refused, err := s.callOver(ctx, l, c, accept)
		s.release(l)
		if refused != nil {
			return nil, refused
		}
		s.judge(ctx, l, err, begun)
		if err == nil {
			return result, nil
		}
		f := classify(err)
		if ctx.Err() == nil && f.needsAuth {
			if s.renewHeaders(ctx, l, headers) && c.Repeats.Again(wire.SignCredential) {
				continue
			}
			s.recallMissing(f)
			s.condemn(l, f)
			return nil, &CallError{Server: s.name, Method: c.Method, Kind: KindAuth, RetrySafe: true, Err: l.redactor().cleanError(f.err)}
		}
		o := s.outcome(ctx, l, c, err)
		if !o.again || !c.Repeats.Again(wire.SignEnded) || !sleep(ctx, o.pause) {
			return nil, o.err
		}
	}
}

// callOver makes a request over one connection. refused is what accept has
// against it.
func (s *line) callOver(ctx context.Context, l *link, c wire.Call, accept func(*Catalog) error) (result json.RawMessage, refused, err error) {
	if accept != nil {
		if err := l.tools(ctx); err != nil {
			return nil, nil, err
		}
		if refused := accept(s.catalog()); refused != nil {
			return nil, refused, nil
		}
	}
	if t, ok := c.Tag.(Tagged); ok {
		t.SentOver(&s.shared)
	}
	result, err = l.client.Call(ctx, c)
	return result, nil, err
}

// outcome is what becomes of a call that failed.
type outcome struct {
	err   error
	again bool // it can be made once more
	pause time.Duration
}

func (s *line) outcome(ctx context.Context, l *link, c wire.Call, err error) outcome {
	f := classify(err)
	answer, answered := errors.AsType[*wire.Error](err)
	switch {
	case ctx.Err() != nil && !answered:
		return outcome{err: context.Cause(ctx)}
	case f.needsScope: // for this request; others are not affected
		return outcome{err: &CallError{Server: s.name, Method: c.Method, Kind: f.kind, RetrySafe: true, Err: l.redactor().cleanError(f.err)}}
	case answered && (f.permanent || !wire.SafeToRepeat(c.Method) || !comeBackLater(err)):
		return outcome{err: answer}
	case errors.Is(err, wire.ErrClosed):
		f.err = fmt.Errorf("the connection ended during %s: %w", c.Method, l.reason(reasonPatience))
	case wasRefused(err):
		s.condemn(l, f)
	}
	notTaken := wasRefused(err) || comeBackLater(err) || errors.Is(err, wire.ErrNotSent) || errors.Is(err, wire.ErrOverloaded)
	o := outcome{err: &CallError{
		Server: s.name, Method: c.Method, Kind: f.kind, Err: l.redactor().cleanError(f.err),
		RetrySafe: notTaken || wire.SafeToRepeat(c.Method) || s.saysRepeatable(c),
	}}
	switch {
	case errors.Is(err, wire.ErrClosed):
		o.again = wire.SafeToRepeat(c.Method) || errors.Is(err, wire.ErrNotSent)
	case wasRefused(err):
		o.again = true // unless it cannot be connected again
	case wire.SafeToRepeat(c.Method) && !f.permanent && f.kind != KindTimeout:
		o.pause = max(readPause, f.retryAfter)
		o.again = o.pause <= maxReadPause
	}
	return o
}

// judge draws conclusions about the connection from how a call went. A caller that
// gives up after a long time has found the server silent, too, unless others still
// wait for it: it may be at work for them.
func (s *line) judge(ctx context.Context, l *link, err error, begun time.Time) {
	_, timedOut := errors.AsType[*wire.TimeoutError](err)
	_, unreachable := errors.AsType[*wire.NetError](err)
	_, answered := errors.AsType[*wire.Error](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	timedOut = timedOut || err != nil && !answered && ctx.Err() != nil && l.users == 0 && time.Since(begun) >= ownPatience
	if !timedOut {
		l.timeouts = 0
	} else if l.timeouts++; l.timeouts == maxTimeouts {
		l.timeouts = 0
		l.doubt()
	}
	if unreachable {
		l.doubt()
	}
}

// wasRefused reports whether there was nobody to take the request.
func wasRefused(err error) bool {
	e, ok := errors.AsType[*wire.NetError](err)
	return ok && e.Unsent && e.Reason != wire.ReasonTimeout // which took long enough
}

// comeBackLater reports whether a server, or what stands before it, did not
// take a request because it was too busy.
func comeBackLater(err error) bool {
	e, ok := errors.AsType[*wire.HTTPError](err)
	return ok && (e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable)
}

// saysRepeatable reports whether the tool that is called says of itself that
// calling it twice does no harm.
func (s *line) saysRepeatable(c wire.Call) bool {
	name, _ := wire.StringMember(c.Params, "name")
	catalog := s.catalog()
	if c.Method != "tools/call" || catalog == nil {
		return false
	}
	tool := catalog.tool(name)
	for _, hint := range []string{"readOnlyHint", "idempotentHint"} {
		if value, ok := wire.Member(tool, "annotations", hint); ok && string(value) == "true" {
			return true
		}
	}
	return false
}

// notify is Server.Notify.
func (s *line) notify(ctx context.Context, method string, params json.RawMessage) error {
	l := s.present()
	if l == nil {
		return nil
	}
	defer s.release(l)
	err := l.client.Notify(ctx, method, params)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &CallError{Server: s.name, Method: method, Kind: classify(err).kind, RetrySafe: strings.HasSuffix(method, "list_changed"), Err: err}
}

// sleep pauses; it reports false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
