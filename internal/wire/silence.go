package wire

import (
	"sync"
	"time"
)

// A silence is the responses of a handler on which nothing has been sent yet, the
// oldest first. What is silent for too long is opened as a stream, on which
// comments can be sent: clients, and what is between, take a response without a
// byte for dead. There is one timer for all of them, which no request has to set
// and to stop.
type silence struct {
	limit func() time.Duration

	mu          sync.Mutex
	first, last *exchange
	timer       *time.Timer // nil until it was needed
	runs        bool        // it will fire
}

// begin counts in an exchange, if it may become a stream, until end.
func (s *silence) begin(ex *exchange) {
	if ex.jsonOnly {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ex.silent.since, ex.silent.is = time.Now(), true
	if ex.silent.prev = s.last; s.last == nil {
		s.first = ex
	} else {
		s.last.silent.next = ex
	}
	s.last = ex
	if s.runs {
		return
	}
	s.runs = true
	if s.timer == nil {
		s.timer = time.AfterFunc(s.limit(), s.look)
	} else {
		s.timer.Reset(s.limit())
	}
}

// end is for an exchange that is over, or was opened.
func (s *silence) end(ex *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ex.silent.is {
		s.remove(ex)
	}
}

func (s *silence) remove(ex *exchange) {
	prev, next := ex.silent.prev, ex.silent.next
	if prev == nil {
		s.first = next
	} else {
		prev.silent.next = next
	}
	if next == nil {
		s.last = prev
	} else {
		next.silent.prev = prev
	}
	ex.silent = silentExchange{}
}

// look opens what has been silent for too long.
func (s *silence) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.first != nil {
		ex := s.first
		if left := s.limit() - time.Since(ex.silent.since); left > 0 {
			s.timer.Reset(left)
			return
		}
		s.remove(ex)
		ex.openSilent()
	}
	s.runs = false
}

// silentExchange is the place of an exchange in a silence.
type silentExchange struct {
	is         bool
	since      time.Time
	prev, next *exchange
}

// openSilent makes the exchange a stream, unless it is over. A legacy client may
// come back to it.
func (ex *exchange) openSilent() {
	if ex.session != nil && ex.prime {
		ex.session.keep(ex)
	}
	ex.start()
}
