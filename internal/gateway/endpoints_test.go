package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// settings writes the user's settings.
func settings(t *testing.T, o *patchbay.Options, text string) {
	t.Helper()
	o.StrictConfig = false
	dir := filepath.Join(o.Home, ".config", "patchbay")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, a *agent) []string {
	t.Helper()
	list, err := a.ListTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, def := range list.Items {
		name, _ := wire.StringMember(def, "name")
		all = append(all, name)
	}
	return all
}

func two(t *testing.T, change func(*patchbay.Options)) (w *world, one, two *upstream) {
	one, two = newUpstream(t, "one"), newUpstream(t, "two")
	w = newWorld(t, map[string]patchbay.LocalServer{"one": one, "two": two}, nil, change)
	if err := w.host.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w, one, two
}

// Everything of all servers is there under names that do not collide, in the same
// order for everybody.
func TestEverything(t *testing.T) {
	w, _, _ := two(t, nil)
	a := w.connect(t, "http", wire.Version20251125, "", able)
	list := names(t, a)
	if !slices.IsSorted(list) || !slices.Contains(list, "one__echo") || !slices.Contains(list, "two__echo") {
		t.Errorf("%v", list)
	}
	if other := names(t, w.connect(t, "stdio", wire.Version20260728, "", `{}`)); !slices.Equal(list, other) {
		t.Errorf("%v\n%v", list, other)
	}
	for _, name := range []string{"list_mcp_resources", "ListMcpResourcesTool"} { // which are for hosts without resources
		if _, err := a.CallTool(t.Context(), name, json.RawMessage(`{}`)); slices.Contains(list, name) || err == nil || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("%s: %v", name, err)
		}
	}
	resources, err := a.ListResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"uri":"patchbay://one/shared://x","name":"shared","size":1.0} {"uri":"one://own","name":"own"} {"uri":"patchbay://two/shared://x","name":"shared","size":1.0} {"uri":"two://own","name":"own"}]`
	if got := fmt.Sprintf("%s", resources.Items); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for uri, server := range map[string]string{"patchbay://one/shared://x": "one", "patchbay://two/shared://x": "two", "one://own": "one", "two://own": "two", "two://t/9": "two"} {
		raw, err := a.ReadResource(t.Context(), uri)
		if own := strings.TrimPrefix(uri, "patchbay://"+server+"/"); err != nil || !strings.Contains(string(raw), fmt.Sprintf(`{"uri":%q,"text":%q}`, own, server)) {
			t.Errorf("%s: %s, %v", uri, raw, err)
		}
	}
	if _, err := a.ReadResource(t.Context(), "shared://x"); err == nil || !strings.Contains(err.Error(), "patchbay://one/shared://x") {
		t.Errorf("a URI of two servers: %v", err)
	}
	prompts, err := a.ListPrompts(t.Context())
	if got := fmt.Sprintf("%s", prompts.Items); err != nil || !strings.Contains(got, `{"name":"one__greet","description":"d"`) || !strings.Contains(got, `"two__greet"`) {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := a.CallTool(t.Context(), "one__ecoh", nil); err == nil || !strings.Contains(err.Error(), "one__echo") {
		t.Errorf("a name that is misspelt: %v", err)
	}
	if got := a.Opening().Instructions; !strings.Contains(got, "# one\n\nBe kind to one.") || !strings.Contains(got, "# two\n\nBe kind to two.") {
		t.Errorf("instructions %q", got)
	}
	if err := a.Subscribe(t.Context(), "patchbay://two/shared://x"); err != nil {
		t.Fatal(err)
	}
	a.call(t, "two__touch", `{"uri":"shared://x"}`)
	if got := a.await(t, "notifications/resources/updated"); got != `{"uri":"patchbay://two/shared://x"}` {
		t.Errorf("got %s", got)
	}
}

// A server's own endpoint is the server: what it says of itself, its names, and
// methods nobody here knows.
func TestOneServer(t *testing.T) {
	w := newWorld(t, map[string]patchbay.LocalServer{"one": newUpstream(t, "one", wire.Version20251125), "two": newUpstream(t, "two")}, nil, nil)
	a := w.connect(t, "http", wire.Version20251125, "one", able)
	o := a.Opening()
	if string(o.ServerInfo) != `{"name":"one","version":"1.2.3","icons":[ ]}` || o.Instructions != "Be kind to one." || !strings.Contains(string(o.Capabilities), `"experimental":{"x":{"y":1.50}}`) {
		t.Errorf("%s", o.Raw)
	}
	if list := names(t, a); !slices.Contains(list, "echo") || len(list) != 16 {
		t.Errorf("%v", list)
	}
	raw, err := a.Call(t.Context(), wire.Call{Method: "custom/method", Params: json.RawMessage(`{ "b": 1.50 }`)})
	if err != nil || string(raw) != `{ "b": 1.50 }` {
		t.Errorf("%s, %v", raw, err)
	}
	modern := w.connect(t, "http", wire.Version20260728, "two", `{}`)
	if name, _ := wire.StringMember(modern.Opening().ServerInfo, "name"); name != "two" {
		t.Errorf("%s", modern.Opening().Raw)
	}
}

// A profile is the selection that the settings make.
func TestProfile(t *testing.T) {
	w, _, _ := two(t, func(o *patchbay.Options) {
		settings(t, o, `{"gateway":{"profiles":{"few":{"servers":["one"],"tools":["mcp__one__e*"]}}},"permissions":{"deny":["mcp__two__secret"]}}`)
	})
	a := w.connect(t, "http", wire.Version20251125, "@few", able)
	if list := names(t, a); !slices.Equal(list, []string{"one__echo", "one__elicit"}) {
		t.Errorf("%v", list)
	}
	if _, err := a.CallTool(t.Context(), "two__echo", json.RawMessage(`{}`)); err == nil {
		t.Error("a tool of another server was called")
	}
	if raw, err := a.ReadResource(t.Context(), "two://own"); err != nil || !strings.Contains(string(raw), `"text":"one"`) {
		t.Errorf("the one server was not asked: %s, %v", raw, err)
	}
	if _, err := a.ReadResource(t.Context(), "patchbay://two/two://own"); err == nil {
		t.Error("a resource of another server was read")
	}
	if raw, err := a.Call(t.Context(), wire.Call{Method: "tasks/get", Params: json.RawMessage(`{"taskId":"x"}`)}); err != nil || !strings.Contains(string(raw), `"at":"one"`) {
		t.Errorf("the one server was not asked for a task: %s, %v", raw, err)
	}
	all := w.connect(t, "http", wire.Version20251125, "", able)
	if slices.Contains(names(t, all), "two__secret") {
		t.Error("a tool that is denied is listed")
	}
	own := w.connect(t, "http", wire.Version20251125, "two", able)
	if slices.Contains(names(t, own), "secret") {
		t.Error("a tool that is denied is in its server's own list")
	}
	if _, err := own.CallTool(t.Context(), "secret", json.RawMessage(`{}`)); err == nil {
		t.Error("a tool that is denied was called")
	}
}

// A request of the protocol without an id, and a notification with one, would be
// carried out by some servers without having been judged.
func TestRequestsAndNotificationsAreNotTakenForEachOther(t *testing.T) {
	for _, over := range []string{"stdio", "http"} {
		for _, version := range []string{wire.Version20251125, wire.Version20260728} {
			t.Run(over+" "+version, func(t *testing.T) {
				w, one, _ := two(t, func(o *patchbay.Options) { settings(t, o, `{"permissions":{"deny":["mcp__one__secret"]}}`) })
				a := w.connect(t, over, version, "one", `{}`)
				for _, method := range []string{"notifications/cancelled", "notifications/tools/list_changed"} {
					_, err := a.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(`{"requestId":1}`)})
					if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeMethodNotFound {
						t.Errorf("%s as a request: %v", method, err)
					}
				}
				for _, method := range []string{"tools/call", "resources/read", "prompts/get", "tasks/cancel", "Tools/Call", "example/thing"} {
					if err := a.Notify(t.Context(), method, json.RawMessage(`{"name":"secret","uri":"x://y","taskId":"t"}`)); err != nil {
						t.Errorf("%s: %v", method, err)
					}
				}
				if got := <-one.told; got != "example/thing" {
					t.Errorf("the server was told %s", got)
				}
			})
		}
	}
}

// What the settings say of a profile holds for the clients that are there, too.
func TestProfileChanges(t *testing.T) {
	var o patchbay.Options
	w, _, _ := two(t, func(given *patchbay.Options) {
		settings(t, given, `{"gateway":{"profiles":{"few":{"servers":["one"]}}}}`)
		o = *given
	})
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		settings(t, &o, `{"gateway":{"profiles":{"few":{"servers":["one"]}}}}`)
		if err := w.host.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := w.connect(t, "stdio", version, "@few", `{}`)
		a.call(t, "one__echo", `{}`)
		settings(t, &o, `{"gateway":{"profiles":{"few":{"servers":["two"],"tools":["mcp__two__echo"]}}}}`)
		if err := w.host.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list := names(t, a); !slices.Equal(list, []string{"two__echo"}) {
			t.Errorf("%v", list)
		}
		if _, err := a.CallTool(t.Context(), "one__echo", json.RawMessage(`{}`)); err == nil {
			t.Error("a tool that was taken out was called")
		}
		settings(t, &o, `{}`)
		if err := w.host.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list := names(t, a); len(list) > 0 {
			t.Errorf("a profile that is not there any more has %v", list)
		}
		if err := w.gateway.Check("@few"); err == nil {
			t.Error("a profile that is not there any more is served")
		}
	}
}

func TestNoSuchEndpoint(t *testing.T) {
	w, _, _ := two(t, nil)
	url := serveHTTP(t, w.gateway.HTTP(wire.HTTPOptions{}))
	for _, path := range []string{"/mcp/three", "/mcp/@none", "/mcpx", "/", "/mcp/one/two"} {
		r, _ := http.NewRequest(http.MethodPost, url+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// A task is asked about at the server that has it.
func TestTasks(t *testing.T) {
	w, _, _ := two(t, nil)
	a := w.connect(t, "http", wire.Version20251125, "", able)
	for _, server := range []string{"one", "two"} {
		raw, err := a.Call(t.Context(), wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"` + server + `__task","arguments":{},"task":{"ttl":1000}}`)})
		id, _ := wire.StringMember(raw, "task", "taskId")
		if err != nil || id != "t-"+server {
			t.Fatalf("%s, %v", raw, err)
		}
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			raw, err = a.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(`{"taskId":"` + id + `"}`)})
			if at, _ := wire.StringMember(raw, "at"); err != nil || at != server {
				t.Errorf("%s: %s, %v", method, raw, err)
			}
		}
	}
	if _, err := a.Call(t.Context(), wire.Call{Method: "tasks/get", Params: json.RawMessage(`{"taskId":"nobody's"}`)}); err == nil {
		t.Error("a task that nobody has was found")
	}
	raw, err := a.Call(t.Context(), wire.Call{Method: "tasks/list"})
	if err != nil || string(raw) != `{"tasks":[{"taskId":"listed-one"},{"taskId":"listed-two"}]}` {
		t.Errorf("%s, %v", raw, err)
	}
}

// Servers get the capabilities of the client, and nothing that it lacks.
func TestCapabilitiesAreTheClients(t *testing.T) {
	w, _, _ := two(t, nil)
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		for _, over := range []string{"stdio", "http"} {
			a := w.connect(t, over, version, "", `{}`)
			for _, tool := range []string{"elicit", "sample", "roots"} {
				if got := a.call(t, "one__"+tool, `{}`); !strings.HasPrefix(got, "refused: ") {
					t.Errorf("%s over %s, %s: %s", version, over, tool, got)
				}
			}
		}
	}
}

// Of log messages that nobody asked for, a client hears those of its own calls.
func TestLogOfOthers(t *testing.T) {
	w := newWorld(t, map[string]patchbay.LocalServer{"up": newUpstream(t, "up", wire.Version20251125)}, nil, nil)
	a, b := w.connect(t, "stdio", wire.Version20251125, "", `{}`), w.connect(t, "stdio", wire.Version20251125, "", `{}`)
	b.call(t, "up__echo", `{}`)
	a.call(t, "up__log", `{}`)
	a.await(t, "notifications/message")
	if err := b.SetLevel(t.Context(), "info"); err != nil {
		t.Fatal(err)
	}
	for len(b.heard) > 0 {
		if h := <-b.heard; h.method == "notifications/message" {
			t.Errorf("the log of another's call: %s", h.params)
		}
	}
	a.call(t, "up__log", `{}`)
	b.await(t, "notifications/message") // now it has asked for it
}

// People do not share a process, whatever their clients can do.
func TestPeopleShareNothing(t *testing.T) {
	w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t)}, nil)
	url := serveHTTP(t, w.gateway.HTTP(wire.HTTPOptions{Principal: func(r *http.Request) (string, error) { return r.Header.Get("Who"), nil }}))
	pid := func(who, version, capabilities string) string {
		a := &agent{heard: make(chan heard, 100), roots: `{"roots":[]}`}
		c, err := wire.Connect(t.Context(), wire.HTTP(url+"/mcp", &wire.HTTPClientOptions{Header: func(context.Context) (http.Header, error) { return http.Header{"Who": {who}}, nil }}), &wire.ClientOptions{
			Capabilities: json.RawMessage(capabilities), Handler: a, ProtocolVersion: version,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		a.Client = c
		return a.call(t, "srv__pid", `{}`)
	}
	for _, capabilities := range []string{`{}`, `{"roots":{}}`} {
		ann := pid("ann", wire.Version20251125, capabilities)
		if again := pid("ann", wire.Version20251125, capabilities); again != ann {
			t.Errorf("%s: one person has the processes %s and %s", capabilities, ann, again)
		}
		if bob := pid("bob", wire.Version20251125, capabilities); bob == ann {
			t.Errorf("%s: two people share process %s", capabilities, bob)
		}
		if nobody := pid("", wire.Version20251125, capabilities); nobody == ann {
			t.Errorf("%s: whoever runs the gateway shares process %s", capabilities, nobody)
		}
	}
}

// Clients with the same roots share a process, those with others do not, and
// a server hears when they change.
func TestRootsDecideWhoShares(t *testing.T) {
	u := &counted{upstream: newUpstream(t, "srv", wire.Version20251125)}
	w := newWorld(t, map[string]patchbay.LocalServer{"srv": u}, nil, nil)
	var starts [3]int32
	for i := range starts {
		a := w.connect(t, "http", wire.Version20251125, "", `{"roots":{"listChanged":true}}`)
		a.roots = fmt.Sprintf(`{"roots":[{"uri":"file:///%d"}]}`, i/2)
		if got := a.call(t, "srv__roots", `{}`); !strings.Contains(got, a.roots) {
			t.Errorf("got %s", got)
		}
		starts[i] = u.starts.Load()
	}
	if starts[0] != starts[1] || starts[2] != starts[1]+1 {
		t.Errorf("started %v times", starts)
	}
}

// counted is a server of which it is known how often it was started.
type counted struct {
	*upstream
	starts, running atomic.Int32
}

func (c *counted) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	c.starts.Add(1)
	c.running.Add(1)
	defer c.running.Add(-1)
	return c.upstream.Serve(ctx, rw)
}

// A server of which the settings deny everything is started for nobody, and its
// endpoint says so.
func TestDeniedServerIsNotStarted(t *testing.T) {
	one, two := newUpstream(t, "one"), &counted{upstream: newUpstream(t, "two")}
	w := newWorld(t, map[string]patchbay.LocalServer{"one": one, "two": two}, nil, func(o *patchbay.Options) {
		settings(t, o, `{"permissions":{"deny":["mcp__two"]}}`)
	})
	if err := w.host.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	url := serveHTTP(t, w.gateway.HTTP(wire.HTTPOptions{}))
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		c, err := wire.Connect(t.Context(), wire.HTTP(url+"/mcp/two", nil), &wire.ClientOptions{
			Info: json.RawMessage(`{"name":"agent","version":"1"}`), Capabilities: json.RawMessage(`{}`), ProtocolVersion: version,
		})
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), `Server "two" is denied`) {
			t.Errorf("%s: %v", version, err)
		}
		if list := names(t, w.connect(t, "http", version, "", able)); slices.Contains(list, "two__echo") || !slices.Contains(list, "one__echo") {
			t.Errorf("%s: %v", version, list)
		}
	}
	if n := two.starts.Load(); n != 0 {
		t.Errorf("it was started %d times", n)
	}
	if err := w.host.Connect(t.Context(), "two"); err != nil { // which a person has asked for
		t.Error(err)
	}
}

func TestRootsChange(t *testing.T) {
	w, one, _ := two(t, nil)
	a := w.connect(t, "http", wire.Version20251125, "", able)
	if got := a.call(t, "one__roots", `{}`); !strings.Contains(got, "file:///r") {
		t.Errorf("got %s", got)
	}
	a.mu.Lock()
	a.roots = `{"roots":[{"uri":"file:///other"}]}`
	a.mu.Unlock()
	if err := a.RootsChanged(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-one.told; got != "notifications/roots/list_changed" {
		t.Errorf("got %s", got)
	}
	if got := a.call(t, "one__roots", `{}`); !strings.Contains(got, "file:///other") {
		t.Errorf("got %s", got)
	}
}

// A list in pages is the same as one without.
func TestPages(t *testing.T) {
	w, one, two := two(t, nil)
	for _, u := range []*upstream{one, two} {
		u.mu.Lock()
		u.bulk = 40 // of 150 kB each, so that all of it is more than a page
		u.mu.Unlock()
	}
	for _, name := range []string{"one", "two"} {
		if err := w.host.Reconnect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	a := w.connect(t, "http", wire.Version20251125, "", `{}`)
	seen, pages := map[string]bool{}, 0
	for cursor := ""; ; pages++ {
		params, _ := json.Marshal(map[string]string{"cursor": cursor})
		if cursor == "" {
			params = nil
		}
		raw, err := a.Call(t.Context(), wire.Call{Method: "tools/list", Params: params})
		if err != nil {
			t.Fatal(err)
		}
		tools, _ := wire.Member(raw, "tools")
		for def := range wire.Elements(tools) {
			name, _ := wire.StringMember(def, "name")
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
		}
		var more bool
		if cursor, more = wire.StringMember(raw, "nextCursor"); !more {
			break
		}
	}
	if len(seen) != 2*(16+40) || pages < 1 {
		t.Errorf("%d tools on %d more pages", len(seen), pages)
	}
	if _, err := a.Call(t.Context(), wire.Call{Method: "tools/list", Params: json.RawMessage(`{"cursor":"nonsense"}`)}); err == nil {
		t.Error("a cursor that means nothing was taken")
	}
}

// Agents that say the same of themselves are one client of the newer era, but
// what one of them stops listening to the other one hears on.
func TestListenersOfOneClient(t *testing.T) {
	u := newUpstream(t, "up", wire.Version20251125)
	w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
	first := w.connect(t, "http", wire.Version20260728, "up", `{}`)
	second := w.connect(t, "http", wire.Version20260728, "up", `{}`)
	for _, a := range []*agent{first, second} {
		if err := a.Subscribe(t.Context(), "up://own"); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Subscribe(t.Context(), "up://t/1"); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if got := <-u.unsubscribed; got != "up://t/1" {
		t.Errorf("%s is unsubscribed from", got)
	}
	second.call(t, "touch", `{"uri":"up://own"}`)
	if got := second.await(t, "notifications/resources/updated"); !strings.Contains(got, "up://own") {
		t.Errorf("got %s", got)
	}
}

// What a server has for everybody, the gateway has for its clients only.
func TestNothingIsPublic(t *testing.T) {
	w := newWorld(t, map[string]patchbay.LocalServer{"up": newUpstream(t, "up", wire.Version20260728)}, nil, nil)
	for endpoint, uri := range map[string]string{"": "patchbay://up/public://x", "up": "public://x"} {
		a := w.connect(t, "http", wire.Version20260728, endpoint, `{}`)
		raw, err := a.ReadResource(t.Context(), uri)
		scope, _ := wire.StringMember(raw, "cacheScope")
		if ttl, _ := wire.Member(raw, "ttlMs"); err != nil || scope != "private" || string(ttl) != "60000" {
			t.Errorf("endpoint %q: %s, %v", endpoint, raw, err)
		}
	}
}

// What a server offers can be had before anybody has seen the server.
func TestFirstSight(t *testing.T) {
	for method, params := range map[string]string{
		"tools/call": `{"name":"up__echo","arguments":{}}`, "prompts/get": `{"name":"up__greet"}`, "resources/read": `{"uri":"up://own"}`,
		"resources/subscribe": `{"uri":"up://own"}`, "completion/complete": `{"ref":{"type":"ref/prompt","name":"up__greet"},"argument":{"name":"who","value":""}}`,
	} {
		w := newWorld(t, map[string]patchbay.LocalServer{"up": newUpstream(t, "up")}, nil, nil)
		a := w.connect(t, "stdio", wire.Version20251125, "", `{}`)
		if _, err := a.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(params)}); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// Nothing is kept for a client whose connection has ended, of either era.
func TestClientLeaves(t *testing.T) {
	w := newWorld(t, map[string]patchbay.LocalServer{"up": newUpstream(t, "up")}, nil, nil)
	for _, first := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
	} {
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- w.gateway.Serve(context.Background(), wire.NewStreamConn(far, far, nil), "") }()
		if _, err := io.WriteString(near, first+"\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(near).ReadString('\n'); err != nil || !strings.Contains(line, `"result"`) {
			t.Fatalf("%s, %v", line, err)
		}
		if n := w.host.Sessions(); n != 1 {
			t.Errorf("%d sessions", n)
		}
		near.Close()
		<-done
		if n := w.host.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	}
}

// What a client has asked of a server holds when its roots lead it to another
// connection.
func TestRootsMoveWhatLasts(t *testing.T) {
	u := newUpstream(t, "up", wire.Version20251125)
	w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
	a, b := w.connect(t, "stdio", wire.Version20251125, "", able), w.connect(t, "stdio", wire.Version20251125, "", able)
	if err := a.SetLevel(t.Context(), "warning"); err != nil { // before the roots are known
		t.Fatal(err)
	}
	a.call(t, "up__echo", `{}`)
	if level := <-u.levels; level != "warning" {
		t.Errorf("the level of the server is %q", level)
	}
	b.call(t, "up__echo", `{}`)  // now two share the connection
	a.call(t, "up__roots", `{}`) // and the server is known to ask for roots
	if err := a.Subscribe(t.Context(), "up://own"); err != nil {
		t.Fatal(err)
	}
	<-u.subscribed
	a.mu.Lock()
	a.roots = `{"roots":[{"uri":"file:///other"}]}`
	a.mu.Unlock()
	if err := a.RootsChanged(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-u.subscribed // anew
	for heard := false; !heard; {
		b.call(t, "up__touch", `{"uri":"up://own"}`)
		select {
		case h := <-a.heard:
			heard = h.method == "notifications/resources/updated"
		default: // the server has yet to take note of it
		}
	}
}
