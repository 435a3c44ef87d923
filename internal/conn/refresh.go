package conn

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// How often lists are fetched at the server's request.
const (
	refreshDistance  = 500 * time.Millisecond
	refreshWindow    = time.Minute
	refreshPerWindow = 20
)

// changes are the lists of a server that have changed and were not fetched yet.
// However many changes there are, one fetch makes up for all of them.
type changes struct {
	signal chan struct{} // room for one

	mu    sync.Mutex
	lists map[wire.List]bool
}

func newChanges() *changes {
	return &changes{signal: make(chan struct{}, 1), lists: map[wire.List]bool{}}
}

// add takes note of a change. It never blocks.
func (c *changes) add(l wire.List) {
	c.mu.Lock()
	c.lists[l] = true
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// take returns the lists that have changed, which are unchanged from now on.
func (c *changes) take() map[wire.List]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	lists := c.lists
	c.lists = map[wire.List]bool{}
	return lists
}

// pace spaces out what a server can make us do.
type pace struct{ times []time.Time } // of the last refreshes, oldest first

// wait is how long the next refresh has to wait.
func (p *pace) wait(now time.Time) time.Duration {
	var until time.Time
	if n := len(p.times); n > 0 {
		until = p.times[n-1].Add(refreshDistance)
	}
	if len(p.times) == refreshPerWindow {
		until = later(until, p.times[0].Add(refreshWindow))
	}
	return until.Sub(now)
}

func (p *pace) took(now time.Time) {
	if len(p.times) == refreshPerWindow {
		p.times = append(p.times[:0], p.times[1:]...)
	}
	p.times = append(p.times, now)
}

// keepCatalog fetches all lists of a new connection, declares the server
// connected, and from then on fetches those that change: the first at once,
// later ones at a measured pace.
func (s *Server) keepCatalog(ctx context.Context, epoch int, l *link) {
	s.restore(ctx, l)
	s.firstCatalog(ctx, epoch, l)
	var p pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changes.signal:
		}
		if !sleep(ctx, p.wait(time.Now())) {
			return
		}
		p.took(time.Now())
		s.refreshCatalog(ctx, epoch, l, l.changes.take())
	}
}
