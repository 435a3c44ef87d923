package wire

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Ask asks the client something on behalf of this request: elicitation,
// sampling, roots. It works in both eras. A legacy client gets a request on the
// stream that carries this one. A modern client gets an answer that says what is
// asked, and the request waits for it to come back; what several goroutines ask
// at about the same time goes together.
//
// The error is an *Error with CodeMissingClientCapability if the client did not
// declare that it can be asked this.
func (r *Request) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	return r.Link.Call(ctx, Call{Method: method, Params: params})
}

// ComeBack ends the HTTP response that carries this request, if it is a stream
// or may become one, and has the client come back for the rest after the given
// time, at most a minute: a request that takes long then holds no connection. The
// answer is kept for it. It reports false where that cannot be: only revision
// 2025-11-25 over HTTP has it, where ServerOptions.ComeBack allows it, and a
// client that has much to come back for already, or is not there, is not sent
// away.
func (r *Request) ComeBack(after time.Duration) bool {
	session := r.httpSession()
	return session != nil && session.askBack(r.ID, min(after, maxRetry))
}

// Header returns the HTTP header that this request came with, nil if it did not
// come over HTTP. Nobody may change it. A request of the legacy era has it until
// it is answered or cancelled.
func (r *Request) Header() http.Header {
	if j, ok := r.Link.(*job); ok {
		return j.header
	}
	if session := r.httpSession(); session != nil {
		return session.headerOf(r.ID)
	}
	return nil
}

// httpSession is the legacy session over HTTP that the request belongs to, if
// it does.
func (r *Request) httpSession() *httpSession {
	if link, ok := r.Link.(*requestLink); ok {
		if peer, ok := link.Link.(*Peer); ok {
			session, _ := peer.conn.(*httpSession)
			return session
		}
	}
	return nil
}

// A job is a modern request on its way through the handler. The handler runs in
// a goroutine of its own, because it may outlive the message that brought the
// request: a job that asks its client is parked and goes on with another one
// (mrtr.go). It is also the Link that the handler gets.
type job struct {
	server *Server
	own    Session // what the request says of its client
	req    Request
	header http.Header
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	out      jobOutlet       // nil while nobody is there to hear
	wake     reader          // whoever serves the job: it has something to look at
	token    json.RawMessage // the progress token of the request that resumed the job
	asks     []*ask          // not yet answered, in order
	asked    int             // how many of them were numbered
	finished bool
	answer   Message
}

// A jobOutlet is where a job is heard.
type jobOutlet interface {
	Notify(ctx context.Context, method string, params json.RawMessage) error
	finish(answer Message) // its id is that of the first request
}

var errDisconnected = errors.New("the client has disconnected")

// begin fills in a job whose session is known. It lives no longer than life.
func (j *job) begin(life context.Context, m Message) {
	j.ctx, j.cancel = context.WithCancelCause(life)
	j.req = Request{ID: m.ID, Method: m.Method, Params: m.Params, Link: j, Session: &j.own}
}

// run runs the handler. The server has been entered for it.
func (j *job) run() {
	defer j.server.leave()
	answer := j.server.handle(j.ctx, &j.req)
	j.cancel(ErrClosed)
	j.mu.Lock()
	j.finished, j.answer = true, answer
	out := j.out
	j.mu.Unlock()
	if out != nil {
		out.finish(answer)
	}
}

// heardBy makes out the place where the job is heard from now on, and wake what
// is signalled when there is something to do for it.
func (j *job) heardBy(out jobOutlet, wake reader) {
	j.mu.Lock()
	j.out, j.wake = out, wake
	finished, answer := j.finished, j.answer
	j.mu.Unlock()
	if finished && out != nil { // while nobody heard it
		out.finish(answer)
	}
}

// resume goes on with a job that was parked. It is heard by another request
// now, whose params have the answers to what it asked.
func (j *job) resume(out jobOutlet, wake reader, params json.RawMessage) {
	token, _ := Member(params, "_meta", MetaProgressToken)
	j.mu.Lock()
	j.token = token
	j.mu.Unlock()
	j.heardBy(out, wake)
	responses, _ := Member(params, "inputResponses")
	j.take(responses)
}

// Call implements Link: it asks the client.
func (j *job) Call(ctx context.Context, q Call) (json.RawMessage, error) {
	if err := j.own.mayAsk(q.Method, q.Params); err != nil {
		return nil, err
	}
	return j.ask(ctx, q)
}

// Notify implements Link: it tells the client something that belongs to this
// request. What belongs to no request goes where the session sends it. While
// the job is parked nobody hears it.
func (j *job) Notify(ctx context.Context, method string, params json.RawMessage) error {
	if !belongsToRequest(method) {
		return j.own.Notify(ctx, method, params)
	}
	if method == "notifications/message" && !j.own.wantsLog(params) {
		return nil
	}
	j.mu.Lock()
	out, token, finished := j.out, j.token, j.finished
	j.mu.Unlock()
	switch {
	case finished:
		return errGone
	case out == nil:
		return nil
	}
	if token != nil && method == "notifications/progress" {
		params, _ = SetMember(params, token, MetaProgressToken)
	}
	return out.Notify(ctx, method, params)
}

// belongsToRequest reports whether a notification may travel with a request.
func belongsToRequest(method string) bool {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/list_changed", "notifications/resources/updated", "notifications/tasks":
		return false
	}
	return true
}

// Done implements Link. The link of a request ends with it.
func (j *job) Done() <-chan struct{} { return j.ctx.Done() }

// Err implements Link.
func (j *job) Err() error { return context.Cause(j.ctx) }

// Close implements Link. A request ends when its handler returns, not before.
func (j *job) Close() error { return nil }
