package wire

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// HTTPOptions say how a Server is served over Streamable HTTP.
type HTTPOptions struct {
	Guard Guard // which hosts and origins may send requests

	// Principal says who sends a request. Sessions, subscriptions, parked calls
	// and limits belong to a principal, and no other can tell that they exist.
	// A returned *Refusal is the answer, any other error means 401. nil means
	// that all are the same.
	Principal func(*http.Request) (string, error)

	JSONOnly      bool // never answer with a stream, and offer none
	RequireLength bool // refuse a request without Content-Length
	MaxBody       int  // bytes; 0 means DefaultMaxMessage

	// Budget bounds what is kept for clients; handlers may share one. nil means
	// one of 256 MiB and MaxBody.
	Budget *Budget

	MaxCalls    int // running at once for one principal; 0 means 64
	MaxQueued   int // waiting for that; 0 means 256
	MaxSessions int // legacy sessions in all; 0 means 1024
	MaxOwn      int // legacy sessions of one principal; 0 means 64
}

// Times that hold for every HTTP server. Tests make them shorter.
type httpTimes struct {
	read      time.Duration // for a request's body
	write     time.Duration // without progress in writing
	keepAlive time.Duration // between comments on a quiet stream
	idle      time.Duration // of a session
	gone      time.Duration // of a session with calls under way: without a connection
	lifetime  time.Duration // of a session
	resume    time.Duration // for a legacy client to come back for an answer as it was asked to
}

func defaultTimes() httpTimes {
	return httpTimes{
		read:      30 * time.Second,
		write:     writeTimeout,
		keepAlive: 15 * time.Second,
		idle:      30 * time.Minute,
		gone:      5 * time.Minute,
		lifetime:  24 * time.Hour,
		resume:    2 * time.Minute,
	}
}

// writeTimeout is how long a client may leave what is written to it unread.
const writeTimeout = 30 * time.Second

// HTTPHandler serves a Server over Streamable HTTP: both eras on one URL, with
// sessions for the old and without state for the new.
type HTTPHandler struct {
	server   *Server
	opts     HTTPOptions
	times    httpTimes
	limiter  *turnstile
	sessions *sessionTable
	budget   *Budget
	silence  silence
}

// NewHTTPHandler returns a handler for one endpoint. It ends with the server.
func NewHTTPHandler(server *Server, opts HTTPOptions) *HTTPHandler {
	orDefault := func(n *int, standard int) {
		if *n <= 0 {
			*n = standard
		}
	}
	orDefault(&opts.MaxBody, DefaultMaxMessage)
	orDefault(&opts.MaxCalls, 64)
	orDefault(&opts.MaxQueued, 256)
	orDefault(&opts.MaxSessions, 1024)
	orDefault(&opts.MaxOwn, 64)
	if opts.Budget == nil {
		opts.Budget = NewBudget(256<<20 + int64(opts.MaxBody))
	}
	h := &HTTPHandler{
		server:   server,
		opts:     opts,
		times:    defaultTimes(),
		limiter:  newTurnstile(opts.MaxCalls, opts.MaxQueued),
		sessions: newSessionTable(opts.MaxSessions, opts.MaxOwn),
		budget:   opts.Budget,
	}
	h.silence.limit = func() time.Duration { return h.times.keepAlive }
	return h
}

// NewHTTPServer returns an http.Server for handlers of this package, with the
// time and header limits that every face of the product shares. Its contexts
// end with ctx.
func NewHTTPServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second, // a stream clears it
		WriteTimeout:      writeTimeout,     // moved on with every write
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    32 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

// ServeHTTP implements http.Handler.
func (h *HTTPHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if no := h.serve(w, r); no != nil {
		no.write(w)
	}
}

// serve answers the request, or returns why it is turned away. The checks go
// from what costs nothing to what costs most.
func (h *HTTPHandler) serve(w http.ResponseWriter, r *http.Request) *Refusal {
	if no := h.opts.Guard.Check(r); no != nil {
		return no
	}
	// Before all that is of this endpoint: who may not use it is not to learn
	// that it is here.
	principal, no := h.principal(r)
	if no != nil {
		return no
	}
	switch r.Method {
	case http.MethodPost:
		if no := h.checkPost(r); no != nil {
			return no
		}
		return h.servePost(w, r, principal)
	case http.MethodGet, http.MethodDelete:
		if no := h.checkLegacyMethod(r); no != nil {
			return no
		}
		if r.Method == http.MethodGet {
			return h.serveGet(w, r, principal)
		}
		return h.serveDelete(w, r, principal)
	default:
		return h.methodNotAllowed()
	}
}

func (h *HTTPHandler) methodNotAllowed() *Refusal {
	allow := http.MethodPost
	if h.server.legacy != nil {
		allow = "GET, POST, DELETE"
		if h.opts.JSONOnly {
			allow = "POST, DELETE"
		}
	}
	return refuse(http.StatusMethodNotAllowed, CodeInvalidRequest, "Method not allowed").with("Allow", allow)
}

func (h *HTTPHandler) principal(r *http.Request) (string, *Refusal) {
	principal, no, err := h.opts.principal(r)
	if err != nil {
		h.server.log.Debug("request not authenticated", "error", err)
	}
	return principal, no
}

// principal says who sends a request, or how it is refused; the error is for
// nobody else to see.
func (o HTTPOptions) principal(r *http.Request) (string, *Refusal, error) {
	if o.Principal == nil {
		return "", nil, nil
	}
	principal, err := o.Principal(r)
	if err == nil {
		return principal, nil, nil
	}
	if no, ok := errors.AsType[*Refusal](err); ok {
		return "", no, nil
	}
	return "", refuse(http.StatusUnauthorized, CodeInvalidRequest, "Not authenticated").with("WWW-Authenticate", "Bearer"), err
}

// Admit puts the question of who sends a request, and on whose behalf, before
// another handler: what is answered beside an endpoint is no more for everybody
// than the endpoint is.
func (o HTTPOptions) Admit(next http.Handler) http.Handler {
	return o.Guard.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, no, _ := o.principal(r); no != nil {
			no.write(w)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// servePost answers one message, or a batch of them.
func (h *HTTPHandler) servePost(w http.ResponseWriter, r *http.Request, principal string) *Refusal {
	body, no := h.readBody(w, r)
	if no != nil {
		return no
	}
	defer h.budget.give(cap(body))
	version, no := h.versionHeader(r)
	if no != nil {
		return no
	}
	if IsBatch(body) {
		return h.serveBatch(w, r, principal, version, body)
	}
	m, err := Parse(body, Limits{Size: h.opts.MaxBody})
	if err != nil {
		return badMessage(err)
	}
	modern, meta, no := h.eraOf(version, m)
	switch {
	case no != nil:
		return no
	case modern:
		return h.serveModern(w, r, principal, m, meta)
	default:
		return h.serveLegacy(w, r, principal, m)
	}
}

func badMessage(err error) *Refusal {
	reply := err.(*ParseError).Reply()
	return &Refusal{Status: http.StatusBadRequest, ID: reply.ID, Reason: reply.Error}
}

// eraOf decides by which rules a message is served: the modern ones if it says
// so in its body or its header. initialize without that belongs to the legacy
// era, whatever the header says.
func (h *HTTPHandler) eraOf(version string, m Message) (modern bool, meta []byte, no *Refusal) {
	meta, _ = Member(m.Params, "_meta")
	named, ok := metaVersion(meta)
	switch {
	case ok && EraOf(named) != Legacy:
		if version != named {
			no := refuse(http.StatusBadRequest, CodeHeaderMismatch, "")
			no.Reason.Message = "Header mismatch: " + headerVersion + " header is not the protocolVersion of the body"
			no.ID = m.ID
			return true, meta, no
		}
		if named != Version20260728 || !h.server.modern {
			return true, meta, h.unsupported(m.ID, named)
		}
		return true, meta, nil
	case EraOf(version) == Modern && h.server.modern && m.Method != "initialize":
		return true, meta, nil
	case version != "" && !h.server.speaksLegacy(version) && !(EraOf(version) == Modern && m.Method == "initialize"):
		return false, nil, h.unsupported(m.ID, version)
	}
	return false, nil, nil
}

// unsupported is the answer to a version header that names no revision spoken
// here. Its error code is one of the modern era, which a legacy server has not.
func (h *HTTPHandler) unsupported(id ID, version string) *Refusal {
	reason := h.server.unsupported(version)
	if !h.server.modern {
		reason.Code = CodeInvalidRequest
		id = ID{}
	}
	return &Refusal{Status: http.StatusBadRequest, ID: id, Reason: reason}
}
