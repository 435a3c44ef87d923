package wire

import (
	"context"
	"net/http"
	"runtime/debug"
	"slices"
)

// speaksLegacy reports whether a legacy revision is spoken here.
func (s *Server) speaksLegacy(version string) bool { return slices.Contains(s.legacy, version) }

// checkLegacyMethod checks a GET or DELETE, which only the legacy era has.
func (h *HTTPHandler) checkLegacyMethod(r *http.Request) *Refusal {
	version, no := h.versionHeader(r)
	if no != nil {
		return no
	}
	if h.server.legacy == nil || EraOf(version) == Modern || r.Method == http.MethodGet && h.opts.JSONOnly {
		return h.methodNotAllowed()
	}
	if version != "" && !h.server.speaksLegacy(version) {
		return h.unsupported(ID{}, version)
	}
	if r.Method == http.MethodGet && (len(r.Header["Accept"]) == 0 || !parseAccept(r.Header["Accept"]).stream) {
		return notAcceptable("text/event-stream")
	}
	return nil
}

// session finds the session that a request names, and marks it as in use.
func (h *HTTPHandler) session(r *http.Request, principal string) (*httpSession, *Refusal) {
	ids := r.Header[headerSession]
	if len(ids) != 1 || ids[0] == "" {
		return nil, refuse(http.StatusBadRequest, CodeInvalidRequest, "exactly one "+headerSession+" header is required")
	}
	s := h.sessions.find(httpOwner(principal), ids[0])
	if s == nil {
		return nil, unknownSession()
	}
	return s, nil
}

func unknownSession() *Refusal {
	return refuse(http.StatusNotFound, codeUnknownSession, "Unknown MCP session")
}

// codeUnknownSession is what servers commonly say with a 404 for a session.
const codeUnknownSession = -32001

// serveDelete ends a session at the client's wish.
func (h *HTTPHandler) serveDelete(w http.ResponseWriter, r *http.Request, principal string) *Refusal {
	s, no := h.session(r, principal)
	if no != nil {
		return no
	}
	defer s.leave()
	h.sessions.remove(s)
	s.session.life.end(ErrClosed)
	writeStatus(w, h.times.write, http.StatusNoContent)
	return nil
}

// serveGet serves the stream of what belongs to no request, or goes on with a
// stream that has lost its connection.
func (h *HTTPHandler) serveGet(w http.ResponseWriter, r *http.Request, principal string) *Refusal {
	s, no := h.session(r, principal)
	if no != nil {
		return no
	}
	defer s.leave()
	var wake reader
	if last := r.Header.Get(headerLastEventID); last != "" {
		number, seen, ok := parseEventID(last)
		if ok && number > 0 {
			if ex := s.kept(number); ex != nil {
				h.goOn(w, r, ex, seen)
				return nil
			}
			ok = false
		}
		if !ok {
			return refuse(http.StatusBadRequest, CodeInvalidRequest, "nothing is kept for this "+headerLastEventID)
		}
		wake = s.standalone.resume(seen)
	} else {
		wake = s.standalone.attach()
	}
	defer func() {
		s.standalone.detach(wake)
		s.recount()
	}()
	s.standalone.start()
	h.pump(w, r, s.standalone, wake, nil, nil)
	return nil
}

// goOn serves the rest of the response to a POST, after the events up to and with
// number seen.
func (h *HTTPHandler) goOn(w http.ResponseWriter, r *http.Request, ex *exchange, seen uint64) {
	wake := ex.resume(seen)
	h.leave(ex, wake, h.pump(w, r, &ex.outStream, wake, nil, nil))
}

// serveLegacy answers one message of the legacy era.
func (h *HTTPHandler) serveLegacy(w http.ResponseWriter, r *http.Request, principal string, m Message) *Refusal {
	if m.Method == "initialize" && m.Kind() == KindRequest && len(r.Header[headerSession]) == 0 {
		return h.serveInitialize(w, r, principal, m)
	}
	s, no := h.session(r, principal)
	if no != nil {
		return h.withoutSession(w, r, m, no)
	}
	defer s.leave()
	switch m.Kind() {
	case KindRequest:
		return h.serveRequests(w, r, s, post{requests: []Message{m}})
	case KindNotification:
		if m.Method == "notifications/cancelled" {
			s.cancelled(m)
		}
	}
	if !s.deliver(m) {
		return unknownSession()
	}
	return h.accept(w)
}

// withoutSession answers what can be answered without a session.
func (h *HTTPHandler) withoutSession(w http.ResponseWriter, r *http.Request, m Message, no *Refusal) *Refusal {
	if len(r.Header[headerSession]) > 0 || m.Kind() != KindRequest {
		return no
	}
	if m.Method == "ping" {
		writeMessage(w, h.times.write, http.StatusOK, Message{ID: m.ID})
		return nil
	}
	no.ID = m.ID
	if h.server.opts.RequireInitialize {
		no.Reason = Errorf(CodeNotInitialized, "Server not initialized")
	}
	return no
}

func (h *HTTPHandler) serveInitialize(w http.ResponseWriter, r *http.Request, principal string, m Message) *Refusal {
	if err := h.limiter.acquire(r.Context(), principal, nil); err != nil {
		return tooMany(m.ID)
	}
	defer h.limiter.release(principal)
	s, answer, no := h.newSession(r.Context(), principal, m)
	if no != nil {
		no.ID = m.ID
		return no
	}
	if s != nil {
		defer s.leave()
		w.Header()[headerSession] = []string{s.id}
	}
	writeMessage(w, h.times.write, http.StatusOK, answer)
	return nil
}

// A post is what came in one POST, sorted.
type post struct {
	batch    bool
	requests []Message
	others   []Message // notifications and responses
	invalid  []Message // the replies to what is no message
}

// serveRequests has the session's Peer answer the requests of a POST.
func (h *HTTPHandler) serveRequests(w http.ResponseWriter, r *http.Request, s *httpSession, p post) *Refusal {
	id := ID{}
	if !p.batch {
		id = p.requests[0].ID
	}
	if h.server.drains() {
		return shuttingDown(id)
	}
	principal := s.session.Principal
	if err := h.limiter.acquire(r.Context(), principal, []byte(s.id)); err != nil {
		return tooMany(id)
	}
	defer h.limiter.release(principal)
	ex := &exchange{server: h.server, header: r.Header, id: id, batch: p.batch, jsonOnly: h.opts.JSONOnly}
	ex.init(len(p.requests), parseAccept(r.Header["Accept"]))
	ex.answers = append(ex.answers, p.invalid...)
	ex.comesBack = !ex.jsonOnly && h.server.mayAskBack(s.session)
	if no := s.exchange(ex, p.requests); no != nil {
		return no
	}
	defer s.over(ex)
	defer h.silence.end(ex)
	if !p.batch && !ex.comesBack {
		ex.beginInline(h, w, r)
		s.client.peer.handle(p.requests[0])
		ex.endInline()
		return nil
	}
	wake := ex.begin(h)
	for _, m := range p.others {
		s.deliver(m)
	}
	for _, m := range p.requests {
		if !s.deliver(m) {
			break // the end of the session has answered them
		}
	}
	h.respond(w, r, ex, wake)
	return nil
}

// mayAskBack reports whether a client may be asked to come back for an answer.
func (s *Server) mayAskBack(sess *Session) bool {
	return sess.Version >= Version20251125 && s.opts.ComeBack != nil && s.opts.ComeBack(sess)
}

// serveBatch answers an array of messages, which only revision 2025-03-26 has,
// or a server that allows it.
func (h *HTTPHandler) serveBatch(w http.ResponseWriter, r *http.Request, principal, version string, body []byte) *Refusal {
	if EraOf(version) == Modern && h.server.modern {
		return refuse(http.StatusBadRequest, CodeInvalidRequest, "this protocol revision has no batches")
	}
	s, no := h.session(r, principal)
	if no != nil {
		return no
	}
	defer s.leave()
	limit := h.server.batchLimit(s.session.Version)
	if limit == 0 {
		return refuse(http.StatusBadRequest, CodeInvalidRequest, "this protocol revision has no batches")
	}
	messages, errs, err := ParseBatch(body, Limits{Size: h.opts.MaxBody}, limit)
	if err != nil {
		return badMessage(err)
	}
	p := post{batch: true}
	for i, m := range messages {
		switch {
		case errs[i] != nil:
			p.invalid = append(p.invalid, errs[i].(*ParseError).Reply())
		case m.Kind() == KindRequest:
			p.requests = append(p.requests, m)
		default:
			p.others = append(p.others, m)
		}
	}
	if len(p.requests) == 0 && len(p.invalid) == 0 {
		for _, m := range p.others {
			s.deliver(m)
		}
		return h.accept(w)
	}
	return h.serveRequests(w, r, s, p)
}

// notify hands a notification to the handler.
func (h *HTTPHandler) notify(ctx context.Context, n *Notification) {
	defer func() {
		if v := recover(); v != nil {
			h.server.log.Error("notification handler panicked", "method", n.Method, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	h.server.opts.Handler.HandleNotification(ctx, n)
}
