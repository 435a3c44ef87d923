package wire

import (
	"context"
	"net/http"
)

// serveModern answers a message of the modern era: nothing is known of its
// sender but what it says itself.
func (h *HTTPHandler) serveModern(w http.ResponseWriter, r *http.Request, principal string, m Message, meta []byte) *Refusal {
	j := &modernRequest{job: job{server: h.server}}
	j.own.Principal, j.own.owner = principal, httpOwner(principal)
	switch m.Kind() {
	case KindResponse:
		return refuse(http.StatusBadRequest, CodeInvalidRequest, "a client of this protocol revision sends no responses")
	case KindNotification:
		// Closing the response is how a request is cancelled; no other
		// notification is defined.
		j.own.Era, j.own.Version, j.own.server = Modern, Version20260728, h.server
		h.notify(r.Context(), &Notification{Method: m.Method, Params: m.Params, Link: &j.own, Session: &j.own})
		return h.accept(w)
	}
	name, err := checkMirror(r.Header, m.Method, m.Params)
	if err != nil {
		return mismatch(m.ID, err)
	}
	refused := h.server.modernGate(&j.own, m.Method, meta)
	if refused == nil && m.Method == "tools/call" && h.server.opts.ParamHeaders != nil {
		if repeated := h.server.opts.ParamHeaders(&j.own, name); repeated != nil {
			arguments, _ := Member(m.Params, "arguments")
			if err := repeated.Check(r.Header, arguments); err != nil {
				return mismatch(m.ID, err)
			}
		}
	}
	switch {
	case refused != nil:
		return refuseModern(m.ID, refused)
	case m.Method == "server/discover":
		return h.serveDiscover(w, r, &j.own, m)
	case m.Method == "subscriptions/listen":
		return h.serveListen(w, r, &j.own, m)
	default:
		return h.serveJob(w, r, j, m)
	}
}

func mismatch(id ID, err error) *Refusal {
	no := refuse(http.StatusBadRequest, CodeHeaderMismatch, "Header mismatch: "+err.Error())
	no.ID = id
	return no
}

// accept is the answer to what is not a request.
func (h *HTTPHandler) accept(w http.ResponseWriter) *Refusal {
	writeStatus(w, h.times.write, http.StatusAccepted)
	return nil
}

// A modernRequest is a job with the exchange that first answers it, in one
// piece of memory.
type modernRequest struct {
	job
	first exchange
}

// serveJob runs a request, or goes on with one that was parked.
func (h *HTTPHandler) serveJob(w http.ResponseWriter, r *http.Request, req *modernRequest, m Message) *Refusal {
	principal := req.own.Principal
	if err := h.limiter.acquire(r.Context(), principal, req.own.ClientInfo); err != nil {
		return tooMany(m.ID)
	}
	defer h.limiter.release(principal)
	parked, refused := h.server.unpark(&req.own, m)
	if refused != nil {
		return refuseModern(m.ID, refused)
	}
	ex, j := &req.first, &req.job
	if parked != nil {
		j = parked
	}
	ex.server, ex.job, ex.method, ex.id, ex.jsonOnly = h.server, j, m.Method, m.ID, h.opts.JSONOnly
	ex.init(1, parseAccept(r.Header["Accept"]))
	defer h.silence.end(ex)
	if parked != nil {
		wake := ex.begin(h)
		j.resume(ex, wake, m.Params)
		h.respond(w, r, ex, wake)
		return nil
	}
	if !h.server.enter() {
		return shuttingDown(m.ID)
	}
	j.begin(h.server.ctx, m)
	j.header = r.Header
	if !j.mayAsk(m.Method) {
		ex.beginInline(h, w, r)
		j.heardBy(ex, ex.inline.wake)
		j.run()
		ex.endInline()
		return nil
	}
	wake := ex.begin(h)
	j.heardBy(ex, wake)
	h.server.crew.do(j.run)
	h.respond(w, r, ex, wake)
	return nil
}

func tooMany(id ID) *Refusal {
	no := overloaded()
	no.ID = id
	return no
}

func shuttingDown(id ID) *Refusal {
	return &Refusal{
		Status: http.StatusServiceUnavailable,
		Header: http.Header{"Retry-After": {"1"}, "Connection": {"close"}},
		ID:     id,
		Reason: errShuttingDown(),
	}
}

// serveDiscover says what the server is.
func (h *HTTPHandler) serveDiscover(w http.ResponseWriter, r *http.Request, sess *Session, m Message) *Refusal {
	if err := h.limiter.acquire(r.Context(), sess.Principal, sess.ClientInfo); err != nil {
		return tooMany(m.ID)
	}
	defer h.limiter.release(sess.Principal)
	result, refused := h.server.discover(r.Context(), sess)
	if refused != nil {
		return refuseModern(m.ID, refused)
	}
	writeMessage(w, h.times.write, http.StatusOK, Message{ID: m.ID, Result: result})
	return nil
}

// serveListen keeps a subscription: a stream that ends with the result.
func (h *HTTPHandler) serveListen(w http.ResponseWriter, r *http.Request, sess *Session, m Message) *Refusal {
	if h.opts.JSONOnly || !parseAccept(r.Header["Accept"]).stream {
		return notAcceptable("text/event-stream")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	st := &outStream{}
	wake := st.attach()
	defer st.detach(wake)
	send := func(m Message) error { return st.push(ctx, m, false) }
	l := newListener(sess, m.ID, send)
	if refused := h.server.listen(ctx, l, m.Params); refused != nil {
		return refuseModern(m.ID, refused)
	}
	defer h.server.unlisten(l)
	send(l.acknowledgement()) // it is the first, so there is room
	l.acknowledged()
	h.pump(w, r, st, wake, l.end, func() { st.end(Message{ID: m.ID, Result: l.result(h.server)}) })
	return nil
}

// pump serves a response that is nothing but a stream, until the stream ends or
// the client has gone, and says why it stopped. When end is closed it calls
// finish, which ends the stream.
func (h *HTTPHandler) pump(w http.ResponseWriter, r *http.Request, st *outStream, wake reader, end <-chan struct{}, finish func()) streamState {
	out := eventWriter{w: w, times: &h.times, budget: h.budget}
	defer out.stop()
	for {
		if state := out.pump(st, wake); state != streamWaits {
			return state
		}
		select {
		case <-wake:
		case <-out.quiet():
			out.comment()
		case <-end:
			finish()
			end = nil
		case <-r.Context().Done():
			return streamLost
		}
	}
}
