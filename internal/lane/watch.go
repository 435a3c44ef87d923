package lane

import (
	"context"
	"time"
)

// watchAfter is how long a request may take before somebody looks whether its
// client is still there; it may be twice that.
const watchAfter = 20 * time.Millisecond

// expectSweep makes sure that there will be a sweep. It is called when a request
// has begun.
func (s *Server) expectSweep() {
	if !s.sweeping.Load() && s.sweeping.CompareAndSwap(false, true) {
		s.sweeper.Reset(watchAfter)
	}
}

// sweep has the clients watched whose requests were there at the last sweep
// already. There is one timer for all connections, which no request has to set
// and to stop, and none while nothing happens.
func (s *Server) sweep() {
	// Before it looks: a request that begins meanwhile expects a sweep.
	s.sweeping.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	young := false
	for c := range s.conns {
		if c.watchIfOld() {
			young = true
		}
	}
	if young {
		s.expectSweep()
	}
}

// watchIfOld starts to watch the client of a request that has been there for a
// while. It reports whether there is one that must be looked at again.
func (c *conn) watchIfOld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil || c.watching != nil {
		return false
	}
	// As long as the body has not been read somebody else may be reading.
	if !c.old || !c.current.body.ended.Load() {
		c.old = true
		return true
	}
	c.watching = make(chan struct{})
	_ = c.SetReadDeadline(time.Time{})
	go c.watch(c.watching, &c.current.ctx)
	return false
}

// watch reads ahead, while a handler runs, to learn whether the client goes away.
// What it reads is the beginning of the next request, after which it knows no
// more.
func (c *conn) watch(done chan<- struct{}, ctx *requestContext) {
	defer close(done)
	c.makeRoom()
	if c.end == len(c.buf) {
		return // there is much to come still
	}
	if c.fill() != nil {
		ctx.end(context.Canceled) // or woken by finish, when it makes no difference
	}
}
