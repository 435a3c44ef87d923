package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	// pingPatience is how long a server in doubt has to answer a ping.
	pingPatience = 10 * time.Second

	// profileIdle is IdleStop of the connections that do not stand for their
	// server and are shared, where the target has none.
	profileIdle = 10 * time.Minute
)

// link is one connection, or what there is of it if it could not be made.
type link struct {
	client  *wire.Client // nil until the handshake is done
	since   time.Time
	process *process     // the child; nil if there is none
	local   *localServer // in this process; nil if it is not
	headers *headers     // of HTTP; nil otherwise

	answers []string // of a person, which nobody gets to see but the server

	preferLegacy bool // of the eras that the server may serve

	strayed atomic.Bool // the server printed text among its messages

	doubts  chan struct{} // room for one: the server has to show that it lives
	fatal   chan error    // room for one: the connection is of no use any more
	changes *changes      // of lists, not yet fetched

	catalog sync.WaitGroup // of the goroutine that fetches them

	begun time.Time // when the next step began
	steps []Step    // taken so far

	ended chan struct{} // closed when cause is set
	cause error         // why the connection ended

	// Guarded by line.mu.
	settled  bool          // what follows its end is decided
	users    int           // calls under way
	unused   chan struct{} // closed when there are none any more; nil if nobody waits for that
	lastUse  time.Time
	timeouts int // in a row
}

func newLink() *link {
	return &link{
		begun:   time.Now(),
		doubts:  make(chan struct{}, 1),
		fatal:   make(chan error, 1),
		ended:   make(chan struct{}),
		changes: newChanges(),
	}
}

// step takes note of a part of the way that is done. One goroutine at a time is
// on that way: the one that dials, then the one that keeps the catalog.
func (l *link) step(name string) {
	now := time.Now()
	l.steps = append(slices.Clip(l.steps), Step{name, now.Sub(l.begun)})
	l.begun = now
}

// took tells how far a dial has come.
func (s *line) took(l *link, step string) {
	l.step(step)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.State == config.Connecting { // not if everything has begun anew
		s.update(func(st *state) { st.Steps = l.steps })
	}
}

// doubt asks for a sign of life.
func (l *link) doubt() {
	select {
	case l.doubts <- struct{}{}:
	default:
	}
}

// reason returns why the connection ended. Its end is noticed by its callers
// first, so it may take a moment until the reason is known.
func (l *link) reason(patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.ended:
		return l.cause
	case <-timer.C:
		return wire.ErrClosed
	}
}

// close ends the connection and all that belongs to it, and waits.
func (l *link) close() {
	var wg sync.WaitGroup
	if l.process != nil {
		wg.Go(l.process.close)
	}
	if l.client != nil {
		wg.Go(func() { l.client.Close() })
	}
	wg.Wait()
	l.catalog.Wait()
	if l.local != nil {
		l.local.close()
	}
}

// end ends a connection for good. Calls that are still under way may come to an
// end if the line has been retired gently, and over HTTP anyway: there they
// depend neither on each other nor on the next connection.
func (s *line) end(l *link) {
	s.mu.Lock()
	retired, busy := s.retired, l.users > 0
	s.mu.Unlock()
	switch {
	case busy && retired:
		close(s.lingering)
	case l.headers == nil:
		l.close()
		return
	}
	s.ending.Go(func() {
		s.drain(l)
		l.close()
	})
}

// drain waits until nobody uses a connection any more. Its calls are as long as
// their callers want them to be.
func (s *line) drain(l *link) {
	s.mu.Lock()
	if l.users == 0 {
		s.mu.Unlock()
		return
	}
	unused := make(chan struct{})
	l.unused = unused
	s.mu.Unlock()
	select {
	case <-unused:
	case <-s.ctx.Done():
	}
}

// condemn gives up a connection that is of no use any more. The state says so
// at once; run ends what is left of it.
func (s *line) condemn(l *link, f *failure) {
	s.mu.Lock()
	if s.state.link == l {
		s.settle(l, f)
	}
	s.mu.Unlock()
	s.up.changed()
	select {
	case l.fatal <- f:
	default:
	}
}

// attend makes a new connection available to callers, keeps the catalog fresh
// and returns when the connection has ended, with the reason.
func (s *line) attend(ctx context.Context, epoch int, l *link) error {
	s.mu.Lock()
	if s.epoch == epoch {
		s.connects++
		l.lastUse = time.Now()
		s.update(func(st *state) { st.link, st.Opening, st.Restarts = l, l.client.Opening(), s.connects-1 })
	}
	s.mu.Unlock()

	inner, stop := context.WithCancel(ctx)
	defer stop()
	l.catalog.Go(func() { s.keepCatalog(inner, epoch, l) })
	err := s.watch(ctx, epoch, l)
	switch {
	case l.process != nil && errors.Is(err, wire.ErrClosed):
		err = l.process.explain(err)
	case l.local != nil:
		err = l.local.explain(err)
	}
	l.cause = err
	close(l.ended)
	return err
}

// watch returns when the connection has ended or has to end, with the reason.
func (s *line) watch(ctx context.Context, epoch int, l *link) error {
	idle := time.NewTimer(time.Hour)
	defer idle.Stop()
	for {
		wait, over := s.idleFor(epoch, l)
		if over {
			s.up.changed()
			return errIdle
		}
		var idleUp <-chan time.Time
		if wait > 0 {
			idle.Reset(wait)
			idleUp = idle.C
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.client.Done():
			return l.client.Err()
		case err := <-l.fatal:
			return err
		case <-l.doubts:
			if err := s.ping(ctx, l); err != nil {
				return err
			}
		case <-s.wake: // the target may be another
		case <-idleUp:
		}
	}
}

// idleFor returns how long the server may still be idle; 0 means for ever. If
// its time is over the server is put to rest, before a call can get hold of it.
func (s *line) idleFor(epoch int, l *link) (wait time.Duration, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unlisted && s.epoch == epoch && s.state.State == config.Connected {
		if l.users > 0 || len(s.subscribed) > 0 {
			return time.Second, false // someone tells it something
		}
		s.unlisted = false
		s.putToRest(l, "it is started by the first call")
		return 0, true
	}
	limit := s.target.IdleStop
	if limit <= 0 && s.extra && !s.own {
		limit = profileIdle
	}
	if limit <= 0 {
		return 0, false
	}
	if l.users > 0 || len(s.subscribed) > 0 || s.epoch != epoch || s.state.State != config.Connected {
		return limit, false
	}
	if wait = limit - time.Since(l.lastUse); wait > 0 {
		return wait, false
	}
	s.putToRest(l, fmt.Sprintf("stopped after %v without a call", limit))
	return 0, true
}

// putToRest ends the use of a connection until someone wants the server; s.mu is
// held.
func (s *line) putToRest(l *link, why string) {
	s.dormant, l.settled = true, true
	s.update(func(st *state) {
		st.State, st.Reason = config.Pending, why
		st.link, st.Opening = nil, nil
	})
}

// ping returns an error if the server does not show that it lives.
func (s *line) ping(ctx context.Context, l *link) error {
	ctx, stop := context.WithTimeoutCause(ctx, pingPatience, fmt.Errorf("no answer to a ping within %v", pingPatience))
	defer stop()
	err := l.client.Ping(ctx)
	if _, answered := errors.AsType[*wire.Error](err); err == nil || answered {
		return nil
	}
	if f := classify(err); f.kind == KindServer && f.permanent {
		return nil // it is there, and dislikes the question
	}
	return err
}

// connected declares the server connected, its lists being in, and tells what
// is wrong with them.
func (s *line) connected(epoch int, l *link, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch || s.state.link != l {
		return
	}
	if s.state.State == config.Connecting {
		l.step(StepListed)
		l.lastUse = time.Now()
		s.log.Info("server connected", "version", l.client.Opening().Version, "took", time.Since(s.state.Since))
	}
	s.update(func(st *state) {
		st.State, st.Reason = config.Connected, problem
		st.Attempt, st.Opening, st.Steps = 0, l.client.Opening(), l.steps
	})
	s.shelf.stood(s.state.Status)
	if s.unlisted {
		s.rouse() // that is all it was connected for
	}
}
