package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHTTPCallJSON(t *testing.T) {
	const params = `{ "name":"x", "n":9007199254740993.0, "_meta":{"a":1} }`
	const result = `{"z":1.0,"a":[ 9007199254740993 ],"<":"\u003c"}`
	var got http.Header
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		got = r.Header.Clone()
		if string(m.Params) != params || m.Method != "tools/call" {
			t.Errorf("%s %s", m.Method, m.Params)
		}
		respondJSON(w, m, result)
	}).listen(t)
	h := link(t, url, nil, HTTPClientOptions{
		Header: func(context.Context) (http.Header, error) {
			return http.Header{"authorization": {"Bearer t"}, "Accept": {"nonsense"}, "X-A": {"option"}}, nil
		},
	})
	out, err := h.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(params), Header: http.Header{"X-A": {"call"}}})
	if err != nil || string(out) != result {
		t.Fatalf("%s, %v", out, err)
	}
	for name, want := range map[string]string{
		"Accept": "application/json, text/event-stream", "Content-Type": "application/json",
		"Authorization": "Bearer t", "X-A": "call", headerVersion: "", headerMethod: "", headerSession: "",
	} {
		if got.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Get(name), want)
		}
	}
}

// Large params are sent from where they are; the request is the same.
func TestHTTPCallLargeParams(t *testing.T) {
	params := json.RawMessage(`{"text":"` + strings.Repeat("x", 3*largeParams) + `"}`)
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		if !bytes.Equal(m.Params, params) || r.ContentLength < int64(len(params)) {
			t.Errorf("%d bytes of params, length %d", len(m.Params), r.ContentLength)
		}
		respondJSON(w, m, `{}`)
	}).listen(t)
	if _, err := link(t, url, nil, HTTPClientOptions{}).Call(t.Context(), Call{Method: "x", Params: params}); err != nil {
		t.Fatal(err)
	}
}

func TestHTTPCallError(t *testing.T) {
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		respondError(w, m, http.StatusOK, &Error{Code: -32602, Message: "no", Data: json.RawMessage(`{"a":1}`)})
	}).listen(t)
	_, err := link(t, url, nil, HTTPClientOptions{}).Call(t.Context(), Call{Method: "x"})
	if e, ok := err.(*Error); !ok || e.Code != -32602 || string(e.Data) != `{"a":1}` {
		t.Errorf("%#v", err)
	}
}

// What comes on the stream of a call goes to its owner, in order, before the
// call returns: progress, notifications, and requests, which are answered.
func TestHTTPCallStream(t *testing.T) {
	answered := make(chan Message, 1)
	server := &legacyServer{noGET: true, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
		if m.Kind() == KindResponse {
			w.WriteHeader(http.StatusAccepted)
			answered <- m
			return
		}
		token, _ := Member(m.Params, "_meta", "progressToken")
		sse(w, ": hello\n\nid: 1\ndata:\n\n")
		for i := range 3 {
			sseMessage(w, Message{Method: "notifications/progress", Params: json.RawMessage(fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, i))})
		}
		sse(w, "data: this is not a message\n\nevent: other\ndata: {}\n\n")
		sseMessage(w, Message{Method: "notifications/message", Params: json.RawMessage(`{"data":"log"}`)})
		sseMessage(w, Message{ID: StringID("q"), Method: "roots/list"})
		reply := <-answered
		sseMessage(w, Message{ID: m.ID, Result: reply.Result})
	}}
	notes := make(chan *Notification, 10)
	handler := &recorder{notes: notes, answer: func(_ context.Context, r *Request) (json.RawMessage, error) {
		return json.RawMessage(fmt.Sprintf(`{"method":%q,"tag":%q,"id":%s}`, r.Method, r.Tag, r.ID)), nil
	}}
	h := link(t, httpScript(server.serve).listen(t), handler, HTTPClientOptions{})
	openSession(t, h)
	var progress []string
	out, err := h.Call(t.Context(), Call{
		Method: "tools/call", Params: json.RawMessage(`{"_meta":{"progressToken":"mine"}}`), Tag: "tag",
		Progress: func(p json.RawMessage) { progress = append(progress, string(p)) },
	})
	if err != nil || string(out) != `{"method":"roots/list","tag":"tag","id":"q"}` {
		t.Fatalf("%s, %v", out, err)
	}
	want := []string{`{"progressToken":"mine","progress":0}`, `{"progressToken":"mine","progress":1}`, `{"progressToken":"mine","progress":2}`}
	if diff := cmp.Diff(want, progress); diff != "" {
		t.Errorf("progress (-want +got)\n%s", diff)
	}
	select {
	case n := <-notes:
		if n.Method != "notifications/message" || n.Tag != "tag" || string(n.Params) != `{"data":"log"}` {
			t.Errorf("notification %+v", n)
		}
	default:
		t.Error("the notification came after the answer")
	}
}

// The connection of a stream is used again although the answer ends the call
// before the stream has ended.
func TestHTTPStreamKeepsConnection(t *testing.T) {
	var mu sync.Mutex
	remotes := make(map[string]bool)
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		mu.Lock()
		remotes[r.RemoteAddr] = true
		mu.Unlock()
		sseMessage(w, Message{ID: m.ID})
	}).listen(t)
	h := link(t, url, nil, HTTPClientOptions{})
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := h.Call(ctx, Call{Method: "x"}); err != nil {
			t.Fatal(err)
		}
		cancel() // must not harm what is left of the stream
		waitFor(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.calls) == 0 })
		h.wg.Wait()
	}
	if len(remotes) != 1 {
		t.Errorf("%d connections for 5 calls", len(remotes))
	}
}

// waitFor polls a condition that another goroutine is about to make true.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

func TestHTTPSession(t *testing.T) {
	for _, version := range []string{Version20250326, Version20250618, Version20251125} {
		t.Run(version, func(t *testing.T) {
			pushed := make(chan struct{})
			server := &legacyServer{version: version, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
				if r.Method == http.MethodGet {
					sseMessage(w, Message{Method: "notifications/tools/list_changed"})
					close(pushed)
					<-r.Context().Done()
					return
				}
				respondJSON(w, m, `{}`)
			}}
			notes := make(chan *Notification, 1)
			h := link(t, httpScript(server.serve).listen(t), &recorder{notes: notes}, HTTPClientOptions{})
			openSession(t, h)
			<-pushed
			if n := <-notes; n.Method != "notifications/tools/list_changed" || n.Tag != nil {
				t.Errorf("%+v", n)
			}
			if _, err := h.Call(t.Context(), Call{Method: "ping"}); err != nil {
				t.Fatal(err)
			}
			h.Close()
			v := ""
			if version != Version20250326 {
				v = " " + version
			}
			want := []string{"POST initialize", "POST notifications/initialized session-1" + v, "GET session-1" + v, "POST ping session-1" + v, "DELETE session-1" + v}
			if diff := cmp.Diff(want, server.seen()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if _, err := h.Call(t.Context(), Call{Method: "ping"}); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}

// Fault 22: a forgotten session is replaced once, however many notice, and each
// request is sent once more.
func TestHTTPSessionForgotten(t *testing.T) {
	noLeaks(t)
	const callers = 8
	var executed atomic.Int32
	server := &legacyServer{noGET: true, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
		executed.Add(1)
		respondJSON(w, m, `{}`)
	}}
	h := link(t, httpScript(server.serve).listen(t), nil, HTTPClientOptions{})
	h.reopen = func(ctx context.Context) error {
		if _, err := h.Call(ctx, Call{Method: "initialize", Params: json.RawMessage(`{}`)}); err != nil {
			return err
		}
		return h.Notify(ctx, "notifications/initialized", nil)
	}
	openSession(t, h)
	server.forget()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if _, err := h.Call(t.Context(), Call{Method: "tools/call"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if server.opened != 2 || executed.Load() != callers {
		t.Errorf("%d sessions, %d calls executed; want 2 and %d", server.opened, executed.Load(), callers)
	}

	// If the new session is forgotten at once the call fails; there is no loop.
	h.reopen = func(ctx context.Context) error {
		_, err := h.Call(ctx, Call{Method: "initialize", Params: json.RawMessage(`{}`)})
		server.forget()
		return err
	}
	server.forget()
	_, err := h.Call(t.Context(), Call{Method: "tools/call"})
	if e, ok := errors.AsType[*HTTPError](err); !ok || e.Status != http.StatusNotFound || server.opened != 3 {
		t.Errorf("%v after %d sessions", err, server.opened)
	}
	h.Close()
}

// Servers after the example of the TypeScript SDK say 400 for a lost session.
func TestHTTPSessionForgottenWith400(t *testing.T) {
	lost := true
	server := &legacyServer{noGET: true, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
		if lost {
			lost = false
			respondError(w, Message{ID: NullID()}, http.StatusBadRequest, Errorf(-32000, "Bad Request: No valid session ID provided"))
			return
		}
		respondJSON(w, m, `{}`)
	}}
	h := link(t, httpScript(server.serve).listen(t), nil, HTTPClientOptions{})
	h.reopen = func(ctx context.Context) error {
		_, err := h.Call(ctx, Call{Method: "initialize", Params: json.RawMessage(`{}`)})
		return err
	}
	openSession(t, h)
	if _, err := h.Call(t.Context(), Call{Method: "tools/call"}); err != nil || server.opened != 2 {
		t.Errorf("%v after %d sessions", err, server.opened)
	}
}

// A 401 in the middle of a session is an error of that call alone.
func TestHTTPUnauthorizedMidSession(t *testing.T) {
	var token atomic.Value
	token.Store("good")
	server := &legacyServer{noGET: true, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.Header().Add("WWW-Authenticate", `Bearer resource_metadata="https://rs.example/meta", scope="a b", error="invalid_token"`)
			http.Error(w, "token "+r.Header.Get("Authorization")+" is bad", http.StatusUnauthorized)
			return
		}
		respondJSON(w, m, `{}`)
	}}
	h := link(t, httpScript(server.serve).listen(t), nil, HTTPClientOptions{Header: func(context.Context) (http.Header, error) {
		return http.Header{"Authorization": {"Bearer " + token.Load().(string)}}, nil
	}})
	openSession(t, h)
	token.Store("s3cret-token")
	_, err := h.Call(t.Context(), Call{Method: "tools/call"})
	e, ok := errors.AsType[*HTTPError](err)
	if !ok || !e.NeedsAuth() {
		t.Fatalf("%v", err)
	}
	if c, ok := e.Bearer(); !ok || c.Params["resource_metadata"] != "https://rs.example/meta" || c.Params["scope"] != "a b" {
		t.Errorf("%+v", e.Challenges)
	}
	if strings.Contains(err.Error(), "s3cret") || strings.Contains(e.Body, "s3cret") || !strings.Contains(e.Body, "[redacted] is bad") {
		t.Errorf("the token shows: %v", err)
	}
	token.Store("good")
	if _, err := h.Call(t.Context(), Call{Method: "tools/call"}); err != nil {
		t.Errorf("the session did not survive: %v", err)
	}
	if server.opened != 1 {
		t.Errorf("%d sessions", server.opened)
	}
}

func TestHTTPInsufficientScope(t *testing.T) {
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="files:read files:write"`)
		w.WriteHeader(http.StatusForbidden)
	}).listen(t)
	_, err := link(t, url, nil, HTTPClientOptions{}).Call(t.Context(), Call{Method: "x"})
	e, _ := errors.AsType[*HTTPError](err)
	if scopes, ok := e.InsufficientScope(); !ok || len(scopes) != 2 || scopes[1] != "files:write" || e.NeedsAuth() {
		t.Errorf("%v: %v, %v", err, scopes, ok)
	}
}

// Fault 24: a stream that breaks off. Without event ids, or in the modern era,
// the call fails and is not repeated.
func TestHTTPStreamCutOff(t *testing.T) {
	for _, tt := range []struct {
		name   string
		modern bool
		id     string
	}{{"legacy without ids", false, ""}, {"modern", true, "id: 7\n"}} {
		t.Run(tt.name, func(t *testing.T) {
			noLeaks(t)
			var requests atomic.Int32
			url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
				requests.Add(1)
				sse(w, "%sdata: %s\n\n", tt.id, note("notifications/message"))
				abort(w)
			}).listen(t)
			h := link(t, url, nil, HTTPClientOptions{})
			if tt.modern {
				h.speakModern(Version20260728)
			}
			_, err := h.Call(t.Context(), Call{Method: "tools/call"})
			if e, ok := errors.AsType[*NetError](err); !ok || e.Reason != ReasonLost {
				t.Errorf("%v", err)
			}
			if requests.Load() != 1 {
				t.Errorf("%d requests", requests.Load())
			}
			h.Close()
		})
	}
}

// With event ids the stream is resumed where it broke off, at the time the
// server asked for, as often as it takes.
func TestHTTPStreamResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var call Message
		server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
			last := r.Header.Get(headerLastEventID)
			if last != "" {
				asked = append(asked, last)
			}
			switch {
			case r.Method == http.MethodPost:
				call = m
				sse(w, "id: a-1\nretry: 500\ndata:\n\n") // then it closes the connection, on purpose
			case last == "":
				w.WriteHeader(http.StatusMethodNotAllowed) // no stream of its own
			case last == "a-1":
				sse(w, "id: a-2\ndata: %s\n\n", note("notifications/message"))
				abort(w)
			case last == "a-2" && len(asked) == 2:
				http.Error(w, "busy", http.StatusServiceUnavailable)
			default:
				sse(w, "id: a-3\ndata: %s\n\n", Message{ID: call.ID, Result: json.RawMessage(`{"done":true}`)}.AppendTo(nil))
			}
		}}
		notes := make(chan *Notification, 9)
		h := link(t, "http://server.example", &recorder{notes: notes}, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
		openSession(t, h)
		start := time.Now()
		out, err := h.Call(t.Context(), Call{Method: "tools/call", Tag: 1})
		if err != nil || string(out) != `{"done":true}` {
			t.Fatalf("%s, %v", out, err)
		}
		if diff := cmp.Diff([]string{"a-1", "a-2", "a-2"}, asked); diff != "" {
			t.Errorf("Last-Event-ID (-want +got)\n%s", diff)
		}
		// Twice what the server asked for, then a second for the answer 503.
		if took := time.Since(start); took < 2*time.Second || took > 2250*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if len(notes) != 1 || (<-notes).Tag != 1 {
			t.Error("the notification on the resumed stream was lost")
		}
	})
}

func TestHTTPStreamResumeGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gets := 0
		server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
			if r.Method == http.MethodGet && r.Header.Get(headerLastEventID) == "" {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			if r.Method == http.MethodGet {
				gets++
			}
			sse(w, "id: 1\ndata:\n\n") // again and again, and never anything new
		}}
		h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
		openSession(t, h)
		_, err := h.Call(t.Context(), Call{Method: "tools/call"})
		if e, ok := errors.AsType[*NetError](err); !ok || e.Reason != ReasonLost || gets != maxResumes {
			t.Errorf("%v after %d attempts", err, gets)
		}
	})
}

// Fault 25: a stream that stays silent.
func TestHTTPStreamStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
			sse(w, ": alive\n\n")
			if m.Method == "slow" {
				for range 10 {
					time.Sleep(50 * time.Second)
					sse(w, ": alive\n\n")
				}
				sseMessage(w, Message{ID: m.ID})
				return
			}
			<-r.Context().Done()
		}).inMemory(t)
		h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: rt})
		start := time.Now()
		_, err := h.Call(t.Context(), Call{Method: "silent"})
		if e, ok := errors.AsType[*NetError](err); !ok || e.Reason != ReasonTimeout || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := h.Call(t.Context(), Call{Method: "slow"}); err != nil {
			t.Errorf("comments keep a stream alive: %v", err)
		}
		start = time.Now()
		_, err = h.Call(t.Context(), Call{Method: "silent", Timeout: 2 * time.Minute})
		if e, ok := errors.AsType[*TimeoutError](err); !ok || e.After != 2*time.Minute || time.Since(start) != 2*time.Minute {
			t.Errorf("a call with a timeout of its own: %v after %v", err, time.Since(start))
		}
		start = time.Now()
		_, err = h.Call(t.Context(), Call{Method: "subscriptions/listen"})
		if e, ok := errors.AsType[*NetError](err); !ok || e.Reason != ReasonTimeout || time.Since(start) != 5*time.Minute {
			t.Errorf("listen: %v after %v", err, time.Since(start))
		}
	})
}

// Progress gives a call more time, but not for ever.
func TestHTTPCallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled []string
		server := &legacyServer{noGET: true, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
			switch m.Method {
			case "notifications/cancelled":
				cancelled = append(cancelled, string(m.Params))
				w.WriteHeader(http.StatusAccepted)
				return
			case "ping":
				respondJSON(w, m, `{}`)
				return
			}
			token, _ := Member(m.Params, "_meta", "progressToken")
			for r.Context().Err() == nil {
				sseMessage(w, Message{Method: "notifications/progress", Params: json.RawMessage(`{"progress":1,"progressToken":` + string(token) + `}`)})
				select {
				case <-time.After(20 * time.Second):
				case <-r.Context().Done():
				}
			}
		}}
		h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
		openSession(t, h)
		start := time.Now()
		_, err := h.Call(t.Context(), Call{Method: "tools/call", Timeout: 30 * time.Second, MaxTimeout: 90 * time.Second, Progress: func(json.RawMessage) {}})
		if e, ok := errors.AsType[*TimeoutError](err); !ok || e.After != 90*time.Second || time.Since(start) != 90*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{`{"requestId":2,"reason":"timeout"}`}, cancelled); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if _, err := h.Call(t.Context(), Call{Method: "ping"}); err != nil {
			t.Errorf("the link did not survive: %v", err)
		}
	})
}

// Fault 39: a caller that gives up frees everything at once, and the server is
// told, in the manner of its era.
func TestHTTPCallCancelled(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("modern=%v stream=%v", modern, stream), func(t *testing.T) {
				noLeaks(t)
				const calls = 50
				running, gone := make(chan struct{}, calls), make(chan struct{}, 2*calls)
				url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
					if m.Method == "notifications/cancelled" {
						gone <- struct{}{}
						w.WriteHeader(http.StatusAccepted)
						return
					}
					if stream {
						sse(w, ": working\n\n")
					}
					running <- struct{}{}
					<-r.Context().Done()
					if modern {
						gone <- struct{}{}
					}
				}).listen(t)
				h := link(t, url, nil, HTTPClientOptions{})
				if modern {
					h.speakModern(Version20260728)
				}
				why := errors.New("lost interest")
				ctx, cancel := context.WithCancelCause(t.Context())
				var wg sync.WaitGroup
				for range calls {
					wg.Go(func() {
						if _, err := h.Call(ctx, Call{Method: "tools/call"}); !errors.Is(err, why) {
							t.Errorf("%v", err)
						}
					})
				}
				for range calls {
					<-running
				}
				cancel(why)
				wg.Wait()
				for range calls {
					<-gone
				}
				h.Close()
				if len(gone) > 0 {
					t.Errorf("the server was told %d times too often", len(gone))
				}
			})
		}
	}
}

func TestHTTPCloseFailsCalls(t *testing.T) {
	noLeaks(t)
	running := make(chan struct{}, 2)
	server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
		if m.Method == "json" {
			running <- struct{}{}
		} else {
			sse(w, ": open\n\n")
			if m.Method == "stream" {
				running <- struct{}{}
			}
		}
		<-r.Context().Done()
	}}
	h := link(t, httpScript(server.serve).listen(t), nil, HTTPClientOptions{})
	openSession(t, h)
	var wg sync.WaitGroup
	for _, method := range []string{"json", "stream"} {
		wg.Go(func() {
			if _, err := h.Call(t.Context(), Call{Method: method}); !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", method, err)
			}
		})
		<-running
	}
	if h.Err() != nil {
		t.Error(h.Err())
	}
	h.Close()
	wg.Wait()
	<-h.Done()
	if !errors.Is(h.Err(), ErrClosed) || len(server.deleted) != 1 {
		t.Errorf("%v, deleted %v", h.Err(), server.deleted)
	}
	h.Close()
}

// Fault 26, on a whole client: what is over the limit fails its call alone.
func TestHTTPTooLarge(t *testing.T) {
	const limit = 1 << 16
	big := `{"x":"` + strings.Repeat("x", limit) + `"}`
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		switch m.Method {
		case "length":
			w.Header().Set("Content-Length", fmt.Sprint(len(big)+100))
			respondJSON(w, m, big)
		case "chunks":
			w.Header().Set("Content-Type", "application/json")
			for range 2 * limit / 1024 {
				w.Write(bytes.Repeat([]byte(" "), 1024))
				w.(http.Flusher).Flush()
			}
		case "stream":
			sse(w, "id: 1\ndata: %s\n\n", big)
		default:
			respondJSON(w, m, `{}`)
		}
	}).listen(t)
	h := link(t, url, nil, HTTPClientOptions{Limits: Limits{Size: limit}})
	for _, method := range []string{"length", "chunks", "stream"} {
		if _, err := h.Call(t.Context(), Call{Method: method}); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %v", method, err)
		}
		if _, err := h.Call(t.Context(), Call{Method: "ok"}); err != nil {
			t.Errorf("after %s: %v", method, err)
		}
	}
}

// Answers that are none fail the call with a reason, at once.
func TestHTTPBadAnswers(t *testing.T) {
	tests := []struct {
		name, kind, body string
		status           int
		want             string
	}{
		{"not JSON", "application/json", "<html>", 200, "not valid JSON"},
		{"empty", "application/json", "", 200, "not valid JSON"},
		{"duplicate member", "application/json", `{"jsonrpc":"2.0","id":1,"id":1,"result":{}}`, 200, "not valid JSON"},
		{"other id", "application/json", `{"jsonrpc":"2.0","id":99,"result":{}}`, 200, "no response with the id"},
		{"a request", "application/json", `{"jsonrpc":"2.0","id":1,"method":"x"}`, 200, "no response with the id"},
		{"accepted", "", ``, 202, `202 and content type ""`},
		{"HTML", "text/html", `<p>hello</p>`, 200, `content type "text/html"`},
		{"stream with a bad answer", "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},}\n\n", 200, "not valid JSON"},
		{"stream without answer", "text/event-stream", "data: " + note("x") + "\n\n", 200, "connection lost"},
		{"null id", "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`, 200, "what? (code -32700)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
				w.Header()["Content-Type"] = nil
				if tt.kind != "" {
					w.Header().Set("Content-Type", tt.kind)
				}
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			}).listen(t)
			_, err := link(t, url, nil, HTTPClientOptions{}).Call(t.Context(), Call{Method: "x"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// Revision 2025-03-26 lets a server answer with a batch.
func TestHTTPBatchAnswer(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream"} {
		notes := make(chan *Notification, 1)
		url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
			batch := fmt.Sprintf(`[%s,{"jsonrpc":"2.0","id":%s,"result":{"ok":1}}]`, note("notifications/message"), m.ID)
			if kind == "text/event-stream" {
				batch = "data: " + batch + "\n\n"
			}
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, batch)
		}).listen(t)
		out, err := link(t, url, &recorder{notes: notes}, HTTPClientOptions{}).Call(t.Context(), Call{Method: "x"})
		if err != nil || string(out) != `{"ok":1}` || len(notes) != 1 {
			t.Errorf("%s: %s, %v, %d notifications", kind, out, err, len(notes))
		}
	}
}

// Fault 42: requests where there may be none, and too many where there may.
func TestHTTPUnwantedRequests(t *testing.T) {
	const flood = 200
	var answers, refused atomic.Int32
	rest := func(w http.ResponseWriter, r *http.Request, m Message) {
		if m.Kind() == KindResponse {
			answers.Add(1)
			if m.Error != nil && m.Error.Code == CodeOverloaded {
				refused.Add(1)
			}
			w.WriteHeader(http.StatusAccepted)
			return
		}
		for i := range flood {
			sseMessage(w, Message{ID: NumberID(int64(i)), Method: "sampling/createMessage"})
		}
		sseMessage(w, Message{ID: m.ID})
	}
	var handled atomic.Int32
	handler := &recorder{answer: func(context.Context, *Request) (json.RawMessage, error) {
		handled.Add(1)
		return json.RawMessage(`{}`), nil
	}}

	h := link(t, httpScript(rest).listen(t), handler, HTTPClientOptions{})
	h.speakModern(Version20260728)
	if _, err := h.Call(t.Context(), Call{Method: "tools/call"}); err != nil {
		t.Fatal(err)
	}
	h.Close()
	if answers.Load() != 0 || handled.Load() != 0 {
		t.Errorf("modern: %d answers sent, %d requests handled", answers.Load(), handled.Load())
	}

	server := &legacyServer{noGET: true, rest: rest}
	h = link(t, httpScript(server.serve).listen(t), handler, HTTPClientOptions{})
	openSession(t, h)
	if _, err := h.Call(t.Context(), Call{Method: "tools/call"}); err != nil {
		t.Fatal(err)
	}
	h.wg.Wait()
	if answers.Load() != flood || handled.Load()+refused.Load() != flood || refused.Load() == 0 || handled.Load() < serverRequestsPerSecond {
		t.Errorf("legacy: %d answers, %d handled, %d refused", answers.Load(), handled.Load(), refused.Load())
	}
}

// A server may take back a request; it then gets no answer.
func TestHTTPServerCancels(t *testing.T) {
	var answers atomic.Int32
	started := make(chan struct{})
	server := &legacyServer{noGET: true, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
		if m.Kind() == KindResponse {
			answers.Add(1)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		sseMessage(w, Message{ID: StringID("q"), Method: "elicitation/create"})
		<-started
		sseMessage(w, Message{Method: "notifications/cancelled", Params: json.RawMessage(`{"requestId":"q"}`)})
		sseMessage(w, Message{ID: m.ID})
	}}
	ended := make(chan error, 1)
	handler := &recorder{answer: func(ctx context.Context, _ *Request) (json.RawMessage, error) {
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}}
	h := link(t, httpScript(server.serve).listen(t), handler, HTTPClientOptions{})
	openSession(t, h)
	if _, err := h.Call(t.Context(), Call{Method: "tools/call"}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != errCancelled {
		t.Errorf("%v", err)
	}
	h.wg.Wait()
	if answers.Load() != 0 {
		t.Error("the server got an answer")
	}
}

// A notification handler that makes a call, whose stream brings notifications,
// must not wait for itself.
func TestHTTPNotificationInsideNotification(t *testing.T) {
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		sseMessage(w, Message{Method: "notifications/" + m.Method})
		sseMessage(w, Message{ID: m.ID})
	}).listen(t)
	var order []string
	h := link(t, url, nil, HTTPClientOptions{})
	h.handler = handlerFunc(func(ctx context.Context, n *Notification) {
		order = append(order, n.Method)
		if n.Method == "notifications/outer" {
			if _, err := n.Link.Call(ctx, Call{Method: "inner"}); err != nil {
				t.Error(err)
			}
			order = append(order, "returned")
		}
	})
	if _, err := h.Call(t.Context(), Call{Method: "outer"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"notifications/outer", "notifications/inner", "returned"}, order); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

type handlerFunc func(context.Context, *Notification)

func (f handlerFunc) HandleRequest(context.Context, *Request) (json.RawMessage, error) {
	return nil, MethodNotFound("")
}

func (f handlerFunc) HandleNotification(ctx context.Context, n *Notification) { f(ctx, n) }

// The GET stream is opened again when it ends, with growing pauses, from the
// last event, until the server says that there is none.
func TestHTTPGETStreamReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		var ids []string
		start := time.Now()
		server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
			if r.Method != http.MethodGet {
				respondJSON(w, m, `{}`)
				return
			}
			at = append(at, time.Since(start).Truncate(time.Second))
			ids = append(ids, r.Header.Get(headerLastEventID))
			switch len(at) {
			case 1:
				sse(w, "id: 1\nretry: 3000\ndata: %s\n\n", note("notifications/tools/list_changed"))
			case 2, 3:
				w.WriteHeader(http.StatusBadGateway)
			case 4:
				sse(w, "retry: 1000\ndata: %s\n\n", note("notifications/tools/list_changed"))
				abort(w)
			default:
				w.WriteHeader(http.StatusMethodNotAllowed)
			}
		}}
		notes := make(chan *Notification, 9)
		h := link(t, "http://server.example", &recorder{notes: notes}, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
		openSession(t, h)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(at) != 5 || at[1] != 3*time.Second {
			t.Fatalf("attempts at %v", at)
		}
		for i, bounds := range [][2]time.Duration{{3, 4}, {6, 8}, {1, 2}} {
			if gap := at[i+2] - at[i+1]; gap < bounds[0]*time.Second || gap > bounds[1]*time.Second {
				t.Errorf("pause %d was %v", i+2, gap)
			}
		}
		if diff := cmp.Diff([]string{"", "1", "1", "1", "1"}, ids); diff != "" {
			t.Errorf("Last-Event-ID (-want +got)\n%s", diff)
		}
		if len(notes) != 2 {
			t.Errorf("%d notifications", len(notes))
		}
	})
}

// A small call must stay cheap. The count is what is ours: net/http is not in it.
func TestHTTPCallAllocations(t *testing.T) {
	const maxAllocs = 32
	h, call := smallCall(t)
	got := testing.AllocsPerRun(100, func() {
		if _, err := h.Call(context.Background(), call); err != nil {
			t.Fatal(err)
		}
	})
	if got > maxAllocs {
		t.Errorf("%v allocations per call, more than %d", got, maxAllocs)
	}
}

func BenchmarkHTTPCall(b *testing.B) {
	h, call := smallCall(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Call(context.Background(), call); err != nil {
			b.Fatal(err)
		}
	}
}

// cannedTransport answers each request with the same result.
type cannedTransport struct{ result string }

func (c cannedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := make([]byte, r.ContentLength)
	if _, err := r.Body.Read(body); err != nil && err.Error() != "EOF" {
		return nil, err
	}
	m, err := Parse(body, Limits{})
	if err != nil {
		return nil, err
	}
	answer := Message{ID: m.ID, Result: json.RawMessage(c.result)}.AppendTo(nil)
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(answer)),
		Body: nopCloser{bytes.NewReader(answer)},
	}, nil
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

func smallCall(t testing.TB) (*HTTPClient, Call) {
	h, err := newHTTPClient("http://server.example", &recorder{}, HTTPClientOptions{
		Transport: cannedTransport{`{"content":[{"type":"text","text":"` + strings.Repeat("x", 100) + `"}]}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, Call{Method: "tools/call", Params: json.RawMessage(`{"name":"echo","arguments":{"text":"x"}}`), Timeout: time.Minute}
}

// A 1 MiB answer is allocated once, and a 1 MiB request not at all, however they
// come.
func TestHTTPCallBytes(t *testing.T) {
	const size = 1 << 20
	big := json.RawMessage(`{"text":"` + strings.Repeat("x", size) + `"}`)
	for _, kind := range []string{"length", "chunks", "stream", "request"} {
		t.Run(kind, func(t *testing.T) {
			rt := &bigTransport{kind: kind, result: big}
			h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: rt})
			call := Call{Method: "x"}
			if kind == "request" {
				call.Params, rt.result = big, json.RawMessage(`{}`)
			}
			checkPayloadBytes(t, size, bytesPerRun(func() {
				if _, err := h.Call(context.Background(), call); err != nil {
					t.Fatal(err)
				}
				h.wg.Wait()
			}))
		})
	}
}

// bigTransport answers with the same large result each time, without
// allocating anything of its size.
type bigTransport struct {
	kind   string
	result json.RawMessage
	calls  int
}

func (b *bigTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	b.calls++
	head := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":`, b.calls)
	tail, contentType := "}", "application/json"
	if b.kind == "stream" {
		head, tail, contentType = "data: "+head, tail+"\n\n", "text/event-stream"
	}
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, ContentLength: -1}
	if b.kind == "length" {
		resp.ContentLength = int64(len(head) + len(b.result) + len(tail))
	}
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(head), bytes.NewReader(b.result), strings.NewReader(tail)))
	return resp, nil
}
