package patchbay

import (
	"context"
	"slices"
	"time"
)

// A flight is a request of a session that is under way to a server. What the
// server asks or tells meanwhile may belong to it.
type flight struct {
	session *Session
	server  string
	ctx     context.Context // of the caller; its values say on whose behalf the request is made
	down    chan struct{}   // closed when it has landed; nil if nobody asked. Guarded by Session.mu
	landed  bool            // guarded by Session.mu
}

// takeOff counts a request among those under way, until it lands.
func (s *Session) takeOff(ctx context.Context, server string) *flight {
	f := &flight{session: s, server: server, ctx: ctx}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flights = append(s.flights, f)
	return f
}

func (f *flight) land() {
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

// inFlight returns the requests of the session that are under way to a server.
func (s *Session) inFlight(server string) []*flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*flight
	for _, f := range s.flights {
		if f.server == server {
			all = append(all, f)
		}
	}
	return all
}

// asked is for what belongs to the flight.
func (f *flight) asked() asked { return asked{f.session.host, f.server, f.session, []*flight{f}} }

// asked is whom a server's request or notification is for: a session and the
// requests of it that may have caused it, none if it came unprompted.
type asked struct {
	host    *Host    // nil if it is for nobody
	server  string   // as the host calls it
	session *Session // nil if it is for the host's own UI
	flights []*flight
}

// context returns one that ends with ctx, when there is no request left that may
// have caused the question, and when patience is at its end. It has the values
// of the request that did, if only one may have.
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
// may have.
func (a asked) values(ctx context.Context) context.Context {
	if len(a.flights) == 1 {
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
