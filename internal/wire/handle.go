package wire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"
)

// errCancelled is the cause in the context of a handler whose caller gave up.
var errCancelled = errors.New("cancelled by the caller")

// An incoming is a request of the other side that has not been answered.
type incoming struct {
	Request
	ctx    context.Context
	cancel context.CancelCauseFunc

	beside    bool // it does not count among the handlers
	cancelled bool // guarded by Peer.mu: it wants no answer any more
}

// besideOthers reports whether requests of a method wait for nobody, and make
// nobody wait: a ping asks whether we are there, and a subscription lasts.
func besideOthers(method string) bool {
	return method == "ping" || method == "subscriptions/listen"
}

// requested accepts a request: it is handled now, waits for a handler, or is
// refused.
func (p *Peer) requested(m Message) {
	in, refusal := p.accept(m)
	switch {
	case refusal != nil:
		p.post(Message{ID: m.ID, Error: refusal})
	case in != nil:
		p.begins(in)
	}
}

// begins has a request handled on another goroutine.
func (p *Peer) begins(in *incoming) {
	p.crew.do(func() { p.serve(in) })
}

// handle is requested for a caller that has a goroutine to handle the request
// on: the conn gets the answer before it returns. It reports false if the
// request has to wait for its turn, and will be answered later.
func (p *Peer) handle(m Message) bool {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return false // the end of the conn answers it
	}
	p.work.Add(1) // the goroutine that reads is still there: nobody waits for the last one yet
	p.mu.Unlock()
	defer p.work.Done()
	in, refusal := p.accept(m)
	switch {
	case refusal != nil:
		p.respond(Message{ID: m.ID, Error: refusal})
		return true
	case in == nil:
		return false
	}
	if next := p.serveOne(in); next != nil {
		p.begins(next)
	} else {
		p.handlers.Done()
	}
	return true
}

// accept returns a request that can be handled now, nil if it has to wait.
func (p *Peer) accept(m Message) (*incoming, *Error) {
	key, beside := m.ID.canonical(), besideOthers(m.Method)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.draining:
		p.stats.Refused++
		return nil, errShuttingDown()
	case p.requests[key] != nil:
		p.stats.Refused++
		return nil, Errorf(CodeInvalidRequest, "a request with this id is already being handled")
	case !p.flood.allow(len(p.calls)), beside && p.beside >= p.opts.MaxBacklog, !beside && p.running >= p.opts.MaxHandlers && len(p.backlog) >= p.opts.MaxBacklog:
		p.stats.Refused++
		return nil, Errorf(CodeOverloaded, "overloaded: too many requests")
	}
	in := &incoming{Request: Request{ID: m.ID, Method: m.Method, Params: m.Params, Link: p}, beside: beside}
	in.ctx, in.cancel = context.WithCancelCause(p.life)
	p.requests[key] = in
	switch {
	case beside:
		p.beside++
	case p.running >= p.opts.MaxHandlers:
		p.backlog = append(p.backlog, in)
		return nil, nil
	default:
		p.running++
	}
	p.handlers.Add(1)
	return in, nil
}

// serve handles a request and then whatever waits.
func (p *Peer) serve(in *incoming) {
	defer p.handlers.Done()
	for in != nil {
		in = p.serveOne(in)
	}
}

// serveOne handles a request and returns the one to handle next, if any.
func (p *Peer) serveOne(in *incoming) (next *incoming) {
	var response Message
	if in.ctx.Err() == nil {
		response = respond(in.ctx, p.handler, &in.Request, p.opts.Logger)
	} else {
		response = Message{ID: in.ID, Error: errShuttingDown()}
	}
	in.cancel(nil)
	wanted, next := p.served(in)
	if wanted { // not so if it was cancelled by the caller
		p.respond(response)
	}
	return next
}

func (p *Peer) respond(m Message) {
	if err := p.conn.Write(p.life, m); err != nil {
		p.opts.Logger.Debug("sending an answer", "error", err)
	}
}

// served reports whether the answer to a request is still wanted and returns the
// request to handle next, if any.
func (p *Peer) served(in *incoming) (wanted bool, next *incoming) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.requests, in.ID.canonical())
	if p.opts.AskedIsNotSilent {
		p.replied = time.Now()
	}
	if in.beside {
		p.beside--
		return !in.cancelled, nil
	}
	if len(p.backlog) == 0 {
		p.running--
		p.backlog = nil
		return !in.cancelled, nil
	}
	next, p.backlog = p.backlog[0], p.backlog[1:]
	return !in.cancelled, next
}

// respond has a handler answer a request. Whatever it does, even panic, there
// is an answer, and an error that is not an *Error does not show its text: it
// goes to the log, and a reference to that entry to the other side.
func respond(ctx context.Context, h Handler, r *Request, log *slog.Logger) (m Message) {
	defer func() {
		if v := recover(); v != nil {
			ref := reference()
			log.Error("handler panicked", "ref", ref, "method", r.Method, "panic", v, "stack", string(debug.Stack()))
			m = Message{ID: r.ID, Error: internalError(ref)}
		}
	}()
	result, err := h.HandleRequest(ctx, r)
	if err == nil {
		return Message{ID: r.ID, Result: result, lead: r.lead}
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return Message{ID: r.ID, Error: e}
	}
	ref, level := reference(), slog.LevelError
	if ctx.Err() != nil {
		level = slog.LevelDebug // it was given up, and failing is what is expected of it then
	}
	log.Log(ctx, level, "request failed", "ref", ref, "method", r.Method, "error", err)
	return Message{ID: r.ID, Error: internalError(ref)}
}

func internalError(ref string) *Error {
	return &Error{Code: CodeInternal, Message: "internal error (ref " + ref + ")"}
}

// reference returns a word that joins an answer to an entry in the log.
func reference() string { return strings.ToLower(rand.Text()[:10]) }

// notified accepts a notification: two kinds steer requests, the rest is the
// handler's.
func (p *Peer) notified(m Message) {
	tellAtOnce(p.handler, m.Method)
	switch m.Method {
	case "notifications/cancelled":
		if p.cancelled(m.Params) {
			return
		}
	case "notifications/progress":
		if p.progressed(m.Params) {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := &Notification{Method: m.Method, Params: m.Params, Link: p}
	if id, ok := subscriptionOf(m); ok {
		if k := p.calls[id]; k != nil {
			n.Tag = k.Tag
		}
	}
	p.note(n)
}

// subscriptionOf is the subscription that an acknowledgement is of: the id of our
// request, which some servers write as a string.
func subscriptionOf(m Message) (int64, bool) {
	if m.Method != methodAcknowledged {
		return 0, false
	}
	raw, ok := Member(m.Params, "_meta", MetaSubscriptionID)
	if !ok || !isID(raw) {
		return 0, false
	}
	if text, quoted := Unquote(raw); quoted {
		raw = json.RawMessage(text)
	}
	id, err := ParseID(raw)
	if err != nil {
		return 0, false
	}
	return id.integer()
}

const methodAcknowledged = "notifications/subscriptions/acknowledged"

// note queues a notification for the handler; p.mu is held.
func (p *Peer) note(n *Notification) {
	p.put(p.notes.add(n, len(n.Params)), func() {
		drain(&p.mu, &p.notes, func(n *Notification) { p.handleNotification(n) })
	})
}

func (p *Peer) handleNotification(n *Notification) {
	if n.told != nil {
		close(n.told)
		return
	}
	defer func() {
		if v := recover(); v != nil {
			p.opts.Logger.Error("notification handler panicked", "method", n.Method, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	p.handler.HandleNotification(p.life, n)
}

// cancelled ends the context of the handler whose caller gave up, or a
// subscription of ours that the server tears down. Of a request that is unknown
// or answered already there is nothing to cancel. It reports false if no request
// is named: the handler may know what is meant.
func (p *Peer) cancelled(params json.RawMessage) bool {
	raw, ok := Member(params, "requestId")
	if !ok || !isID(raw) {
		return false
	}
	id := parseID(raw)
	p.mu.Lock()
	if in := p.requests[id.canonical()]; in != nil {
		in.cancelled = true
		in.cancel(errCancelled)
		p.mu.Unlock()
		return true
	}
	n, _ := id.integer()
	k := p.calls[n]
	listens := k != nil && k.Method == "subscriptions/listen"
	p.mu.Unlock()
	if listens {
		p.settle(id, outcome{err: errTornDown})
	}
	return true
}

// errTornDown ends a subscription that the server does not want to keep.
var errTornDown = errors.New("the server has ended the subscription")

// canonical is the id in the one spelling that all equal strings share.
func (id ID) canonical() ID {
	if id.kind == idText && strings.IndexByte(id.text, '\\') >= 0 {
		if s, ok := Unquote([]byte(id.text)); ok {
			return StringID(s)
		}
	}
	return id
}

// skipped takes note of garbage. If it was meant to answer a call, that call
// fails now rather than at its deadline; if it was meant to ask, the other side
// hears that it was in vain.
func (p *Peer) skipped(g *Garbage) {
	p.mu.Lock()
	p.stats.Garbage++
	p.mu.Unlock()
	if p.opts.OnGarbage != nil {
		p.opts.OnGarbage(g)
	}
	switch {
	case !g.Answers.IsZero():
		p.settle(g.Answers, outcome{err: g.badAnswer()})
	case p.opts.ReplyInvalid || !g.Asks.IsZero():
		p.post(g.reply())
	}
}

// refuser is the handler of a peer that has none.
type refuser struct{}

func (refuser) HandleRequest(_ context.Context, r *Request) (json.RawMessage, error) {
	return nil, MethodNotFound(r.Method)
}

func (refuser) HandleNotification(context.Context, *Notification) {}

// MethodNotFound is the answer to a request for a method that is not there.
func MethodNotFound(method string) *Error {
	return Errorf(CodeMethodNotFound, "method not found: %s", method)
}

// A limiter lets perSecond requests of the other side through in a second, and
// that many at once, and as many again for each call of ours that is under way:
// those of many clients are asked more than those of one.
type limiter struct {
	perSecond int // 0 means no limit
	left      float64
	last      time.Time
}

// called takes note that a call begins.
func (l *limiter) called() { l.left += float64(l.perSecond) }

// allow reports whether a request may pass while some calls are under way.
func (l *limiter) allow(calls int) bool {
	if l.perSecond <= 0 {
		return true
	}
	now, limit := time.Now(), float64(l.perSecond*(1+calls))
	l.left = min(limit, l.left+now.Sub(l.last).Seconds()*limit)
	l.last = now
	if l.left < 1 {
		return false
	}
	l.left--
	return true
}
