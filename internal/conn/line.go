package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// line is the way to one server for those who declare the same to it: a
// connection that is made when it is wanted and made again when it ends. One
// goroutine, run, dials the server and attends to the connection; callers wait
// for what becomes of that with contexts of their own.
type line struct {
	pool    *pool
	up      *upstream
	key     lineKey // guarded by pool.mu
	profile Profile // whose Roots are guarded by pool.mu, and do not count before the server asks for them
	shared  Shared  // which is the line itself
	own     bool    // of a session that is wanted to have it for itself
	opened  time.Time
	name    string // of the server, in logs and errors
	log     *slog.Logger

	after     *line         // in whose place it is, and which ends first; nil if there is none. Of run alone
	done      chan struct{} // closed when the line has ended
	lingering chan struct{} // closed when it is retired, and calls of it are still under way

	ctx  context.Context // ends when the line is to end at once
	stop context.CancelFunc
	wake chan struct{} // room for one: something below has changed that run looks at

	ending sync.WaitGroup // of connections that others have taken the place of
	shelf  shelf

	mu        sync.Mutex
	state     state    // changed only in update
	owner     *Manager // that dials
	target    Target
	extra     bool                    // it does not stand for its server
	epoch     int                     // grows whenever everything begins anew
	interrupt context.CancelCauseFunc // ends the present dial or connection; nil if there is none
	retired   bool
	wanted    bool          // someone waits for a connection
	dormant   bool          // it is connected only when someone wants it
	unlisted  bool          // and before that once, unless it is known what it offers
	notBefore time.Time     // it is not dialled by itself
	hurry     bool          // notBefore does not count: someone waits
	patience  time.Duration // that the most patient of those have for the dial; 0 if they did not say
	dials     int           // begun so far
	connects  int           // of those, successful
	retry     retry
	child     stderrSource // of the last child; nil if there was none

	// What every new connection is told.
	subscribed map[string]bool // resources, by URI
	logLevel   string
}

// Why a dial or a connection is given up by ourselves.
var (
	errReplaced  = errors.New("the server is started anew")
	errRetired   = errors.New("the server is not configured any more")
	errEdited    = errors.New("its configuration changed")
	errClosed    = errors.New("the host is closed")
	errTakenOver = errors.New("another connection took its place")
	errIdle      = errors.New("nobody used the server")
)

// errCrowded is why a session gets no connection of its own.
var errCrowded = errors.New("too many clients that declare different capabilities use it at the same time; try again later, or declare what others do")

var (
	// ErrReleased is why there is no connection for a session: no session has, or
	// has any more, a profile like its. Nothing was sent.
	ErrReleased = errors.New("the session is closed")

	// errGone tells who wanted a connection that the line is retired, and there
	// may be another.
	errGone = errors.New("the line is retired")
)

// successionPatience is how long a line waits for the end of the one whose place
// it takes. Two processes of a server may get in each other's way, but one that
// is slow to end must not hold up the next.
const successionPatience = time.Second

// newLine returns a line that stands for its server, in the place of another if
// there was one. pool.mu is held.
func newLine(up *upstream, p Profile, before *line) *line {
	lead, t := up.lead(), up.target()
	s := &line{
		pool:       up.pool,
		up:         up,
		key:        up.keyOf(p),
		profile:    p,
		own:        p.Session != "" && up.unshared(),
		opened:     time.Now(),
		name:       lead.name,
		log:        up.pool.log.With("server", lead.name),
		done:       make(chan struct{}),
		lingering:  make(chan struct{}),
		wake:       make(chan struct{}, 1),
		owner:      lead.manager,
		target:     t,
		dormant:    t.Lazy,
		unlisted:   t.Lazy && t.List,
		subscribed: map[string]bool{},
		shelf:      shelf{keys: up.catalogKeys(), kind: p.kind()},
		state: state{
			Status:  Status{State: config.Pending, Since: time.Now()},
			changed: make(chan struct{}),
		},
	}
	if before != nil && (before.up == up || before.shelf.sharesKey(&s.shelf)) {
		s.shelf.inherit(&before.shelf)
	}
	if before != nil && before.ends() {
		s.after = before
	}
	s.shared.line = s
	s.ctx, s.stop = context.WithCancel(context.Background())
	if t.off() {
		s.update(turnOff(t))
	}
	return s
}

func turnOff(t Target) func(*state) {
	return func(st *state) { st.State, st.Reason = t.State, t.Reason }
}

// status returns how the line stands.
func (s *line) status() Status {
	catalog, last := s.catalog(), s.lastKnown()
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.state.Status
	if s.dials == 0 {
		status.Last = last
	}
	status.ToolsFromCache = catalog != nil && (catalog.Cached || status.State != config.Connected)
	return status
}

// logs returns what the last child has written to its standard error.
func (s *line) logs() string {
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

// adopt replaces what of the target does not concern the connection.
func (s *line) adopt(owner *Manager, t Target, catalogKeys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target.Lazy && !t.Lazy && !s.extra {
		s.dormant = false
	}
	s.owner, s.target = owner, t
	s.shelf.rename(catalogKeys)
	s.rouse()
}

// stand has the line stand for its server, in the place of another.
func (s *line) stand(before *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extra = false
	if s.catalog() == nil {
		s.shelf.inherit(&before.shelf)
	}
}

// resting reports whether nothing is going on: nobody has wanted the server yet,
// or not for a long time.
func (s *line) resting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.State == config.Pending && !s.wanted
}

// live reports whether there is a connection, or about to be one.
func (s *line) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.State == config.Connected || s.state.State == config.Connecting
}

// unused reports whether nobody would miss the line: no call is under way, and
// nobody waits for one or for what it says.
func (s *line) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.state.link
	busy := s.state.State == config.Connecting || l != nil && l.users > 0
	return !busy && !s.wanted && len(s.subscribed) == 0
}

// ends reports whether the line is retired.
func (s *line) ends() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

// gone reports whether the line has ended.
func (s *line) gone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// retire ends the line for good. Its goroutine ends by itself: at once, or
// gently, when the calls under way have come to an end.
func (s *line) retire(why error, gently bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.beginAnew(why)
	s.update(func(st *state) { st.State, st.Reason = config.Disabled, why.Error() })
	if !gently {
		s.stop()
	}
}

// beginAnew forgets all that happened and ends what is going on; s.mu is held.
func (s *line) beginAnew(why error) {
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
func (s *line) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the life of the server: wait for a reason to connect, connect, attend
// to the connection until it ends, and once more.
func (s *line) run() {
	defer close(s.done)
	defer s.ending.Wait()
	s.succeed()
	s.known()
	s.recallKnowledge()
	s.makeWay()
	for s.awaitTurn() {
		s.connectOnce()
	}
}

// succeed waits for the end of the line whose place this one takes, unless that
// is not to be expected soon.
func (s *line) succeed() {
	if s.after == nil {
		return
	}
	timer := time.NewTimer(successionPatience)
	defer timer.Stop()
	select {
	case <-s.after.done:
	case <-s.after.lingering:
	case <-timer.C:
	case <-s.ctx.Done():
	}
	s.after = nil
}

// known has a server whose catalog is known be connected when someone wants it, and
// not before.
func (s *line) known() {
	if !s.isKnown() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unlisted {
		s.unlisted = false
		s.update(func(*state) {}) // who waits need not
	}
}

// headStart is how long a server of which a catalog is known is not dialled at
// first, as long as nobody calls it or waits for it. The first that people want
// to see are the lists, and fifty processes that start at that very moment would
// make them wait for what they do not need.
const headStart = 250 * time.Millisecond

// makeWay gives others a head start if the server can afford it.
func (s *line) makeWay() {
	s.mu.Lock()
	idle := s.dormant || s.target.off()
	s.mu.Unlock()
	if idle || !s.isKnown() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hurry {
		s.notBefore = time.Now().Add(headStart)
	}
}

// hasten ends a head start: somebody waits. s.mu is held.
func (s *line) hasten() {
	if !s.hurry {
		s.hurry, s.notBefore = true, time.Time{}
		s.rouse()
	}
}

// awaitTurn returns true when it is time to dial, false when the server is
// retired.
func (s *line) awaitTurn() bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		at, due := s.due(time.Now())
		retired := s.retired
		s.mu.Unlock()
		if retired {
			return false
		}
		var timeUp <-chan time.Time
		if due {
			wait := time.Until(at)
			if wait <= 0 && s.postpone() {
				continue
			}
			if wait <= 0 {
				return true
			}
			timer.Reset(wait)
			timeUp = timer.C
		}
		select {
		case <-s.wake:
		case <-timeUp:
		}
	}
}

// postpone puts off a try that is for sessions alone, if none is open.
func (s *line) postpone() bool {
	s.pool.mu.Lock()
	open := slices.ContainsFunc(s.up.seats, func(s *seat) bool { return len(s.manager.holds) > 0 })
	s.pool.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if open || s.wanted || !s.retry.slow || s.retry.next.IsZero() {
		return false
	}
	s.retry.next = time.Now().Add(slowDelay)
	return true
}

// due returns when the server is to be dialled, if at all; s.mu is held.
func (s *line) due(now time.Time) (time.Time, bool) {
	switch {
	case s.retired || s.target.off():
		return time.Time{}, false
	case s.wanted:
		return later(now, s.retry.earliest), true
	case s.state.State == config.Pending && (!s.dormant || s.unlisted):
		return later(now, s.notBefore), true
	default:
		return s.retry.next, !s.retry.next.IsZero()
	}
}

// connectOnce dials the server and stays with it until the connection ends.
func (s *line) connectOnce() {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)

	s.mu.Lock()
	if at, due := s.due(time.Now()); !due || time.Until(at) > 0 {
		s.mu.Unlock()
		return // something has changed in between
	}
	epoch, owner, target := s.epoch, s.owner, s.target
	s.interrupt = cancel
	s.wanted, s.retry.next = false, time.Time{}
	s.dials++
	s.update(func(st *state) {
		st.State, st.Reason, st.Kind, st.Stderr, st.Stray = config.Connecting, "", "", "", ""
		st.NextRetry, st.Challenge, st.failure, st.Steps = time.Time{}, nil, nil, nil
	})
	s.mu.Unlock()
	s.up.changed()

	l, err := s.admitAndDial(ctx, owner, target)
	defer s.end(l) // which may take its time, and the state need not wait for it
	if err == nil {
		err = s.attend(ctx, epoch, l)
	}

	s.mu.Lock()
	s.interrupt, s.patience = nil, 0
	switch {
	case s.epoch != epoch || l.settled:
	case l.client == nil && s.owner != owner:
		s.beginAnew(errReplaced) // it may have failed for want of what went with its owner
	default:
		s.settle(l, err)
	}
	s.mu.Unlock()
	s.up.changed()
	s.save()
}

// admitAndDial is dial when it may begin.
func (s *line) admitAndDial(ctx context.Context, m *Manager, t Target) (*link, error) {
	done, err := s.admit(ctx, t)
	if err != nil {
		return newLink(), err
	}
	defer done()
	return s.dial(ctx, m, t)
}

// settle decides what follows the end of a dial or a connection; s.mu is held.
func (s *line) settle(l *link, err error) {
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
		s.retry.earliest = later(s.retry.earliest, now.Add(authPause))
	}
	again := s.retry.next
	if next == config.Failed && again.IsZero() && !f.permanent && !s.isKnown() {
		s.retry.goOn(now, jitter())
	}
	redact, clean := l.redactor(), *f // callers may be reading it
	clean.err = redact.cleanError(f.err)
	f = &clean
	s.log.Info("connection ended", "state", next, "error", f.err, "next", again)
	s.update(func(st *state) {
		st.State, st.Reason, st.Kind, st.Stderr = next, f.Error(), f.kind, f.stderr
		st.Attempt, st.NextRetry = s.retry.failures, again
		st.Challenge, st.Opening = redact.cleanChallenge(f.challenge), nil
		st.link, st.failure = nil, f
	})
	s.shelf.stood(s.state.Status)
}

// wait is Server.Wait.
func (s *line) wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		err := s.refusal()
		done := err != nil
		switch {
		case done:
		case s.state.State == config.Connected:
			done = s.state.link.client.Err() == nil // or its end is about to be noticed
		case s.state.State == config.Pending:
			done = s.dormant && !s.wanted && !s.unlisted
			s.hasten()
		case s.state.State == config.Failed || s.state.State == config.NeedsAuth:
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

// rest drops the connection and forgets earlier failures. The next is made when
// someone wants it.
func (s *line) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dormant = true
	s.beginAnew(errReplaced)
}

// reconnect is Server.Reconnect.
func (s *line) reconnect(ctx context.Context) error {
	s.mu.Lock()
	if err := s.refusal(); err != nil && s.state.State != config.NeedsAuth {
		s.mu.Unlock()
		return s.unreachable(err)
	}
	s.forgetValues()
	s.beginAnew(errReplaced)
	s.mu.Unlock()
	s.up.changed()
	l, err := s.acquire(ctx, false)
	if err != nil {
		return s.unreachable(err)
	}
	s.release(l)
	return s.wait(ctx)
}

// renew has what commands print obtained anew by the next dial. If the server has
// failed or wants credentials, that is now, and it reports true.
func (s *line) renew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetValues()
	if s.target.off() || s.state.State != config.Failed && s.state.State != config.NeedsAuth {
		return false
	}
	s.beginAnew(errReplaced)
	return true
}

// forgetValues has the commands of the entry run again; s.mu is held.
func (s *line) forgetValues() { s.owner.resolver.Forget(s.target.Entry, time.Now()) }

// client is Server.Client.
func (s *line) client(ctx context.Context) (*wire.Client, error) {
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
func (s *line) acquire(ctx context.Context, listed bool) (*link, error) {
	var mine int // the dial to wait for
	epoch := -1  // in which that was decided
	for {
		s.mu.Lock()
		l := s.state.link
		alive := l != nil && l.client.Err() == nil
		s.unlisted = false // it is wanted for more than its lists
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
		if limit := Timeout(ctx); limit > 0 {
			s.patience = max(s.patience, limit+time.Second) // the caller's context ends first
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

// present returns the connection if there is one, and counts the caller among its
// users; else nil.
func (s *line) present() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.state.link
	if l != nil {
		l.users++
	}
	return l
}

// unavailable says why it makes no sense to wait for a connection any longer,
// the dial mine having been waited for; nil if it does. s.mu is held.
func (s *line) unavailable(mine int) error {
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
func (s *line) refusal() error {
	switch {
	case s.retired:
		return &failure{kind: KindDenied, err: errGone}
	case s.target.off():
		return s.offError()
	case s.state.State == config.NeedsAuth && time.Now().Before(s.retry.earliest):
		return s.state.failure
	}
	return nil
}

func (s *line) offError() error {
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
func (s *line) interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &failure{kind: KindTimeout, err: fmt.Errorf("it is not connected yet: %w", cause)}
	}
	return cause
}

// release is the end of a use of a connection.
func (s *line) release(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	l.lastUse = time.Now()
	if l.users == 0 && l.unused != nil {
		close(l.unused)
		l.unused = nil
	}
}
