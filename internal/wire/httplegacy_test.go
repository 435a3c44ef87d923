package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func (s *site) get(session string, headers ...string) *events {
	s.t.Helper()
	return s.open(s.request("GET", "", append([]string{headerSession, session}, headers...)...))
}

func toolCall(id int, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"_meta":{"progressToken":1}}}`, id, tool)
}

// onlySession returns the server's one legacy session.
func onlySession(t *testing.T, s *Server) *Session {
	t.Helper()
	var all []*Session
	for sess := range s.Sessions() {
		all = append(all, sess)
	}
	if len(all) != 1 {
		t.Fatalf("%d sessions", len(all))
	}
	return all[0]
}

// The GET stream carries what belongs to no request, also what was sent before
// it was opened, and goes on where it broke off.
func TestLegacyStandaloneStream(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	id := s.initialize(Version20251125, "{}")
	sess := onlySession(t, s.server)
	update := func(n int) {
		t.Helper()
		if err := sess.Notify(t.Context(), "notifications/resources/updated", fmt.Appendf(nil, `{"uri":"r","n":%d}`, n)); err != nil {
			t.Fatal(err)
		}
	}
	update(0) // not subscribed: nobody hears it
	s.post(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"r"}}`, headerSession, id)
	update(1)
	e := s.get(id)
	if line, _ := e.line(); line != "id: 0-0" {
		t.Errorf("the stream does not begin with an empty event: %q", line)
	}
	expect := func(e *events, n int) {
		t.Helper()
		if m := e.must(); string(m.Params) != fmt.Sprintf(`{"uri":"r","n":%d}`, n) {
			t.Errorf("got %s, want %d", m.Params, n)
		}
	}
	expect(e, 1)
	update(2)
	expect(e, 2)
	newer := s.get(id) // takes the place of the first, which may hang on a dead connection
	if m, more := e.next(); more {
		t.Errorf("the first stream got %v", m)
	}
	e = newer
	update(2)
	expect(e, 2)
	seen := e.id
	update(3)
	expect(e, 3)
	again := s.get(id, headerLastEventID, seen) // takes the place of the first
	expect(again, 3)
	if m, more := e.next(); more {
		t.Errorf("the stream before got %v", m)
	}
	update(4)
	expect(again, 4)
	s.post(`{"jsonrpc":"2.0","id":2,"method":"resources/unsubscribe","params":{"uri":"r"}}`, headerSession, id)
	update(5)
	sess.Notify(t.Context(), "notifications/tools/list_changed", nil)
	if m := again.must(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("got %s", m.Params)
	}
	s.do(s.request("DELETE", "", headerSession, id))
	if m, more := again.next(); more {
		t.Errorf("after the session: %v", m)
	}
}

// Only 2025-11-25 clients get the empty first event: older ones choke on it.
func TestLegacyPriming(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	for version, want := range map[string]string{Version20250618: `data: {`, Version20251125: `data: `} {
		id := s.initialize(version, "{}")
		e := s.open(s.request("POST", toolCall(1, "progress"), headerSession, id))
		first, _ := e.line()
		data, _ := e.line()
		if first != "id: 1-0" || !strings.HasPrefix(data, want) || (data == "data: ") != (want == "data: ") {
			t.Errorf("%s: %q %q", version, first, data)
		}
	}
}

// A legacy client that loses the stream of a call comes back for the rest, and
// the call goes on meanwhile.
func TestLegacyResume(t *testing.T) {
	h := newTestHandler()
	goOn := make(chan struct{})
	h.tools["slow"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		r.Link.Notify(ctx, "notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1}`))
		<-goOn
		r.Link.Notify(ctx, "notifications/progress", json.RawMessage(`{"progressToken":1,"progress":2}`))
		return textResult("done"), ctx.Err()
	}
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{})
	id := s.initialize(Version20250618, "{}")
	e := s.open(s.request("POST", toolCall(1, "slow"), headerSession, id))
	e.must()
	e.resp.Body.Close()
	goOn <- struct{}{}
	again := s.get(id, headerLastEventID, e.id)
	if m := again.must(); m.Method != "notifications/progress" || !strings.Contains(string(m.Params), `"progress":2`) {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	if m := again.must(); m.ID != NumberID(1) || !strings.Contains(string(m.Result), "done") {
		t.Errorf("%v", m)
	}
	if _, more := again.next(); more {
		t.Error("the stream goes on")
	}
	// What has been sent is kept a while: the client may have lost it.
	twice := s.get(id, headerLastEventID, e.id)
	twice.must()
	if m := twice.must(); m.ID != NumberID(1) {
		t.Errorf("%v", m)
	}
}

// A stream that is kept does not keep the response it went out on, and with it
// the connection.
func TestLegacyKeptStreamIsLight(t *testing.T) {
	h := NewHTTPHandler(newTestServer(t), HTTPOptions{})
	id := direct(h, "POST", initializeLine).Header().Get(headerSession)
	if w := direct(h, "POST", toolCall(1, "progress"), headerSession, id); !strings.Contains(w.Body.String(), "done") {
		t.Fatal(w.Body)
	}
	s := h.sessions.find("", id)
	defer s.leave()
	if ex := s.kept(1); ex == nil || ex.inline.w != nil || ex.inline.r != nil {
		t.Error("it does")
	}
}

// A client that loses its connection has not cancelled its call, be it a stream
// already or not: that goes on as long as there is a connection of the session, and
// five minutes more.
func TestLegacyDisconnect(t *testing.T) {
	for _, tool := range []string{"wait", "streaming"} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan error, 1)
			h := newTestHandler()
			h.tools["wait"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil, ctx.Err()
			}
			h.tools["streaming"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
				r.Link.Notify(ctx, "notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1}`))
				return h.tools["wait"](ctx, r)
			}
			handler := NewHTTPHandler(newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{})
			id := direct(handler, "POST", initializeLine).Header().Get(headerSession)
			var requests sync.WaitGroup
			defer requests.Wait()
			connect := func(verb, body, accept string) (drop func()) {
				ctx, drop := context.WithCancel(t.Context())
				r := httptest.NewRequestWithContext(ctx, verb, "http://localhost/", strings.NewReader(body))
				r.Header = http.Header{"Accept": {accept}, "Content-Type": {"application/json"}, headerSession: {id}}
				requests.Go(func() { handler.ServeHTTP(httptest.NewRecorder(), r) })
				synctest.Wait()
				return drop
			}
			start := time.Now()
			dropGET := connect("GET", "", "text/event-stream")
			dropCall := connect("POST", toolCall(1, tool), "application/json, text/event-stream")
			dropCall()
			time.Sleep(time.Hour) // somebody is there
			dropGET()
			time.Sleep(4 * time.Minute)
			if w := direct(handler, "POST", toolCall(2, "echo"), headerSession, id); w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", tool, w.Code, w.Body) // now somebody has been there again
			}
			err := <-ended
			if took, want := time.Since(start), time.Hour+9*time.Minute; took != want || !errors.Is(err, ErrClosed) {
				t.Errorf("%s: ended after %v, want %v: %v", tool, took, want, err)
			}
			synctest.Wait()
			if w := direct(handler, "POST", toolCall(3, "echo"), headerSession, id); w.Code != http.StatusNotFound {
				t.Errorf("%s: the session is still there: %d", tool, w.Code)
			}
		})
	}
}

// DELETE ends the calls of a session, connected or not.
func TestLegacyDeleteEndsCalls(t *testing.T) {
	h := newTestHandler()
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{})
	id := s.initialize(Version20250618, "{}")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-h.entered
		cancel()
	}()
	if resp, err := s.client.Do(s.request("POST", toolCall(1, "wait"), headerSession, id).WithContext(ctx)); err == nil {
		resp.Body.Close()
	}
	resp, err := s.client.Do(s.request("DELETE", "", headerSession, id))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	<-h.left
}

// notifications/cancelled ends the call, and it gets no answer.
func TestLegacyCancelled(t *testing.T) {
	h := newTestHandler()
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{})
	id := s.initialize(Version20250618, "{}")
	var group sync.WaitGroup
	group.Go(func() {
		if r := s.post(toolCall(1, "wait"), headerSession, id); r.status != http.StatusAccepted || r.body != "" {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	<-h.entered
	s.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, headerSession, id)
	<-h.left
	group.Wait()
	if r := s.post(toolCall(1, "echo"), headerSession, id); r.status != 200 {
		t.Errorf("the id is not free again: %d %s", r.status, r.body)
	}
}

// An id that is in use cannot be used again until it is answered.
func TestLegacyIDInUse(t *testing.T) {
	h := newTestHandler()
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{})
	id := s.initialize(Version20250618, "{}")
	var group sync.WaitGroup
	group.Go(func() {
		if resp, err := s.client.Do(s.request("POST", toolCall(1, "wait"), headerSession, id)); err == nil {
			resp.Body.Close()
		}
	})
	<-h.entered
	if r := s.post(toolCall(1, "echo"), headerSession, id); r.status != 400 || r.code(t) != CodeInvalidRequest || !strings.Contains(r.body, `"id":1`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.post(toolCall(2, "echo"), headerSession, id); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, headerSession, id)
	group.Wait()
	<-h.left
}

// A legacy client is asked on the stream of the call, and answers by POST. Its
// error and its silence reach the handler, too.
func TestLegacyAsk(t *testing.T) {
	h := newTestHandler()
	errs := make(chan error, 1)
	for name, patience := range map[string]time.Duration{"ask": time.Minute, "ask in vain": time.Millisecond} {
		h.tools[name] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
			answer, err := r.Link.Call(ctx, Call{Method: "roots/list", Timeout: patience, MaxTimeout: time.Minute})
			errs <- err
			return answer, nil
		}
	}
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{})
	id := s.initialize(Version20250618, `{"roots":{}}`)
	ask := func(n int, tool string) (*events, Message) {
		e := s.open(s.request("POST", toolCall(n, tool), headerSession, id))
		q := e.must()
		if q.Method != "roots/list" || q.Kind() != KindRequest {
			t.Fatalf("%v", q)
		}
		return e, q
	}
	e, q := ask(1, "ask")
	s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, q.ID), headerSession, id)
	if m := e.must(); string(m.Result) != `{"roots":[]}` || <-errs != nil {
		t.Errorf("%v %s", m.ID, m.Result)
	}
	e, q = ask(2, "ask")
	s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":7,"message":"no"}}`, q.ID), headerSession, id)
	e.must()
	if err, ok := errors.AsType[*Error](<-errs); !ok || err.Code != 7 {
		t.Errorf("%v", err)
	}
	e, _ = ask(3, "ask in vain")
	e.must()
	if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// What another principal's session is, nobody can find out.
func TestLegacySessionBelongsToPrincipal(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{Principal: func(r *http.Request) (string, error) {
		switch user := r.Header.Get("X-User"); user {
		case "":
			return "", errors.New("nobody")
		case "mallory":
			return "", &Refusal{Status: 403, Header: http.Header{"X-Why": {"known"}}, Reason: Errorf(CodeInvalidRequest, "go away")}
		default:
			return user, nil
		}
	}})
	const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`
	r := s.post(initialize, "X-User", "ada")
	id := r.header.Get(headerSession)
	if len(id) < 26 {
		t.Errorf("session id %q", id)
	}
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	own := s.post(ping, headerSession, id, "X-User", "ada")
	foreign := s.post(ping, headerSession, id, "X-User", "bob")
	unknown := s.post(ping, headerSession, "x", "X-User", "bob")
	if own.status != 200 || foreign.status != 404 || foreign.body != unknown.body {
		t.Errorf("%v %v %v", own, foreign, unknown)
	}
	if r := s.post(initialize); r.status != 401 || r.header.Get("WWW-Authenticate") == "" || strings.Contains(r.body, "nobody") {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
	if r := s.post(initialize, "X-User", "mallory"); r.status != 403 || r.header.Get("X-Why") != "known" {
		t.Errorf("%d %v", r.status, r.header)
	}
}

// Sessions are bounded; the one that has been idle for the longest time makes
// room, and if none is idle the newcomer waits.
func TestLegacySessionLimits(t *testing.T) {
	h := newTestHandler()
	var mu sync.Mutex
	opened, closed := 0, 0
	server := newTestServer(t, func(o *ServerOptions) {
		o.Handler = h
		o.Opened = func(*Session) { mu.Lock(); opened++; mu.Unlock() }
		o.Closed = func(*Session) { mu.Lock(); closed++; mu.Unlock() }
	})
	s := newSite(t, server, HTTPOptions{MaxOwn: 2})
	first, second := s.initialize(Version20250618, "{}"), s.initialize(Version20250618, "{}")
	ping := func(id string) int {
		return s.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, headerSession, id).status
	}
	ping(first) // now the second is the oldest
	third := s.initialize(Version20250618, "{}")
	if got := [...]int{ping(first), ping(second), ping(third)}; got != [...]int{200, 404, 200} {
		t.Errorf("%v", got)
	}
	for _, id := range []string{first, third} {
		go s.client.Do(s.request("POST", toolCall(9, "wait"), headerSession, id))
		<-h.entered
	}
	r := s.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.status, r.body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	server.Shutdown(ctx)
	mu.Lock()
	defer mu.Unlock()
	if opened != closed || opened < 3 {
		t.Errorf("%d opened, %d closed", opened, closed)
	}
}

// direct sends a request to a handler without a network, for tests of time.
func direct(h http.Handler, method, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A session ends after half an hour without use, and after a day in any case.
func TestLegacySessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHTTPHandler(newTestServer(t), HTTPOptions{})
		const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`
		ping := func(id string) int {
			return direct(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, headerSession, id).Code
		}
		id := direct(h, "POST", initialize).Header().Get(headerSession)
		time.Sleep(29 * time.Minute)
		if got := ping(id); got != 200 {
			t.Errorf("after 29 minutes: %d", got)
		}
		time.Sleep(29 * time.Minute)
		if got := ping(id); got != 200 {
			t.Errorf("after 29 minutes more: %d", got)
		}
		time.Sleep(31 * time.Minute)
		if got := ping(id); got != 404 {
			t.Errorf("after 31 minutes: %d", got)
		}
		id = direct(h, "POST", initialize).Header().Get(headerSession)
		for range 24*3 - 1 {
			time.Sleep(20 * time.Minute)
			if got := ping(id); got != 200 {
				t.Fatalf("in use: %d", got)
			}
		}
		time.Sleep(21 * time.Minute)
		if got := ping(id); got != 404 {
			t.Errorf("after a day: %d", got)
		}
	})
}

// A batch whose calls send something becomes a stream with one answer each.
func TestLegacyBatchStream(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	id := s.initialize(Version20250326, "{}")
	e := s.open(s.request("POST", "["+toolCall(1, "echo")+","+toolCall(2, "progress")+"]", headerSession, id))
	answered := map[ID]bool{}
	for {
		m, ok := e.next()
		if !ok {
			break
		}
		if m.Kind() == KindResponse {
			answered[m.ID] = true
		}
	}
	if len(answered) != 2 {
		t.Errorf("%v", answered)
	}
}

// Log messages go to those who want that level.
func TestLogLevels(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	id := s.initialize(Version20250618, "{}")
	levels := func(body string) int { return strings.Count(body, "notifications/message") }
	if r := s.post(toolCall(1, "log"), headerSession, id); levels(r.body) != 2 {
		t.Errorf("legacy, no level: %s", r.body)
	}
	s.post(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"notice"}}`, headerSession, id)
	if r := s.post(toolCall(1, "log"), headerSession, id); levels(r.body) != 1 || !strings.Contains(r.body, "warning") {
		t.Errorf("legacy, notice: %s", r.body)
	}
	if r := s.modern(1, "tools/call", `{"name":"log"}`, "{}"); levels(r.body) != 0 {
		t.Errorf("modern, no level: %s", r.body)
	}
	if r := s.modern(1, "tools/call", `{"name":"log","_meta":{"io.modelcontextprotocol/logLevel":"info"}}`, "{}"); levels(r.body) != 1 {
		t.Errorf("modern, info: %s", r.body)
	}
}
