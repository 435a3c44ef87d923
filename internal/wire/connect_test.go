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

// memoryEras is an EraCache.
type memoryEras struct {
	mu sync.Mutex
	m  map[string]Dialect
}

func (e *memoryEras) Load(key string) (Dialect, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d, ok := e.m[key]
	return d, ok
}

func (e *memoryEras) Store(key string, d Dialect) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.m == nil {
		e.m = make(map[string]Dialect)
	}
	e.m[key] = d
}

const (
	oldServer = `{"protocolVersion":"2025-06-18","capabilities":{"x":9007199254740993},"serverInfo":{"name":"old","version":"1"}}`
	newServer = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"2"}}}`
)

// streamServer serves the other end of a memory conn with answer, until it is
// closed. It notes the methods that came.
func streamServer(t *testing.T, answer func(c Conn, m Message)) (Transport, func() []string) {
	ours, theirs := Pipe()
	var mu sync.Mutex
	var seen []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			m, err := theirs.Read()
			if err != nil {
				return
			}
			mu.Lock()
			seen = append(seen, m.Method)
			mu.Unlock()
			answer(theirs, m)
		}
	})
	t.Cleanup(func() {
		theirs.Close()
		wg.Wait()
	})
	return Stream(ours, nil), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), seen...)
	}
}

func answerWith(c Conn, m Message, result string) {
	c.Write(context.Background(), Message{ID: m.ID, Result: json.RawMessage(result)})
}

// What a server answers to server/discover decides on the era.
func TestConnectFindsTheEra(t *testing.T) {
	initialized := []string{"server/discover", "initialize", "notifications/initialized"}
	fail := func(e *Error) func(Conn, Message) {
		return func(c Conn, m Message) { c.Write(context.Background(), Message{ID: m.ID, Error: e}) }
	}
	tests := []struct {
		name     string
		discover func(Conn, Message)
		era      Era
		asked    string // version in initialize
		seen     []string
		err      string
	}{
		{"modern", func(c Conn, m Message) { answerWith(c, m, newServer) }, Modern, "", []string{"server/discover"}, ""},
		{"method not found", fail(MethodNotFound("server/discover")), Legacy, Version20251125, initialized, ""},
		{"invalid params", fail(Errorf(-32602, "no")), Legacy, Version20251125, initialized, ""},
		{"an error of its own", fail(Errorf(-1, "not initialized")), Legacy, Version20251125, initialized, ""},
		{"an empty object", func(c Conn, m Message) { answerWith(c, m, `{}`) }, Legacy, Version20251125, initialized, ""},
		{"only older versions, as an error", fail(&Error{Code: CodeUnsupportedVersion, Message: "no", Data: json.RawMessage(`{"supported":["2024-11-05","2025-03-26","2099-01-01"]}`)}),
			Legacy, Version20250326, initialized, ""},
		{"only older versions, as a result", func(c Conn, m Message) { answerWith(c, m, `{"supportedVersions":["2025-06-18"]}`) }, Legacy, Version20250618, initialized, ""},
		{"no common version", fail(&Error{Code: CodeUnsupportedVersion, Message: "what?", Data: json.RawMessage(`{"supported":["2099-01-01"]}`)}),
			0, "", []string{"server/discover"}, "what?"},
		{"modern but wants more", fail(Errorf(CodeMissingClientCapability, "need sampling")), 0, "", []string{"server/discover"}, "need sampling"},
		{"dies of it", func(c Conn, m Message) { c.Close() }, 0, "", []string{"server/discover"}, "connection closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			noLeaks(t)
			asked := ""
			tr, seen := streamServer(t, func(c Conn, m Message) {
				switch m.Method {
				case "server/discover":
					if v, _ := StringMember(m.Params, "_meta", MetaProtocolVersion); v != Version20260728 {
						t.Errorf("discover with %s", m.Params)
					}
					tt.discover(c, m)
				case "initialize":
					asked, _ = StringMember(m.Params, "protocolVersion")
					answerWith(c, m, strings.Replace(oldServer, "2025-06-18", asked, 1))
				}
			})
			eras := &memoryEras{}
			c, err := Connect(t.Context(), tr, &ClientOptions{Eras: eras, EraKey: "k"})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("%v, want %q", err, tt.err)
				}
				if d := eras.m["k"]; tt.name == "dies of it" && d != DialectLegacy {
					t.Errorf("next time it will be asked again: %q", d)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			waitFor(t, func() bool { return len(seen()) == len(tt.seen) })
			if diff := cmp.Diff(tt.seen, seen()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if c.Opening().Era != tt.era || asked != tt.asked {
				t.Errorf("era %v, asked for %q", c.Opening().Era, asked)
			}
			want := DialectLegacy
			if tt.era == Modern {
				want = DialectModern
			}
			if eras.m["k"] != want {
				t.Errorf("remembered %q", eras.m["k"])
			}
		})
	}
}

// Fault 4: a server that ignores server/discover costs three seconds, once. Its
// late answer changes nothing.
func TestConnectSilentLegacyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eras := &memoryEras{}
		for round, want := range []time.Duration{3*time.Second + answerGrace, 0} {
			var late Message
			tr, seen := streamServer(t, func(c Conn, m Message) {
				switch m.Method {
				case "server/discover":
					late = m
				case "initialize":
					answerWith(c, m, oldServer)
				case "tools/call":
					if !late.ID.IsZero() {
						answerWith(c, late, newServer)
					}
					answerWith(c, m, `{"ok":true}`)
				}
			})
			start := time.Now()
			c, err := Connect(t.Context(), tr, &ClientOptions{Eras: eras, EraKey: "k"})
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("round %d took %v, want %v", round, took, want)
			}
			if out, err := c.CallTool(t.Context(), "x", nil); err != nil || string(out) != `{"ok":true}` || c.Opening().Version != Version20250618 {
				t.Errorf("%s, %v, %v", out, err, c.Opening())
			}
			if round == 0 && c.link.(*Peer).Stats().LateAnswers != 1 {
				t.Errorf("%+v", c.link.(*Peer).Stats())
			}
			synctest.Wait() // until the cancellation is sent, which nobody waits for
			c.Close()
			synctest.Wait()
			if n := len(seen()); n != map[int]int{0: 5, 1: 3}[round] {
				t.Errorf("round %d: %v", round, seen())
			}
		}
	})
}

// A remembered era is only a hint.
func TestConnectRemembersWrongly(t *testing.T) {
	for _, tt := range []struct {
		remembered Dialect
		modern     bool
		seen       []string
	}{
		{DialectLegacy, true, []string{"initialize", "server/discover"}},
		{DialectModern, false, []string{"server/discover", "initialize", "notifications/initialized"}},
		{DialectSSE, false, []string{"server/discover", "initialize", "notifications/initialized"}},
	} {
		t.Run(string(tt.remembered), func(t *testing.T) {
			tr, seen := streamServer(t, func(c Conn, m Message) {
				switch {
				case m.Method == "server/discover" && tt.modern:
					answerWith(c, m, newServer)
				case m.Method == "initialize" && !tt.modern:
					answerWith(c, m, oldServer)
				case m.Kind() == KindRequest:
					c.Write(context.Background(), Message{ID: m.ID, Error: MethodNotFound(m.Method)})
				}
			})
			eras := &memoryEras{m: map[string]Dialect{"k": tt.remembered}}
			c, err := Connect(t.Context(), tr, &ClientOptions{Eras: eras, EraKey: "k"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			waitFor(t, func() bool { return len(seen()) == len(tt.seen) })
			if diff := cmp.Diff(tt.seen, seen()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if (eras.m["k"] == DialectModern) != tt.modern {
				t.Errorf("remembers %q", eras.m["k"])
			}
		})
	}
}

func TestConnectUnknownVersion(t *testing.T) {
	tr, _ := streamServer(t, func(c Conn, m Message) {
		if m.Method == "initialize" {
			answerWith(c, m, `{"protocolVersion":"1999-01-01","capabilities":{}}`)
		}
	})
	_, err := Connect(t.Context(), tr, &ClientOptions{ProtocolVersion: Version20251125})
	if !errors.Is(err, errNoCommonVer) || !strings.Contains(err.Error(), "1999-01-01") {
		t.Errorf("%v", err)
	}
	if _, err := Connect(t.Context(), tr, &ClientOptions{ProtocolVersion: "next"}); err == nil {
		t.Error("a version nobody knows was accepted")
	}
}

// The caller's context bounds the connecting, and not the life.
func TestConnectContext(t *testing.T) {
	noLeaks(t)
	tr, _ := streamServer(t, func(c Conn, m Message) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, tr, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	tr, _ = streamServer(t, func(c Conn, m Message) {
		if m.Method == "server/discover" {
			answerWith(c, m, newServer)
		} else {
			answerWith(c, m, `{}`)
		}
	})
	ctx, cancel = context.WithCancel(t.Context())
	c, err := Connect(ctx, tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Errorf("%v", err)
	}
	c.Close()
}

// Over HTTP the status and the body of the answer to server/discover decide,
// and some failures are nobody's era.
func TestConnectHTTPFailures(t *testing.T) {
	tests := []struct {
		name     string
		discover httpScript
		seen     []string
		check    func(error) bool
	}{
		{"unauthorized", func(w http.ResponseWriter, _ *http.Request, _ Message) { w.WriteHeader(401) }, []string{"server/discover"},
			func(err error) bool { e, ok := errors.AsType[*HTTPError](err); return ok && e.NeedsAuth() }},
		{"forbidden", func(w http.ResponseWriter, _ *http.Request, _ Message) { w.WriteHeader(403) }, []string{"server/discover"},
			func(err error) bool { e, ok := errors.AsType[*HTTPError](err); return ok && e.Status == 403 }},
		{"modern error", func(w http.ResponseWriter, _ *http.Request, m Message) {
			respondError(w, m, 400, Errorf(CodeMissingClientCapability, "no"))
		}, []string{"server/discover"}, func(err error) bool {
			e, ok := errors.AsType[*Error](err)
			return ok && e.Code == CodeMissingClientCapability
		}},
		{"older versions only", func(w http.ResponseWriter, _ *http.Request, m Message) {
			respondError(w, m, 400, &Error{Code: CodeUnsupportedVersion, Message: "old", Data: json.RawMessage(`{"supported":["2025-06-18"]}`)})
		}, []string{"server/discover", "initialize", "notifications/initialized"}, nil},
		{"server error", func(w http.ResponseWriter, _ *http.Request, _ Message) { w.WriteHeader(500) },
			[]string{"server/discover", "initialize", "notifications/initialized"}, nil},
		{"not found", func(w http.ResponseWriter, _ *http.Request, _ Message) { w.WriteHeader(404) },
			[]string{"server/discover", "initialize", "notifications/initialized"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			var seen []string
			url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
				if r.Method != http.MethodPost {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				mu.Lock()
				seen = append(seen, m.Method)
				mu.Unlock()
				switch m.Method {
				case "server/discover":
					if r.Header.Get(headerVersion) != Version20260728 || r.Header.Get(headerMethod) != m.Method {
						t.Errorf("%v", r.Header)
					}
					tt.discover(w, r, m)
				case "initialize":
					if r.Header.Get(headerVersion) != "" || r.Header.Get(headerMethod) != "" {
						t.Errorf("%v", r.Header)
					}
					respondJSON(w, m, oldServer)
				default:
					w.WriteHeader(http.StatusAccepted)
				}
			}).listen(t)
			c, err := Connect(t.Context(), HTTP(url, nil), nil)
			if err == nil {
				defer c.Close()
			}
			if (err == nil) != (tt.check == nil) || err != nil && !tt.check(err) {
				t.Errorf("%v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(tt.seen, seen); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Over HTTP a server that is slow to answer server/discover is more likely slow
// than old: it is spoken to as if it were old, but asked again next time.
func TestConnectSlowHTTPServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &legacyServer{noGET: true}
		rt := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
			if m.Method == "server/discover" {
				<-r.Context().Done()
				return
			}
			server.serve(w, r, m)
		}).inMemory(t)
		eras := &memoryEras{}
		start := time.Now()
		c, err := Connect(t.Context(), HTTP("http://server.example", &HTTPClientOptions{Transport: rt}), &ClientOptions{Eras: eras, EraKey: "k"})
		if err != nil || time.Since(start) != 3*time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		c.Close()
		if d, ok := eras.Load("k"); ok {
			t.Errorf("remembers %q", d)
		}
	})
}

// sseServer is a server of 2024-11-05. endpoint is what its event says.
func sseServer(endpoint string, posts func(m Message)) httpScript {
	streams := make(chan chan string, 1)
	return func(w http.ResponseWriter, r *http.Request, m Message) {
		switch {
		case r.Method == http.MethodGet:
			out := make(chan string, 10)
			streams <- out
			sse(w, "event: endpoint\ndata: %s\n\n", endpoint)
			for {
				select {
				case text := <-out:
					sse(w, "event: message\ndata: %s\n\n", text)
				case <-r.Context().Done():
					<-streams
					return
				}
			}
		case r.URL.Path == "/messages":
			out := <-streams
			streams <- out
			if posts != nil {
				posts(m)
			}
			if m.Kind() == KindRequest {
				result := `{}`
				if m.Method == "initialize" {
					result = strings.Replace(oldServer, "2025-06-18", Version20241105, 1)
				}
				out <- string(Message{ID: m.ID, Result: json.RawMessage(result)}.AppendTo(nil))
			}
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}
}

// The order for a URL of which nothing is known: Streamable HTTP, then
// HTTP+SSE, which is remembered.
func TestConnectFallsBackToSSE(t *testing.T) {
	noLeaks(t)
	var mu sync.Mutex
	var seen []string
	script := sseServer("/messages?session=1", nil)
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		mu.Lock()
		seen = append(seen, strings.TrimSpace(r.Method+" "+m.Method))
		mu.Unlock()
		script(w, r, m)
	}).listen(t)
	eras := &memoryEras{}
	for _, want := range [][]string{
		{"POST server/discover", "POST initialize", "GET", "POST initialize", "POST notifications/initialized", "POST tools/call"},
		{"GET", "POST initialize", "POST notifications/initialized", "POST tools/call"},
	} {
		seen = nil
		c, err := Connect(t.Context(), HTTP(url, &HTTPClientOptions{SSEFallback: true}), &ClientOptions{Eras: eras, EraKey: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil || c.Opening().Version != Version20241105 {
			t.Errorf("%v, %v", err, c.Opening())
		}
		c.Close()
		mu.Lock()
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		mu.Unlock()
		if eras.m["k"] != DialectSSE {
			t.Errorf("remembers %q", eras.m["k"])
		}
	}
	if _, err := Connect(t.Context(), HTTP(url, nil), nil); err == nil {
		t.Error("fell back without leave")
	}
}

// When there is no stream either, the error is that of the first attempt.
func TestConnectNoSSEEither(t *testing.T) {
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		http.Error(w, "no "+r.Method+" here", http.StatusNotFound)
	}).listen(t)
	_, err := Connect(t.Context(), HTTP(url, &HTTPClientOptions{SSEFallback: true}), nil)
	if err == nil || !strings.Contains(err.Error(), "404 Not Found: no POST here") {
		t.Errorf("%v", err)
	}
}

// Whoever can write the endpoint event must not be able to direct our
// credentials elsewhere.
func TestSSEEndpointOrigin(t *testing.T) {
	var stolen sync.Map
	thief := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) { stolen.Store("got", r.Header) }).listen(t)
	for _, endpoint := range []string{thief + "/messages", "//elsewhere.example/messages", "https://127.0.0.1/messages", "http://user@[::1]:1/", "%zz"} {
		url := sseServer(endpoint, nil).listen(t)
		_, err := dialSSE(t.Context(), url, HTTPClientOptions{})
		if err == nil || !strings.Contains(err.Error(), "endpoint event") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if v, ok := stolen.Load("got"); ok {
		t.Errorf("the other origin got %v", v)
	}
}

// A POST that is refused fails its call alone; the end of the stream ends all.
func TestSSELink(t *testing.T) {
	noLeaks(t)
	var mu sync.Mutex
	refuse := false
	script := sseServer("messages", nil)
	end := make(chan struct{})
	url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		mu.Lock()
		refused := refuse && m.Method == "tools/call"
		mu.Unlock()
		switch {
		case refused:
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodGet:
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			go func() {
				select {
				case <-end:
					cancel()
				case <-ctx.Done():
				}
			}()
			script(w, r.WithContext(ctx), m)
		default:
			script(w, r, m)
		}
	}).listen(t)
	c, err := Connect(t.Context(), HTTP(url+"/", &HTTPClientOptions{SSEFallback: true}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mu.Lock()
	refuse = true
	mu.Unlock()
	_, err = c.CallTool(t.Context(), "x", nil)
	if e, ok := errors.AsType[*HTTPError](err); !ok || !e.NeedsAuth() {
		t.Errorf("%v", err)
	}
	mu.Lock()
	refuse = false
	mu.Unlock()
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Errorf("%v", err)
	}
	close(end)
	<-c.Done()
	if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// After a forgotten session the new one is in the state of the old: log level,
// subscriptions, GET stream; and lists may have changed.
func TestClientReopensSession(t *testing.T) {
	noLeaks(t)
	server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
		if r.Method == http.MethodGet {
			sse(w, ": open\n\n")
			<-r.Context().Done()
			return
		}
		if m.Kind() == KindNotification {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		respondJSON(w, m, `{}`)
	}}
	changed := make(chan List, 9)
	notes := make(chan *Notification, 9)
	c, err := Connect(t.Context(), HTTP(httpScript(server.serve).listen(t), nil), &ClientOptions{
		Changed: func(l List) { changed <- l }, Handler: &recorder{notes: notes},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, err := range []error{c.SetLevel(t.Context(), "info"), c.Subscribe(t.Context(), "test://a"), c.Subscribe(t.Context(), "test://b"), c.Unsubscribe(t.Context(), "test://b")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool { return strings.Contains(fmt.Sprint(server.seen()), "GET session-1") })
	server.forget()
	before := len(server.seen())
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
	if l := <-changed; l != Tools {
		t.Errorf("changed %v", l)
	}
	if n := <-notes; n.Method != "notifications/resources/updated" || string(n.Params) != `{"uri":"test://a"}` {
		t.Errorf("%+v", n)
	}
	waitFor(t, func() bool { return strings.Contains(fmt.Sprint(server.seen()), "GET session-2") })
	var after []string
	for _, r := range server.seen()[before:] {
		if !strings.HasPrefix(r, "GET") {
			after = append(after, strings.TrimSuffix(r, " "+Version20251125))
		}
	}
	want := []string{"POST tools/call session-1", "POST initialize", "POST notifications/initialized session-2",
		"POST logging/setLevel session-2", "POST resources/subscribe session-2", "POST tools/call session-2"}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
