package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// An httpSession makes a connection of a legacy HTTP session: a Conn whose
// messages come in by POST and go out on the responses to them, or on the GET
// stream if they belong to no request. So a Peer can do what it does for every
// other connection.
type httpSession struct {
	table   *sessionTable
	times   *httpTimes
	id      string
	owner   string
	created time.Time
	client  *client
	session *Session
	inbox   chan Message

	closed chan struct{}
	once   sync.Once

	standalone *outStream // the GET stream, number 0
	budget     *Budget
	keeps      holding // what is only there for a client that comes back

	mu        sync.Mutex
	exchanges map[ID]*exchange // not yet answered, by request
	streams   []*exchange      // those that became streams, oldest first
	away      int              // of those whose client was asked to come back
	numbers   uint64
	busy      int // HTTP requests under way
	used      time.Time
	timer     *time.Timer
}

// What a session keeps of streams that have ended, for clients that lost the
// connection. For those that were asked to come back everything is kept until
// they did or their time is over, so there are not many at once.
const (
	maxEndedStreams = 16
	maxEndedBytes   = 256 << 10
	maxAway         = 16
)

// Read implements Conn.
func (s *httpSession) Read() (Message, error) {
	select {
	case m := <-s.inbox:
		return m, nil
	case <-s.closed:
		return Message{}, ErrClosed
	}
}

// deliver hands a message of the client to the Peer. It reports false if the
// session has ended.
func (s *httpSession) deliver(m Message) bool {
	select {
	case s.inbox <- m:
		return true
	case <-s.closed:
		return false
	}
}

// Write implements Conn.
func (s *httpSession) Write(ctx context.Context, m Message) error {
	if m.Kind() == KindResponse {
		if ex := s.takeExchange(m.ID); ex != nil {
			_, streams := ex.state()
			ex.finish(m)
			if streams {
				s.keep(ex)
			}
		}
		return nil // if nobody waits for it any more, that is all right
	}
	var ex *exchange
	if id, ok := requestOf(ctx); ok {
		s.mu.Lock()
		ex = s.exchanges[id.canonical()]
		s.mu.Unlock()
	} else if ex = s.carrier(m); ex == nil {
		defer s.recount()
		return s.standalone.push(ctx, m, false)
	}
	switch {
	case ex == nil:
		return errGone
	case !ex.jsonOnly:
		s.keep(ex)
		return ex.push(ctx, m, true)
	case m.Kind() == KindRequest:
		return errors.New("this client cannot be asked: it takes no event stream")
	default:
		return nil // it cannot be told either, but that is borne
	}
}

// carrier is the response on which a question goes out that belongs to no request
// in particular: nil if the client listens for such, or has no request under way
// that could carry it. It waits for the oldest of its requests the longest.
func (s *httpSession) carrier(m Message) *exchange {
	if m.Kind() != KindRequest || s.standalone.isRead() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *exchange
	for _, ex := range s.exchanges {
		if !ex.jsonOnly && (oldest == nil || ex.number < oldest.number) {
			oldest = ex
		}
	}
	return oldest
}

// Close implements Conn.
func (s *httpSession) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.table.remove(s)
		s.standalone.end(Message{})
		s.mu.Lock()
		open, streams := s.exchanges, slices.Clone(s.streams)
		s.exchanges = nil
		if s.timer != nil {
			s.timer.Stop()
		}
		s.mu.Unlock()
		for id, ex := range open {
			ex.finish(Message{ID: id, Error: Errorf(CodeInternal, "the session has ended")})
		}
		for _, ex := range streams {
			s.release(ex)
		}
		s.recount()
	})
	return nil
}

// exchange begins the response to a POST with these requests.
func (s *httpSession) exchange(ex *exchange, requests []Message) *Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exchanges == nil {
		return unknownSession()
	}
	for i, m := range requests {
		id := m.ID.canonical()
		if s.exchanges[id] != nil {
			for _, earlier := range requests[:i] {
				delete(s.exchanges, earlier.ID.canonical())
			}
			no := refuse(http.StatusBadRequest, CodeInvalidRequest, "a request with this id is already being handled")
			no.ID = ex.id
			return no
		}
		s.exchanges[id] = ex
	}
	s.numbers++
	ex.session, ex.number = s, s.numbers
	ex.resumable = true
	ex.prime = s.session.Version >= Version20251125
	return nil
}

func (s *httpSession) takeExchange(id ID) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	id = id.canonical()
	ex := s.exchanges[id]
	delete(s.exchanges, id)
	return ex
}

// cancelled ends the response to a request that its client has cancelled: it
// gets no answer.
func (s *httpSession) cancelled(m Message) {
	raw, ok := Member(m.Params, "requestId")
	if !ok || !isID(raw) {
		return
	}
	if ex := s.takeExchange(parseID(raw)); ex != nil {
		ex.cancelled()
		if complete, _ := ex.state(); complete {
			s.release(ex)
		}
	}
}

// dropped takes note that a POST has lost its connection. Whoever handles it may
// be at it for long.
func (s *httpSession) dropped(ex *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ex.over && !ex.dropped {
		ex.dropped = true
		s.vacate()
	}
}

// over is for a POST that is about to leave the session, which it has left already
// if it was dropped.
func (s *httpSession) over(ex *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ex.over = true
	if ex.dropped {
		s.busy++
	}
}

// keep remembers a stream for a client that comes back to it, and forgets the
// oldest that have ended when there are too many.
func (s *httpSession) keep(ex *exchange) {
	defer s.recount()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remember(ex)
	ended, size := 0, 0
	for i, ex := range slices.Backward(s.streams) {
		if bytes, done := ex.remains(); done && !ex.away {
			ended++
			size += bytes
			if ended > maxEndedStreams || ended > 1 && size > maxEndedBytes {
				s.streams = slices.Delete(s.streams, i, i+1)
			}
		}
	}
}

// recount counts what is kept.
func (s *httpSession) recount() {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.standalone.spare()
	for _, ex := range s.streams {
		size += ex.spare()
	}
	if s.exchanges == nil {
		size = 0 // the session has ended
	}
	s.budget.set(&s.keeps, size)
}

// giveUp implements holder: what is kept for a client that comes back is dropped,
// and it is told that there is nothing for it any more.
func (s *httpSession) giveUp() {
	var dropped []*exchange
	s.mu.Lock()
	s.streams = slices.DeleteFunc(s.streams, func(ex *exchange) bool {
		if !ex.drop() {
			return false
		}
		dropped = append(dropped, ex)
		return true
	})
	s.mu.Unlock()
	for _, ex := range dropped {
		s.release(ex)
	}
	s.standalone.drop()
	s.recount()
}

// remember makes a stream one that can be found; s.mu is held.
func (s *httpSession) remember(ex *exchange) {
	if !slices.Contains(s.streams, ex) {
		s.streams = append(s.streams, ex)
	}
}

// askBack makes the client of a request come back for the answer, which is kept
// until release. A server that shuts down waits for that, and sends nobody away.
func (s *httpSession) askBack(id ID, after time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ex := s.exchanges[id.canonical()]
	if ex == nil || !ex.comesBack || ex.server.drains() {
		return false
	}
	if ex.away {
		return ex.askBack(after)
	}
	if s.away == maxAway || !ex.server.enter() {
		return false
	}
	if !ex.askBack(after) {
		ex.server.leave()
		return false
	}
	ex.away = true
	s.away++
	s.remember(ex)
	return true
}

// release is for an exchange whose client has got all of it, or never will.
func (s *httpSession) release(ex *exchange) {
	s.mu.Lock()
	away := ex.away
	if away {
		ex.away = false
		s.away--
	}
	s.mu.Unlock()
	if away {
		ex.server.leave()
	}
}

// headerOf is the header of the POST that brought a request, nil if that is not
// waiting for an answer.
func (s *httpSession) headerOf(id ID) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ex := s.exchanges[id.canonical()]; ex != nil {
		return ex.header
	}
	return nil
}

// kept finds the stream that a Last-Event-ID names.
func (s *httpSession) kept(number uint64) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ex := range s.streams {
		if ex.number == number {
			return ex
		}
	}
	return nil
}

// enter marks the session as in use by an HTTP request, which must leave it.
func (s *httpSession) enter() {
	s.mu.Lock()
	s.busy++
	s.mu.Unlock()
}

func (s *httpSession) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacate()
}

// vacate ends a use of the session; s.mu is held. Calls that nobody is connected
// for are not kept for long.
func (s *httpSession) vacate() {
	s.busy--
	s.used = time.Now()
	if s.busy == 0 && len(s.exchanges) > 0 && s.timer != nil {
		s.timer.Reset(s.times.gone)
	}
}

// idleSince reports since when nothing happens in the session, and false if
// something does.
func (s *httpSession) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.busy == 0 && len(s.exchanges) == 0 && s.away == 0
}

// expire ends the session if its time is over, and else comes back when it may
// be.
func (s *httpSession) expire() {
	s.mu.Lock()
	now := time.Now()
	end := s.created.Add(s.times.lifetime)
	switch calls := len(s.exchanges) > 0; {
	case calls && s.busy == 0:
		end = s.used.Add(s.times.gone)
	case calls:
		end = now.Add(s.times.idle)
	case s.busy > 0 || s.away > 0:
		end = minTime(end, now.Add(s.times.idle))
	default:
		end = minTime(end, s.used.Add(s.times.idle))
	}
	over := !now.Before(end)
	if !over {
		s.timer.Reset(end.Sub(now))
	}
	s.mu.Unlock()
	if over {
		s.session.life.end(errors.New("the session has expired"))
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// A sessionTable holds the legacy sessions, by owner and id, so that nobody
// finds the sessions of another.
type sessionTable struct {
	total, own int // limits

	mu     sync.Mutex
	all    map[sessionKey]*httpSession
	owners map[string]int
}

type sessionKey struct{ owner, id string }

func newSessionTable(total, own int) *sessionTable {
	return &sessionTable{total: total, own: own, all: map[sessionKey]*httpSession{}, owners: map[string]int{}}
}

// find returns the session and marks it as in use.
func (t *sessionTable) find(owner, id string) *httpSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[sessionKey{owner, id}]
	if s != nil {
		s.enter()
	}
	return s
}

// add makes room for a session, if need be by ending the one that has been idle
// for the longest time, and reports false if all are busy.
func (t *sessionTable) add(s *httpSession) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.all) >= t.total || t.owners[s.owner] >= t.own {
		victim := t.longestIdle(s.owner, t.owners[s.owner] >= t.own)
		if victim == nil {
			return false
		}
		t.forget(victim)
		victim.session.life.end(errors.New("the session has made room for another"))
	}
	t.all[sessionKey{s.owner, s.id}] = s
	t.owners[s.owner]++
	return true
}

func (t *sessionTable) longestIdle(owner string, onlyOwn bool) *httpSession {
	var victim *httpSession
	var since time.Time
	for _, s := range t.all {
		if onlyOwn && s.owner != owner {
			continue
		}
		if used, idle := s.idleSince(); idle && (victim == nil || used.Before(since)) {
			victim, since = s, used
		}
	}
	return victim
}

func (t *sessionTable) remove(s *httpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(s)
}

func (t *sessionTable) forget(s *httpSession) {
	key := sessionKey{s.owner, s.id}
	if t.all[key] != s {
		return
	}
	delete(t.all, key)
	if t.owners[s.owner]--; t.owners[s.owner] == 0 {
		delete(t.owners, s.owner)
	}
}

// newSession opens a legacy session for an initialize. The session is in use by
// the request.
func (h *HTTPHandler) newSession(ctx context.Context, principal string, m Message) (*httpSession, Message, *Refusal) {
	now := time.Now()
	s := &httpSession{
		table:      h.sessions,
		times:      &h.times,
		id:         rand.Text(), // 130 bits
		owner:      httpOwner(principal),
		created:    now,
		used:       now,
		busy:       1,
		inbox:      make(chan Message, 8),
		closed:     make(chan struct{}),
		standalone: &outStream{resumable: true},
		exchanges:  map[ID]*exchange{},
		budget:     h.budget,
	}
	s.keeps.idle, s.keeps.of = true, s
	s.client = &client{
		server: h.server, owner: s.owner, principal: principal,
		id: s.id, standalone: s.standalone, gone: make(chan struct{}),
	}
	s.client.start(s)
	answer := Message{ID: m.ID}
	answer.Result, answer.Error = s.client.initialize(ctx, m.Params)
	if answer.Error != nil {
		s.client.peer.Close()
		return nil, answer, nil
	}
	s.session = s.client.legacy
	if !h.sessions.add(s) {
		s.session.Close()
		return nil, answer, refuse(http.StatusServiceUnavailable, CodeOverloaded, "Too many sessions").retryAfter(time.Minute)
	}
	s.mu.Lock()
	s.timer = time.AfterFunc(min(h.times.idle, h.times.lifetime), s.expire)
	s.mu.Unlock()
	return s, answer, nil
}

// httpOwner is who owns what a principal opens over HTTP. Nobody can guess the
// owner that a connection is (Server.Serve), so a name cannot be one.
func httpOwner(principal string) string { return principal }
