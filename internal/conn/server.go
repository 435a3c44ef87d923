package conn

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Server is one server of a Manager as it is reached with one Profile. It finds
// the connection for that whenever it is used: that may be another one each
// time.
type Server struct {
	manager *Manager
	name    string
	profile Profile
	timeout *int64 // of the entry
}

// Timeout is how long a call may take according to the entry, 0 if for ever; the
// entry need not say it.
func (s *Server) Timeout() (limit time.Duration, said bool) {
	if s.timeout == nil {
		return 0, false
	}
	return time.Duration(*s.timeout) * time.Millisecond, true
}

// Name is the name under which the server is configured.
func (s *Server) Name() string { return s.name }

// on uses the line of the server, and if that is retired before it was of any
// use the next one. While there are other Managers that use it, the line does not
// end with ours, so the wait must.
func (s *Server) on(ctx context.Context, use func(context.Context, *line) error) error {
	for {
		l, beside, err := s.manager.line(s.name, s.profile)
		if err != nil {
			return s.explain(err)
		}
		if beside {
			ours, stop := context.WithCancelCause(ctx)
			unhook := context.AfterFunc(s.manager.ctx, func() { stop(&failure{kind: KindDenied, err: errClosed}) })
			err = use(ours, l)
			unhook()
			stop(nil)
		} else {
			err = use(ctx, l)
		}
		if !errors.Is(err, errGone) {
			return s.explain(err)
		}
	}
}

// explain is the error of one who used the server, by the name it has here.
func (s *Server) explain(err error) error {
	if f, ok := err.(*failure); ok {
		return &CallError{Server: s.name, Kind: f.kind, RetrySafe: true, Err: f}
	}
	if e, ok := err.(*CallError); ok {
		e.Server = s.name
	}
	return err
}

// Call makes one request. It waits for the connection and for the answer as long
// as ctx and the limits of the call allow, and if those have none for ever; when
// they are exceeded the server is told to cancel.
//
// A JSON-RPC error of the server comes back as *wire.Error, the end of ctx as
// its cause, and everything else as *CallError. What is made again, and how often, is
// wire.Repeats' affair.
func (s *Server) Call(ctx context.Context, c wire.Call) (json.RawMessage, error) {
	return s.CallListed(ctx, c, nil)
}

// CallListed is Call for a request that depends on what the server offers. It
// waits until the connection's lists are in, with the changes the server has told
// of, and sends the request only if they are acceptable; otherwise accept says
// why not, and that is the error. nil accepts anything, and does not wait.
func (s *Server) CallListed(ctx context.Context, c wire.Call, accept func(*Catalog) error) (result json.RawMessage, err error) {
	if c.Repeats == nil {
		c.Repeats = new(wire.Repeats)
	}
	err = s.on(ctx, func(ctx context.Context, l *line) (err error) {
		result, err = l.call(ctx, c, accept)
		return err
	})
	return result, err
}

// Wait returns when the server is connected, or an error that says why it will
// not be for the time being: it is disabled, or not approved, or has failed, or
// wants credentials. Waiting does not start a server that is connected on the
// first call only; for such a one it returns nil.
func (s *Server) Wait(ctx context.Context) error {
	return s.on(ctx, func(ctx context.Context, l *line) error { return l.wait(ctx) })
}

// Open makes sure that there is a connection for sessions with the profile, or
// soon will be, and reports whether it is known what the server offers to them. It
// does not wait.
func (s *Server) Open() (known bool) {
	l, _, err := s.manager.line(s.name, s.profile)
	return err == nil && l.isKnown()
}

// Reconnect drops the connection, if there is one, forgets earlier failures and
// connects anew. It returns when that has succeeded or failed. The host does so
// for all sessions: their own connections are made anew when they are needed.
func (s *Server) Reconnect(ctx context.Context) error {
	if s.profile.Session == "" {
		s.manager.dropAdditional(s.name)
	}
	return s.on(ctx, func(ctx context.Context, l *line) error { return l.reconnect(ctx) })
}

// Client returns the live client, connecting first if need be. It may end at
// any time; what is asked of it directly has no time limit of ours.
func (s *Server) Client(ctx context.Context) (client *wire.Client, err error) {
	err = s.on(ctx, func(ctx context.Context, l *line) (err error) {
		client, err = l.client(ctx)
		return err
	})
	return client, err
}

// Notify sends a notification if the server is connected. One that is not has
// nothing to be told: it learns how things are when it is connected.
func (s *Server) Notify(ctx context.Context, method string, params json.RawMessage) error {
	l, _ := s.manager.present(s.name, s.profile)
	if l == nil {
		return nil
	}
	return s.explain(l.notify(ctx, method, params))
}

// Status returns how the server stands.
func (s *Server) Status() Status {
	l, split := s.manager.present(s.name, s.profile)
	if l == nil {
		return Status{State: config.Disabled, Reason: errRetired.Error(), Since: time.Now()}
	}
	status := l.status()
	if split != "" {
		status.Warnings = append(slices.Clip(status.Warnings), config.Problem{Severity: config.SeverityWarning, Message: split})
	}
	return status
}

// Catalog returns what the server offers, as far as it is known without asking:
// now, or at an earlier time; nil if nothing is known. It does not wait for the
// server.
func (s *Server) Catalog() *Catalog {
	l, _ := s.manager.present(s.name, s.profile)
	if l == nil {
		return nil
	}
	return l.catalog()
}

// Logs returns what the last child has written to its standard error, as far as
// it is kept, without our secrets.
func (s *Server) Logs() string {
	l, _ := s.manager.present(s.name, s.profile)
	if l == nil {
		return ""
	}
	return l.logs()
}
