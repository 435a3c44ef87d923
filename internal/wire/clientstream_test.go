package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
		patient, stop := context.WithTimeout(t.Context(), 24*time.Hour)
		defer stop()
		_, err := h.Call(patient, Call{Method: "silent"})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 24*time.Hour {
			t.Errorf("a call without a limit: %v after %v", err, time.Since(start))
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

// A body that stops in the middle holds a call as long as its caller wants to
// wait, unless it is that of an error.
func TestHTTPBodyStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
			w.Header().Set("Content-Type", "application/json")
			if m.Method == "error" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			w.Write([]byte(`{"jsonrpc":`))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}).inMemory(t)
		h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: rt})
		start := time.Now()
		_, err := h.Call(t.Context(), Call{Method: "answer", Timeout: time.Hour})
		if _, ok := errors.AsType[*TimeoutError](err); !ok || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		start = time.Now()
		_, err = h.Call(t.Context(), Call{Method: "error"})
		if e, ok := errors.AsType[*HTTPError](err); !ok || e.Status != 500 || time.Since(start) != errorBodyTime {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
