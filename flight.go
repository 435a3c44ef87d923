package patchbay

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/conn"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A flight is a request of a session that is under way to a server. What the
// server asks or tells meanwhile may belong to it.
type flight struct {
	session *Session
	server  string
	method  string
	ctx     context.Context // of the caller; its values say on whose behalf the request is made
	number  uint64          // grows with each flight of the host
	over    atomic.Pointer[conn.Shared]
	repeats wire.Repeats // of the request, if nobody else counts them

	// Guarded by Session.mu.
	down    chan struct{} // closed when it has landed; nil if nobody asked
	landed  bool
	carried int           // questions that travel with it, and may be another one's
	free    chan struct{} // closed when it carries none any more; nil if it does not
	open    int           // questions that the server waits for an answer to, as far as they are known to be its
}

// takeOff counts a request among those under way, until it lands.
func (s *Session) takeOff(ctx context.Context, server, method string) *flight {
	f := &flight{session: s, server: server, method: method, ctx: ctx, number: s.host.departures.Add(1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flights = append(s.flights, f)
	return f
}

// land ends the flight. The caller of one that carries a question has been asked
// it and will answer, so it is not told the end before that, or before nobody
// wants the answer any more.
func (f *flight) land() {
	if free := f.touchDown(); free != nil {
		select {
		case <-free:
		case <-f.ctx.Done():
		}
	}
}

func (f *flight) touchDown() (free <-chan struct{}) {
	s := f.session
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.flights, f)
	last := len(s.flights) - 1
	s.flights[i], s.flights[last] = s.flights[last], nil
	s.flights = s.flights[:last]
	f.landed = true
	if f.down != nil {
		close(f.down)
	}
	return f.free
}

// carry has a question travel with the flight until it is put down, unless the
// flight has landed.
func (f *flight) carry() bool {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	if f.landed {
		return false
	}
	if f.carried++; f.carried == 1 {
		f.free = make(chan struct{})
	}
	return true
}

func (f *flight) putDown() {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	if f.carried--; f.carried == 0 {
		close(f.free)
		f.free = nil
	}
}

// comeBack tells the session's user that the server wants its client back for the
// answer after that time.
func (f *flight) comeBack(after time.Duration) {
	_ = f.session.host.protect("Client.ComeBack", func() error { // the call goes on
		f.session.opts.Client.ComeBack(f.ctx, f.server, after)
		return nil
	})
}

// asks counts a question that the server asks in the flight, until answered is
// called. A server that waits for an answer hardly asks in the same call again.
func (f *flight) asks() (answered func()) {
	count := func(n int) {
		f.session.mu.Lock()
		defer f.session.mu.Unlock()
		f.open += n
	}
	count(1)
	return func() { count(-1) }
}

// gone returns a channel that is closed when the flight has landed.
func (f *flight) gone() <-chan struct{} {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	if f.down == nil {
		f.down = make(chan struct{})
		if f.landed {
			close(f.down)
		}
	}
	return f.down
}

// SentOver implements conn.Tagged.
func (f *flight) SentOver(c *conn.Shared) { f.over.Store(c) }

// given takes note of a request that has ended with err. One that was given up
// without an answer may still go on.
func (f *flight) given(err error) {
	if c := f.over.Load(); c != nil && err != nil {
		_, answered := errors.AsType[*RPCError](err)
		if _, silent := errors.AsType[*wire.TimeoutError](err); silent || f.ctx.Err() != nil && !answered {
			c.Abandon(f.session.profile().Session)
		}
	}
}

// inFlight returns the requests of the session that are under way over a
// connection, and those of them in which the server does not wait for anything.
func (s *Session) inFlight(over *conn.Shared) (all, free []*flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flights {
		if f.over.Load() != over {
			continue
		}
		all = append(all, f)
		if f.open == 0 {
			free = append(free, f)
		}
	}
	return all, free
}

// flightsTo returns the requests of the session that are under way to a server,
// over whichever connection.
func (s *Session) flightsTo(server string) (all []*flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flights {
		if f.server == server {
			all = append(all, f)
		}
	}
	return all
}

// asked is for what belongs to the flight.
func (f *flight) asked() asked {
	return asked{host: f.session.host, server: f.server, session: f.session, flights: []*flight{f}}
}

// asked is whom a server's request or notification is for: a session and the
// requests of it that may have caused it, none if it came unprompted.
type asked struct {
	host    *Host    // nil if it is for nobody
	server  string   // as the host calls it
	session *Session // nil if it is for the host's own UI
	flights []*flight
	free    []*flight // those of the flights in which the server does not wait for anything
	carrier *flight   // the one of several flights that it travels with; nil means none
}

// context returns one that ends with ctx, when there is no request left that may
// have caused the question, and when patience is at its end. It has the values
// that values gives it.
func (a asked) context(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(a.values(ctx), patience)
	if len(a.flights) > 0 {
		go func() {
			for _, f := range a.flights {
				select {
				case <-f.gone():
				case <-ctx.Done():
					return
				}
			}
			stop()
		}()
	}
	return ctx, stop
}

// values returns ctx with the values of the request that caused it, if only one
// may have, or of the one that carries the question.
func (a asked) values(ctx context.Context) context.Context {
	switch {
	case a.carrier != nil:
		return onBehalf{ctx, a.carrier.ctx}
	case len(a.flights) == 1:
		return onBehalf{ctx, a.flights[0].ctx}
	}
	return ctx
}

// onBehalf is a context with the values of another.
type onBehalf struct {
	context.Context
	of context.Context
}

func (c onBehalf) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.of.Value(key)
}
