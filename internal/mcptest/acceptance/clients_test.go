//go:build acceptance

package acceptance

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func TestClients(t *testing.T) {
	w := newWorld(t, (*world).addServers)
	t.Run("Claude Code", w.claudeCode)
	t.Run("Codex", w.codex)
	t.Run("mcporter", w.mcporter)
	t.Run("Inspector", w.inspector)
	t.Run("mcp-remote", w.mcpRemote)
	t.Run("TypeScript SDK", w.sdks)
	t.Run("filtered environment", w.filtered)
	t.Run("Patchbay itself", w.itself)
}

// claudeCode connects over stdio, over HTTP, and to one server alone. It needs
// no account for that.
func (w *world) claudeCode(t *testing.T) {
	claude := func(args ...string) string {
		t.Helper()
		return w.run(t, "node", append([]string{client(t, "@anthropic-ai", "claude-code", "cli-wrapper.cjs")}, args...)...)
	}
	authorization := "Authorization: Bearer " + w.token
	claude("mcp", "add", "all", "--", w.patchbay, "serve", "--stdio")
	claude("mcp", "add", "one", "--", w.patchbay, "serve", "--stdio", "--endpoint", "modern")
	claude("mcp", "add", "-t", "http", "web", w.url, "-H", authorization)
	claude("mcp", "add", "-t", "http", "memory", w.url+"/memory", "-H", authorization)
	claude("mcp", "add", "-t", "http", "stranger", w.url)
	list := claude("mcp", "list") // it ends well whatever it finds
	for line := range strings.Lines(list) {
		name, rest, found := strings.Cut(line, ": ")
		switch {
		case !found:
		case name == "stranger":
			has(t, "claude mcp list, without a token", rest, "✘ Failed to connect", "patchbay token")
		default:
			has(t, "claude mcp list", line, "✔ Connected")
		}
	}
	has(t, "claude mcp list", list, "all: ", "one: ", "web: ", "memory: ", "stranger: ")
}

// codex lists what there is and calls a tool, over stdio and HTTP, without an
// account.
func (w *world) codex(t *testing.T) {
	script := client(t, "@openai", "codex", "bin", "codex.js")
	codex := func(args ...string) { t.Helper(); w.run(t, "node", append([]string{script}, args...)...) }
	codex("mcp", "add", "all", "--", w.patchbay, "serve", "--stdio")
	codex("mcp", "add", "web", "--url", w.url, "--bearer-token-env-var", "PATCHBAY_TOKEN")

	app := w.codexApp(t)
	ask := func(method, params string) string { t.Helper(); return app.ask(t, method, params) }
	var status struct {
		Data []struct {
			Name      string
			Tools     map[string]json.RawMessage
			Resources []json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(ask("mcpServerStatus/list", `{}`)), &status); err != nil {
		t.Fatal(err)
	}
	if len(status.Data) != 2 {
		t.Errorf("codex knows %d servers, want 2", len(status.Data))
	}
	for _, server := range status.Data {
		for _, tool := range []string{"everything__echo", "files__read_text_file", "memory__read_graph", "modern__echo"} {
			if server.Tools[tool] == nil {
				t.Errorf("codex does not find %s at %s, but %d tools", tool, server.Name, len(server.Tools))
			}
		}
		if len(server.Resources) == 0 {
			t.Errorf("codex finds no resources at %s", server.Name)
		}
	}
	thread, _ := wire.StringMember([]byte(ask("thread/start", `{"cwd":`+quote(w.project)+`}`)), "thread", "id")
	call := func(server, tool, arguments string) string {
		t.Helper()
		return ask("mcpServer/tool/call", `{"threadId":`+quote(thread)+`,"server":"`+server+`","tool":"`+tool+`","arguments":`+arguments+`}`)
	}
	has(t, "codex, over stdio", call("all", "everything__echo", `{"message":"from Codex"}`), "Echo: from Codex")
	has(t, "codex, over HTTP", call("web", "modern__echo", `{"text":"from Codex"}`), "from Codex")
}

// codexApp starts Codex with no model behind it.
func (w *world) codexApp(t *testing.T) *appServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := w.command(ctx, "node", client(t, "@openai", "codex", "bin", "codex.js"), "app-server",
		"-c", `model_provider="none"`, "-c", `model_providers.none={name="none",base_url="http://127.0.0.1:9/v1"}`,
		"-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false")
	app := start(t, cmd)
	app.ask(t, "initialize", `{"clientInfo":{"name":"acceptance","title":"acceptance","version":"1"}}`)
	app.tell(t, `{"method":"initialized"}`)
	return app
}

// appServer is a program that answers requests, one to a line, in what is almost
// JSON-RPC: no message says so.
type appServer struct {
	in    io.Writer
	lines *bufio.Scanner
	asked int
}

func start(t *testing.T, cmd *exec.Cmd) *appServer {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	t.Cleanup(func() {
		in.Close()
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", filepath.Base(cmd.Args[1]), err)
		}
	})
	return &appServer{in: in, lines: lines}
}

func (a *appServer) tell(t *testing.T, message string) {
	t.Helper()
	if _, err := io.WriteString(a.in, message+"\n"); err != nil {
		t.Fatal(err)
	}
}

// ask returns the result of a request.
func (a *appServer) ask(t *testing.T, method, params string) string {
	t.Helper()
	a.asked++
	id := strconv.Itoa(a.asked)
	a.tell(t, `{"id":`+id+`,"method":"`+method+`","params":`+params+`}`)
	for a.lines.Scan() {
		line := a.lines.Bytes()
		if _, ofItsOwn := wire.Member(line, "method"); ofItsOwn {
			continue
		}
		if got, _ := wire.Member(line, "id"); string(got) != id {
			continue
		}
		result, ok := wire.Member(line, "result")
		if !ok {
			t.Fatalf("%s: %s", method, line)
		}
		return string(result)
	}
	t.Fatalf("%s: no answer: %v", method, a.lines.Err())
	return ""
}

func quote(s string) string { return string(wire.AppendString(nil, s)) }

func (w *world) mcporter(t *testing.T) {
	config := w.write(t, "mcporter.json", `{"imports":[],"mcpServers":{
		"all":{"command":`+quote(w.patchbay)+`,"args":["serve","--stdio"]},
		"web":{"url":`+quote(w.url)+`,"headers":{"Authorization":"Bearer ${PATCHBAY_TOKEN}"}}}}`)
	mcporter := func(args ...string) string {
		t.Helper()
		return w.run(t, "node", append([]string{client(t, "mcporter", "dist", "cli.js"), "--config", config}, args...)...)
	}
	has(t, "mcporter list", mcporter("list"), "all (", "web (", "2 healthy")
	has(t, "mcporter call, over stdio", mcporter("call", "all.everything__get-sum", "a=40", "b=2"), "42")
	has(t, "mcporter call, over HTTP", mcporter("call", "web.files__read_text_file", "path="+w.project+"/note.txt"), "remember the milk")
}

// inspector speaks both eras, over stdio and HTTP.
func (w *world) inspector(t *testing.T) {
	web := []string{w.url, "--transport", "http", "--header", "Authorization: Bearer " + w.token}
	stdio := []string{w.patchbay, "serve", "--stdio"}
	for _, era := range []string{"legacy", "modern"} {
		for _, tt := range []struct {
			target []string
			method string
			args   []string
			want   []string
		}{
			{web, "tools/list", nil, []string{`"everything__echo"`, `"files__read_text_file"`, `"memory__read_graph"`, `"modern__echo"`}},
			{web, "tools/call", []string{"--tool-name", "modern__echo", "--tool-arg", "text=hello"}, []string{`"hello"`}},
			{web, "resources/list", nil, []string{"demo://"}},
			{web, "prompts/list", nil, []string{`"everything__simple-prompt"`}},
			{web, "prompts/get", []string{"--prompt-name", "everything__args-prompt", "--prompt-args", "city=Ulm"}, []string{"Ulm"}},
			{stdio, "tools/list", nil, []string{`"everything__echo"`, `"modern__echo"`}},
			{stdio, "tools/call", []string{"--tool-name", "everything__echo", "--tool-arg", "message=hello"}, []string{"Echo: hello"}},
		} {
			args := append([]string{client(t, "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"), "--cli"}, tt.target...)
			args = append(append(args, "--protocol-era", era, "--method", tt.method), tt.args...)
			has(t, era+" "+tt.method+" by the Inspector", w.run(t, "node", args...), tt.want...)
		}
	}
}

// mcpRemote brings clients that know stdio only to a gateway over HTTP.
func (w *world) mcpRemote(t *testing.T) {
	cmd := w.command(t.Context(), "node", client(t, "mcp-remote", "dist", "proxy.js"), w.url, "--transport", "http-only", "--header", "Authorization:Bearer "+w.token)
	bridge := mcptest.Start(t, cmd, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := wire.Connect(ctx, wire.Stream(bridge.Conn, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tools, err := c.ListTools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	for _, tool := range tools.Items {
		name, _ := wire.StringMember(tool, "name")
		names.WriteString(name + "\n")
	}
	has(t, "tools/list through mcp-remote", names.String(), "everything__echo\n", "modern__echo\n")
	result, err := c.CallTool(ctx, "everything__echo", json.RawMessage(`{"message":"over the bridge"}`))
	if err != nil {
		t.Fatal(err)
	}
	has(t, "tools/call through mcp-remote", string(result), "Echo: over the bridge")
}

// sdks use the TypeScript SDK, of both generations and in both eras, with all
// that goes back and forth.
func (w *world) sdks(t *testing.T) {
	script, err := filepath.Abs("sdk.cjs")
	if err != nil {
		t.Fatal(err)
	}
	for _, generation := range []string{"v1", "v2-legacy", "v2-modern"} {
		for _, way := range []string{"http", "stdio", "filtered"} {
			t.Run(generation+" "+way, func(t *testing.T) {
				out := w.run(t, "node", script, modules(t, "CLIENTS"), generation, way, w.url, w.patchbay)
				has(t, "the SDK's client", out, "everything works")
			})
		}
	}
}

// filtered is a client that passes on no more variables than the TypeScript SDK
// does. It uses the gateway that runs, and starts none beside it.
func (w *world) filtered(t *testing.T) {
	var few []string
	for _, name := range []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"} {
		for _, variable := range w.environ {
			if strings.HasPrefix(variable, name+"=") {
				few = append(few, variable)
			}
		}
	}
	alone := *w
	alone.environ = few
	has(t, "patchbay list with few variables", alone.run(t, w.patchbay, "list"), "Answered by the daemon", "connected")
}

// itself must not take the entries that made it known to clients for servers.
func (w *world) itself(t *testing.T) {
	for line := range strings.Lines(w.run(t, w.patchbay, "list")) {
		if strings.Contains(line, w.url) || strings.Contains(line, "--stdio") {
			has(t, "patchbay list", line, " skipped ")
		}
	}
}
