//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

func TestServe(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	configure(t, home, mcptestEntry())
	write(t, filepath.Join(home, ".config/patchbay/settings.json"), `{"gateway": {"profiles": {"say": {"servers": ["s"], "tools": ["mcp__s__echo"]}}, "allowedOrigins": ["https://app.example.com"]}}`)
	write(t, filepath.Join(project, ".mcp.json"), `{"mcpServers": {"docs": {"command": "docs"}}}`)
	g := startGateway(t, home, project)

	if list := g.call("/mcp", "tools/list", `{}`); !strings.Contains(list, `"s__echo"`) || !strings.Contains(list, `"s__wipe"`) {
		t.Errorf("all tools: %s", list)
	}
	if list := g.call("/mcp/s", "tools/list", `{}`); !strings.Contains(list, `"name":"echo"`) || strings.Contains(list, "s__") {
		t.Errorf("the tools of one server: %s", list)
	}
	if list := g.call("/mcp/@say", "tools/list", `{}`); !strings.Contains(list, `"s__echo"`) || strings.Contains(list, "wipe") {
		t.Errorf("the tools of a profile: %s", list)
	}
	if r := g.call("/mcp", "tools/call", `{"name":"s__echo","arguments":{"text":"tide at noon"}}`); !strings.Contains(r, "tide at noon") {
		t.Errorf("a call: %s", r)
	}

	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	bearer := "Bearer " + g.token
	for _, tt := range []struct {
		name         string
		method, path string
		header       []string
		status       int
	}{
		{"alive", "GET", "/healthz", nil, 200},
		{"ready", "GET", "/readyz", nil, 200},
		{"nothing there", "GET", "/", nil, 404},
		{"no metrics here", "GET", "/metrics", nil, 404},
		{"no issuer", "GET", "/.well-known/oauth-protected-resource", nil, 404},
		{"no such server", "POST", "/mcp/nobody", []string{"Authorization", bearer}, 404},
		{"no such profile", "POST", "/mcp/@nothing", []string{"Authorization", bearer}, 404},
		{"no such server, no token", "POST", "/mcp/nobody", nil, 401},
		{"no such server, another host", "POST", "/mcp/nobody", []string{"Authorization", bearer, "Host", "evil.example.com"}, 421},
		{"no such profile, no token", "GET", "/mcp/@nothing", nil, 401},
		{"no token", "POST", "/mcp", nil, 401},
		{"no token, one server", "POST", "/mcp/s", nil, 401},
		{"no token, a profile", "POST", "/mcp/@say", nil, 401},
		{"another's token", "POST", "/mcp", []string{"Authorization", bearer + "x"}, 401},
		{"another host", "POST", "/mcp", []string{"Authorization", bearer, "Host", "evil.example.com"}, 421},
		{"another origin", "POST", "/mcp", []string{"Authorization", bearer, "Origin", "https://evil.example.com"}, 403},
		{"another site", "POST", "/mcp", []string{"Authorization", bearer, "Sec-Fetch-Site", "cross-site"}, 403},
		{"an origin that may", "POST", "/mcp", []string{"Origin", "https://app.example.com"}, 401},
	} {
		resp, body := g.request(tt.method, tt.path, ping, tt.header...)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %s: %s", tt.name, resp.Status, body)
		}
		if challenge := resp.Header.Get("WWW-Authenticate"); (tt.status == 401) != strings.HasPrefix(challenge, `Bearer realm="patchbay"`) {
			t.Errorf("%s: challenged with %q", tt.name, challenge)
		}
		if strings.Contains(body, g.token) {
			t.Errorf("%s: the token is in %s", tt.name, body)
		}
	}

	out, code := g.end(syscall.SIGTERM)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	want := strings.ReplaceAll(greeting, "URL", g.url)
	if d := cmp.Diff(want, out); d != "" {
		t.Errorf("it printed (-want +got):\n%s", d)
	}
}

const greeting = `Serving URL/mcp (Ctrl-C ends it)

SERVER  STATE           TOOLS  FROM
docs    needs-approval  -      Claude Code, .mcp.json:1
s       connected       6      Patchbay, ~/.config/patchbay/mcp.json:1

To do:
  docs needs your approval: patchbay approve docs

Connect an agent; each gets all of these:
  any of 32 products  patchbay install <product>
  Claude Code         claude mcp add -s user patchbay -- patchbay serve --stdio
  Codex               codex mcp add patchbay -- patchbay serve --stdio
  Gemini CLI          gemini mcp add -s user patchbay patchbay serve -- --stdio
  VS Code             code --add-mcp '{"name": "patchbay", "command": "patchbay", "args": ["serve", "--stdio"]}'
  Cursor              "patchbay": {"command": "patchbay", "args": ["serve", "--stdio"]}  in mcpServers of ~/.cursor/mcp.json
  others              the command patchbay serve --stdio
  Claude Code, HTTP   claude mcp add -s user -t http patchbay URL/mcp -H "Authorization: Bearer $(patchbay token)"
  others, HTTP        URL/mcp  with the header Authorization: Bearer $(patchbay token)
`

// A file that cannot be read is named when serve begins: without it there may be
// no server, and nothing else would tell why.
func TestServeNamesBrokenFiles(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	dir := filepath.Join(home, ".config", "patchbay")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mcp.json"), []byte("{\n\"mcpServers\": {"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, home, project, "--mcp-config", "nope.json")
	out, code := g.end(os.Interrupt)
	if code != 0 || !strings.Contains(out, "error: ~/.config/patchbay/mcp.json:2:") || !strings.Contains(out, "error: nope.json: no such file") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	cmd := patchbayCommand(t, home, project, "serve", "--stdio")
	t.Cleanup(func() { _, _ = stopDaemon(home, project) })
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said lines
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said.until(t, "patchbay/mcp.json:2:")
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
}

// Settings that a running gateway does not take up are named when they change.
func TestServeNamesWhatTakesARestart(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	file := filepath.Join(home, ".config", "patchbay", "settings.json")
	write(t, file, `{"gateway": {"url": "https://a.example.test"}}`)
	g := startGateway(t, home, project)
	reload := func() string {
		t.Helper()
		out, err := patchbayCommand(t, home, project, "reload").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	write(t, file, `{"gateway": {"url": "https://b.example.test", "listen": "127.0.0.1:7", "oidc": {"issuer": "https://issuer.example.test"}}}`)
	out := reload()
	for _, member := range []string{"url", "oidc"} {
		if want := "until it is started again (at /gateway/" + member + ")\n"; !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "/gateway/listen") { // --http is what counts
		t.Errorf("got\n%s", out)
	}
	write(t, file, `{"gateway": {"url": "https://a.example.test"}}`)
	if out := reload(); strings.Contains(out, "/gateway/") {
		t.Errorf("as it was:\n%s", out)
	}
	g.end(os.Interrupt)
	if log := g.cmd.Stderr.(*bytes.Buffer).String(); strings.Count(log, "at=/gateway/url") != 1 {
		t.Errorf("the log has\n%s", log)
	}
}

func TestServeMetrics(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	configure(t, home, mcptestEntry())
	g := startGateway(t, home, project, "--metrics", "127.0.0.1:0")
	g.call("/mcp", "tools/call", `{"name":"s__echo","arguments":{"text":"x"}}`)
	g.url = strings.TrimSuffix(g.printed("Metrics "), "/metrics")
	if resp, body := g.request(http.MethodGet, "/metrics", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `server="s"`) {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if resp, _ := g.request(http.MethodGet, "/metrics", "", "Origin", "https://evil.example.com"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("to a web page: %s", resp.Status)
	}
	if resp, _ := g.request(http.MethodPost, "/mcp", "{}"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the gateway beside the metrics: %s", resp.Status)
	}
	g.end(syscall.SIGTERM)
}

func TestServeJSON(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	configure(t, home, mcptestEntry())
	cmd := patchbayCommand(t, home, project, "serve", "--http", "127.0.0.1:0", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var report struct {
		URL     string
		Servers []struct{ Name, State string }
	}
	if err := json.NewDecoder(out).Decode(&report); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(report.URL, "http://127.0.0.1:") || len(report.Servers) != 1 || report.Servers[0].State != "connected" {
		t.Errorf("it printed %+v", report)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		t.Errorf("and then %s, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestServeAddressInUse(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := patchbayCommand(t, home, project, "serve", "--http", l.Addr().String())
	out, err := cmd.CombinedOutput()
	want := "patchbay: " + l.Addr().String() + ` is in use by another program.
Choose another address with --http, or port 0 for any that is free. If it is Patchbay that listens there, agents can connect to it, or run ` + "`patchbay serve --stdio`.\n"
	if err == nil || string(out) != want || cmd.ProcessState.ExitCode() != 6 {
		t.Errorf("exit code %d, %v:\n%s", cmd.ProcessState.ExitCode(), err, out)
	}
}

// A client on standard input and output gets the same, and what a person has to
// do is told beside it.
func TestServeStdio(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	configure(t, home, mcptestEntry())
	write(t, filepath.Join(project, ".mcp.json"), `{"mcpServers": {"docs": {"command": "docs"}}}`)
	t.Cleanup(func() { _, _ = stopDaemon(home, project) })
	for _, tt := range []struct{ endpoint, tool string }{{"", "s__echo"}, {"s", "echo"}} {
		args := []string{"serve", "--stdio"}
		if tt.endpoint != "" {
			args = append(args, "--endpoint", tt.endpoint)
		}
		cmd := patchbayCommand(t, home, project, args...)
		var said lines
		cmd.Stderr = &said
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
		ask := func(id int, method, params string) string {
			t.Helper()
			if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
				if strings.Contains(lines.Text(), fmt.Sprintf(`"id":%d`, id)) {
					return lines.Text()
				}
			}
			t.Fatalf("no answer to %s: %v\n%s", method, lines.Err(), said.String())
			return ""
		}
		ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
		if list := ask(2, "tools/list", `{}`); !strings.Contains(list, `"name":"`+tt.tool+`"`) {
			t.Errorf("%q: %s", tt.endpoint, list)
		}
		if r := ask(3, "tools/call", `{"name":"`+tt.tool+`","arguments":{"text":"tide at noon"}}`); !strings.Contains(r, "tide at noon") {
			t.Errorf("%q: %s", tt.endpoint, r)
		}
		said.until(t, "patchbay: docs needs your approval: patchbay approve docs\n")
		in.Close()
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v\n%s", tt.endpoint, err, said.String())
		}
		if said := said.String(); strings.Count(said, "\n") != 1 {
			t.Errorf("%q: it said %s", tt.endpoint, said)
		}
	}
}

// A program that is about to be gone is not written down.
func TestTemporaryProgram(t *testing.T) {
	home, project := machine(t)
	program := filepath.Join(home, "go-build1", "exe", "patchbay")
	write(t, program, "")
	run := func(ctx context.Context, out io.Writer, args ...string) (string, int) {
		var errs bytes.Buffer
		code := cli.Main(ctx, cli.Env{
			Args: args, Dir: project, Home: home, Environ: []string{"HOME=" + home}, Now: time.Now, Executable: program,
			Stdin: strings.NewReader(""), Stdout: out, Stderr: &errs,
		})
		return errs.String(), code
	}
	if said, code := run(t.Context(), io.Discard, "install", "cursor"); code != 1 || !strings.Contains(said, "go install ./cmd/patchbay") {
		t.Errorf("exit code %d: %s", code, said)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		_, code := run(ctx, w, "serve", "--http", "127.0.0.1:0")
		w.Close()
		ended <- code
	}()
	var out strings.Builder
	for lines := bufio.NewScanner(r); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "go install") {
			stop()
		}
	}
	if code := <-ended; code != 0 || strings.Contains(out.String(), "--stdio") || strings.Contains(out.String(), program) {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
