package wire

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A life is what makes a session end once, and what ends with it.
type life struct {
	ctx  context.Context // ends with the session
	end  context.CancelCauseFunc
	over chan struct{} // closed when everything has ended

	ready   chan struct{} // closed when a legacy client has shown that it is initialized
	isReady atomic.Bool

	mu         sync.Mutex
	subscribed []string // resource URIs, legacy era
}

// begin takes note that the client speaks on after its initialize: from now on it
// can be asked something.
func (l *life) begin() {
	if !l.isReady.Load() && l.isReady.CompareAndSwap(false, true) {
		close(l.ready)
	}
}

// openSession makes a session known that will end one day: with Close, or with
// the server. cleanUp then ends what belongs to it. It reports false if the
// server takes no more sessions.
func (s *Server) openSession(sess *Session, cleanUp func()) bool {
	l := &life{over: make(chan struct{}), ready: make(chan struct{})}
	l.ctx, l.end = context.WithCancelCause(s.ctx)
	sess.server, sess.life = s, l
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		l.end(ErrClosed)
		return false
	}
	s.sessions[sess] = struct{}{}
	s.mu.Unlock()
	if s.opts.Opened != nil {
		s.opts.Opened(sess)
	}
	context.AfterFunc(l.ctx, func() {
		cleanUp()
		s.mu.Lock()
		delete(s.sessions, sess)
		s.mu.Unlock()
		if s.opts.Closed != nil {
			s.opts.Closed(sess)
		}
		close(l.over)
	})
	return true
}

// enter counts a call in, which must leave again. It reports false if the
// server takes no more.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.calls++
	return true
}

// drains reports whether the server takes no more calls.
func (s *Server) drains() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	if s.calls == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// cancelGrace is how long Shutdown waits for handlers to notice that their call
// was cancelled.
const cancelGrace = 5 * time.Second

// Shutdown ends the server. It takes no more calls, ends subscriptions and idle
// streams, waits for the calls under way as long as ctx allows, then cancels
// what is left and ends every session. It returns when all that is done; the
// error says if calls had to be cancelled.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	if s.calls > 0 && s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	var sessions []*Session
	for sess := range s.sessions {
		sessions = append(sessions, sess)
	}
	for l := range s.listeners {
		l.finish()
	}
	s.mu.Unlock()

	s.parked.close() // nobody can come back for them
	for _, sess := range sessions {
		if sess.standalone != nil {
			sess.standalone.end(Message{})
		}
	}
	var err error
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			err = fmt.Errorf("calls were cancelled: %w", context.Cause(ctx))
		}
	}
	s.stop(ErrClosed)
	if err != nil {
		select {
		case <-idle:
		case <-time.After(cancelGrace):
			return fmt.Errorf("calls do not end: %w", context.Cause(ctx))
		}
	}
	for _, sess := range sessions {
		<-sess.life.over
	}
	return err
}
