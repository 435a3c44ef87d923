package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func mustDescribe(t *testing.T, info, capabilities, instructions string) *Description {
	t.Helper()
	d, err := NewDescription(json.RawMessage(info), json.RawMessage(capabilities), instructions)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDescriptionIsChecked(t *testing.T) {
	for _, c := range []struct{ info, capabilities, want string }{
		{``, ``, "description: info: "},
		{`[]`, ``, "description: info: "},
		{`{"name":"a","name":"b"}`, ``, "description: info: "},
		{`{}`, `{"tools":}`, "description: capabilities: "},
		{`{}`, `3`, "description: capabilities: "},
	} {
		if _, err := NewDescription(json.RawMessage(c.info), json.RawMessage(c.capabilities), ""); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.info, c.capabilities, err)
		}
	}
}

// What is presented may change between clients: each is told what holds when it
// asks, and a legacy session keeps to what it was told.
func TestDescribeFollowsWhatItStandsFor(t *testing.T) {
	var now atomic.Pointer[Description]
	now.Store(mustDescribe(t, `{"name":"one"}`, `{"tools":{}}`, "first"))
	handler := newTestHandler()
	handler.tools["named"] = func(_ context.Context, r *Request) (json.RawMessage, error) {
		r.AnswerAs(now.Load())
		return textResult("x"), nil
	}
	handler.tools["own"] = func(_ context.Context, r *Request) (json.RawMessage, error) {
		r.AnswerAs(now.Load())
		return json.RawMessage(`{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"upstream"}},"content":[]}`), nil
	}
	var asked atomic.Pointer[string]
	server := newTestServer(t, func(o *ServerOptions) {
		o.Handler = handler
		o.Opened = func(s *Session) { s.State = "opened" }
		o.Describe = func(_ context.Context, s *Session) (*Description, error) {
			asked.Store(new(fmt.Sprintf("%v %s %s %s", s.State, s.Principal, s.ClientInfo, s.ClientCapabilities)))
			return now.Load(), nil
		}
	})
	s := newSite(t, server, HTTPOptions{Principal: func(*http.Request) (string, error) { return "ada", nil }})
	initialize := func(want string) *events {
		t.Helper()
		r := s.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c"}}}`)
		if want = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25",` + want + `}}`; r.body != want {
			t.Errorf("initialize: %s, want %s", r.body, want)
		}
		if got := *asked.Load(); got != `opened ada {"name":"c"} {"roots":{}}` {
			t.Errorf("asked with %s", got)
		}
		return s.open(s.request(http.MethodGet, "", headerSession, r.header.Get(headerSession), headerVersion, Version20251125))
	}
	const versions = `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`
	discover := func(want, name string) {
		t.Helper()
		r := s.modern(1, "server/discover", "", `{"sampling":{}}`)
		want = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"` +
			name + `"}},` + versions + `,` + want + `}}`
		if r.body != want {
			t.Errorf("discover: %s, want %s", r.body, want)
		}
		if got := *asked.Load(); got != `<nil> ada {"name":"c","version":"0"} {"sampling":{}}` {
			t.Errorf("asked with %s", got)
		}
	}
	listen := func(id int, want string) *events {
		t.Helper()
		e := s.listen(id, `{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["file:///a"]}`)
		if ack := e.must(); !strings.HasPrefix(string(ack.Params), `{"notifications":`+want+`,`) {
			t.Errorf("acknowledged %s, want %s", ack.Params, want)
		}
		return e
	}

	first := initialize(`"capabilities":{"tools":{}},"instructions":"first","serverInfo":{"name":"one"}`)
	discover(`"capabilities":{"tools":{}},"instructions":"first"`, "one")
	listen(2, `{}`)
	now.Store(mustDescribe(t, `{"name":"two"}`, `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`, ""))
	second := initialize(`"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"serverInfo":{"name":"two"}`)
	discover(`"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}`, "two")
	third := listen(3, `{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`)

	for sess := range server.Sessions() {
		sess.Notify(t.Context(), "notifications/tools/list_changed", nil)
		sess.Notify(t.Context(), "notifications/message", json.RawMessage(`{"level":"error","data":1}`))
	}
	if m := first.must(); m.Method != "notifications/message" {
		t.Errorf("the first session heard %s", m.Method)
	}
	for name, e := range map[string]*events{"second session": second, "subscription": third} {
		if m := e.must(); m.Method != "notifications/tools/list_changed" {
			t.Errorf("the %s heard %s", name, m.Method)
		}
	}

	for tool, want := range map[string]string{"named": "two", "own": "upstream", "echo": "test"} {
		r := s.modern(4, "tools/call", `{"name":"`+tool+`"}`, "{}")
		if name, _ := StringMember(json.RawMessage(r.body), "result", "_meta", MetaServerInfo, "name"); name != want {
			t.Errorf("%s is answered by %s, want %s: %s", tool, name, want, r.body)
		}
	}
}

func TestDescribeErrors(t *testing.T) {
	var closed atomic.Int32
	var fails atomic.Pointer[func() (*Description, error)]
	server := newTestServer(t, func(o *ServerOptions) {
		o.Closed = func(*Session) { closed.Add(1) }
		o.Describe = func(context.Context, *Session) (*Description, error) { return (*fails.Load())() }
	})
	s := newSite(t, server, HTTPOptions{})
	p, _ := serveConn(t, server, nil)
	const params = `{"protocolVersion":"2025-06-18","capabilities":{}}`
	for _, c := range []struct {
		name string
		fail func() (*Description, error)
		want string
	}{
		{"an error for the client", func() (*Description, error) { return nil, Errorf(CodeInternal, "server db is not connected") }, "server db is not connected"},
		{"another", func() (*Description, error) { return nil, errors.New("secret") }, "internal error (ref "},
		{"a panic", func() (*Description, error) { panic("secret") }, "internal error (ref "},
		{"nothing", func() (*Description, error) { return nil, nil }, "internal error (ref "},
	} {
		fails.Store(&c.fail)
		before := closed.Load()
		for name, body := range map[string]string{
			"initialize": s.post(`{"jsonrpc":"2.0","id":5,"method":"initialize","params":` + params + `}`).body,
			"discover":   s.modern(5, "server/discover", "", "{}").body,
			"listen":     s.modern(5, "subscriptions/listen", `{"notifications":{}}`, "{}").body,
		} {
			if !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"`+c.want) {
				t.Errorf("%s, %s: %s", name, c.name, body)
			}
		}
		if n := closed.Load() - before; n != 1 {
			t.Errorf("%s: %d sessions closed", c.name, n)
		}
		for method, params := range map[string]json.RawMessage{"initialize": json.RawMessage(params), "server/discover": withMeta("{}", "{}")} {
			if _, err := p.Call(t.Context(), Call{Method: method, Params: params}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s on a conn, %s: %v", method, c.name, err)
			}
		}
	}
	// The connection has survived, and so a later attempt succeeds.
	fails.Store(new(func() (*Description, error) { return mustDescribe(t, `{"name":"late"}`, "", ""), nil }))
	result, err := p.Call(t.Context(), Call{Method: "initialize", Params: json.RawMessage(params)})
	if name, _ := StringMember(result, "serverInfo", "name"); name != "late" {
		t.Errorf("initialize: %s %v", result, err)
	}
	if _, err := p.Call(t.Context(), Call{Method: "tools/list"}); err != nil {
		t.Errorf("tools/list: %v", err)
	}
}

// slowDescription is a Describe that takes until release is closed.
func slowDescription(t *testing.T, o *ServerOptions) (asked chan struct{}, release chan struct{}) {
	asked, release = make(chan struct{}), make(chan struct{})
	d := mustDescribe(t, `{"name":"slow"}`, "{}", "")
	o.Describe = func(ctx context.Context, _ *Session) (*Description, error) {
		asked <- struct{}{}
		select {
		case <-release:
			return d, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return asked, release
}

// A client that does not wait for the answer to initialize gets its answers in
// order all the same, even after it has closed its side.
func TestDescribeSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, release chan struct{}
		handler := newTestHandler()
		server := newTestServer(t, func(o *ServerOptions) {
			o.Handler = handler
			asked, release = slowDescription(t, o)
		})
		go func() {
			<-asked
			synctest.Wait() // everything has been read, to the end
			close(release)
		}()
		got := serveLines(t, server, nil, initializeLine+`
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}
{"jsonrpc":"2.0","id":"again","method":"initialize","params":{}}
{"jsonrpc":"2.0","id":"l","method":"tools/list"}
`)
		var ids []string
		for _, line := range got {
			id, _ := StringMember(json.RawMessage(line), "id")
			ids = append(ids, id)
		}
		if order := strings.Join(ids, " "); order != "again i l" {
			t.Errorf("answers %s: %q", order, got)
		}
		if notes := strings.Join(handler.notes, " "); notes != "notifications/roots/list_changed" {
			t.Errorf("notifications %s", notes)
		}
	})
}

// Whoever goes, the client or the server, ends the description under way.
func TestDescribeEndsWithEitherSide(t *testing.T) {
	for name, leave := range map[string]func(server *Server, hangUp func(), t *testing.T){
		"client": func(_ *Server, hangUp func(), _ *testing.T) { hangUp() },
		"server": func(server *Server, hangUp func(), t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("shutdown: %v", err)
			}
			hangUp()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked chan struct{}
				closed := make(chan struct{}, 1)
				server := newTestServer(t, func(o *ServerOptions) {
					o.Closed = func(*Session) { closed <- struct{}{} }
					asked, _ = slowDescription(t, o)
				})
				in, w := io.Pipe()
				served := make(chan error, 1)
				go func() {
					served <- server.Serve(t.Context(), NewStreamConn(in, struct {
						io.Writer
						io.Closer
					}{io.Discard, in}, nil))
				}()
				fmt.Fprintln(w, initializeLine)
				<-asked
				leave(server, func() { w.Close() }, t)
				if err := <-served; err != nil {
					t.Error(err)
				}
				<-closed
			})
		})
	}
}

// A client that hangs up during an initialize over HTTP ends it.
func TestDescribeHTTPClientGoes(t *testing.T) {
	var asked chan struct{}
	closed := make(chan struct{}, 1)
	server := newTestServer(t, func(o *ServerOptions) {
		o.Closed = func(*Session) { closed <- struct{}{} }
		asked, _ = slowDescription(t, o)
	})
	s := newSite(t, server, HTTPOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if resp, err := s.client.Do(s.request(http.MethodPost, initializeLine).WithContext(ctx)); err == nil {
		resp.Body.Close()
		t.Error("initialize was answered")
	}
	<-closed
}
