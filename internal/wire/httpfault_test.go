package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/lane"
)

// dialRaw opens a connection to the site and sends a request as it is.
func (s *site) dialRaw(req *http.Request) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	// A small window: a reader that stops is noticed soon.
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		s.t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// Fault 40: a client that stops reading is dropped, and its call cancelled,
// whether it gets events or one large answer; nobody waits for it for ever.
func TestFaultSlowReader(t *testing.T) {
	h := newTestHandler()
	flood := strings.Repeat("x", 32<<10)
	h.tools["flood"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		defer func() { h.left <- struct{}{} }()
		for {
			if err := r.Link.Notify(ctx, "notifications/progress", fmt.Appendf(nil, `{"progressToken":1,"progress":1,"message":%q}`, flood)); err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
	h.tools["large"] = func(context.Context, *Request) (json.RawMessage, error) {
		return textResult(strings.Repeat("x", 32<<20)), nil
	}
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{MaxCalls: 1})
	s.handler.times.write = 50 * time.Millisecond
	s.dialRaw(s.modernRequest(1, "tools/call", `{"name":"flood","_meta":{"progressToken":1}}`, "{}"))
	<-h.left
	s.dialRaw(s.modernRequest(2, "tools/call", `{"name":"large"}`, "{}"))
	// The only place is free again.
	if r := s.modern(3, "tools/call", echoCall, "{}"); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Fault 40 at the last moment: a client that reads a stream, but not its end, is
// not waited for either.
func TestFaultStreamEndUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		server, served := lane.New(NewHTTPServer(t.Context(), NewHTTPHandler(newTestServer(t), HTTPOptions{}))), make(chan error)
		go func() { served <- server.Serve(l) }()
		near, far := net.Pipe()
		defer near.Close()
		l.conns <- far
		s := &site{t: t, url: "http://localhost"}
		if err := s.modernRequest(1, "tools/call", `{"name":"progress","_meta":{"progressToken":1}}`, "{}").Write(near); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(near)
		for line := ""; !strings.Contains(line, `"done"`); {
			var err error
			if line, err = in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if err := server.Shutdown(t.Context()); err != nil || time.Since(start) != writeTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		<-served
	})
}

// Fault 40 for subscriptions: what does not fit breaks the stream off, and does
// not hold up whoever sends.
func TestFaultSlowListener(t *testing.T) {
	gone := make(chan struct{})
	s := newSite(t, newTestServer(t, func(o *ServerOptions) {
		o.Listen = func(ctx context.Context, _ *Session, want Filter) (Filter, error) {
			context.AfterFunc(ctx, func() { close(gone) })
			return want, nil
		}
	}), HTTPOptions{})
	s.handler.times.write = 50 * time.Millisecond
	conn := s.dialRaw(s.modernRequest(1, "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["r"]}}`, "{}"))
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatal(line, err)
	}
	update := fmt.Appendf(nil, `{"uri":"r","pad":%q}`, strings.Repeat("x", 64<<10))
	for {
		for sess := range s.server.Sessions() {
			sess.Notify(t.Context(), "notifications/resources/updated", update)
		}
		select {
		case <-gone:
			return
		default:
		}
	}
}

// Fault 39: a client that goes cancels its call (modern: MUST), a thousand times
// over, and nothing is left behind.
func TestFaultDisconnectCancels(t *testing.T) {
	h := newTestHandler()
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{MaxCalls: 200})
	const rounds, together = 10, 100
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for i := range together {
			group.Go(func() {
				capabilities := []string{`{}`, `{"roots":{}}`}[i%2]
				if resp, err := s.client.Do(s.modernRequest(i, "tools/call", `{"name":"wait"}`, capabilities).WithContext(ctx)); err == nil {
					resp.Body.Close()
				}
			})
		}
		for range together {
			<-h.entered
		}
		cancel()
		group.Wait()
		for range together {
			<-h.left
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	// Every place is free again: this one waits until all have left.
	if err := s.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// Fault 38: ten thousand calls at once. As many run as may, as many wait as may,
// the others are told to come back; everyone is answered, and nothing is left.
func TestFaultManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, running, waiting = 10_000, 64, 5000
		h := newTestHandler()
		var entered atomic.Int64
		goOn := make(chan struct{})
		h.tools["hold"] = func(context.Context, *Request) (json.RawMessage, error) {
			entered.Add(1)
			<-goOn
			return textResult("held"), nil
		}
		handler := NewHTTPHandler(newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{MaxCalls: running, MaxQueued: waiting})
		const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
		session := direct(handler, "POST", initialize).Header().Get(headerSession)
		modern := Message{ID: NumberID(1), Method: "tools/call", Params: withMeta(`{"name":"hold"}`, "{}")}.AppendTo(nil)
		var answered, refused atomic.Int64
		for i := range calls {
			go func() {
				var w *httptest.ResponseRecorder
				if i%2 == 0 {
					w = direct(handler, "POST", toolCall(i, "hold"), headerSession, session)
				} else {
					w = direct(handler, "POST", string(modern), headerVersion, Version20260728, headerMethod, "tools/call", headerName, "hold")
				}
				switch {
				case w.Code == 200:
					answered.Add(1)
				case w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "":
					refused.Add(1)
				default:
					t.Errorf("status %d", w.Code)
				}
			}()
		}
		synctest.Wait()
		if entered.Load() != running || refused.Load() != calls-running-waiting {
			t.Errorf("%d run, %d are refused", entered.Load(), refused.Load())
		}
		close(goOn)
		synctest.Wait()
		if answered.Load() != running+waiting {
			t.Errorf("%d answered", answered.Load())
		}
	})
}

// Calls over the limit wait for their turn, in order, and give up with their
// client; those over the queue are refused at once.
func TestTurnstile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurnstile(1, 2)
		for _, principal := range []string{"a", "b"} {
			if err := turns.acquire(t.Context(), principal, nil); err != nil {
				t.Errorf("%s: %v", principal, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		order := make(chan int, 3)
		for i, c := range []context.Context{ctx, t.Context()} {
			go func() {
				if turns.acquire(c, "a", nil) == nil {
					order <- i
				}
			}()
			synctest.Wait() // it is in the queue
		}
		if err := turns.acquire(t.Context(), "a", nil); err != ErrOverloaded {
			t.Errorf("one too many: %v", err)
		}
		cancel()
		synctest.Wait() // it has left the queue
		turns.release("a")
		if got := <-order; got != 1 {
			t.Errorf("the turn went to %d", got)
		}
		turns.release("a")
		if err := turns.acquire(t.Context(), "a", nil); err != nil {
			t.Errorf("no turn is left: %v", err)
		}
	})
}

// Fault 43: a handler that panics harms its own call only, and its reason goes
// to the log, not to the client. The same for errors.
func TestFaultPanic(t *testing.T) {
	var mu sync.Mutex
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Logger = logger }), HTTPOptions{})
	session := s.initialize(Version20250618, "{}")
	for _, tool := range []string{"panic", "fail"} {
		for _, r := range []reply{
			s.modern(1, "tools/call", `{"name":"`+tool+`"}`, "{}"),
			s.modern(1, "tools/call", `{"name":"`+tool+`"}`, `{"roots":{}}`),
			s.post(toolCall(1, tool), headerSession, session),
		} {
			if r.code(t) != CodeInternal || strings.Contains(r.body, "secret") {
				t.Errorf("%s: %d %s", tool, r.status, r.body)
			}
			_, ref, _ := strings.Cut(r.body, "ref ")
			ref, _, _ = strings.Cut(ref, ")")
			mu.Lock()
			if ref == "" || !strings.Contains(log.String(), "ref="+ref) || !strings.Contains(log.String(), "secret detail") {
				t.Errorf("the log does not tell of %q", ref)
			}
			mu.Unlock()
		}
	}
	if r := s.post(toolCall(2, "echo"), headerSession, session); r.status != 200 {
		t.Errorf("the session is gone: %s", r.body)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// Fault 24, the server's side: a connection that is reset in the middle of a
// stream ends a modern call, and a legacy one is executed once although its
// client comes back.
func TestFaultReset(t *testing.T) {
	h := newTestHandler()
	var runs atomic.Int64
	goOn := make(chan struct{})
	h.tools["once"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		runs.Add(1)
		r.Link.Notify(ctx, "notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1}`))
		select {
		case <-goOn:
			return textResult("once"), nil
		case <-ctx.Done():
			h.left <- struct{}{}
			return nil, ctx.Err()
		}
	}
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{})
	reset := func(req *http.Request) (lastEvent string) {
		conn := s.dialRaw(req)
		for r := bufio.NewReader(conn); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
				lastEvent = id
			}
			if strings.Contains(line, `"progress":1`) {
				break
			}
		}
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
		return lastEvent
	}
	reset(s.modernRequest(1, "tools/call", `{"name":"once","_meta":{"progressToken":1}}`, "{}"))
	<-h.left
	session := s.initialize(Version20250618, "{}")
	last := reset(s.request("POST", toolCall(1, "once"), headerSession, session))
	e := s.get(session, headerLastEventID, last)
	goOn <- struct{}{}
	if m := e.must(); m.ID != NumberID(1) || !strings.Contains(string(m.Result), "once") || runs.Load() != 2 {
		t.Errorf("%v %s, %d runs", m.ID, m.Result, runs.Load())
	}
}

// What an http.Server allows for a response counts from its request; a call may
// take longer. Every answer of ours begins its own time, and leaves none behind.
func TestAnswersOutliveWriteTimeout(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	config := NewHTTPServer(t.Context(), s.handler)
	config.WriteTimeout = time.Nanosecond
	ts := httptest.NewUnstartedServer(s.handler)
	ts.Config = config
	ts.Start()
	defer ts.Close()
	s.url = ts.URL
	session := s.initialize(Version20250618, "{}")
	s.check(t, []clause{
		{says: "a result", req: s.modernRequest(1, "tools/call", echoCall, "{}"), status: 200},
		{says: "events", req: s.request("POST", toolCall(1, "progress"), headerSession, session), status: 200, has: "done"},
		{says: "an error", req: s.modernRequest(1, "no/such", "", "{}"), status: 404},
		{says: "a refusal", req: s.request("PUT", ""), status: 405},
		{says: "accepted", req: s.request("POST", `{"jsonrpc":"2.0","method":"notifications/x"}`, headerSession, session), status: 202},
		{says: "deleted", req: s.request("DELETE", "", headerSession, session), status: 204},
	})
}

// A body that comes too slowly is given up, and the memory of bodies is bounded
// by what has come, not by what was announced.
func TestFaultSlowBody(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	s.handler.times.read = 50 * time.Millisecond
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", 60<<20)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Fatalf("%v %v", resp, err)
	}
	if n := s.handler.budget.used; n != 0 {
		t.Errorf("%d bytes are counted still", n)
	}
}

func TestBodiesInFlightAreBounded(t *testing.T) {
	h := NewHTTPHandler(newTestServer(t), HTTPOptions{Budget: NewBudget(1 << 20)})
	h.budget.take(1 << 10)
	for h.budget.take(1 << 10) {
	}
	full := h.budget.used
	if w := direct(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d", w.Code)
	}
	if n := h.budget.used; n != full {
		t.Errorf("%d", n)
	}
}

// Isolation: two hundred clients at once, half of them legacy sessions, each with
// a secret of its own in arguments, progress, questions and answers. No byte of
// one reaches another.
func TestIsolation(t *testing.T) {
	h := newTestHandler()
	h.tools["mirror"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		canary, _ := StringMember(r.Params, "arguments", "canary")
		if r.Session.Principal != canary {
			return nil, fmt.Errorf("the call of %q belongs to %q", canary, r.Session.Principal)
		}
		if err := r.Link.Notify(ctx, "notifications/progress", fmt.Appendf(nil, `{"progressToken":1,"progress":1,"message":%q}`, canary)); err != nil {
			return nil, err
		}
		answer, err := r.Ask(ctx, "elicitation/create", fmt.Appendf(nil, `{"message":%q}`, canary))
		if err != nil {
			return nil, err
		}
		r.Session.Notify(ctx, "notifications/resources/updated", fmt.Appendf(nil, `{"uri":%q}`, canary))
		return answer, nil
	}
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil },
	})
	const clients, rounds = 200, 3
	check := func(canary, body string) {
		for rest := body; ; {
			_, after, found := strings.Cut(rest, "canary-")
			if !found {
				break
			}
			if !strings.HasPrefix("canary-"+after, canary) {
				t.Errorf("%s got %.60s", canary, after)
			}
			rest = after
		}
		if !strings.Contains(body, canary) {
			t.Errorf("%s got %s", canary, body)
		}
	}
	var group sync.WaitGroup
	for n := range clients {
		canary := fmt.Sprintf("canary-%06d", n)
		call := fmt.Sprintf(`{"name":"mirror","arguments":{"canary":%q},"_meta":{"progressToken":1}}`, canary)
		answer := fmt.Sprintf(`{"action":"accept","content":{"c":%q}}`, canary)
		group.Go(func() {
			if n%2 == 0 {
				for range rounds {
					r := s.modern(1, "tools/call", call, `{"elicitation":{}}`, "X-User", canary)
					check(canary, r.body)
					_, after, _ := strings.Cut(r.body, `"requestState":"`)
					state, _, _ := strings.Cut(after, `"`)
					params, _ := SetMember([]byte(call), []byte(`{"1":`+answer+`}`), "inputResponses")
					params, _ = SetMember(params, []byte(`"`+state+`"`), "requestState")
					check(canary, s.modern(2, "tools/call", string(params), `{"elicitation":{}}`, "X-User", canary).body)
				}
				return
			}
			session := s.do(s.request("POST", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}}`, "X-User", canary)).header.Get(headerSession)
			for range rounds {
				e := s.open(s.request("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+call+`}`, headerSession, session, "X-User", canary))
				for {
					m, ok := e.next()
					if !ok {
						break
					}
					check(canary, string(m.Params)+string(m.Result))
					if m.Kind() == KindRequest {
						s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, answer), headerSession, session, "X-User", canary)
					}
				}
			}
		})
	}
	group.Wait()
}
