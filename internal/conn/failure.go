package conn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Kind is a category of errors.
type Kind string

const (
	KindAuth      Kind = "auth_unavailable"
	KindTransport Kind = "transport_error"
	KindTimeout   Kind = "timeout"
	KindServer    Kind = "server_error"
	KindDenied    Kind = "denied"
	KindConfig    Kind = "config_invalid"
)

// CallError says why a server gave no answer. An answer that is an error is a
// *wire.Error instead.
type CallError struct {
	Server string
	Method string // empty if there was no connection for it
	Kind   Kind

	// RetrySafe tells that the same request may be made once more: it did not
	// reach the server, or does no harm twice.
	RetrySafe bool

	Err error
}

func (e *CallError) Error() string {
	text := fmt.Sprintf("server %q: %v", e.Server, e.Err)
	if e.Method == "" || e.Kind != KindTransport && e.Kind != KindTimeout {
		return text
	}
	if e.RetrySafe {
		return text + "; it is safe to try again"
	}
	return text + "; the call may have taken effect, so look before you repeat it"
}

func (e *CallError) Unwrap() error { return e.Err }

// failure is why a server cannot be reached, and what to do about it.
type failure struct {
	kind       Kind
	err        error
	permanent  bool            // trying again by itself makes no sense
	retryAfter time.Duration   // the server asked for that much patience
	needsAuth  bool            // only credentials will help
	needsScope bool            // the credentials are good, but not for this
	challenge  *wire.Challenge // what credentials, if the server said
	stderr     string          // the last lines of the child
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// classify puts an error of the wire into its category.
func classify(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	f := &failure{kind: KindTransport, err: err}
	if e, ok := errors.AsType[*wire.HTTPError](err); ok {
		f.fromHTTP(e)
		return f
	}
	if e, ok := errors.AsType[*wire.NetError](err); ok {
		switch e.Reason {
		case wire.ReasonTimeout:
			f.kind = KindTimeout
		case wire.ReasonTLS, wire.ReasonTLSAuthority, wire.ReasonTLSExpired, wire.ReasonTLSHost, wire.ReasonRedirect:
			f.permanent = true
		case wire.ReasonProxy:
			proxy, ok := errors.AsType[*wire.ProxyError](err)
			f.permanent = ok && proxy.Status == http.StatusProxyAuthRequired
		}
		return f
	}
	if _, ok := errors.AsType[*wire.Error](err); ok {
		f.kind = KindServer
		return f
	}
	switch {
	case errors.Is(err, wire.ErrClosed):
	case errors.Is(err, context.DeadlineExceeded):
		f.kind = KindTimeout
	case errors.Is(err, wire.ErrTooLong), errors.Is(err, wire.ErrOverloaded):
		f.kind = KindServer
	}
	return f
}

func (f *failure) fromHTTP(e *wire.HTTPError) {
	f.kind, f.retryAfter = KindServer, e.RetryAfter
	scopes, needsScope := e.InsufficientScope()
	switch {
	case e.NeedsAuth() || needsScope:
		f.kind, f.permanent, f.needsAuth, f.needsScope = KindAuth, true, !needsScope, needsScope
		if len(scopes) > 0 {
			f.err = fmt.Errorf("%w; it takes the scope %s", f.err, shorten(strings.Join(scopes, " ")))
		}
		if c, ok := e.Bearer(); ok {
			f.challenge = &c
		} else if len(e.Challenges) > 0 {
			f.challenge = &e.Challenges[0]
		}
	case e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooEarly, e.Status == http.StatusTooManyRequests:
	default:
		f.permanent = e.Status < http.StatusInternalServerError
	}
}

// unreachable is the error of somebody who wanted a connection.
func (s *line) unreachable(err error) error {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return err
	}
	return &CallError{Server: s.name, Kind: f.kind, RetrySafe: true, Err: f}
}
