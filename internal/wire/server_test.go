package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/lane"
)

// testHandler is a server's handler for tests: tools by name.
type testHandler struct {
	tools map[string]func(ctx context.Context, r *Request) (json.RawMessage, error)

	entered, left chan struct{} // tool "wait" is told to wait, and has stopped

	mu    sync.Mutex
	notes []string // methods of notifications
}

func textResult(s string) json.RawMessage {
	return append(AppendString([]byte(`{"content":[{"type":"text","text":`), s), "}]}"...)
}

func newTestHandler() *testHandler {
	h := &testHandler{entered: make(chan struct{}, 1024), left: make(chan struct{}, 1024)}
	h.tools = map[string]func(ctx context.Context, r *Request) (json.RawMessage, error){
		"echo": func(_ context.Context, r *Request) (json.RawMessage, error) {
			text, _ := StringMember(r.Params, "arguments", "text")
			return textResult(text), nil
		},
		"whoami": func(_ context.Context, r *Request) (json.RawMessage, error) {
			s := r.Session
			return textResult(fmt.Sprintf("%s|%s|%s|%s", s.Principal, s.Version, s.ClientInfo, s.ClientCapabilities)), nil
		},
		"progress": func(ctx context.Context, r *Request) (json.RawMessage, error) {
			token, _ := Member(r.Params, "_meta", MetaProgressToken)
			for i := range 3 {
				params := fmt.Appendf(nil, `{"progressToken":%s,"progress":%d}`, token, i)
				if err := r.Link.Notify(ctx, "notifications/progress", params); err != nil {
					return nil, err
				}
			}
			return textResult("done"), nil
		},
		"log": func(ctx context.Context, r *Request) (json.RawMessage, error) {
			for _, level := range []string{"debug", "warning"} {
				if err := r.Link.Notify(ctx, "notifications/message", fmt.Appendf(nil, `{"level":%q,"data":"x"}`, level)); err != nil {
					return nil, err
				}
			}
			return textResult("logged"), nil
		},
		"panic": func(context.Context, *Request) (json.RawMessage, error) { panic("secret detail") },
		"fail": func(context.Context, *Request) (json.RawMessage, error) {
			return nil, fmt.Errorf("secret detail")
		},
		"ask": func(ctx context.Context, r *Request) (json.RawMessage, error) {
			return r.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`))
		},
		"wait": func(ctx context.Context, r *Request) (json.RawMessage, error) {
			h.entered <- struct{}{}
			<-ctx.Done()
			h.left <- struct{}{}
			return nil, context.Cause(ctx)
		},
		"changed": func(ctx context.Context, r *Request) (json.RawMessage, error) {
			return textResult("ok"), r.Session.Notify(ctx, "notifications/tools/list_changed", nil)
		},
	}
	return h
}

func (h *testHandler) HandleRequest(ctx context.Context, r *Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/list":
		return json.RawMessage(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`), nil
	case "resources/read":
		return json.RawMessage(`{"contents":[]}`), nil
	case "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		return json.RawMessage(`{}`), nil
	case "tools/call":
		name, _ := StringMember(r.Params, "name")
		if tool := h.tools[name]; tool != nil {
			return tool(ctx, r)
		}
		return nil, Errorf(CodeInvalidParams, "unknown tool %q", name)
	}
	return nil, MethodNotFound(r.Method)
}

func (h *testHandler) HandleNotification(_ context.Context, n *Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, n.Method)
}

const testCapabilities = `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{}}`

func newTestServer(t *testing.T, change ...func(*ServerOptions)) *Server {
	t.Helper()
	opts := ServerOptions{
		Info:         json.RawMessage(`{"name":"test","version":"1"}`),
		Capabilities: json.RawMessage(testCapabilities),
		Handler:      newTestHandler(),
	}
	for _, f := range change {
		f(&opts)
	}
	s, err := NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

// serveConn serves a pipe and returns the client's end as a Peer, and how to
// hang up and wait until the server has noticed.
func serveConn(t *testing.T, s *Server, h Handler) (p *Peer, hangUp func()) {
	t.Helper()
	near, far := Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), far) }()
	p = NewPeer(near, h, nil)
	hangUp = sync.OnceFunc(func() {
		p.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(hangUp)
	return p, hangUp
}

// A site is a server on loopback HTTP with a client for raw requests.
type site struct {
	t       *testing.T
	server  *Server
	handler *HTTPHandler
	url     string
	client  *http.Client
}

func newSite(t *testing.T, s *Server, opts HTTPOptions) *site {
	t.Helper()
	h := NewHTTPHandler(s, opts)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, served := lane.New(NewHTTPServer(t.Context(), h)), make(chan error)
	go func() { served <- server.Serve(l) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(func() {
		// Streams end first, as they do in a real shutdown.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
		transport.CloseIdleConnections()
		server.Shutdown(ctx)
		server.Close()
		<-served
	})
	return &site{t: t, server: s, handler: h, url: "http://" + l.Addr().String(), client: &http.Client{Transport: transport}}
}

// A reply is an HTTP response, read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) code(t *testing.T) int64 {
	t.Helper()
	m, err := Parse([]byte(r.body), Limits{})
	if err != nil || m.Error == nil {
		t.Fatalf("no JSON-RPC error: %d %q (%v)", r.status, r.body, err)
	}
	return m.Error.Code
}

// headers are name, value pairs. An empty value removes the header.
func (s *site) request(method, body string, headers ...string) *http.Request {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		} else if headers[i] == "Host" {
			req.Host = headers[i+1]
		} else {
			req.Header.Add(headers[i], headers[i+1])
		}
	}
	return req
}

func (s *site) do(req *http.Request) reply {
	s.t.Helper()
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func (s *site) post(body string, headers ...string) reply {
	s.t.Helper()
	return s.do(s.request(http.MethodPost, body, headers...))
}

// modern is a request of revision 2026-07-28 with everything it needs. params is
// an object or empty.
func (s *site) modernRequest(id int, method, params, capabilities string, headers ...string) *http.Request {
	s.t.Helper()
	if params == "" {
		params = "{}"
	}
	meta := fmt.Sprintf(`{%q:%q,%q:%s,%q:{"name":"c","version":"0"}}`, MetaProtocolVersion, Version20260728, MetaClientCapabilities, capabilities, MetaClientInfo)
	full := []byte(params)
	for name, value := range Members([]byte(meta)) {
		full, _ = SetMember(full, value, "_meta", name)
	}
	body := Message{ID: NumberID(int64(id)), Method: method, Params: full}.AppendTo(nil)
	req := s.request(http.MethodPost, string(body), headerVersion, Version20260728)
	setMirror(req.Header, method, full)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

func (s *site) modern(id int, method, params, capabilities string, headers ...string) reply {
	s.t.Helper()
	return s.do(s.modernRequest(id, method, params, capabilities, headers...))
}

// initialize opens a legacy session and returns its id.
func (s *site) initialize(version, capabilities string) string {
	s.t.Helper()
	r := s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"c","version":"0"}}}`, version, capabilities))
	if r.status != 200 || r.header.Get(headerSession) == "" {
		s.t.Fatalf("initialize: %d %s", r.status, r.body)
	}
	return r.header.Get(headerSession)
}

// events reads a stream of events, one message at a time.
type events struct {
	t    *testing.T
	resp *http.Response
	scan *bufio.Scanner
	id   string // of the last event
}

func (s *site) open(req *http.Request) *events {
	s.t.Helper()
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("no stream: %d %s %s", resp.StatusCode, got, body)
	}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, 64<<20)
	return &events{t: s.t, resp: resp, scan: scan}
}

// line returns the next line of the stream, false at its end.
func (e *events) line() (string, bool) {
	if e.scan.Scan() {
		return e.scan.Text(), true
	}
	return "", false
}

// next returns the next message, skipping empty events and comments.
func (e *events) next() (Message, bool) {
	e.t.Helper()
	for {
		line, ok := e.line()
		if !ok {
			return Message{}, false
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			e.id = id
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "" {
			continue
		}
		m, err := Parse(bytes.Clone([]byte(data)), Limits{})
		if err != nil {
			e.t.Fatalf("event %q: %v", data, err)
		}
		return m, true
	}
}

func (e *events) must() Message {
	e.t.Helper()
	m, ok := e.next()
	if !ok {
		e.t.Fatalf("the stream has ended: %v", e.scan.Err())
	}
	return m
}

func TestServerAnswersBothErasOnOneURL(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	const echo = `{"name":"echo","arguments":{"text":"hi"}}`
	r := s.modern(1, "tools/call", echo, "{}")
	if want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}},"content":[{"type":"text","text":"hi"}]}}`; r.status != 200 || r.body != want {
		t.Errorf("modern: %d %s", r.status, r.body)
	}
	id := s.initialize(Version20250618, "{}")
	r = s.post(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":`+echo+`}`, headerSession, id)
	if want := `{"jsonrpc":"2.0","id":"a","result":{"content":[{"type":"text","text":"hi"}]}}`; r.status != 200 || r.body != want {
		t.Errorf("legacy: %d %s", r.status, r.body)
	}
}
