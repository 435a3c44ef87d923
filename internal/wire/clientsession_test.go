package wire

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

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

// On which answers a session is opened anew, and on which the call is made again:
// the status, the code and the missing id count, never a text.
func TestHTTPSessionForgottenSigns(t *testing.T) {
	for _, test := range []struct {
		name    string
		answer  func(w http.ResponseWriter, m Message) // to the first call
		session bool                                   // the server gives out an id
		method  string
		calls   int // that the server gets
		opened  int // sessions
	}{
		{"404", refusing(http.StatusNotFound, false, -32001, "Session not found"), true, "tools/call", 2, 2},
		{"404 without a session id", refusing(http.StatusNotFound, false, -32001, "Session not found"), false, "tools/call", 1, 1},
		{"400 that speaks of the session", refusing(http.StatusBadRequest, false, -32000, "your session is full"), true, "tools/call", 1, 1},
		{"the same of a read", refusing(http.StatusBadRequest, false, -32000, "your session is full"), true, "tools/list", 1, 1},
		{"400 of another code", refusing(http.StatusBadRequest, true, -32600, "no session"), true, "tools/call", 1, 1},
		// As in the example of the TypeScript SDK.
		{"400 without an id", refusing(http.StatusBadRequest, true, -32000, "Bad Request"), true, "tools/call", 1, 2},
		{"the same of a read, too", refusing(http.StatusBadRequest, true, -32000, "Bad Request"), true, "tools/list", 2, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			calls := 0
			server := &legacyServer{noGET: true, noID: !test.session, rest: func(w http.ResponseWriter, _ *http.Request, m Message) {
				if calls++; calls == 1 {
					test.answer(w, m)
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
			_, err := h.Call(t.Context(), Call{Method: test.method})
			if (err == nil) != (test.calls == 2) || calls != test.calls || server.opened != test.opened {
				t.Errorf("%d calls, %d sessions, %v; want %d and %d", calls, server.opened, err, test.calls, test.opened)
			}
			if _, err := h.Call(t.Context(), Call{Method: test.method}); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// refusing answers with an error, which may not say which request it is about.
func refusing(status int, noID bool, code int64, text string) func(http.ResponseWriter, Message) {
	return func(w http.ResponseWriter, m Message) {
		if noID {
			m.ID = NullID()
		}
		respondError(w, m, status, Errorf(code, "%s", text))
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

// A session that is found to be forgotten when its GET stream is opened again
// is replaced without waiting for a call. That the server has no GET stream at
// all, and says so with 404, means nothing.
func TestHTTPGETStreamFindsSessionForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
			sse(w, ": open\n\n")
			select {
			case <-end:
			case <-r.Context().Done():
			}
		}}
		h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
		h.reopen = func(ctx context.Context) error {
			if _, err := h.Call(ctx, Call{Method: "initialize", Params: json.RawMessage(`{}`)}); err != nil {
				return err
			}
			return h.Notify(ctx, "notifications/initialized", nil)
		}
		openSession(t, h)
		server.forget()
		end <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff("GET session-2 2025-11-25", server.seen()[len(server.seen())-1]); diff != "" || server.opened != 2 {
			t.Errorf("%d sessions (-want +got)\n%s", server.opened, diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) { w.WriteHeader(http.StatusNotFound) }}
		h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
		h.reopen = func(context.Context) error { t.Error("a new session"); return nil }
		openSession(t, h)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(server.seen()); n != 3 {
			t.Errorf("%d requests", n)
		}
	})
}

// The GET stream outlives a time without credentials.
func TestHTTPGETStreamWithoutCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		opened := make(chan time.Duration, 1)
		server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
			opened <- time.Since(start)
			sse(w, ": open\n\n")
			<-r.Context().Done()
		}}
		asked := 0
		h := link(t, "http://server.example", nil, HTTPClientOptions{
			Transport: httpScript(server.serve).inMemory(t),
			Header: func(context.Context) (http.Header, error) {
				if asked++; asked > 2 && time.Since(start) < time.Minute {
					return nil, errors.New("no token at present")
				}
				return nil, nil
			},
		})
		openSession(t, h)
		if at := <-opened; at < time.Minute || at > 3*time.Minute {
			t.Errorf("opened after %v", at)
		}
	})
}
