package patchbay

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"
)

// protect calls a function of the embedding program. If it panics, that is an
// error of what was being done, and the stack is for the log.
func (h *Host) protect(what string, call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			h.opts.Logger.Error("panic", "in", what, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s panicked", what)
		}
	}()
	return call()
}

const (
	// maxAsking is how many questions of servers may be open at a time, so that
	// functions which never return do not pile up.
	maxAsking = 1000

	// lastWords is how long a function that answers a server may take to return
	// when nobody waits for its answer any more.
	lastWords = time.Second
)

// ask calls a function of the embedding program that answers a server. It does
// not wait for one that goes on although its context has ended: neither the
// server nor whoever closes the host may depend on that.
func (h *Host) ask(ctx context.Context, what string, call func() (json.RawMessage, error)) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	if h.asking.Add(1) > maxAsking {
		h.asking.Add(-1)
		return nil, fmt.Errorf("%s: %d others wait for an answer", what, maxAsking)
	}
	done := make(chan answer, 1)
	go func() {
		defer h.asking.Add(-1)
		var a answer
		a.err = h.protect(what, func() (err error) {
			a.result, err = call()
			return err
		})
		done <- a
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
	}
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case a := <-done:
		return a.result, a.err
	case <-late.C:
		return nil, fmt.Errorf("%s does not return although its context has ended: %w", what, context.Cause(ctx))
	}
}

// UI is how a host reaches a person. Each function may be nil: then the host
// cannot do that, and what needs it is answered with cancel or denied. All are
// called from several goroutines, and must return when ctx ends: nobody waits
// for the answer any more.
type UI struct {
	// Confirm asks whether a call may go ahead.
	Confirm func(ctx context.Context, r ConfirmRequest) (bool, error)

	// Elicit asks a person what a server wants to know. ctx ends with the call
	// that made the server ask, or after ten minutes. An error means cancel, and so
	// does an answer that does not fit the question. Who is sent to a URL is not
	// waited for: that the person agreed is all there is to answer.
	Elicit func(ctx context.Context, r ElicitRequest) (ElicitResult, error)

	// ElicitFormsOnly says that Elicit cannot send a person to a URL. Servers are
	// told.
	ElicitFormsOnly bool

	// ElicitComplete tells that what a person was sent to a URL for is done.
	ElicitComplete func(server, elicitationID string)
}

// ConfirmRequest is a call that needs a person's consent.
type ConfirmRequest struct {
	Tool      Tool            `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Decision  Decision        `json:"decision"` // why the person is asked
}

// Client is what the user of a session can do for servers. What is nil is not
// declared to them. All functions are called from several goroutines. Their
// contexts carry the values of the context of the call that made the server
// speak, where that can be told.
type Client struct {
	// Capabilities, if not nil, are declared to servers as they are, in place of
	// what there are functions for.
	Capabilities json.RawMessage

	// AskedInCalls says that the user can be asked only while a call of the
	// session is under way, as clients of the protocol's revision 2026-07-28.
	AskedInCalls bool

	// PreferLegacy says that the user speaks the protocol's older era, in which
	// servers ask outside of results. Those that serve both are spoken to in that
	// one, so that what they ask arrives as if the user were connected directly.
	PreferLegacy bool

	// OneProgram says that all sessions which For makes of one are the same
	// program's. Then a question that came while several of their calls were under
	// way, and may belong to any, is asked in the oldest that the server does not
	// wait on already. LikelyOneProgram says that it is to be assumed: then that
	// holds for elicitations, which a person reads, and nothing else is guessed.
	OneProgram       bool
	LikelyOneProgram bool

	// HandlesURLErrors says that the user does itself what error -32042 asks for,
	// as clients of the protocol's revision 2025-11-25 that can be sent to a URL:
	// it gets the error. Otherwise Elicit does, and the call is made again.
	HandlesURLErrors bool

	// Elicit, Sample and Roots answer elicitation/create, sampling/createMessage
	// and roots/list. Params and results are those of the protocol, as they are;
	// an *RPCError goes to the server as it is. A request goes to the session
	// whose call made the server ask; where that cannot be told, to none. If the
	// capabilities say that roots.listChanged, Roots is asked once, and again after
	// Session.RootsChanged. Elicit also asks for
	// consent to a call, before UI.Confirm would be; the server is then empty. When
	// what the user was sent to a URL for is done, Notified is told.
	Elicit func(ctx context.Context, server string, params json.RawMessage) (json.RawMessage, error)
	Sample func(ctx context.Context, server string, params json.RawMessage) (json.RawMessage, error)
	Roots  func(ctx context.Context) (json.RawMessage, error)

	// Confirm asks for consent to a call in a way of the user's own. nil means
	// that Elicit is asked, and without it UI.Confirm.
	Confirm func(context.Context, ConfirmRequest) (bool, error)

	// What follows must return soon, and must not close the host.
	Progress        func(ctx context.Context, server string, params json.RawMessage)         // of requests made with Forward
	Log             func(ctx context.Context, server string, params json.RawMessage)         // notifications/message
	Changed         func(Lists)                                                              // what the session offers
	ResourceUpdated func(server, uri string, params json.RawMessage)                         // that was subscribed to
	Notified        func(ctx context.Context, server, method string, params json.RawMessage) // of anything else

	// ComeBack is told that a server has ended the stream that carries a request
	// and wants its client back for the answer after that time, as those of the
	// protocol's revision 2025-11-25 may over HTTP. Patchbay comes back by itself;
	// a server in front of it can ask the same of its own client.
	ComeBack func(ctx context.Context, server string, after time.Duration)
}

// Lists says which lists of a session are meant.
type Lists struct{ Tools, Resources, Prompts bool }
