package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// notes is a client's Handler that passes notifications on.
type notes chan *Notification

func (n notes) HandleRequest(_ context.Context, r *Request) (json.RawMessage, error) {
	return nil, MethodNotFound(r.Method)
}

func (n notes) HandleNotification(_ context.Context, note *Notification) { n <- note }

func (s *site) listen(id int, filter string, headers ...string) *events {
	s.t.Helper()
	return s.open(s.modernRequest(id, "subscriptions/listen", `{"notifications":`+filter+`}`, "{}", headers...))
}

const tagged = `"_meta":{"io.modelcontextprotocol/subscriptionId":`

func TestListenHTTP(t *testing.T) {
	var ended context.Context
	server := newTestServer(t, func(o *ServerOptions) {
		o.Listen = func(ctx context.Context, _ *Session, want Filter) (Filter, error) {
			ended = ctx
			if len(want.ResourceSubscriptions) > 2 {
				return want, errors.New("secret detail")
			}
			return want, nil
		}
	})
	s := newSite(t, server, HTTPOptions{Principal: func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }})
	all := s.listen(1, `{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["file:///a","file:///d/"],"unknown":3}`)
	ack := all.must()
	if want := `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a","file:///d/"]},` + tagged + `1}}`; ack.Method != "notifications/subscriptions/acknowledged" || string(ack.Params) != want {
		t.Errorf("acknowledged %s %s", ack.Method, ack.Params)
	}
	if all.resp.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("headers %v", all.resp.Header)
	}
	resources := s.listen(2, `{"resourcesListChanged":true}`)
	resources.must()
	foreign := s.listen(3, `{"toolsListChanged":true}`, "X-User", "ada")
	foreign.must()

	// What one request changes reaches the subscriptions of its principal that
	// asked for it, and no others.
	s.modern(4, "tools/call", `{"name":"changed"}`, "{}")
	if m := all.must(); m.Method != "notifications/tools/list_changed" || string(m.Params) != `{`+tagged+`1}}` {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	for sess := range server.Sessions() {
		for _, uri := range []string{"file:///ab", "file:///a", "file:///d/x"} {
			sess.Notify(t.Context(), "notifications/resources/updated", fmt.Appendf(nil, `{"uri":%q}`, uri))
		}
		sess.Notify(t.Context(), "notifications/resources/list_changed", nil)
		sess.Notify(t.Context(), "notifications/message", json.RawMessage(`{"level":"error"}`))
		if sess.Principal == "ada" {
			sess.Notify(t.Context(), "notifications/tools/list_changed", nil)
		}
	}
	for _, want := range []string{`{"uri":"file:///a",` + tagged + `1}}`, `{"uri":"file:///d/x",` + tagged + `1}}`} {
		if m := all.must(); m.Method != "notifications/resources/updated" || string(m.Params) != want {
			t.Errorf("%s %s", m.Method, m.Params)
		}
	}
	if m := resources.must(); m.Method != "notifications/resources/list_changed" || string(m.Params) != `{`+tagged+`2}}` {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	if m := foreign.must(); m.Method != "notifications/tools/list_changed" || string(m.Params) != `{`+tagged+`3}}` {
		t.Errorf("%s %s", m.Method, m.Params)
	}

	// The hook may refuse, and its reason stays here.
	r := s.modern(5, "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["a","b","c"]}}`, "{}")
	if r.code(t) != CodeInternal || strings.Contains(r.body, "secret") {
		t.Errorf("refused: %s", r.body)
	}
	// A client that goes ends its subscription.
	last := s.listen(6, `{}`)
	last.must()
	last.resp.Body.Close()
	<-ended.Done()
}

// A server that shuts down ends subscriptions with their result.
func TestListenEndsInOrder(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	e := s.listen(7, `{"toolsListChanged":true}`)
	e.must()
	if err := s.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := e.must()
	if want := `{"resultType":"complete",` + tagged + `7,"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}`; m.ID != NumberID(7) || string(m.Result) != want {
		t.Errorf("%v %s", m.ID, m.Result)
	}
	if _, more := e.next(); more {
		t.Error("the stream goes on")
	}
	if r := s.modern(8, "tools/call", echoCall, "{}"); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("a new call: %d %s", r.status, r.body)
	}
}

func TestListenKeepsAlive(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	s.handler.times.keepAlive = time.Millisecond
	e := s.listen(1, `{}`)
	for comments := 0; comments < 3; {
		line, ok := e.line()
		if !ok {
			t.Fatal("the stream has ended")
		}
		if strings.HasPrefix(line, ":") {
			comments++
		}
	}
}

func TestListenBounded(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	for i := range 64 {
		s.listen(i, `{}`).must()
	}
	r := s.modern(1000, "subscriptions/listen", `{"notifications":{}}`, "{}")
	if r.status != http.StatusTooManyRequests || r.code(t) != CodeOverloaded {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// On a connection, several subscriptions share it, and notifications/cancelled
// ends one of them.
func TestListenConn(t *testing.T) { synctest.Test(t, testListenConn) }

func testListenConn(t *testing.T) {
	told := make(notes, 64)
	server := newTestServer(t)
	p, hangUp := serveConn(t, server, told)
	subscribe := func(ctx context.Context, filter string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := p.Call(ctx, Call{Method: "subscriptions/listen", Params: withMeta(`{"notifications":`+filter+`}`, "{}")})
			done <- err
		}()
		if ack := <-told; ack.Method != "notifications/subscriptions/acknowledged" {
			t.Errorf("first came %s", ack.Method)
		}
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := subscribe(ctx, `{"toolsListChanged":true}`)
	second := subscribe(t.Context(), `{"toolsListChanged":true}`)
	change := func(ids ...string) {
		t.Helper()
		if _, err := p.Call(t.Context(), Call{Method: "tools/call", Params: withMeta(`{"name":"changed"}`, "{}")}); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for range ids {
			id, _ := Member((<-told).Params, "_meta", MetaSubscriptionID)
			got[string(id)] = true
		}
		for _, id := range ids {
			if !got[id] {
				t.Errorf("subscription %s was not told: %v", id, got)
			}
		}
	}
	change("1", "2")
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	synctest.Wait() // until the server has noticed
	change("2")
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Errorf("ended in order: %v", err)
	}
	hangUp()
}
