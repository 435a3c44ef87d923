package gateway_test

//lint:file-ignore SA1019 servers go on asking in the way of the older era

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// curious is a server of the SDK, which serves both eras: its tools ask in the way
// of the older one, and one of them is there only for clients that have roots.
type curious struct{}

func (curious) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	var s *mcp.Server
	says := func(text string, err error) (*mcp.CallToolResult, any, error) {
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	}
	s = mcp.NewServer(&mcp.Implementation{Name: "curious", Version: "1"}, &mcp.ServerOptions{
		InitializedHandler: func(_ context.Context, r *mcp.InitializedRequest) {
			if r.Session.InitializeParams().Capabilities.RootsV2 != nil {
				mcp.AddTool(s, &mcp.Tool{Name: "for_roots"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
					return says("rooted", nil)
				})
			}
		},
	})
	mcp.AddTool(s, &mcp.Tool{Name: "elicit"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
		if err != nil {
			return says("", err)
		}
		return says(fmt.Sprint(answer.Action, answer.Content["name"]), nil)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "sample"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		answer, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1})
		if err != nil {
			return says("", err)
		}
		return says(answer.Content.(*mcp.TextContent).Text, nil)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "roots"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		answer, err := r.Session.ListRoots(ctx, nil)
		if err != nil {
			return says("", err)
		}
		return says(answer.Roots[0].URI, nil)
	})
	return patchbay.FromSDK(s).Serve(ctx, rw)
}

// A client of the older era that can be asked something uses a server of both eras
// as if it were connected to it directly, also while a newer one does: what the
// server asks arrives, and the list is what it offers to such a client, the first
// time and whoever came before.
func TestServerOfBothErasAsksOlderClients(t *testing.T) {
	for _, over := range []string{"stdio", "http"} {
		for _, endpoint := range []string{"", "srv"} {
			t.Run(over+" "+endpoint, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, map[string]patchbay.LocalServer{"srv": curious{}}, nil, nil)
				prefix := ""
				if endpoint == "" {
					prefix = "srv__"
				}
				newer := w.connect(t, over, wire.Version20260728, endpoint, `{}`)
				if list := names(t, newer); slices.Contains(list, prefix+"for_roots") {
					t.Errorf("a client without roots is offered %v", list)
				}
				a := w.connect(t, over, wire.Version20251125, endpoint, able)
				if list := names(t, a); !slices.Contains(list, prefix+"for_roots") || len(list) != 4 {
					t.Errorf("a client with roots is offered %v", list)
				}
				for tool, want := range map[string]string{"elicit": "acceptwho?", "sample": "sampled", "roots": "file:///r"} {
					if got := a.call(t, prefix+tool, `{}`); got != want {
						t.Errorf("%s: %s", tool, got)
					}
				}
				if list := names(t, newer); slices.Contains(list, prefix+"for_roots") {
					t.Errorf("later a client without roots is offered %v", list)
				}
			})
		}
	}
}

// Two calls at a time are normal, also for a client of the newer era over HTTP: a
// question goes into the older of those that the server does not wait on already.
// One that was never answered harms no later one.
func TestAbandonedQuestion(t *testing.T) {
	for _, over := range []string{"stdio", "http"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, "up", wire.Version20251125)
			w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
			a := w.connect(t, over, wire.Version20260728, "", able)
			raw, err := a.Call(t.Context(), wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"up__elicit","arguments":{"canary":"never answered"}}`), KeepInputRequired: true})
			if kind, _ := wire.StringMember(raw, "resultType"); err != nil || kind != "input_required" {
				t.Fatalf("%s, %v", raw, err)
			}
			if got := a.call(t, "up__elicit", `{"canary":"alone"}`); !strings.Contains(got, "who? alone") {
				t.Errorf("after a question that was abandoned: %s", got)
			}
			other := a.callAside(t, "up__wait", `{}`)
			<-u.waiting
			asking := a.callAside(t, "up__elicit", `{"canary":"beside"}`)
			if got := <-asking; got.err != nil || !strings.Contains(got.text, "who? beside") {
				t.Errorf("beside another call: %+v", got)
			}
			u.released <- struct{}{}
			if got := <-other; got.err != nil || got.text != "released" {
				t.Errorf("the other call: %+v", got)
			}
		})
	}
}

// A client of the older era over HTTP that does not listen outside of its requests
// is asked in one of them, also if there are two.
func TestQuestionWithoutAStream(t *testing.T) {
	u := newUpstream(t, "up", wire.Version20251125)
	w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
	url := serveHTTP(t, w.gateway.HTTP(wire.HTTPOptions{})) + "/mcp"
	noGET := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return &http.Response{StatusCode: http.StatusMethodNotAllowed, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	a := &agent{heard: make(chan heard, 1000), roots: `{"roots":[]}`}
	var err error
	a.Client, err = wire.Connect(t.Context(), wire.HTTP(url, &wire.HTTPClientOptions{Transport: noGET}), &wire.ClientOptions{
		Capabilities: json.RawMessage(able), Handler: a, ProtocolVersion: wire.Version20251125,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	other := a.callAside(t, "up__wait", `{}`)
	<-u.waiting
	asking := a.callAside(t, "up__elicit", `{"canary":"c"}`)
	if got := <-asking; got.err != nil || !strings.Contains(got.text, "who? c") {
		t.Errorf("asked without a stream: %+v", got)
	}
	u.released <- struct{}{}
	if got := <-other; got.err != nil || got.text != "released" {
		t.Errorf("the other call: %+v", got)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Clients that make up capabilities do not make a server be started for each of
// them, nor for another spelling of the same.
func TestMadeUpCapabilities(t *testing.T) {
	u := &counted{upstream: newUpstream(t, "up", wire.Version20251125)}
	w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
	for i := range 40 {
		a := w.connect(t, "http", wire.Version20260728, "", fmt.Sprintf(`{"unknown":%d,"elicitation":{"form":{},  "x":{}}}`, i))
		a.call(t, "up__echo", `{}`)
	}
	if n := u.starts.Load(); n > 3 {
		t.Errorf("%d starts for one kind of client", n)
	}
	for i := range 40 {
		a := w.connect(t, "http", wire.Version20260728, "", fmt.Sprintf(`{"extensions":{"x/%d":{}}}`, i))
		a.call(t, "up__echo", `{}`)
	}
	deadline := time.Now().Add(time.Minute)
	for u.running.Load() > 10 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond) // those that were put aside end by themselves
	}
	if n := u.running.Load(); n > 10 {
		t.Errorf("%d processes run for clients that came once", n)
	}
}

// A server may go on with a call that was given up, and ask something in it: that
// is no other agent's to answer, even if it is the only one with a call under way.
func TestQuestionOfACallThatWasGivenUp(t *testing.T) {
	u := newUpstream(t, "up", wire.Version20251125)
	w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
	a, b := w.connect(t, "http", wire.Version20251125, "", able), w.connect(t, "http", wire.Version20251125, "", able)
	b.mu.Lock()
	b.elicit = func(params json.RawMessage) string {
		t.Errorf("another one is asked %s", params)
		return `{"action":"accept"}`
	}
	b.mu.Unlock()
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := a.CallTool(ctx, "up__stubborn", json.RawMessage(`{}`))
		gone <- err
	}()
	<-u.waiting
	other := b.callAside(t, "up__wait", `{}`)
	<-u.waiting
	giveUp()
	<-gone
	if got := <-u.stubborn; got != `{"action":"cancel"}<nil>` {
		t.Errorf("the question was answered with %s", got)
	}
	u.released <- struct{}{}
	if got := <-other; got.err != nil || got.text != "released" {
		t.Errorf("the other call: %+v", got)
	}
}

// A server may ask twice in one call. While it waits for the first answer, the
// second question is not another agent's, although that one's call is the only one
// in which the server does not wait already.
func TestSecondQuestionOfACall(t *testing.T) {
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		for method, params := range map[string]string{
			"elicitation/create":     `{"message":"and?","requestedSchema":{"type":"object","properties":{}}}`,
			"sampling/createMessage": `{"messages":[],"maxTokens":1}`,
		} {
			t.Run(version+" "+method, func(t *testing.T) {
				t.Parallel()
				u := newUpstream(t, "up", wire.Version20251125)
				w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, func(o *patchbay.Options) {
					settings(t, o, `{"gateway":{"manyUsers":true}}`)
				})
				a, b := w.connect(t, "http", version, "", able), w.connect(t, "http", version, "", able)
				asked, answered := make(chan struct{}), make(chan struct{})
				a.mu.Lock()
				a.elicit = func(json.RawMessage) string {
					asked <- struct{}{}
					<-answered
					return `{"action":"accept","content":{"name":"a"}}`
				}
				a.mu.Unlock()
				b.mu.Lock()
				b.elicit = func(params json.RawMessage) string {
					t.Errorf("another one is asked %s", params)
					return `{"action":"accept"}`
				}
				b.mu.Unlock()
				asking := a.callAside(t, "up__elicit", `{}`)
				<-asked
				other := b.callAside(t, "up__wait", `{}`)
				<-u.waiting
				for s := range u.server.Sessions() {
					answer, err := s.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(params)})
					if err == nil && string(answer) != `{"action":"cancel"}` {
						t.Errorf("the second question was answered with %s", answer)
					}
				}
				close(answered)
				u.released <- struct{}{}
				if got := <-asking; got.err != nil || got.text != `{"action":"accept","content":{"name":"a"}}` {
					t.Errorf("the call that asks: %+v", got)
				}
				if got := <-other; got.err != nil || got.text != "released" {
					t.Errorf("the other call: %+v", got)
				}
			})
		}
	}
}

// A server that does not answer to one subscription holds up no other.
func TestListenIsAcknowledgedBesideAHungServer(t *testing.T) {
	t.Parallel() // it waits
	u := newUpstream(t, "up", wire.Version20251125)
	w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
	a := w.connect(t, "http", wire.Version20260728, "up", `{}`)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = a.Call(ctx, wire.Call{Method: "subscriptions/listen", Params: json.RawMessage(`{"notifications":{"resourceSubscriptions":["x://hangs","x://refused","x://there"]}}`)})
	}()
	for _, uri := range []string{<-u.subscribed, <-u.subscribed, <-u.subscribed} {
		if !slices.Contains([]string{"x://hangs", "x://refused", "x://there"}, uri) {
			t.Errorf("subscribed to %s", uri)
		}
	}
	if got := a.await(t, "notifications/subscriptions/acknowledged"); !strings.Contains(got, `"resourceSubscriptions":["x://hangs","x://there"]`) {
		t.Errorf("acknowledged %s", got)
	}
	stop()
	<-ended
}

// What nobody knows the meaning of is passed on where it can be only one client's.
func TestUnknownNotificationIsNotForAll(t *testing.T) {
	u := newUpstream(t, "up", wire.Version20251125)
	w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
	say := func(method string) {
		for s := range u.server.Sessions() {
			if err := s.Notify(t.Context(), method, json.RawMessage(`{}`)); err != nil {
				t.Error(err)
			}
		}
	}
	a := w.connect(t, "stdio", wire.Version20251125, "", able)
	a.call(t, "up__echo", `{}`)
	say("notifications/alone")
	a.await(t, "notifications/alone")
	b := w.connect(t, "stdio", wire.Version20251125, "", able)
	b.call(t, "up__echo", `{}`)
	for _, c := range []*agent{a, b} {
		if err := c.Subscribe(t.Context(), "up://own"); err != nil {
			t.Fatal(err)
		}
	}
	<-u.subscribed
	say("notifications/shared")
	for s := range u.server.Sessions() {
		_ = s.Notify(t.Context(), "notifications/resources/updated", json.RawMessage(`{"uri":"up://own"}`))
	}
	for _, c := range []*agent{a, b} {
		for h := range c.heard {
			if h.method == "notifications/shared" {
				t.Error("heard what may be about the other one alone")
			}
			if h.method == "notifications/resources/updated" { // which came after it
				break
			}
		}
	}
}
