package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// waitFor polls a condition that another goroutine is about to make true.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
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

// Fault 38: with any number of callers only so many requests are under way, the
// others wait their turn, and too many are told so.
func TestHTTPManyCallers(t *testing.T) {
	noLeaks(t)
	const queued = 10_000
	var running, most, served atomic.Int32
	gate := make(chan struct{})
	rt := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		select {
		case <-gate:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		served.Add(1)
		return cannedTransport{`{}`}.RoundTrip(r)
	})
	h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: rt, MaxInFlight: 16, MaxQueued: queued})
	h.speakModern(Version20260728) // in which no cancellations are sent
	inQueue := func() int {
		h.turns.mu.Lock()
		defer h.turns.mu.Unlock()
		return h.turns.used[""].queue.size
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var failed atomic.Int32
	for i := range queued + 16 {
		wg.Go(func() {
			c := t.Context()
			if i%2 == 0 {
				c = ctx
			}
			if _, err := h.Call(c, Call{Method: "x"}); err != nil {
				failed.Add(1)
			}
		})
	}
	waitFor(t, func() bool { return running.Load() == 16 && inQueue() == queued })
	if _, err := h.Call(t.Context(), Call{Method: "x"}); !errors.Is(err, ErrOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	cancel() // those who wait may give up
	waitFor(t, func() bool { return failed.Load() == (queued+16)/2 })
	close(gate)
	wg.Wait()
	if most.Load() != 16 || served.Load()+failed.Load() != queued+16 || failed.Load() != (queued+16)/2 {
		t.Errorf("%d at once, %d served, %d failed", most.Load(), served.Load(), failed.Load())
	}
}
