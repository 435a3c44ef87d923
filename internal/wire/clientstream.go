package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// maxResumes is how often in a row the stream of a call is resumed in vain.
const maxResumes = 5

// drainTimeout is how long a stream may take to end after its answer.
const drainTimeout = time.Second

// streamBody is the body of an answer. When it stays silent for too long it
// closes itself.
type streamBody struct {
	body    io.ReadCloser
	host    string
	idle    time.Duration
	timer   *time.Timer // nil if silence is allowed
	stalled atomic.Bool
}

var errSilent = errors.New("nothing came for too long")

func (b *streamBody) watch(idle time.Duration) {
	if idle > 0 {
		b.idle = idle
		b.timer = time.AfterFunc(idle, func() {
			b.stalled.Store(true)
			b.body.Close()
		})
	}
}

func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 && b.timer != nil {
		b.timer.Reset(b.idle)
	}
	if err != nil && b.stalled.Load() {
		err = errSilent
	}
	return n, err
}

func (b *streamBody) Close() error {
	b.unwatch()
	return b.body.Close()
}

func (b *streamBody) unwatch() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// follow reads a stream and hands each message to handle until that returns
// false or the stream ends; the error is nil only in the first case. What is
// no message goes to bad, and is what the error says when the stream has ended.
func (h *HTTPClient) follow(body *streamBody, idle time.Duration, at *streamPosition, handle func(Message) bool, bad func(*Garbage) error) error {
	body.watch(idle)
	defer body.unwatch()
	r, ok := h.readers.Get().(*sseReader)
	if !ok {
		r = newSSEReader(nil, h.options.Limits.size(), &h.blocks)
	}
	r.reset(body)
	r.lastID, at.timed = at.lastID, false
	defer h.readers.Put(r)

	var malformed error
	for {
		e, err := r.next()
		at.lastID = r.lastID
		if r.retry > 0 {
			at.retry, at.timed = r.retry, true
		}
		if err != nil {
			if err == io.EOF && malformed != nil {
				return malformed
			}
			return err
		}
		if e.Name != "" || len(e.Data) == 0 {
			continue
		}
		messages, err := parseEvent(e.Data, h.options.Limits)
		if err != nil {
			malformed = err
			if err := bad(newGarbage(e.Data, e.Data, len(e.Data), err)); err != nil {
				return err
			}
		}
		for _, m := range messages {
			if !handle(m) {
				return nil
			}
		}
	}
}

// parseEvent reads the message or, as 2025-03-26 allows, the batch of an event.
func parseEvent(data []byte, limits Limits) ([]Message, error) {
	if IsBatch(data) {
		messages, _, err := ParseBatch(data, limits, maxBatch)
		return messages, err
	}
	m, err := Parse(data, limits)
	if err != nil {
		return nil, err
	}
	return []Message{m}, nil
}

// stream reads the answer from an event stream. If a legacy server has given
// its events ids, the stream is resumed when it ends early: the server may
// close it on purpose and have the client come back.
func (c *httpCall) stream(body *streamBody) (Message, error) {
	var answer Message
	var at streamPosition
	for fruitless := 0; ; {
		before := at.lastID
		got := false
		err := c.link.follow(body, c.idle(), &at, func(m Message) bool {
			got = true
			if c.isAnswer(m) {
				answer = m
				return false
			}
			c.handle(m)
			return true
		}, func(g *Garbage) error {
			if n, ok := g.Answers.integer(); ok && n == c.id {
				return g.badAnswer() // nobody need wait for the end of the stream
			}
			c.link.refuse(c.ctx, g, c.session)
			return nil
		})
		if err == nil {
			c.drain(body)
			return answer, nil
		}
		body.Close()
		if c.ctx.Err() != nil {
			return Message{}, context.Cause(c.ctx)
		}
		var bad *ParseError
		if c.session.modern || at.lastID == "" || errors.Is(err, ErrTooLong) || errors.As(err, &bad) {
			return Message{}, c.broken(body.host, err)
		}
		onPurpose := err == io.EOF && at.retry > 0 // the response is whole, and a time to come back was set
		if onPurpose && c.ComeBack != nil {
			c.ComeBack(at.retry)
		}
		if got || at.lastID != before || onPurpose && at.timed {
			fruitless = 0
		} else if fruitless >= maxResumes {
			return Message{}, c.broken(body.host, err)
		}
		if body, err = c.resume(at, &fruitless); err != nil {
			return Message{}, err
		}
	}
}

// idle is how long the stream of the call may be silent, 0 if for ever: how long
// a server may think is the caller's business. A server that is not there any
// more does not answer the keep-alives of TCP.
func (c *httpCall) idle() time.Duration {
	if c.Method == "subscriptions/listen" {
		return c.link.options.ListenIdle
	}
	return 0
}

// broken is the error of a stream that ended without the answer.
func (c *httpCall) broken(host string, err error) error {
	var bad *ParseError
	switch {
	case errors.Is(err, ErrTooLong), errors.As(err, &bad):
		return fmt.Errorf("answer of %s to %s: %w", host, c.Method, err)
	case errors.Is(err, errSilent):
		return &NetError{Reason: ReasonTimeout, Host: host, Err: err}
	case err == io.EOF:
		err = io.ErrUnexpectedEOF // the stream did end, but not the conversation
	}
	return &NetError{Reason: ReasonLost, Host: host, Err: err}
}

// resume opens the stream again where it broke off.
func (c *httpCall) resume(at streamPosition, fruitless *int) (*streamBody, error) {
	for {
		if !pause(c.ctx, at.delay(*fruitless)) {
			return nil, context.Cause(c.ctx)
		}
		*fruitless++
		body, err := c.link.get(c.ctx, c.session, at.lastID)
		if err == nil {
			return body, nil
		}
		if *fruitless >= maxResumes || !canRetry(err) {
			return nil, fmt.Errorf("the answer to %s was cut off and could not be resumed: %w", c.Method, err)
		}
	}
}

// drain lets the stream end by itself, so that its connection can be used
// again, without making the caller wait. The context of the call lives on
// until then.
func (c *httpCall) drain(body *streamBody) {
	h := c.link
	c.detached = h.start(func() {
		timer := time.AfterFunc(drainTimeout, func() { body.Close() })
		stop := context.AfterFunc(h.ctx, func() { body.Close() })
		finish(body)
		stop()
		timer.Stop()
		c.cancel(nil)
	})
	if !c.detached {
		body.Close()
	}
}

// handle deals with what comes on the stream of the call beside the answer.
func (c *httpCall) handle(m Message) {
	c.link.handle(c.ctx, m, c.session, c.Tag)
}

// progressed passes a progress notification to its call and gives that more
// time. It reports false if it is the Handler that has to know; the
// notification then has the caller's own token.
func (h *HTTPClient) progressed(n *Notification) bool {
	token, _ := Member(n.Params, MetaProgressToken)
	id, err := ParseID(token)
	if err != nil {
		return false
	}
	number, _ := id.integer()
	h.mu.Lock()
	c, task := h.calls[number], h.tasks.find(number)
	h.mu.Unlock()
	if c == nil {
		if task != nil {
			n.Params, n.Tag = withToken(n.Params, task.token), task.tag
		}
		// A token of ours is none that anybody else knows: the call is over.
		return task == nil && 0 < number && number <= h.lastID.Load()
	}
	c.progress.Lock()
	defer c.progress.Unlock()
	if c.ended {
		return true
	}
	c.clock.renew()
	n.Params, n.Tag = withToken(n.Params, c.token), c.Tag
	if c.Progress == nil {
		return false
	}
	c.Progress(n.Params)
	return true
}

// handle deals with a message that arrived on a stream, other than the answer
// to the call the stream belongs to. ctx is that of the stream.
func (h *HTTPClient) handle(ctx context.Context, m Message, s *clientSession, tag any) {
	switch m.Kind() {
	case KindRequest:
		if !s.modern { // where servers must not ask, and clients cannot answer
			h.handleRequest(ctx, m, s, tag)
		}
	case KindNotification:
		h.handleNotification(ctx, m, tag)
	}
}

// refuse answers what was meant to be a request.
func (h *HTTPClient) refuse(ctx context.Context, g *Garbage, s *clientSession) {
	if !g.Asks.IsZero() && !s.modern {
		h.respond(ctx, s, g.reply())
	}
}

func (h *HTTPClient) handleNotification(ctx context.Context, m Message, tag any) {
	tellAtOnce(h.handler, m.Method)
	n := &Notification{Method: m.Method, Params: m.Params, Link: h, Tag: tag}
	switch m.Method {
	case "notifications/cancelled":
		if raw, ok := Member(m.Params, "requestId"); ok {
			if id, err := ParseID(raw); err == nil {
				h.mu.Lock()
				cancel := h.requests[id.canonical()]
				number, _ := id.integer()
				if c := h.calls[number]; cancel == nil && c != nil && c.Method == "subscriptions/listen" {
					cancel = func(error) { c.cancel(errTornDown) }
				}
				h.mu.Unlock()
				if cancel != nil {
					cancel(errCancelled)
				}
			}
		}
		return
	case "notifications/progress":
		// Some servers send it on another stream than that of the call.
		if h.progressed(n) {
			return
		}
	}
	if ctx.Value(turnKey{}) == h {
		h.inform(ctx, n) // inside another one: we have the turn
		return
	}
	select {
	case h.turn <- struct{}{}:
		h.inform(context.WithValue(h.ctx, turnKey{}, h), n)
		<-h.turn
	case <-ctx.Done():
	}
}

func (h *HTTPClient) inform(ctx context.Context, n *Notification) {
	defer func() {
		if v := recover(); v != nil {
			h.options.Logger.Error("notification handler panicked", "method", n.Method, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	h.handler.HandleNotification(ctx, n)
}

// turnKey marks the context of a notification being handled. A call made with
// it may bring notifications itself, which cannot wait for their turn.
type turnKey struct{}

func (h *HTTPClient) handleRequest(ctx context.Context, m Message, s *clientSession, tag any) {
	key := m.ID.canonical()
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	_, again := h.requests[key]
	refused := again || len(h.requests) >= maxServerRequests*(1+len(h.calls)) || !h.flood.allow(len(h.calls))
	if !refused {
		h.requests[key] = cancel
	}
	h.mu.Unlock()
	if refused {
		cancel(nil)
		// Answering before reading on slows the server down.
		h.respond(ctx, s, Message{ID: m.ID, Error: Errorf(CodeOverloaded, "overloaded: too many requests")})
		return
	}
	started := h.start(func() {
		r := &Request{ID: m.ID, Method: m.Method, Params: m.Params, Link: h, Tag: tag}
		answer := respond(ctx, h.handler, r, h.options.Logger)
		h.mu.Lock()
		delete(h.requests, key)
		h.replied = time.Now()
		h.mu.Unlock()
		if context.Cause(ctx) != errCancelled {
			h.respond(ctx, s, answer)
		}
		cancel(nil)
	})
	if !started {
		cancel(ErrClosed)
	}
}

// respond posts the answer to a request of the server. The server learns it
// even if the stream that carried the request has ended.
func (h *HTTPClient) respond(ctx context.Context, s *clientSession, m Message) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), respondTimeout)
	defer stop()
	defer context.AfterFunc(h.ctx, stop)()
	if err := h.post(ctx, m, s); err != nil {
		h.options.Logger.Debug("answering a request of the server", "error", err)
	}
}
