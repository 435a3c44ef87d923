package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// httpScript is an HTTP server that a test writes itself. m is the message of a
// POST, zero for other requests.
type httpScript func(w http.ResponseWriter, r *http.Request, m Message)

func (s httpScript) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m Message
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		if m, err = Parse(body, Limits{}); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	s(w, r, m)
}

// listen serves the script on loopback and returns its URL.
func (s httpScript) listen(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL
}

// inMemory serves the script without sockets, so that it works in a bubble of
// synctest, and returns the way to it.
func (s httpScript) inMemory(t *testing.T) http.RoundTripper {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: s}
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(l) })
	tr := NewRoundTripper()
	tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		select {
		case l.conns <- server:
			return client, nil
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
		wg.Wait()
	})
	return tr
}

type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// respondJSON answers m with a result in plain JSON.
func respondJSON(w http.ResponseWriter, m Message, result string) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(Message{ID: m.ID, Result: json.RawMessage(result)}.AppendTo(nil))
}

// respondError answers m with an error and a status.
func respondError(w http.ResponseWriter, m Message, status int, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(Message{ID: m.ID, Error: e}.AppendTo(nil))
}

// sse writes text as it is to an event stream.
func sse(w http.ResponseWriter, format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, format, args...)
	w.(http.Flusher).Flush()
}

// sseMessage writes a message as an event.
func sseMessage(w http.ResponseWriter, m Message) { sse(w, "data: %s\n\n", m.AppendTo(nil)) }

// abort ends the connection without the end of the response.
func abort(w http.ResponseWriter) {
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// legacyServer answers the handshake of an old server with a session; rest
// gets the rest. Sessions are named "session-1" and so on.
type legacyServer struct {
	version string // of the answer to initialize; "" means 2025-11-25
	noGET   bool
	noID    bool // it has no sessions
	rest    httpScript

	mu       sync.Mutex
	opened   int      // sessions
	dead     bool     // the present session is unknown
	deleted  []string // sessions ended by the client
	requests []string // HTTP method, JSON-RPC method, session, version; one line each
}

func (s *legacyServer) serve(w http.ResponseWriter, r *http.Request, m Message) {
	s.mu.Lock()
	s.requests = append(s.requests, strings.Join(strings.Fields(
		fmt.Sprint(r.Method, " ", m.Method, " ", r.Header.Get(headerSession), " ", r.Header.Get(headerVersion))), " "))
	session := fmt.Sprint("session-", s.opened)
	known := s.opened > 0 && !s.dead && (s.noID || r.Header.Get(headerSession) == session)
	switch {
	case m.Method == "initialize":
		s.opened++
		s.dead = false
		if !s.noID {
			w.Header().Set(headerSession, fmt.Sprint("session-", s.opened))
		}
		s.mu.Unlock()
		version := s.version
		if version == "" {
			version = Version20251125
		}
		respondJSON(w, m, `{"protocolVersion":"`+version+`","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"old","version":"1"},"instructions":"read me"}`)
		return
	case m.Method == "server/discover":
		s.mu.Unlock()
		http.Error(w, "Bad Request: no session", http.StatusBadRequest)
		return
	case !known:
		s.mu.Unlock()
		respondError(w, Message{ID: NullID()}, http.StatusNotFound, Errorf(-32001, "Session not found"))
		return
	case r.Method == http.MethodDelete:
		s.deleted = append(s.deleted, session)
		s.dead = true
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && s.noGET:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Kind() == KindNotification && s.rest == nil, m.Method == "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
	case s.rest == nil:
		respondJSON(w, m, `{}`)
	default:
		s.rest(w, r, m)
	}
}

// seen returns the requests so far.
func (s *legacyServer) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

// forget makes the present session unknown.
func (s *legacyServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
}

// recorder is a Handler that keeps what it gets and answers with answer.
type recorder struct {
	answer func(ctx context.Context, r *Request) (json.RawMessage, error) // nil refuses
	notes  chan *Notification                                             // nil drops
}

func (h *recorder) HandleRequest(ctx context.Context, r *Request) (json.RawMessage, error) {
	if h.answer == nil {
		return nil, MethodNotFound(r.Method)
	}
	return h.answer(ctx, r)
}

func (h *recorder) HandleNotification(_ context.Context, n *Notification) {
	if h.notes != nil {
		h.notes <- n
	}
}

// noLeaks checks, after everything else of the test has been cleaned up, that
// none of its goroutines is left.
func noLeaks(t *testing.T) {
	current := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, current) })
}

// link returns an HTTPClient that is closed at the end of the test.
func link(t *testing.T, url string, h Handler, options HTTPClientOptions) *HTTPClient {
	t.Helper()
	if h == nil {
		h = &recorder{}
	}
	c, err := newHTTPClient(url, h, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// openSession opens a legacy session on a bare link.
func openSession(t *testing.T, h *HTTPClient) {
	t.Helper()
	if _, err := h.Call(t.Context(), Call{Method: "initialize", Params: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if err := h.Notify(t.Context(), "notifications/initialized", nil); err != nil {
		t.Fatal(err)
	}
}
