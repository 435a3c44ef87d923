//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A gatewayProcess is a `patchbay serve` that runs.
type gatewayProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string // without a path
	token  string
	client *http.Client

	lines  chan string     // what it prints; closed when it has no more to say
	stdout strings.Builder // as far as it was read
}

// patchbayCommand is the program in a home and a project of its own. It must not
// hang the test.
func patchbayCommand(t *testing.T, home, project string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := exec.LookPath("patchbay") // TestMain put it there
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = project
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GORACE=" + quickExit}
	return cmd
}

// startGateway runs serve on a free port until it says where, or the test fails.
func startGateway(t *testing.T, home, project string, args ...string) *gatewayProcess {
	t.Helper()
	token, err := patchbayCommand(t, home, project, "token", "--no-daemon").Output()
	if err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{t: t, token: strings.TrimSpace(string(token)), client: &http.Client{}, lines: make(chan string, 1000)}
	g.cmd = patchbayCommand(t, home, project, append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)
	g.cmd.Stderr = new(bytes.Buffer)
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.client.CloseIdleConnections()
		_ = g.cmd.Process.Kill() // it has ended, unless the test failed
		for range g.lines {
		}
		_ = g.cmd.Wait()
	})
	go func() {
		defer close(g.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			g.lines <- lines.Text()
		}
	}()
	g.url, _, _ = strings.Cut(g.printed("Serving "), "/mcp")
	return g
}

// printed waits for a line that begins like that, and returns the rest of it.
func (g *gatewayProcess) printed(begin string) string {
	g.t.Helper()
	for line := range g.lines {
		g.stdout.WriteString(line + "\n")
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return rest
		}
	}
	g.t.Fatalf("it does not print %q:\n%s", begin, g.cmd.Stderr)
	return ""
}

// end sends a signal and returns what was printed, and the exit code.
func (g *gatewayProcess) end(sig os.Signal) (string, int) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(sig); err != nil {
		g.t.Fatal(err)
	}
	return g.wait()
}

func (g *gatewayProcess) wait() (string, int) {
	g.t.Helper()
	for line := range g.lines {
		g.stdout.WriteString(line + "\n")
	}
	_ = g.cmd.Wait() // the code says all there is
	if err := g.cmd.Stderr.(*bytes.Buffer).String(); err != "" {
		g.t.Logf("stderr: %s", err)
	}
	return g.stdout.String(), g.cmd.ProcessState.ExitCode()
}

// request sends a request to the gateway; header are names and values by turns.
func (g *gatewayProcess) request(method, path, body string, header ...string) (*http.Response, string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp, string(answer)
}

// call makes one request of the modern era, which needs no session.
func (g *gatewayProcess) call(path, method, params string, header ...string) string {
	g.t.Helper()
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	params = strings.TrimSuffix(params, "}")
	if params != "{" {
		params += ","
	}
	all := append([]string{"Authorization", "Bearer " + g.token, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}, header...)
	if name, err := wire.StringMember(json.RawMessage(params+meta+"}"), "name"); err {
		all = append(all, "Mcp-Name", name)
	}
	resp, answer := g.request(http.MethodPost, path, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+meta+`}}`, all...)
	if resp.StatusCode != http.StatusOK {
		g.t.Errorf("%s %s: %s: %s", path, method, resp.Status, answer)
	}
	return answer
}

func mcptestEntry(args ...string) string {
	text, _ := json.Marshal(append([]string{}, args...))
	return fmt.Sprintf(`{"command": "mcptest-server", "args": %s, "env": {"GORACE": %q}}`, text, quickExit)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
