package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/gateway"
	"github.com/patchbay-mcp/patchbay/internal/lane"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	mcptest.Main()
	goleak.VerifyTestMain(m)
}

// world is a gateway in front of servers.
type world struct {
	host    *patchbay.Host
	gateway *gateway.Gateway
}

// newWorld opens a host of exactly these servers and a gateway in front of it.
func newWorld(t *testing.T, local map[string]patchbay.LocalServer, servers map[string]config.Server, change func(*patchbay.Options)) *world {
	t.Helper()
	o := patchbay.Options{Dir: t.TempDir(), Home: t.TempDir(), Environ: []string{"PATH=" + os.Getenv("PATH")}, StrictConfig: true, InProcess: local, SystemRoot: t.TempDir()}
	if change != nil {
		change(&o)
	}
	h, err := patchbay.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if servers != nil {
		if err := h.Apply(t.Context(), servers); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{host: h, gateway: gateway.New(h, gateway.Options{Version: "test"})}
	t.Cleanup(w.shutdown)
	return w
}

func (w *world) shutdown() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	_ = w.gateway.Shutdown(ctx)
}

// agent is a client of the gateway that can do all a client can.
type agent struct {
	*wire.Client
	mu    sync.Mutex
	heard chan heard
	roots string

	elicit func(params json.RawMessage) string // nil: what the server asks for is the name
}

type heard struct {
	method string
	params string
}

const able = `{"elicitation":{"form":{}},"sampling":{},"roots":{"listChanged":true}}`

func (a *agent) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "elicitation/create":
		a.mu.Lock()
		elicit := a.elicit
		a.mu.Unlock()
		if elicit != nil {
			return json.RawMessage(elicit(r.Params)), nil
		}
		message, _ := wire.StringMember(r.Params, "message")
		return json.RawMessage(fmt.Sprintf(`{"action":"accept","content":{"name":%q}}`, message)), nil
	case "sampling/createMessage":
		return json.RawMessage(`{"role":"assistant","model":"m","content":{"type":"text","text":"sampled"}}`), nil
	case "roots/list":
		a.mu.Lock()
		defer a.mu.Unlock()
		return json.RawMessage(a.roots), nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (a *agent) HandleNotification(_ context.Context, n *wire.Notification) {
	a.heard <- heard{n.Method, string(n.Params)}
}

// await returns the params of the next notification of a method.
func (a *agent) await(t *testing.T, method string) string {
	t.Helper()
	for {
		select {
		case h := <-a.heard:
			if h.method == method {
				return h.params
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s never came", method)
		}
	}
}

// serveHTTP serves a handler as a Site does, and returns its URL.
func serveHTTP(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, served := lane.New(wire.NewHTTPServer(context.Background(), h)), make(chan error)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		server.Close()
		<-served
	})
	return "http://" + l.Addr().String()
}

// connect connects an agent to an endpoint.
func (w *world) connect(t *testing.T, over, version, endpoint, capabilities string) *agent {
	t.Helper()
	a := &agent{heard: make(chan heard, 1000), roots: `{"roots":[{"uri":"file:///r","name":"r"}]}`}
	var transport wire.Transport
	if over == "http" {
		transport = wire.HTTP(strings.TrimSuffix(serveHTTP(t, w.gateway.HTTP(wire.HTTPOptions{}))+"/mcp/"+endpoint, "/"), nil)
	} else {
		near, far := wire.Pipe()
		done := make(chan error, 1)
		go func() { done <- w.gateway.Serve(context.Background(), far, endpoint) }()
		t.Cleanup(func() {
			if err := <-done; err != nil {
				t.Errorf("serve: %v", err)
			}
		})
		transport = wire.Stream(near, &wire.PeerOptions{AskedIsNotSilent: true})
	}
	var err error
	a.Client, err = wire.Connect(t.Context(), transport, &wire.ClientOptions{
		Info: json.RawMessage(`{"name":"agent","version":"1"}`), Capabilities: json.RawMessage(capabilities),
		Handler: a, Changed: func(l wire.List) { a.heard <- heard{method: "changed " + string(l)} }, ProtocolVersion: version,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// call calls a tool and returns the text of its result.
func (a *agent) call(t *testing.T, name, arguments string) string {
	t.Helper()
	raw, err := a.CallTool(t.Context(), name, json.RawMessage(arguments))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return textOf(raw)
}

func textOf(raw json.RawMessage) string {
	content, _ := wire.Member(raw, "content")
	for part := range wire.Elements(content) {
		text, _ := wire.StringMember(part, "text")
		return text
	}
	return ""
}

// pairs runs a test for every pair of a client and a server: both eras on both
// sides, and servers that have both, over streams and over HTTP.
func pairs(t *testing.T, test func(t *testing.T, w *world, a *agent, u *upstream, prefix string)) {
	for up, versions := range map[string][]string{wire.Version20251125: {wire.Version20251125}, wire.Version20260728: {wire.Version20260728}, "any": nil} {
		for _, upOver := range []string{"stdio", "http"} {
			for _, down := range []string{wire.Version20251125, wire.Version20260728} {
				for _, downOver := range []string{"stdio", "http"} {
					for _, endpoint := range []string{"", "up"} {
						name := fmt.Sprintf("%s %s client, %s %s server, endpoint %q", down, downOver, up, upOver, endpoint)
						t.Run(name, func(t *testing.T) {
							t.Parallel()
							u := newUpstream(t, "up", versions...)
							other := newUpstream(t, "other", versions...)
							local, servers := map[string]patchbay.LocalServer{"other": other}, map[string]config.Server{}
							if upOver == "http" {
								servers["up"] = config.Server{Type: config.HTTP, URL: u.url()}
							} else {
								local["up"] = u
							}
							w := newWorld(t, local, servers, nil)
							prefix := ""
							if endpoint == "" {
								prefix = "up__"
							}
							test(t, w, w.connect(t, downOver, down, endpoint, able), u, prefix)
						})
					}
				}
			}
		}
	}
}

func TestPassthrough(t *testing.T) {
	pairs(t, func(t *testing.T, w *world, a *agent, u *upstream, prefix string) {
		t.Run("definitions and results are the server's bytes", func(t *testing.T) {
			list, err := a.ListTools(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(echoDefinition, `"echo"`, `"`+prefix+`echo"`, 1)
			found := false
			for _, def := range list.Items {
				found = found || string(def) == want
			}
			if !found {
				t.Errorf("%s is not among %s", want, list.Items)
			}
			raw, err := a.CallTool(t.Context(), prefix+"echo", json.RawMessage(`{ "z": 1.50, "a": 12345678901234567890 }`))
			want = `"content": [ {"type":"text","text":"\u00e4"} ], "structuredContent": { "z": 1.50, "a": 12345678901234567890 }, "x": 12345678901234567890 }`
			if err != nil || !strings.HasSuffix(string(raw), want) {
				t.Errorf("%s, %v", raw, err)
			}
		})
		t.Run("elicitation", func(t *testing.T) {
			if got := a.call(t, prefix+"elicit", `{"canary":"c1"}`); got != `{"action":"accept","content":{"name":"who? c1"}}` {
				t.Errorf("got %s", got)
			}
		})
		t.Run("sampling", func(t *testing.T) {
			if got := a.call(t, prefix+"sample", `{}`); !strings.Contains(got, "sampled") {
				t.Errorf("got %s", got)
			}
		})
		t.Run("roots", func(t *testing.T) {
			if got := a.call(t, prefix+"roots", `{}`); !strings.Contains(got, "file:///r") {
				t.Errorf("got %s", got)
			}
		})
		t.Run("progress", func(t *testing.T) {
			var seen []string
			_, err := a.Call(t.Context(), wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"` + prefix + `progress","arguments":{}}`),
				Progress: func(p json.RawMessage) {
					n, _ := wire.Member(p, "progress")
					seen = append(seen, string(n))
				}})
			if err != nil || strings.Join(seen, "") != "012" {
				t.Errorf("%v, %v", seen, err)
			}
		})
		t.Run("log messages", func(t *testing.T) {
			if err := a.SetLevel(t.Context(), "info"); err != nil {
				t.Fatal(err)
			}
			a.call(t, prefix+"log", `{}`)
			if got := a.await(t, "notifications/message"); !strings.Contains(got, `"data":{"b":1,"a":1.50}`) {
				t.Errorf("got %s", got)
			}
		})
		t.Run("cancel reaches the server", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-u.waiting
				cancel()
			}()
			if _, err := a.CallTool(ctx, prefix+"wait", json.RawMessage(`{"token":"w"}`)); err == nil {
				t.Error("the call was answered")
			}
			select {
			case got := <-u.cancelled:
				if got != "w" {
					t.Errorf("got %q", got)
				}
			case <-time.After(time.Minute):
				t.Error("it was not cancelled")
			}
		})
		t.Run("a server's error is its own", func(t *testing.T) {
			_, err := a.CallTool(t.Context(), prefix+"refuse", json.RawMessage(`{}`))
			e, ok := err.(*wire.Error)
			if !ok || e.Code != -32099 || e.Message != "not today" || string(e.Data) != `{"why":1.50}` {
				t.Errorf("got %v", err)
			}
		})
		t.Run("trace context and other meta", func(t *testing.T) {
			raw, err := a.Call(t.Context(), wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"` + prefix + `meta","arguments":{},"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","x.y/z":[1.50]}}`)})
			if got := textOf(raw); err != nil || !strings.Contains(got, `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`) || !strings.Contains(got, `"x.y/z":[1.50]`) {
				t.Errorf("%s, %v", got, err)
			}
		})
		t.Run("resources", func(t *testing.T) {
			raw, err := a.ReadResource(t.Context(), "up://own")
			if err != nil || !strings.Contains(string(raw), `"contents":[ {"uri":"up://own","text":"up"} ]`) {
				t.Errorf("%s, %v", raw, err)
			}
			raw, err = a.ReadResource(t.Context(), "up://t/7")
			if err != nil || !strings.Contains(string(raw), `"uri":"up://t/7"`) {
				t.Errorf("a template: %s, %v", raw, err)
			}
			templates, err := a.ListResourceTemplates(t.Context())
			if err != nil || !strings.Contains(fmt.Sprintf("%s", templates.Items), `"uriTemplate":"up://t/{id}"`) {
				t.Errorf("%s, %v", templates.Items, err)
			}
		})
		t.Run("subscriptions", func(t *testing.T) {
			if err := a.Subscribe(t.Context(), "up://own"); err != nil {
				t.Fatal(err)
			}
			a.call(t, prefix+"touch", `{"uri":"up://own"}`)
			if got := a.await(t, "notifications/resources/updated"); !strings.Contains(got, `"up://own"`) {
				t.Errorf("got %s", got)
			}
			if err := a.Unsubscribe(t.Context(), "up://own"); err != nil {
				t.Error(err)
			}
		})
		t.Run("prompts and completion", func(t *testing.T) {
			raw, err := a.GetPrompt(t.Context(), prefix+"greet", nil)
			if err != nil || !strings.Contains(string(raw), "greet of up") {
				t.Errorf("%s, %v", raw, err)
			}
			raw, err = a.Complete(t.Context(), json.RawMessage(`{"ref":{"type":"ref/prompt","name":"`+prefix+`greet"},"argument":{"name":"who","value":"x"}}`))
			if err != nil || !strings.Contains(string(raw), `up {\"type\":\"ref/prompt\",\"name\":\"greet\"}`) {
				t.Errorf("%s, %v", raw, err)
			}
			raw, err = a.Complete(t.Context(), json.RawMessage(`{"ref":{"type":"ref/resource","uri":"up://t/{id}"},"argument":{"name":"id","value":"x"}}`))
			if err != nil || !strings.Contains(string(raw), `up {`) {
				t.Errorf("%s, %v", raw, err)
			}
		})
		t.Run("list_changed", func(t *testing.T) {
			a.call(t, prefix+"grow", `{}`)
			a.await(t, "changed tools")
			if got := a.call(t, prefix+"grown0", `{}`); got != "I am grown0" {
				t.Errorf("got %s", got)
			}
		})
		t.Run("20 MB", func(t *testing.T) {
			if got := a.call(t, prefix+"big", `{}`); len(got) != 20<<20 {
				t.Errorf("%d bytes", len(got))
			}
		})
	})
}
