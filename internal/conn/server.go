package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Server is one server as it is reached with one Profile. One goroutine, run,
// dials it and attends to the connection; callers wait for what becomes of that
// with contexts of their own.
type Server struct {
	manager *Manager
	name    string
	profile Profile
	log     *slog.Logger

	ctx  context.Context // ends when the server is retired
	stop context.CancelFunc
	wake chan struct{} // room for one: something below has changed that run looks at

	ending sync.WaitGroup // of connections that others have taken the place of
	shelf  shelf

	mu        sync.Mutex
	state     state // changed only in update
	target    Target
	epoch     int                     // grows whenever everything begins anew
	interrupt context.CancelCauseFunc // ends the present dial or connection; nil if there is none
	retired   bool
	wanted    bool      // someone waits for a connection
	dormant   bool      // it is connected only when someone wants it
	notBefore time.Time // it is not dialled by itself
	hurry     bool      // notBefore does not count: someone waits
	dials     int       // begun so far
	connects  int       // of those, successful
	retry     retry
	child     stderrSource // of the last child; nil if there was none

	// What every new connection is told.
	subscribed map[string]bool // resources, by URI
	logLevel   string
}

// Why a dial or a connection is given up by ourselves.
var (
	errReplaced = errors.New("the server is started anew")
	errRetired  = errors.New("the server is not configured any more")
	errIdle     = errors.New("nobody used the server")
)

func newServer(m *Manager, name string, p Profile, t Target) *Server {
	s := &Server{
		manager:    m,
		name:       name,
		profile:    p,
		log:        m.log.With("server", name),
		wake:       make(chan struct{}, 1),
		target:     t,
		dormant:    t.Lazy || p.Key != "",
		subscribed: map[string]bool{},
		shelf:      shelf{key: t.CatalogKey},
		state: state{
			Status:  Status{State: config.Pending, Since: time.Now()},
			changed: make(chan struct{}),
		},
	}
	s.ctx, s.stop = context.WithCancel(m.ctx)
	if t.off() {
		s.update(turnOff(t))
	}
	return s
}

func turnOff(t Target) func(*state) {
	return func(st *state) { st.State, st.Reason = t.State, t.Reason }
}

// Name is the name under which the server is configured.
func (s *Server) Name() string { return s.name }

// Status returns how the server stands.
func (s *Server) Status() Status {
	catalog, last := s.Catalog(), s.lastKnown()
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.state.Status
	if s.dials == 0 {
		status.Last = last
	}
	status.ToolsFromCache = catalog != nil && (catalog.Cached || status.State != config.Connected)
	return status
}

// Logs returns what the last child has written to its standard error, as far as
// it is kept, without our secrets.
func (s *Server) Logs() string {
	s.mu.Lock()
	child := s.child
	s.mu.Unlock()
	if child == nil {
		return ""
	}
	return child.logs()
}

// stderrSource is a child of which there are logs.
type stderrSource interface{ logs() string }

// retarget replaces the target and begins anew.
func (s *Server) retarget(t Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.target = t
	s.beginAnew(errReplaced)
	s.dormant = t.Lazy || s.profile.Key != ""
	s.shelf.relabel(t.CatalogKey)
	if t.off() {
		s.update(turnOff(t))
	}
}

// adopt replaces what of the target does not concern the connection.
func (s *Server) adopt(t Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target.Lazy && !t.Lazy && s.profile.Key == "" {
		s.dormant = false
	}
	s.target = t
	s.shelf.rename(t.CatalogKey)
	s.rouse()
}

// retire ends the server for good. Its goroutine ends by itself.
func (s *Server) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.beginAnew(errRetired)
	s.update(func(st *state) { st.State, st.Reason = config.Disabled, errRetired.Error() })
	s.stop()
}

// beginAnew forgets all that happened and ends what is going on; s.mu is held.
func (s *Server) beginAnew(why error) {
	s.epoch++
	s.retry = retry{}
	s.wanted = false
	if s.interrupt != nil {
		s.interrupt(why)
	}
	s.update(func(st *state) {
		st.Status = Status{State: config.Pending, Since: st.Since, Restarts: st.Restarts, Seq: st.Seq}
		st.link, st.failure = nil, nil
	})
	s.rouse()
}

// rouse has run look at things again; s.mu may be held.
func (s *Server) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the life of the server: wait for a reason to connect, connect, attend
// to the connection until it ends, and once more.
func (s *Server) run() {
	defer s.ending.Wait()
	s.makeWay()
	for s.awaitTurn() {
		s.connectOnce()
	}
}

// headStart is how long a server of which a catalog is known is not dialled at
// first, as long as nobody calls it or waits for it. The first that people want
// to see are the lists, and fifty processes that start at that very moment would
// make them wait for what they do not need.
const headStart = 100 * time.Millisecond

// makeWay gives others a head start if the server can afford it.
func (s *Server) makeWay() {
	s.mu.Lock()
	idle := s.dormant || s.target.off()
	s.mu.Unlock()
	if idle || s.Catalog() == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hurry {
		s.notBefore = time.Now().Add(headStart)
	}
}

// hasten ends a head start: somebody waits. s.mu is held.
func (s *Server) hasten() {
	if !s.hurry {
		s.hurry, s.notBefore = true, time.Time{}
		s.rouse()
	}
}

// awaitTurn returns true when it is time to dial, false when the server is
// retired.
func (s *Server) awaitTurn() bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.ctx.Err() == nil {
		s.mu.Lock()
		at, due := s.due(time.Now())
		s.mu.Unlock()
		var timeUp <-chan time.Time
		if due {
			wait := time.Until(at)
			if wait <= 0 {
				return true
			}
			timer.Reset(wait)
			timeUp = timer.C
		}
		select {
		case <-s.ctx.Done():
		case <-s.wake:
		case <-timeUp:
		}
	}
	return false
}

// due returns when the server is to be dialled, if at all; s.mu is held.
func (s *Server) due(now time.Time) (time.Time, bool) {
	switch {
	case s.retired || s.target.off():
		return time.Time{}, false
	case s.wanted:
		return later(now, s.retry.earliest), true
	case s.state.State == config.Pending && !s.dormant:
		return later(now, s.notBefore), true
	default:
		return s.retry.next, !s.retry.next.IsZero()
	}
}

// connectOnce dials the server and stays with it until the connection ends.
func (s *Server) connectOnce() {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)

	s.mu.Lock()
	if at, due := s.due(time.Now()); !due || time.Until(at) > 0 {
		s.mu.Unlock()
		return // something has changed in between
	}
	epoch, target := s.epoch, s.target
	s.interrupt = cancel
	s.wanted, s.retry.next = false, time.Time{}
	s.dials++
	s.update(func(st *state) {
		st.State, st.Reason, st.Stderr = config.Connecting, "", ""
		st.NextRetry, st.Challenge, st.failure, st.Steps = time.Time{}, nil, nil, nil
	})
	s.mu.Unlock()
	s.manager.changed()

	l, err := s.dial(ctx, target)
	defer s.end(l) // which may take its time, and the state need not wait for it
	if err == nil {
		err = s.attend(ctx, epoch, l)
	}

	s.mu.Lock()
	s.interrupt = nil
	if s.epoch == epoch && !l.settled {
		s.settle(l, err)
	}
	s.mu.Unlock()
	s.manager.changed()
	s.save()
}

// settle decides what follows the end of a dial or a connection; s.mu is held.
func (s *Server) settle(l *link, err error) {
	now := time.Now()
	l.settled = true
	f := classify(err)
	if !l.since.IsZero() {
		s.retry.lasted(now.Sub(l.since))
	}
	s.retry.failed(now, f, jitter())
	next := config.Failed
	if f.needsAuth || f.needsScope {
		next, s.retry.next = config.NeedsAuth, time.Time{}
	}
	s.log.Info("connection ended", "state", next, "error", f.err, "next", s.retry.next)
	s.update(func(st *state) {
		st.State, st.Reason, st.Stderr = next, f.Error(), f.stderr
		st.Attempt, st.NextRetry = s.retry.failures, s.retry.next
		st.Challenge, st.Opening = f.challenge, nil
		st.link, st.failure = nil, f
	})
	s.shelf.note(s.state.Status)
}

// Wait returns when the server is connected, or an error that says why it will
// not be for the time being: it is disabled, or not approved, or has failed, or
// wants credentials. Waiting does not start a server that is connected on the
// first call only; for such a one it returns nil.
func (s *Server) Wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		err := s.refusal()
		done := err != nil
		switch {
		case done:
		case s.state.State == config.Connected:
			done = s.state.link.client.Err() == nil // or its end is about to be noticed
		case s.state.State == config.Pending:
			done = s.dormant && !s.wanted
			s.hasten()
		case s.state.State == config.Failed:
			done, err = true, s.state.failure
		}
		changed := s.state.changed
		s.mu.Unlock()
		if done {
			return s.unreachable(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.unreachable(s.interrupted(ctx))
		}
	}
}

// Reconnect drops the connection, if there is one, forgets earlier failures and
// connects anew. It returns when that has succeeded or failed.
func (s *Server) Reconnect(ctx context.Context) error {
	s.mu.Lock()
	if err := s.refusal(); err != nil && s.state.State != config.NeedsAuth {
		s.mu.Unlock()
		return s.unreachable(err)
	}
	s.beginAnew(errReplaced)
	s.mu.Unlock()
	s.manager.changed()
	l, err := s.acquire(ctx, false)
	if err != nil {
		return s.unreachable(err)
	}
	s.release(l)
	return s.Wait(ctx)
}

// Client returns the live client, connecting first if need be. It may end at
// any time; what is asked of it directly has no time limit of ours.
func (s *Server) Client(ctx context.Context) (*wire.Client, error) {
	l, err := s.acquire(ctx, false)
	if err != nil {
		return nil, s.unreachable(err)
	}
	defer s.release(l)
	return l.client, nil
}

// acquire returns a live connection and counts the caller among its users. If
// there is none it has the server dialled and waits for that one dial, with the
// caller's context; the dial belongs to everybody. For one who wants it listed,
// a connection is there when the server has listed what it offers.
func (s *Server) acquire(ctx context.Context, listed bool) (*link, error) {
	var mine int // the dial to wait for
	epoch := -1  // in which that was decided
	for {
		s.mu.Lock()
		l := s.state.link
		alive := l != nil && l.client.Err() == nil
		if alive && (!listed || s.state.State == config.Connected) {
			l.users++
			s.mu.Unlock()
			return l, nil
		}
		if epoch != s.epoch {
			epoch, mine = s.epoch, s.dials+1
			if s.state.State == config.Connecting && (l == nil || alive) {
				mine = s.dials
			}
		}
		if err := s.unavailable(mine); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		if s.dials < mine {
			s.wanted = true
			s.rouse()
		}
		changed := s.state.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, s.interrupted(ctx)
		}
	}
}

// unavailable says why it makes no sense to wait for a connection any longer,
// the dial mine having been waited for; nil if it does. s.mu is held.
func (s *Server) unavailable(mine int) error {
	if err := s.refusal(); err != nil {
		return err
	}
	if s.state.State == config.Failed && (s.dials >= mine || s.retry.tooSoon(time.Now())) {
		return s.state.failure
	}
	return nil
}

// refusal says why the server is not connected for anybody; nil if it may be.
// s.mu is held.
func (s *Server) refusal() error {
	switch {
	case s.retired:
		return &failure{kind: KindDenied, err: errRetired}
	case s.target.off():
		return s.offError()
	case s.state.State == config.NeedsAuth:
		return s.state.failure
	}
	return nil
}

func (s *Server) offError() error {
	f := &failure{kind: KindDenied, err: fmt.Errorf("it is %s", s.target.State)}
	if s.target.State == config.NeedsApproval {
		f.err = errors.New("it needs approval")
	}
	if s.target.State == config.Failed {
		f.kind = KindConfig
		f.err = errors.New("it cannot be used")
	}
	if s.target.Reason != "" {
		f.err = fmt.Errorf("%w: %s", f.err, s.target.Reason)
	}
	return f
}

// interrupted is the error of a caller whose context ended while it waited.
func (s *Server) interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &failure{kind: KindTimeout, err: fmt.Errorf("it is not connected yet: %w", cause)}
	}
	return cause
}

// release is the end of a use of a connection.
func (s *Server) release(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	l.lastUse = time.Now()
	if l.users == 0 && l.unused != nil {
		close(l.unused)
		l.unused = nil
	}
}
