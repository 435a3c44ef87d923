package conn

import (
	"context"
	"fmt"
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
	hurry  chan struct{} // room for one: somebody waits for the next fetch

	mu      sync.Mutex
	lists   map[wire.List]bool
	heard   int           // how often the tools have changed
	fetched int           // the last of those that the catalog takes in
	moved   chan struct{} // closed when fetched grows
}

func newChanges() *changes {
	return &changes{
		signal: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		lists: map[wire.List]bool{}, moved: make(chan struct{}),
	}
}

// add takes note of a change. It never blocks.
func (c *changes) add(l wire.List) {
	c.mu.Lock()
	c.lists[l] = true
	if l == wire.Tools {
		c.heard++
	}
	c.mu.Unlock()
	nudge(c.signal)
}

// nudge puts a token into a channel with room for one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take returns the lists that have changed, which are unchanged from now on, and
// up to which change of the tools.
func (c *changes) take() (lists map[wire.List]bool, upTo int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lists = c.lists
	c.lists = map[wire.List]bool{}
	return lists, c.heard
}

// caughtUp says that the catalog takes in all changes up to one.
func (c *changes) caughtUp(upTo int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched = upTo
	close(c.moved)
	c.moved = make(chan struct{})
}

// tools waits until the catalog takes in every change of the tools that the
// server has told of so far. One who waits need not wait for the pace at which
// the server may have its lists fetched.
func (l *link) tools(ctx context.Context) error {
	c := l.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	for last := c.heard; c.fetched < last; {
		moved := c.moved
		c.mu.Unlock()
		nudge(c.hurry)
		var err error
		select {
		case <-moved:
		case <-l.ended:
			err = fmt.Errorf("%w: %w", wire.ErrNotSent, wire.ErrClosed)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		c.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
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

// savePause is how long the first catalog of a connection waits to be saved.
// Where many servers start at once those that are still to be listed come first.
const savePause = time.Second

// keepCatalog fetches all lists of a new connection, declares the server
// connected, and from then on fetches those that change: the first at once,
// later ones at a measured pace.
func (s *line) keepCatalog(ctx context.Context, epoch int, l *link) {
	defer s.save()
	s.restore(ctx, l)
	s.firstCatalog(ctx, epoch, l)
	unsaved := time.NewTimer(savePause)
	defer unsaved.Stop()
	var p pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-unsaved.C:
			s.save()
			continue
		case <-l.changes.signal:
		}
		if !rest(ctx, p.wait(time.Now()), l.changes.hurry) {
			return
		}
		p.took(time.Now())
		lists, upTo := l.changes.take()
		s.refreshCatalog(ctx, epoch, l, lists)
		l.changes.caughtUp(upTo)
	}
}

// rest is a pause that may be cut short; it reports false if ctx has ended.
func rest(ctx context.Context, d time.Duration, enough <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-enough:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
