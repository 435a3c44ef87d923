package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const methodElicitComplete = "notifications/elicitation/complete"

// visit is a person who was sent to a URL and has not come back yet.
type visit struct {
	visitKey
	session *Session // whose call made the server ask; nil if that is not known

	shown shownTo       // guarded by visits.mu
	done  chan struct{} // closed when the server says so
}

type visitKey struct{ server, id string }

// shownTo is who sent the person to the URL, and wants to know of the end.
type shownTo int

const (
	toNobody shownTo = iota // but hooks
	toClient
	toUI
)

// maxVisits bounds what is remembered: a person may never come back, and servers
// need not say so.
const maxVisits = 1024

// visits are those under way. The zero value has none.
type visits struct {
	mu   sync.Mutex
	open []*visit // the oldest first
}

// expect remembers a visit before anybody is asked: its end may be told at once.
// Without an id it is never told of, and the result is nil.
func (vs *visits) expect(server, id string, s *Session) *visit {
	if id == "" {
		return nil
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := &visit{visitKey: visitKey{server, id}, session: s, done: make(chan struct{})}
	if len(vs.open) >= maxVisits {
		vs.open = slices.Delete(vs.open, 0, 1)
	}
	vs.open = append(vs.open, v)
	return v
}

// show notes who sends the person there.
func (vs *visits) show(v *visit, to shownTo) {
	if v == nil {
		return
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v.shown = to
}

// forget drops a visit that does not take place.
func (vs *visits) forget(v *visit) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.open = slices.DeleteFunc(vs.open, func(o *visit) bool { return o == v })
}

// end takes out the visits with an id: the same may have been asked for twice.
func (vs *visits) end(k visitKey) (ended []visit) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.open = slices.DeleteFunc(vs.open, func(v *visit) bool {
		if v.visitKey != k {
			return false
		}
		ended = append(ended, *v)
		return true
	})
	return ended
}

// visited tells that a person is done at a URL: whoever sent the person there,
// the hooks, and calls that wait for it. What is not known, or known to be done
// already, is nobody's.
func (x serverSide) visited(ctx context.Context, n *wire.Notification) {
	id, _ := wire.StringMember(n.Params, "elicitationId")
	for _, party := range x.shared.Parties() {
		h := party.Owner.(*Host)
		for _, v := range h.visits.end(visitKey{party.Server, id}) {
			_ = h.protect("Notified", func() error { // the others are told nevertheless
				v.tell(ctx, h.opts.UI, n)
				return nil
			})
			note := HookNotification{Type: ElicitationComplete, Server: v.server, ElicitationID: v.id}
			if v.session != nil {
				note.Session = v.session.opts.Name
			}
			h.notify(note)
			close(v.done)
		}
	}
}

// tell tells whoever sent the person to the URL.
func (v *visit) tell(ctx context.Context, ui *UI, n *wire.Notification) {
	switch {
	case v.shown == toUI && ui.ElicitComplete != nil:
		ui.ElicitComplete(v.server, v.id)
	case v.shown == toClient && v.session.opts.Client.Notified != nil && v.session.life.Err() == nil:
		to := asked{flights: v.session.flightsTo(v.server)}
		v.session.opts.Client.Notified(to.values(ctx), v.server, n.Method, n.Params)
	}
}

// maxURLs bounds how often a person is sent somewhere for one call.
const maxURLs = 8

// visitURLs sees to what a server says it needs before a call: a person who
// visits URLs. It reports whether that was done, and the call is worth another
// try.
func (s *Session) visitURLs(ctx context.Context, server string, err error, repeats *wire.Repeats) bool {
	refusal, ok := errors.AsType[*RPCError](err)
	if !ok || refusal.Code != codeURLElicitationRequired || !repeats.Again(wire.SignVisited) {
		return false
	}
	questions := s.urlQuestions(server, refusal)
	ctx, stop := context.WithTimeout(ctx, elicitPatience)
	defer stop()
	own := s.opts.Client != nil && s.opts.Client.HandlesURLErrors
	for _, q := range questions {
		answer, err := s.host.ask(ctx, "Elicit", func() (json.RawMessage, error) { return q.settle(ctx, own) })
		if err == nil && accepts(answer) {
			continue
		}
		for _, q := range questions {
			if own { // who gets the error may send the person there
				s.host.visits.show(q.visit, toClient)
			} else {
				s.host.visits.forget(q.visit)
			}
		}
		return false
	}
	for _, q := range questions {
		select {
		case <-q.visit.done:
		case <-ctx.Done():
			return false
		case <-s.life.Done():
			return false
		}
	}
	return len(questions) > 0
}

// urlQuestions are those of an error; none if not all can be understood.
func (s *Session) urlQuestions(server string, refusal *RPCError) (questions []*question) {
	var list []json.RawMessage
	raw, _ := wire.Member(refusal.Data, "elicitations")
	if json.Unmarshal(raw, &list) != nil || len(list) > maxURLs {
		return nil
	}
	for _, params := range list {
		q, err := s.host.question(s, server, params)
		if err == nil && q.visit != nil { // or nobody would know of its end
			questions = append(questions, q)
			continue
		}
		for _, q := range questions {
			s.host.visits.forget(q.visit)
		}
		return nil
	}
	return questions
}

// codeURLElicitationRequired is how a server of revision 2025-11-25 says that it
// wants a person to visit URLs before it does what it was asked for.
const codeURLElicitationRequired = -32042
