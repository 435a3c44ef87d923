//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

// What serve shows on a terminal of a hundred columns: servers in all states, what
// there is to do, and then a line for each change; testdata/serve.txt has it.
func TestServePicture(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer locked.Close()
	own := filepath.Join(s.home, ".config", "patchbay", "mcp.json")
	entry := func(args string) string {
		return `{"command": "mcptest-server", "args": [` + args + `], "env": {"GORACE": "` + quickExit + `"}}`
	}
	file := func(files string, more ...string) string {
		return `{"mcpServers": {
  "calendar": {"type": "http", "url": "` + locked.URL + `/mcp"},
  "chatty": ` + entry(`"-broken", "chatty"`) + `,
  "files": ` + files + `,
  "half": ` + entry(`"-definition", "not-there"`) + `,
  "hangs": ` + entry(`"-broken", "hang"`) + `,
  "missing": {"command": "acme-not-there"},
  "notes": ` + entry(``) + `,
  "off": {"command": "x", "enabled": false},
  "wrong": {"command": 7}` + strings.Join(more, "") + `
}}`
	}
	write(t, own, file(entry(`"-tools", "6"`)))
	write(t, filepath.Join(s.project, ".mcp.json"), `{"mcpServers": {"docs": {"command": "acme-docs"}}}`)

	program, err := exec.LookPath("patchbay") // TestMain put it there
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // what never comes must not hang the test
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "serve", "--http", "127.0.0.1:0", "--log-level", "error")
	cmd.Dir, cmd.Env = s.project, append(s.env, "TERM=xterm", "NO_COLOR=1")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	c := &conversation{t: t, tty: tty, cmd: cmd}
	all := ""
	until := func(text string) {
		t.Helper()
		c.until(text)
		all += c.before + text
	}
	until("others, HTTP")
	until("\n")
	// A tool of the server more, then off, then gone; and one that was not there.
	write(t, own, file(entry(`"-tools", "7"`)))
	until("files is connected: 13 tools")
	write(t, own, file(strings.Replace(entry(``), "{", `{"enabled": false, `, 1)))
	until("files is disabled")
	write(t, own, file(entry(``), `, "new": `+entry(``)))
	until("new is connected: 6 tools, 2 resources, 1 resource template, 1 prompt\r\n")
	write(t, own, file(entry(``)))
	until("new is not configured any more\r\n")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, code := c.end(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, rest)
	}

	got := strings.ReplaceAll(all, "\r\n", "\n")
	got = strings.ReplaceAll(got, locked.URL, "http://127.0.0.1:1")
	got = regexp.MustCompile(`http://127\.0\.0\.1:\d{2,}`).ReplaceAllString(got, "http://127.0.0.1:7332")
	got = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d`).ReplaceAllString(got, "12:00:00")
	got = regexp.MustCompile(`\(ref \w+\)`).ReplaceAllString(got, "(ref x)")
	got = regexp.MustCompile(`any of \d+ products`).ReplaceAllString(got, "any of 32 products")
	// Which of two servers connects first is theirs.
	head, tail, _ := strings.Cut(got, "12:00:00")
	want, err := os.ReadFile("testdata/serve.txt")
	if *update {
		want = []byte(head)
		err = os.WriteFile("testdata/serve.txt", want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), head); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for _, line := range []string{"✓ files is connected: 13 tools", "- files is disabled", "✓ new is connected: 6 tools"} {
		if n := strings.Count("12:00:00"+tail, "12:00:00  "+line); n != 1 {
			t.Errorf("%q is told %d times in\n%s", line, n, tail)
		}
	}
	for _, quiet := range []string{"notes", "missing", "wrong", "calendar", "docs"} {
		if strings.Contains(tail, " "+quiet+" ") {
			t.Errorf("%s, which did not change, is told of again:\n%s", quiet, tail)
		}
	}
}

// A problem of an entry is logged once, however often its server is dialled.
func TestServeWarnsOnce(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	configure(t, home, `{"type": "http", "url": "`+refusing(t)+`", "bearerTokenEnvVar": "ACME_TOKEN"}`)
	g := startGateway(t, home, project)
	for range 3 {
		cmd := patchbayCommand(t, home, project, "reconnect", "s")
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 6 {
			t.Fatalf("exit code %d:\n%s", cmd.ProcessState.ExitCode(), out)
		}
	}
	if out, code := g.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if said := g.cmd.Stderr.(*bytes.Buffer).String(); strings.Count(said, "ACME_TOKEN is not set") != 1 {
		t.Errorf("it logged\n%s", said)
	}
}

// Commands in hints are written as the program was started.
func TestHintsNameTheProgram(t *testing.T) {
	home, project := machine(t)
	elsewhere := filepath.Join(t.TempDir(), "go-build1", "exe", "patchbay")
	write(t, elsewhere, "")
	for started, want := range map[string]string{"/opt/pb/patchbay": "/opt/pb/patchbay", "x": "go run ./cmd/patchbay"} {
		executable := elsewhere
		if started != "x" {
			executable = filepath.Join(home, "patchbay")
			write(t, executable, "")
		}
		var out bytes.Buffer
		run := func(args ...string) {
			cli.Main(t.Context(), cli.Env{
				Args: args, Dir: project, Home: home, Environ: []string{"HOME=" + home, "PATH="}, Now: time.Now,
				Executable: executable, Started: started, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			})
		}
		run("list")
		run("get", "nobody")
		run("lst")
		got := strings.ReplaceAll(out.String(), want, "PROGRAM")
		const text = "No MCP servers found. `PROGRAM add <name> -- <command>` adds one.\n" +
			"patchbay: No MCP server named \"nobody\".\nNo servers are configured; `PROGRAM add` adds one.\n" +
			"patchbay: unknown command \"lst\"\nDid you mean list? Run `PROGRAM --help` for usage.\n"
		if d := cmp.Diff(text, got); d != "" {
			t.Errorf("started as %s (-want +got)\n%s", started, d)
		}
	}
}

// Where somebody listens already it is said who.
func TestServeTwice(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	g := startGateway(t, home, project)
	address := strings.TrimPrefix(g.url, "http://")
	cmd := patchbayCommand(t, home, project, "serve", "--http", address)
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 6 || !strings.HasPrefix(string(out), "patchbay: Patchbay serves "+address+" already (process "+strconv.Itoa(g.cmd.Process.Pid)+")") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if out, code := g.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
