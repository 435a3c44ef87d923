//go:build conformance

package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long something may take that takes no time.
const patience = 30 * time.Second

// server returns the command that starts one of the project's servers.
func server(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	modules := os.Getenv("CONFORMANCE_MODULES")
	if modules == "" {
		t.Fatal("CONFORMANCE_MODULES does not say where the npm packages are: use ../run")
	}
	script := filepath.Join(modules, "@modelcontextprotocol", "server-"+name, "dist", "index.js")
	preload, err := filepath.Abs("loopback.cjs")
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command("node", append([]string{"--require", preload, script}, args...)...)
}

// stdio reaches a server over its standard streams.
func stdio(t *testing.T, cmd *exec.Cmd) wire.Transport {
	t.Helper()
	return wire.Stream(mcptest.Start(t, cmd, nil).Conn, nil)
}

// listening starts a server that listens and returns its port.
func listening(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	diagnostics, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(diagnostics)
	for lines.Scan() {
		if port, ok := strings.CutPrefix(lines.Text(), "LISTENING "); ok {
			return port
		}
	}
	t.Fatalf("%v does not listen: %v", cmd.Args, lines.Err())
	return ""
}

// host is the host of the tests' clients: it answers what servers ask.
type host struct {
	root          string
	notifications chan *wire.Notification
}

func newHost() *host {
	return &host{root: "file:///interop", notifications: make(chan *wire.Notification, 100)}
}

func (h *host) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "roots/list":
		return json.RawMessage(`{"roots":[{"uri":"` + h.root + `","name":"interop root"}]}`), nil
	case "sampling/createMessage":
		return json.RawMessage(`{"role":"assistant","model":"no model","content":{"type":"text","text":"the model says hello"},"stopReason":"endTurn"}`), nil
	case "elicitation/create":
		if mode, _ := wire.StringMember(r.Params, "mode"); mode == "url" {
			return json.RawMessage(`{"action":"accept"}`), nil
		}
		return json.RawMessage(`{"action":"accept","content":{"name":"Ada Lovelace","check":true,"integer":42}}`), nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (h *host) HandleNotification(_ context.Context, n *wire.Notification) {
	select {
	case h.notifications <- n:
	default: // nobody waits for so many
	}
}

// await waits for a notification that has what is wanted in its params.
func (h *host) await(t *testing.T, method, member, want string) {
	t.Helper()
	tooLate := time.After(patience)
	for {
		select {
		case n := <-h.notifications:
			if got, _ := wire.StringMember(n.Params, member); n.Method == method && strings.Contains(got, want) {
				return
			}
		case <-tooLate:
			t.Fatalf("no %s with %s %q came", method, member, want)
		}
	}
}

// A session is a connected client with the test it belongs to.
type session struct {
	*wire.Client
	t    *testing.T
	host *host
}

func connect(t *testing.T, transport wire.Transport, h *host) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := wire.Connect(ctx, transport, &wire.ClientOptions{
		Capabilities: json.RawMessage(`{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}`),
		Handler:      h,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	if o := c.Opening(); o.Era != wire.Legacy || o.Version != wire.Version20251125 {
		t.Errorf("the server speaks %s", o.Version)
	}
	return &session{Client: c, t: t, host: h}
}

// request makes one and returns its result.
func (s *session) request(method, params string) json.RawMessage {
	s.t.Helper()
	result, err := s.Call(s.t.Context(), wire.Call{Method: method, Params: json.RawMessage(params), Timeout: patience})
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, params, err)
	}
	return result
}

// tool calls one, whose result has to contain what is wanted.
func (s *session) tool(name, arguments string, want ...string) {
	s.t.Helper()
	result := s.request("tools/call", `{"name":"`+name+`","arguments":`+arguments+`}`)
	s.contains("tool "+name, result, want...)
}

func (s *session) contains(what string, result json.RawMessage, want ...string) {
	s.t.Helper()
	for _, w := range want {
		if !strings.Contains(string(result), w) {
			s.t.Errorf("%s gives %.500s, want %s in it", what, result, w)
		}
	}
}

// has fails the test unless a list names all that is wanted.
func (s *session) has(what string, list *wire.Listing, err error, want ...string) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	if list.Incomplete != nil {
		s.t.Errorf("%s: %v", what, list.Incomplete)
	}
	names := map[string]bool{}
	for _, entry := range list.Items {
		name, _ := wire.StringMember(entry, "name")
		names[name] = true
	}
	for _, w := range want {
		if !names[w] {
			s.t.Errorf("%s: %q is not among %v", what, w, names)
		}
	}
}

func TestEverything(t *testing.T) {
	t.Run("stdio", func(t *testing.T) {
		everything(t, stdio(t, server(t, "everything", "stdio")))
	})
	t.Run("Streamable HTTP", func(t *testing.T) {
		port := listening(t, server(t, "everything", "streamableHttp"))
		everything(t, wire.HTTP("http://127.0.0.1:"+port+"/mcp", nil))
	})
	t.Run("HTTP+SSE", func(t *testing.T) {
		port := listening(t, server(t, "everything", "sse"))
		everything(t, wire.HTTP("http://127.0.0.1:"+port+"/sse", &wire.HTTPClientOptions{SSEFallback: true}))
	})
}

// everything uses all that server-everything offers.
func everything(t *testing.T, transport wire.Transport) {
	s := connect(t, transport, newHost())
	ctx := t.Context()
	s.request("ping", `{}`)

	tools, err := s.ListTools(ctx)
	s.has("tools", tools, err, "echo", "get-sum", "get-structured-content", "trigger-sampling-request", "trigger-elicitation-request",
		"trigger-url-elicitation", "get-roots-list", "toggle-subscriber-updates", "trigger-long-running-operation")
	s.tool("echo", `{"message":"grüß dich \u2028"}`, "Echo: grüß dich")
	s.tool("get-sum", `{"a":40,"b":2}`, "42")
	s.tool("get-structured-content", `{"location":"Chicago"}`, `"structuredContent"`, `"temperature"`)
	s.tool("get-tiny-image", `{}`, `"image/png"`)
	s.tool("get-annotated-message", `{"messageType":"error"}`, `"annotations"`)
	s.tool("get-resource-links", `{"count":3}`, `"resource_link"`)
	s.tool("echo", `{}`, `"isError":true`)

	resources, err := s.ListResources(ctx)
	if err != nil || len(resources.Items) == 0 {
		t.Fatalf("resources: %+v, %v", resources, err)
	}
	uri, _ := wire.StringMember(resources.Items[0], "uri")
	s.contains("resource "+uri, s.request("resources/read", `{"uri":"`+uri+`"}`), `"contents"`, `"text"`)
	templates, err := s.ListResourceTemplates(ctx)
	if err != nil || len(templates.Items) == 0 {
		t.Errorf("resource templates: %+v, %v", templates, err)
	}

	prompts, err := s.ListPrompts(ctx)
	s.has("prompts", prompts, err, "simple-prompt", "args-prompt", "completable-prompt")
	s.contains("simple prompt", s.request("prompts/get", `{"name":"simple-prompt"}`), `"messages"`)
	s.contains("prompt with arguments", s.request("prompts/get", `{"name":"args-prompt","arguments":{"city":"Ulm"}}`), "Ulm")
	s.contains("completion", s.request("completion/complete",
		`{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"name","value":"A"},"context":{"arguments":{"department":"Engineering"}}}`), `"Alice"`)

	s.tool("trigger-sampling-request", `{"prompt":"say hello","maxTokens":10}`, "the model says hello")
	s.tool("trigger-elicitation-request", `{}`, "Ada Lovelace", "42")
	s.tool("trigger-url-elicitation", `{"url":"https://example.com/","message":"look at this"}`, "completed the URL elicitation")
	s.tool("get-roots-list", `{}`, "file:///interop")

	s.subscription(uri)
	s.logging()
	s.progress()
	s.cancellation()
}

// subscription has the server say that a resource was updated.
func (s *session) subscription(uri string) {
	s.t.Helper()
	if err := s.Subscribe(s.t.Context(), uri); err != nil {
		s.t.Fatal(err)
	}
	s.tool("toggle-subscriber-updates", `{}`)
	s.host.await(s.t, "notifications/resources/updated", "uri", uri)
	if err := s.Unsubscribe(s.t.Context(), uri); err != nil {
		s.t.Error(err)
	}
	s.tool("toggle-subscriber-updates", `{}`)
}

func (s *session) logging() {
	s.t.Helper()
	if err := s.SetLevel(s.t.Context(), "debug"); err != nil {
		s.t.Fatal(err)
	}
	s.tool("toggle-simulated-logging", `{}`)
	s.host.await(s.t, "notifications/message", "data", "level")
	s.tool("toggle-simulated-logging", `{}`)
}

func (s *session) progress() {
	s.t.Helper()
	steps := 0
	_, err := s.Call(s.t.Context(), wire.Call{
		Method:   "tools/call",
		Params:   json.RawMessage(`{"name":"trigger-long-running-operation","arguments":{"duration":0.2,"steps":4}}`),
		Timeout:  patience,
		Progress: func(json.RawMessage) { steps++ },
	})
	if err != nil || steps != 4 {
		s.t.Errorf("%d steps of progress, want 4; %v", steps, err)
	}
}

// cancellation gives up a call that is under way, which must not end anything else.
func (s *session) cancellation() {
	s.t.Helper()
	ctx, cancel := context.WithCancelCause(s.t.Context())
	enough := fmt.Errorf("that is enough")
	_, err := s.Call(ctx, wire.Call{
		Method:   "tools/call",
		Params:   json.RawMessage(`{"name":"trigger-long-running-operation","arguments":{"duration":2,"steps":40}}`),
		Progress: func(json.RawMessage) { cancel(enough) },
	})
	if err != enough {
		s.t.Errorf("a cancelled call ended with %v", err)
	}
	s.tool("echo", `{"message":"still here"}`, "still here")
}

func TestFilesystem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := newHost()
	h.root = "file://" + filepath.ToSlash(dir)
	s := connect(t, stdio(t, server(t, "filesystem", dir)), h)
	tools, err := s.ListTools(t.Context())
	s.has("tools", tools, err, "read_text_file", "write_file", "list_directory", "search_files")
	file := filepath.ToSlash(filepath.Join(dir, "note.txt"))
	s.tool("list_allowed_directories", `{}`, dir)
	s.tool("write_file", `{"path":"`+file+`","content":"first line\nzweite Zeile: ß\n"}`, "Successfully wrote")
	s.tool("read_text_file", `{"path":"`+file+`"}`, "zweite Zeile: ß")
	s.tool("list_directory", `{"path":"`+filepath.ToSlash(dir)+`"}`, "[FILE] note.txt")
	s.tool("read_text_file", `{"path":"/etc/hostname"}`, "Access denied", `"isError":true`)
	if text, err := os.ReadFile(file); err != nil || string(text) != "first line\nzweite Zeile: ß\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func TestMemory(t *testing.T) {
	cmd := server(t, "memory")
	cmd.Env = append(os.Environ(), "MEMORY_FILE_PATH="+filepath.Join(t.TempDir(), "memory.jsonl"))
	s := connect(t, stdio(t, cmd), newHost())
	tools, err := s.ListTools(t.Context())
	s.has("tools", tools, err, "create_entities", "read_graph", "search_nodes")
	s.tool("create_entities", `{"entities":[{"name":"Patchbay","entityType":"program","observations":["it patches"]}]}`, "Patchbay")
	s.tool("read_graph", `{}`, "it patches", `"structuredContent"`)
	s.tool("search_nodes", `{"query":"patches"}`, "Patchbay")
}
