package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// An exchange is the response to one POST. It begins as a single JSON answer
// and becomes a stream of events when something has to be sent before the
// result.
type exchange struct {
	outStream
	server     *Server
	job        *job         // modern
	session    *httpSession // legacy
	method     string       // modern
	header     http.Header  // of the POST
	id         ID           // of the request that is being answered, if it is one
	batch      bool         // the answer is an array
	jsonOnly   bool         // it cannot become a stream
	streamOnly bool         // it must be one
	comesBack  bool         // the client may be asked to come back for the answer
	away       bool         // it was, and has not got all of it; guarded by session.mu
	dropped    bool         // the POST has lost its connection before it was over; guarded by session.mu
	over       bool         // it is; guarded by session.mu
	inline     inline       // if the reader is also the one that handles the request
	silent     silentExchange

	// Guarded by outStream.mu.
	missing int       // answers still to come
	answers []Message // kept as long as it is no stream
	single  [1]Message
}

// init prepares an exchange for n answers.
func (ex *exchange) init(n int, accepts accepted) {
	ex.missing = n
	ex.answers = ex.single[:0]
	ex.jsonOnly = ex.jsonOnly || !accepts.stream
	ex.streamOnly = !accepts.json
}

// begin makes the caller the reader.
func (ex *exchange) begin(h *HTTPHandler) reader {
	r := ex.attach()
	if ex.streamOnly {
		ex.start()
	}
	h.silence.begin(ex)
	return r
}

// Notify implements jobOutlet.
func (ex *exchange) Notify(ctx context.Context, method string, params json.RawMessage) error {
	if ex.jsonOnly {
		return nil // nobody can hear it
	}
	return ex.push(ctx, Message{Method: method, Params: params}, true)
}

// finish takes the answer to one of the requests. If there is a stream the
// answer goes there, and the stream ends with the last one.
func (ex *exchange) finish(answer Message) {
	if !ex.batch {
		answer.ID = ex.id
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.missing == 0 {
		return
	}
	ex.missing--
	ex.answers = append(ex.answers, answer)
	ex.settle()
}

// cancelled takes note that a request of the exchange gets no answer.
func (ex *exchange) cancelled() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.missing > 0 {
		ex.missing--
		ex.settle()
	}
}

// settle moves the answers to the stream, if there is one, and ends it with the
// last. Under mu.
func (ex *exchange) settle() {
	if ex.opened {
		for _, answer := range ex.answers {
			if ex.job != nil && answer.Error == nil {
				answer.lead, answer.Result = ex.server.dressed(ex.job.own.description(), ex.method, answer.Result)
			}
			if size := len(answer.Result); size > largeSize && !ex.budget.has(size) {
				answer.lead, answer.Result, answer.Error = nil, nil, Errorf(CodeOverloaded, resultTooMuch)
			}
			ex.add(answer)
		}
		ex.answers, ex.single = nil, [1]Message{} // the stream has them now, for as long as it keeps them
	}
	ex.ended = ex.missing == 0 // even if it is no stream: now it cannot become one
	ex.reader.wake()
}

// state says whether all requests are answered, and whether it is a stream.
func (ex *exchange) state() (complete, opened bool) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.missing == 0, ex.opened
}

// An inline exchange is one whose handler runs on the goroutine that the HTTP
// server has for the request. Only if something has to be sent before the answer
// another goroutine begins, which then writes the whole response.
type inline struct {
	handler *HTTPHandler
	w       http.ResponseWriter
	r       *http.Request
	wake    reader
	stop    func() bool // watching whether the client is still there
	writing sync.WaitGroup
}

// beginInline makes the caller, who will handle the request and then call
// endInline, the reader.
func (ex *exchange) beginInline(h *HTTPHandler, w http.ResponseWriter, r *http.Request) {
	in := &ex.inline
	in.handler, in.w, in.r, in.wake = h, w, r, ex.attach()
	ex.opener = ex
	if ex.streamOnly {
		ex.start()
	}
	in.stop = afterFunc(r.Context(), func() { h.leave(ex, in.wake, streamLost) })
	h.silence.begin(ex)
}

// afterFunc is context.AfterFunc, which costs less with a context that has a way
// of its own to do that.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// endInline is for the caller of beginInline, when the request has been handled:
// it writes the response.
func (ex *exchange) endInline() {
	in := &ex.inline
	in.stop()
	ex.mu.Lock()
	opened := ex.opened
	ex.opener = nil
	ex.mu.Unlock()
	if opened {
		in.writing.Wait()
	} else {
		in.handler.respond(in.w, in.r, ex, in.wake) // at once, unless the request waits for its turn
	}
	in.w, in.r = nil, nil // a stream may be kept for long, and its connection not with it
}

// streamOpens implements streamOpener.
func (ex *exchange) streamOpens() {
	in := &ex.inline
	in.writing.Add(1)
	in.handler.server.crew.do(func() {
		defer in.writing.Done()
		in.handler.respond(in.w, in.r, ex, in.wake)
	})
}

// respond serves the POST until it is answered: with results, with what a
// modern call asks its client, or with a stream of events that ends with either.
func (h *HTTPHandler) respond(w http.ResponseWriter, r *http.Request, ex *exchange, wake reader) {
	out := eventWriter{w: w, times: &h.times, budget: h.budget}
	defer out.stop()
	var grace <-chan time.Time
	for {
		complete, opened := ex.state()
		if complete && !opened {
			h.writeAnswers(w, ex)
			return
		}
		if opened {
			if state := out.pump(&ex.outStream, wake); state != streamWaits {
				h.leave(ex, wake, state)
				return
			}
		}
		if ex.job != nil && grace == nil && ex.job.asksClient() {
			grace = time.After(askGrace)
		}
		select {
		case <-wake:
		case <-out.quiet():
			out.comment()
		case <-grace:
			grace = nil
			if ex.job.asksClient() {
				if question, ok := h.server.park(ex.job); ok {
					ex.finish(Message{Result: question})
				}
			}
		case <-r.Context().Done():
			h.leave(ex, wake, streamLost)
			return
		}
	}
}

// leave is for a reader that stops. If that was before the end, a modern call is
// cancelled with it. A legacy one is not: its client says so if it wants that, and
// may come back where events have been numbered. The call goes on as long as the
// session does.
func (h *HTTPHandler) leave(ex *exchange, r reader, state streamState) {
	if !ex.detach(r) {
		return
	}
	if ex.session != nil {
		defer ex.session.recount()
	}
	switch {
	case ex.job != nil:
		if state != streamEnded {
			ex.job.cancel(errDisconnected)
		}
	case state == streamEnded:
		ex.session.release(ex)
	default:
		ex.session.dropped(ex)
		time.AfterFunc(h.times.resume, func() {
			if ex.left(r) {
				ex.session.release(ex)
			}
		})
	}
}

// writeAnswers writes the answers as one JSON text.
func (h *HTTPHandler) writeAnswers(w http.ResponseWriter, ex *exchange) {
	answers := ex.answers // nobody adds to them any more
	switch {
	case len(answers) == 0: // all were cancelled, and what is cancelled gets no answer
		writeStatus(w, h.times.write, http.StatusAccepted)
	case ex.batch:
		body := []byte{'['}
		for i, m := range answers {
			if i > 0 {
				body = append(body, ',')
			}
			body = m.AppendTo(body)
		}
		h.writeCounted(w, ex.id, append(body, ']'), nil, "")
	case answers[0].Error != nil:
		status := http.StatusOK
		if ex.job != nil {
			status = modernStatus(answers[0].Error.Code)
		}
		writeMessage(w, h.times.write, status, answers[0])
	default:
		h.writeResult(w, ex, answers[0].Result)
	}
}

// writeResult writes one result. It is not copied together with what goes
// around it, unless it is small.
func (h *HTTPHandler) writeResult(w http.ResponseWriter, ex *exchange, result json.RawMessage) {
	buf := buffers.Get().(*[]byte)
	head := append((*buf)[:0], `{"jsonrpc":"2.0","id":`...)
	head = append(ex.id.AppendTo(head), `,"result":`...)
	if ex.job != nil {
		head, result = h.server.appendDressed(head, ex.job.own.description(), ex.method, result)
	} else if len(result) == 0 {
		result = json.RawMessage("{}")
	}
	head = h.writeCounted(w, ex.id, head, result, "}")
	keepBuffer(buf, head)
}

// writeCounted writes an answer, if there is memory to wait for its reader.
func (h *HTTPHandler) writeCounted(w http.ResponseWriter, id ID, head, middle []byte, tail string) []byte {
	size := len(head) + len(middle) + len(tail)
	if size <= largeSize {
		return writeJSON(w, nil, h.times.write, http.StatusOK, head, middle, tail)
	}
	if h.budget.acquire(context.Background(), size) != nil { // which is soon decided
		no := noRoom()
		no.ID, no.Reason.Message = id, resultTooMuch
		no.write(w)
		return head
	}
	defer h.budget.give(size)
	return writeJSON(w, h.budget, h.times.write, http.StatusOK, head, middle, tail)
}

// resultTooMuch says what became of a call whose answer cannot be kept.
const resultTooMuch = "The request was carried out, but the gateway's memory is used up and its result was dropped"

// modernStatus is the HTTP status that the modern era has for an error.
func modernStatus(code int64) int {
	switch code {
	case CodeMethodNotFound:
		return http.StatusNotFound
	case CodeInvalidParams, CodeInvalidRequest, CodeHeaderMismatch, CodeMissingClientCapability, CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// refuseModern is the answer to a modern request that was not handled. Only there
// CodeOverloaded means what it is called, unless it is what a server behind us
// said: servers use that code for anything.
func refuseModern(id ID, reason *Error) *Refusal {
	status := modernStatus(reason.Code)
	if reason.Code == CodeOverloaded && reason.raw == nil {
		status = http.StatusTooManyRequests
	}
	return &Refusal{Status: status, ID: id, Reason: reason}
}
