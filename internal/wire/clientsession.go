package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// clientSession is what all requests of one session have in common. It does not
// change; a new session is a new value. The first one, before any handshake,
// is empty.
type clientSession struct {
	modern  bool
	version []string // value of the version header, nil to send none
	id      []string // value of the session header, nil to send none
}

// speakModern makes the requests from now on those of a modern revision.
func (h *HTTPClient) speakModern(version string) {
	h.session.Store(&clientSession{modern: true, version: []string{version}})
}

// speakLegacy forgets what speakModern said.
func (h *HTTPClient) speakLegacy() { h.session.Store(&clientSession{}) }

// openSession begins what a successful initialize has agreed on.
func (h *HTTPClient) openSession(id string, result json.RawMessage) {
	s := new(clientSession)
	if id != "" {
		s.id = []string{id}
	}
	// The header came with 2025-06-18; older servers never heard of it.
	if v, ok := StringMember(result, "protocolVersion"); ok && v >= Version20250618 {
		s.version = []string{v}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session.Store(s)
	if h.endGET != nil {
		h.endGET()
		h.endGET = nil
	}
}

// lostBy reports whether err says that the server has forgotten the session: the
// status for that is 404. Maybe it has: servers after the example of the
// TypeScript SDK answer 400, with an error of that code and no id. They say so of
// other things too.
func (s *clientSession) lostBy(err error) (lost, maybe bool) {
	if err == nil || s.id == nil {
		return false, false
	}
	e, ok := errors.AsType[*HTTPError](err)
	if !ok {
		return false, false
	}
	return e.Status == http.StatusNotFound, e.Status == http.StatusBadRequest && e.noID && e.RPC.Code == CodeOverloaded
}

// renewal is the replacement of a lost session, on which any number of calls
// may wait.
type renewal struct {
	done chan struct{}
	err  error // when done
}

type renewingKey struct{}

// isRenewing reports whether the context is that of a renewal of h, whose own
// requests must not wait for it.
func isRenewing(ctx context.Context, h *HTTPClient) bool { return ctx.Value(renewingKey{}) == h }

// renew replaces the session old, which the server has forgotten, by a new one,
// once for all who notice. Only the wait is bounded by ctx. lost is the error
// if there is no way to do that.
func (h *HTTPClient) renew(ctx context.Context, old *clientSession, lost error) (*clientSession, error) {
	h.mu.Lock()
	if s := h.session.Load(); s != old {
		h.mu.Unlock()
		return s, nil
	}
	if h.reopen == nil || h.closed {
		h.mu.Unlock()
		return nil, lost
	}
	r := h.renewal
	if r == nil {
		r = &renewal{done: make(chan struct{})}
		h.renewal = r
		h.wg.Go(func() {
			r.err = h.reopen(context.WithValue(h.ctx, renewingKey{}, h))
			h.mu.Lock()
			h.renewal = nil
			h.mu.Unlock()
			close(r.done)
		})
	}
	h.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if r.err != nil {
		return nil, fmt.Errorf("the session has expired and a new one could not be opened: %w", r.err)
	}
	return h.session.Load(), nil
}

// deleteSession tells the server that the session is over. Servers are free to
// refuse, so the answer does not matter.
func (h *HTTPClient) deleteSession() {
	s := h.session.Load()
	if s.id == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(h.ctx), deleteTimeout)
	defer stop()
	if resp, _, err := h.send(ctx, httpMessage{verb: http.MethodDelete}, s); err == nil {
		finish(resp.Body)
	}
}

// openTime is how long openGET waits. Some servers answer only when they have
// something to send.
const openTime = 2 * time.Second

// openGET starts to follow the stream on which a legacy server sends what
// belongs to no call. It waits a little for the stream to be there, because
// many servers throw away what they have to say before.
func (h *HTTPClient) openGET(ctx context.Context, s *clientSession) {
	answered := h.startGET(s)
	patience := time.NewTimer(openTime)
	defer patience.Stop()
	select {
	case <-answered:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// startGET returns a channel that is closed when the server has opened the
// stream, or refused to.
func (h *HTTPClient) startGET(s *clientSession) <-chan struct{} {
	answered := make(chan struct{})
	settled := sync.OnceFunc(func() { close(answered) })
	if s.modern {
		settled()
		return answered
	}
	ctx, cancel := context.WithCancel(h.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.session.Load() != s {
		cancel()
		settled()
		return answered
	}
	if h.endGET != nil {
		h.endGET()
	}
	h.endGET = cancel
	h.wg.Go(func() {
		defer cancel()
		h.followGET(ctx, s, settled)
	})
	return answered
}

// followGET reads the GET stream and opens it again whenever it ends, until
// the server turns out not to offer one or ctx ends. It calls answered whenever
// the server has answered.
func (h *HTTPClient) followGET(ctx context.Context, s *clientSession, answered func()) {
	var at streamPosition
	opened := false
	for fruitless, first := 0, true; ; first = false {
		before := at.lastID
		body, err := h.get(ctx, s, at.lastID)
		answered()
		if err == nil {
			if !first && before == "" && h.missed != nil {
				h.missed()
			}
			opened = true
			got := false
			err = h.follow(body, h.options.ListenIdle, &at, func(m Message) bool {
				got = true
				h.handle(ctx, m, s, nil)
				return true
			}, func(g *Garbage) error {
				h.refuse(ctx, g, s)
				return nil
			})
			body.Close()
			if got || at.lastID != before {
				fruitless = 0
			}
			if errors.Is(err, ErrTooLong) {
				at.lastID = "" // or the same event would come again
			}
		} else if !canRetry(err) {
			if lost, maybe := s.lostBy(err); opened && (lost || maybe) {
				_, _ = h.renew(ctx, s, err) // the next call will tell if it failed
			}
			return
		}
		if !pause(ctx, at.delay(fruitless)) {
			return
		}
		fruitless++
	}
}

// get opens the GET stream, or resumes the stream of which lastEventID is the
// last event seen.
func (h *HTTPClient) get(ctx context.Context, s *clientSession, lastEventID string) (*streamBody, error) {
	resp, req, err := h.send(ctx, httpMessage{verb: http.MethodGet, lastEventID: lastEventID}, s)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer finish(resp.Body)
		return nil, newHTTPError(resp, req)
	}
	if kind := mediaType(resp.Header); kind != "text/event-stream" {
		resp.Body.Close()
		return nil, fmt.Errorf("%w: %s answered with content type %q", errNoStream, req.URL.Host, kind)
	}
	return &streamBody{body: resp.Body, host: req.URL.Host}, nil
}

var errNoStream = errors.New("no event stream")

// canRetry reports whether a request may succeed later that failed like this.
func canRetry(err error) bool {
	if errors.Is(err, errNoStream) {
		return false
	}
	if e, ok := errors.AsType[*NetError](err); ok {
		switch e.Reason {
		case ReasonTimeout, ReasonLost, ReasonRefused, ReasonNetwork, ReasonDNS:
			return true
		}
		return false
	}
	e, ok := errors.AsType[*HTTPError](err)
	if !ok {
		return true // it was not sent: there were no credentials to be had
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden: // credentials may be renewed
		return true
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusConflict: // some servers have not noticed yet that the last stream has ended
		return true
	}
	return e.Status >= 500 && e.Status != http.StatusNotImplemented
}

// streamPosition is where in a stream we are, and when to come back.
type streamPosition struct {
	lastID string
	retry  time.Duration // 0 if the server did not say
	timed  bool          // it said so on the connection that was read last
}

// delay is how long to wait before resuming: what the server asked for after a
// stream that brought something, else a time that doubles.
func (p streamPosition) delay(fruitless int) time.Duration {
	wait := p.retry
	if wait == 0 {
		wait = defaultRetry
	}
	if fruitless == 0 {
		return wait
	}
	return backoff(max(wait, defaultRetry), fruitless)
}

// backoff doubles first for each attempt after the first one, up to a minute,
// and adds up to a quarter so that clients do not come back in step.
func backoff(first time.Duration, attempt int) time.Duration {
	wait := min(first<<min(attempt-1, 10), maxRetry)
	return wait + rand.N(wait/4+1)
}

// pause waits. It reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
