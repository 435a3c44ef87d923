package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A client is told when a server ends the stream of a call on purpose, and comes
// back as often as the server likes.
func TestHTTPClientAskedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var call Message
		gets := 0
		server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
			last := r.Header.Get(headerLastEventID)
			switch {
			case r.Method == http.MethodPost:
				call = m
				sse(w, "id: 1\nretry: 500\ndata:\n\n")
			case last == "":
				w.WriteHeader(http.StatusMethodNotAllowed) // no stream of its own
			case gets < 2*maxResumes:
				gets++
				sse(w, "retry: 700\n\n") // nothing new
			default:
				sse(w, "id: 2\ndata: %s\n\n", Message{ID: call.ID, Result: json.RawMessage(`{"done":true}`)}.AppendTo(nil))
			}
		}}
		h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
		openSession(t, h)
		var told, want []time.Duration
		start := time.Now()
		out, err := h.Call(t.Context(), Call{Method: "tools/call", ComeBack: func(after time.Duration) { told = append(told, after) }})
		if err != nil || string(out) != `{"done":true}` {
			t.Fatalf("%s, %v", out, err)
		}
		whole := 500 * time.Millisecond
		for want = append(want, whole); len(want) <= 2*maxResumes; whole += 700 * time.Millisecond {
			want = append(want, 700*time.Millisecond)
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
		if took := time.Since(start); took != whole {
			t.Errorf("took %v, want %v", took, whole)
		}
	})
}

// A stream that was cut off, or whose server names no time, is resumed, but
// nobody was asked to come back.
func TestHTTPClientNotAskedBack(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"cut off": func(w http.ResponseWriter) { sse(w, "id: 1\nretry: 500\ndata:\n\n"); abort(w) },
		"no time": func(w http.ResponseWriter) { sse(w, "id: 1\ndata:\n\n") },
	} {
		synctest.Test(t, func(t *testing.T) {
			var call Message
			server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
				switch {
				case r.Method == http.MethodPost:
					call = m
					begin(w)
				case r.Header.Get(headerLastEventID) == "":
					w.WriteHeader(http.StatusMethodNotAllowed)
				default:
					sseMessage(w, Message{ID: call.ID, Result: json.RawMessage(`{}`)})
				}
			}}
			h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
			openSession(t, h)
			_, err := h.Call(t.Context(), Call{Method: "tools/call", ComeBack: func(after time.Duration) { t.Errorf("%s: asked for %v", name, after) }})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func anyone(*Session) bool { return true }

// A server may end the response of a long call and have its client come back,
// if that can.
func TestLegacyComeBack(t *testing.T) {
	h := newTestHandler()
	goOn := make(chan struct{})
	h.tools["slow"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		left := r.ComeBack(10 * time.Millisecond)
		<-goOn
		return textResult(fmt.Sprint(left)), nil
	}
	mayLeave := func(s *Session) bool { return !strings.Contains(string(s.ClientInfo), "stay") }
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler, o.ComeBack = h, mayLeave }), HTTPOptions{})
	id := s.initialize(Version20251125, "{}")
	r := s.post(toolCall(1, "slow"), headerSession, id)
	if want := "id: 1-0\ndata: \n\nretry: 10\n\n"; r.body != want {
		t.Errorf("%q", r.body)
	}
	goOn <- struct{}{}
	if m := s.get(id, headerLastEventID, "1-0").must(); m.ID != NumberID(1) || !strings.Contains(string(m.Result), "true") {
		t.Errorf("%v %s", m.ID, m.Result)
	}
	close(goOn)
	staying := s.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"stay"}}}`).header.Get(headerSession)
	for why, r := range map[string]reply{
		"an older revision": s.post(toolCall(1, "slow"), headerSession, s.initialize(Version20250618, "{}")),
		"the next revision": s.modern(2, "tools/call", `{"name":"slow"}`, "{}"),
		"only JSON":         s.post(toolCall(2, "slow"), headerSession, id, "Accept", "", "Accept", "application/json"),
		"the option":        s.post(toolCall(1, "slow"), headerSession, staying),
	} {
		if r.status != http.StatusOK || !strings.Contains(r.body, "false") || strings.Contains(r.body, "retry") {
			t.Errorf("%s: %d %s", why, r.status, r.body)
		}
	}
}

// leaving is a server with one tool, whose calls send their client away and
// answer when they may, and a client of it.
type leaving struct {
	server  *Server
	handler *HTTPHandler
	session string
	goOn    chan struct{} // closed: calls are answered
	ended   chan error    // the causes of calls that were cancelled
}

const answerSize = 100 << 10

func newLeaving(t *testing.T) *leaving {
	l := &leaving{goOn: make(chan struct{}), ended: make(chan error, 10)}
	h := newTestHandler()
	h.tools["slow"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		asked := fmt.Sprint(r.ComeBack(time.Second))
		select {
		case <-l.goOn:
			return textResult(asked + strings.Repeat("x", answerSize)), nil
		case <-ctx.Done():
			l.ended <- context.Cause(ctx)
			return nil, ctx.Err()
		}
	}
	// As long as its client is there, it sends it away every ten seconds.
	h.tools["poll"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		for {
			r.ComeBack(time.Hour)
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				l.ended <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		}
	}
	l.server = newTestServer(t, func(o *ServerOptions) { o.Handler, o.ComeBack = h, anyone })
	l.handler = NewHTTPHandler(l.server, HTTPOptions{})
	l.session = direct(l.handler, "POST", initializeText).Header().Get(headerSession)
	return l
}

func (l *leaving) post(text string) string {
	return direct(l.handler, "POST", text, headerSession, l.session, "Accept", "application/json, text/event-stream").Body.String()
}

// comeBack is for the client of a call that was sent away with the first event.
func (l *leaving) comeBack(call int) string {
	return direct(l.handler, "GET", "", headerSession, l.session, "Accept", "text/event-stream", headerLastEventID, fmt.Sprint(call, "-0")).Body.String()
}

// However many answers wait for a client that was sent away, none is lost, and
// there are not more of them than a session may keep.
func TestAnswersWaitForClientSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		for call := range maxAway {
			if body := l.post(toolCall(call+1, "slow")); !strings.HasSuffix(body, "retry: 1000\n\n") {
				t.Fatalf("call %d: %s", call+1, body)
			}
		}
		var stays sync.WaitGroup
		stays.Go(func() {
			if body := l.post(toolCall(maxAway+1, "slow")); !strings.Contains(body, "false") {
				t.Errorf("one too many was sent away: %.100s", body)
			}
		})
		synctest.Wait()
		close(l.goOn)
		stays.Wait()
		time.Sleep(time.Minute) // they are not in a hurry
		for call := range maxAway {
			if body := l.comeBack(call + 1); len(body) < answerSize || !strings.Contains(body, fmt.Sprintf(`"id":%d,`, call+1)) {
				t.Errorf("the answer to call %d is lost: %.100s", call+1, body)
			}
		}
		// Nobody is away any more. It is answered so soon that it may not have to go.
		if body := l.post(toolCall(1, "slow")) + l.comeBack(maxAway+2); !strings.Contains(body, "true") {
			t.Errorf("nobody is away, and yet it is not sent away: %.100s", body)
		}
	})
}

// A client may be sent away again and again, for longer in all than one absence
// may take. When it stays away its session ends, and the call with it.
func TestClientSentAwayAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		body := l.post(toolCall(1, "poll"))
		for range 20 {
			if !strings.HasSuffix(body, "retry: 60000\n\n") {
				t.Fatalf("got %q", body)
			}
			time.Sleep(time.Minute)
			body = l.comeBack(1)
		}
		start := time.Now()
		if err := <-l.ended; !errors.Is(err, ErrClosed) || time.Since(start) != l.handler.times.gone {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A client that goes in the middle of what it came back for has as much time as
// one that was sent away.
func TestClientComesBackAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		l.post(toolCall(1, "slow"))
		time.Sleep(l.handler.times.resume - time.Second)
		ctx, goAway := context.WithTimeout(t.Context(), time.Second)
		defer goAway()
		r := newGet(l, "1-0").WithContext(ctx)
		l.handler.ServeHTTP(&sink{header: http.Header{}}, r)
		start := time.Now()
		if err := <-l.ended; !errors.Is(err, ErrClosed) || time.Since(start) != l.handler.times.gone {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func newGet(l *leaving, last string) *http.Request {
	r, _ := http.NewRequest(http.MethodGet, "http://localhost/", nil)
	r.Header = http.Header{"Accept": {"text/event-stream"}, headerSession: {l.session}, headerLastEventID: {last}}
	return r
}

// A server that shuts down waits for those it has sent away.
func TestShutdownWaitsForClientSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		l.post(toolCall(1, "slow"))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		done := make(chan error, 1)
		go func() { done <- l.server.Shutdown(ctx) }()
		synctest.Wait()
		close(l.goOn) // the call ends
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		if body := l.comeBack(1); len(body) < answerSize {
			t.Errorf("got %.100s", body)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// One that has come back while the server shuts down stays.
func TestShutdownSendsNobodyAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		l.post(toolCall(1, "poll"))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		done := make(chan error, 1)
		go func() { done <- l.server.Shutdown(ctx) }()
		synctest.Wait()
		if body := l.comeBack(1); strings.Contains(body, "retry") || !strings.Contains(body, `"error"`) {
			t.Errorf("got %q", body)
		}
		if err := <-done; err == nil {
			t.Error("the call ended by itself")
		}
	})
}

// Those who do not come, or who have cancelled, are not waited for.
func TestShutdownForgetsClientSentAway(t *testing.T) {
	for name, leave := range map[string]func(l *leaving){
		"cancelled": func(l *leaving) {
			l.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		},
		"session ended": func(l *leaving) { direct(l.handler, "DELETE", "", headerSession, l.session) },
		"too late": func(l *leaving) {
			close(l.goOn)
			time.Sleep(l.handler.times.resume)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLeaving(t)
			l.post(toolCall(1, "slow"))
			leave(l)
			synctest.Wait()
			start := time.Now()
			if err := l.server.Shutdown(t.Context()); err != nil || time.Since(start) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		l.post(toolCall(1, "slow"))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		start := time.Now()
		if err := l.server.Shutdown(ctx); err == nil || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
