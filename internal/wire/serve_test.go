package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lines serves text as the input of a stdio server and returns its output, the
// lines in order.
func serveLines(t *testing.T, s *Server, opts *StreamOptions, text string) []string {
	t.Helper()
	out, w := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(context.Background(), NewStreamConn(io.NopCloser(strings.NewReader(text)), w, opts))
	}()
	var lines []string
	for scan := bufio.NewScanner(out); scan.Scan(); {
		lines = append(lines, scan.Text())
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	return lines
}

const initializeLine = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}`

// A script that pipes its messages in, without waiting for answers, gets all of
// them, in both eras, before the server ends with its input.
func TestServePipedInput(t *testing.T) {
	modern := Message{ID: StringID("m"), Method: "tools/call", Params: withMeta(echoCall, "{}")}.AppendTo(nil)
	got := serveLines(t, newTestServer(t, func(o *ServerOptions) { o.RequireInitialize = true }), nil, strings.Join([]string{
		initializeLine,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"l","method":"tools/list"}`,
		string(modern),
		`{"jsonrpc":"2.0","id":"d","method":"server/discover"}`,
		`this is not JSON`,
		initializeLine,
	}, "\n"))
	want := map[string]string{
		`"i"`:  `"protocolVersion":"2025-06-18"`,
		`"l"`:  `"result":{"tools":[`,
		`"m"`:  `"resultType":"complete"`,
		`"d"`:  `"code":-32601`, // the session is legacy
		`null`: `"code":-32700`,
	}
	var again bool
	for _, line := range got {
		id, _ := Member([]byte(line), "id")
		if string(id) == `"i"` && strings.Contains(line, "initialized already") {
			again = true
			continue
		}
		if !strings.Contains(line, want[string(id)]) {
			t.Errorf("%s", line)
		}
		delete(want, string(id))
	}
	if len(want) > 0 || !again {
		t.Errorf("no answer to %v in %q", want, got)
	}
}

func TestServeClauses(t *testing.T) {
	for _, c := range []struct {
		says    string
		options func(*ServerOptions)
		line    string
		want    string
	}{
		{"Lifecycle: before initialize, strictly", func(o *ServerOptions) { o.RequireInitialize = true }, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"code":-32002,"message":"Server not initialized"`},
		{"Lifecycle: ping before initialize", func(o *ServerOptions) { o.RequireInitialize = true }, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `"result":{}`},
		{"Lifecycle: before initialize, leniently", nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}`, `|2025-03-26|`},
		{"Versioning: a modern method without its _meta", nil, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, `"code":-32602`},
		{"Versioning: an unknown revision", nil, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}`, `"code":-32022`},
		{"Versioning: a server that is not modern", func(o *ServerOptions) { o.Versions = []string{Version20251125} }, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, `"supported":["2025-11-25"]`},
		{"Versioning: initialize to a modern server names what it speaks", func(o *ServerOptions) { o.Versions = []string{Version20260728} }, initializeLine, `spoken here: [\"2026-07-28\"]`},
		{"Versioning: a legacy request to a modern server", func(o *ServerOptions) { o.Versions = []string{Version20260728} }, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"code":-32602`},
		{"a message that is none", nil, `{"jsonrpc":"1.0","id":5,"method":"ping"}`, `"id":5,"error":{"code":-32600`},
		{"a batch is none", nil, `[{"jsonrpc":"2.0","id":5,"method":"ping"}]`, `"id":null,"error":{"code":-32600`},
	} {
		t.Run(c.says, func(t *testing.T) {
			var options []func(*ServerOptions)
			if c.options != nil {
				options = append(options, c.options)
			}
			got := serveLines(t, newTestServer(t, options...), nil, c.line+"\n")
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("%q", got)
			}
		})
	}
	t.Run("Batching 2025-03-26: where it is allowed", func(t *testing.T) {
		got := serveLines(t, newTestServer(t), &StreamOptions{MaxBatch: 5}, `[{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","id":6,"method":"ping"}]`)
		if len(got) != 2 {
			t.Errorf("%q", got)
		}
	})
}

// Requests on one connection share a State, those of a legacy session too, and
// every session that is opened is closed once its last call has returned.
func TestServeHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		h.tools["state"] = func(_ context.Context, r *Request) (json.RawMessage, error) {
			return textResult(fmt.Sprint(r.Session.State)), nil
		}
		var mu sync.Mutex
		var log []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf(format, args...))
		}
		s := newTestServer(t, func(o *ServerOptions) {
			o.Handler = h
			o.Opened = func(s *Session) { s.State = s.Version; note("opened %s", s.Version) }
			o.Closed = func(s *Session) { note("closed %s", s.State) }
		})
		p, hangUp := serveConn(t, s, nil)
		for range 2 {
			result, err := p.Call(t.Context(), Call{Method: "tools/call", Params: withMeta(`{"name":"state"}`, "{}")})
			if err != nil || !strings.Contains(string(result), Version20260728) {
				t.Errorf("%s %v", result, err)
			}
		}
		if _, err := p.Call(t.Context(), Call{Method: "initialize", Params: json.RawMessage(`{"protocolVersion":"2025-06-18"}`)}); err != nil {
			t.Error(err)
		}
		result, err := p.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(`{"name":"state"}`)})
		if err != nil || !strings.Contains(string(result), Version20250618) {
			t.Errorf("%s %v", result, err)
		}
		go p.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(`{"name":"wait"}`)})
		<-h.entered
		hangUp()
		<-h.left
		mu.Lock()
		defer mu.Unlock()
		if got, want := strings.Join(log[:2], ","), "opened 2026-07-28,opened 2025-06-18"; len(log) != 4 || got != want {
			t.Errorf("%q", log)
		}
	})
}

// A session that its owner closes ends the connection, and says so.
func TestServeSessionClose(t *testing.T) {
	s := newTestServer(t)
	near, far := Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), far) }()
	p := NewPeer(near, nil, nil)
	defer p.Close()
	if _, err := p.Call(t.Context(), Call{Method: "initialize", Params: json.RawMessage(`{"protocolVersion":"2025-06-18"}`)}); err != nil {
		t.Fatal(err)
	}
	sess := onlySession(t, s)
	if sess.Err() != nil {
		t.Error(sess.Err())
	}
	sess.Close()
	<-sess.Done()
	<-p.Done()
	if err := <-served; !errors.Is(err, ErrClosed) || !errors.Is(sess.Err(), ErrClosed) {
		t.Errorf("%v, %v", err, sess.Err())
	}
}

// Cancelling one call of many frees it and leaves the others (fault row 39).
func TestServeCancel(t *testing.T) {
	h := newTestHandler()
	p, _ := serveConn(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), nil)
	for _, params := range []json.RawMessage{
		json.RawMessage(`{"name":"wait"}`),
		withMeta(`{"name":"wait"}`, `{}`),
		withMeta(`{"name":"wait"}`, `{"roots":{}}`), // in a goroutine of its own
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := p.Call(ctx, Call{Method: "tools/call", Params: params})
			done <- err
		}()
		<-h.entered
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-h.left
	}
}

// Fault 12, the server's side: a client that does not read holds up neither the
// server nor other clients, and ends with its connection.
func TestServeClientDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		toServer, fromClient := io.Pipe()
		_, fromServer := io.Pipe() // nobody reads what comes out
		served := make(chan error, 1)
		go func() { served <- s.Serve(t.Context(), NewStreamConn(toServer, fromServer, nil)) }()
		listen := Message{ID: NumberID(1), Method: "subscriptions/listen", Params: withMeta(`{"notifications":{"toolsListChanged":true}}`, "{}")}
		fromClient.Write(append(listen.AppendTo(nil), '\n'))
		synctest.Wait()
		for range 2 * mailboxItems {
			for sess := range s.Sessions() {
				sess.Notify(t.Context(), "notifications/tools/list_changed", nil) // does not wait
			}
		}
		p, _ := serveConn(t, s, nil)
		if _, err := p.Call(t.Context(), Call{Method: "tools/call", Params: withMeta(echoCall, "{}")}); err != nil {
			t.Errorf("another client: %v", err)
		}
		fromClient.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Fault 13, the server's side: a client that closes the server's output has
// gone, although its input is open still.
func TestServeOutputClosed(t *testing.T) {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	toClient.Close()
	served := make(chan error, 1)
	go func() { served <- newTestServer(t).Serve(t.Context(), NewStreamConn(toServer, fromServer, nil)) }()
	io.WriteString(fromClient, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
	if err := <-served; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// Shutdown lets calls finish that do so in time, answers them, and cancels the
// rest.
func TestShutdownDrains(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			h := newTestHandler()
			entered, goOn := make(chan struct{}), make(chan struct{})
			h.tools["slow"] = func(context.Context, *Request) (json.RawMessage, error) {
				entered <- struct{}{}
				<-goOn
				return textResult("finished"), nil
			}
			s := newTestServer(t, func(o *ServerOptions) { o.Handler = h })
			site := newSite(t, s, HTTPOptions{})
			p, _ := serveConn(t, s, nil)
			call := func(tool string) <-chan string {
				done := make(chan string, 2)
				params := json.RawMessage(`{"name":"` + tool + `"}`)
				request := site.modernRequest(1, "tools/call", string(params), "{}")
				if era == "legacy" {
					request = site.request("POST", toolCall(1, tool), headerSession, site.initialize(Version20250618, "{}"))
				} else {
					params = withMeta(string(params), "{}")
				}
				go func() { done <- site.do(request).body }()
				go func() {
					result, err := p.Call(t.Context(), Call{Method: "tools/call", Params: params})
					done <- fmt.Sprint(string(result), err)
				}()
				return done
			}
			slow, waiting := call("slow"), call("wait")
			for range 2 {
				<-entered
				<-h.entered
			}
			ctx, cancel := context.WithCancel(t.Context())
			down := make(chan error, 1)
			go func() { down <- s.Shutdown(ctx) }()
			close(goOn)
			for range 2 {
				if got := <-slow; !strings.Contains(got, "finished") {
					t.Errorf("a call under way: %s", got)
				}
			}
			cancel()
			for range 2 {
				<-h.left
				if got := <-waiting; strings.Contains(got, "finished") {
					t.Errorf("a call that did not finish: %s", got)
				}
			}
			if err := <-down; !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
}

// A handler that ignores its cancellation does not hang Shutdown for ever.
func TestShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		goOn := make(chan struct{})
		entered := make(chan struct{})
		h.tools["deaf"] = func(context.Context, *Request) (json.RawMessage, error) {
			close(entered)
			<-goOn
			return textResult(""), nil
		}
		s, err := NewServer(ServerOptions{Info: json.RawMessage(`{"name":"t","version":"1"}`), Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := serveConn(t, s, nil)
		go p.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(`{"name":"deaf"}`)})
		<-entered
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Shutdown(ctx); err == nil || time.Since(start) != time.Second+cancelGrace {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		close(goOn)
	})
}

func TestServerOptionsAreChecked(t *testing.T) {
	good := ServerOptions{Info: json.RawMessage(`{"name":"t","version":"1"}`), Handler: newTestHandler()}
	for name, spoil := range map[string]func(*ServerOptions){
		"no handler":          func(o *ServerOptions) { o.Handler = nil },
		"no info":             func(o *ServerOptions) { o.Info = nil },
		"info no object":      func(o *ServerOptions) { o.Info = json.RawMessage(`3`) },
		"capabilities broken": func(o *ServerOptions) { o.Capabilities = json.RawMessage(`{`) },
		"unknown revision":    func(o *ServerOptions) { o.Versions = []string{"1900-01-01"} },
		"no revision":         func(o *ServerOptions) { o.Versions = []string{} },
	} {
		o := good
		spoil(&o)
		if _, err := NewServer(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// countingHandler counts the subscriptions that reach it.
type countingHandler struct {
	*testHandler
	subscribed atomic.Int32
}

func (h *countingHandler) HandleRequest(ctx context.Context, r *Request) (json.RawMessage, error) {
	if r.Method == "resources/subscribe" {
		h.subscribed.Add(1)
	}
	return h.testHandler.HandleRequest(ctx, r)
}

// Whoever answers for subscriptions keeps no more of them than a client may have.
func TestTooManySubscriptions(t *testing.T) {
	h := &countingHandler{testHandler: newTestHandler()}
	near, far := Pipe()
	s := newTestServer(t, func(o *ServerOptions) { o.Handler = h })
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), far) }()
	defer func() { <-done }()
	c := connect(t, Stream(near, nil), &ClientOptions{Info: json.RawMessage(`{"name":"c","version":"1"}`), ProtocolVersion: Version20251125})
	defer c.Close()
	for i := range maxSubscribed + 3 {
		err := c.Subscribe(t.Context(), fmt.Sprintf("r:%d", i))
		if refused := err != nil; refused != (i >= maxSubscribed) {
			t.Fatalf("subscription %d: %v", i, err)
		}
	}
	if n := h.subscribed.Load(); n != maxSubscribed {
		t.Errorf("%d subscriptions were asked for", n)
	}
}
