//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

// configure makes one server the only one of a home.
func configure(t *testing.T, home, entry string) {
	t.Helper()
	file := filepath.Join(home, ".config", "patchbay", "mcp.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"mcpServers": {"s": `+entry+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refusing is a URL at which nobody listens, nor can begin to: its port is that of
// the other end of a connection.
func refusing(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return "http://" + c.LocalAddr().String()
}

// Each way in which a remote server cannot be reached has its exit code, and its
// advice.
func TestRemoteServerThatCannotBeReached(t *testing.T) {
	answers := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	for _, tt := range []struct {
		name, url string
		code      int
		kind      string
		hint      string
	}{
		{"refused", refusing(t), 6, "transport_error", "Check that the server is running"},
		{"401", answers(http.StatusUnauthorized), 4, "auth_unavailable", "Check your authentication credentials."},
		{"403", answers(http.StatusForbidden), 4, "auth_unavailable", "Check your authentication credentials."},
		{"404", answers(http.StatusNotFound), 6, "transport_error", ""},
		{"500", answers(http.StatusInternalServerError), 6, "transport_error", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home, project := machine(t)
			configure(t, home, fmt.Sprintf(`{"type": "http", "url": %q}`, tt.url))
			for _, args := range [][]string{{"test", "s"}, {"call", "s.echo"}, {"tools", "s"}, {"test", "s", "--json"}} {
				var out, errs bytes.Buffer
				code := cli.Main(t.Context(), cli.Env{
					Args: args, Dir: project, Home: home, Environ: []string{"HOME=" + home}, Now: time.Now,
					Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
				})
				if code != tt.code {
					t.Errorf("%v: exit code %d, want %d\n%s", args, code, tt.code, errs.String())
				}
				said := errs.String()
				if args[len(args)-1] == "--json" {
					if said = out.String(); !strings.Contains(said, `"kind": "`+tt.kind+`"`) {
						t.Errorf("%v: %s", args, said)
					}
				}
				if !strings.Contains(strings.ReplaceAll(said, `\"`, `"`), `Failed to connect to "s": `) || !strings.Contains(said, tt.hint) {
					t.Errorf("%v: %s", args, said)
				}
			}
		})
	}
}

// begin runs a command that its server never answers, and returns when the server
// has said so, with the process and what the server tells from then on.
func begin(t *testing.T, flag string, env []string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	home, project := machine(t)
	address, accept := teller(t)
	configure(t, home, fmt.Sprintf(`{"command": "mcptest-server", "args": ["-tell", %q, %q], "env": {"GORACE": %q}}`, address, flag, quickExit))
	program, err := exec.LookPath("patchbay")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = project, append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GORACE=" + quickExit}, env...)
	cmd.Stderr = new(bytes.Buffer)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test failed
		_ = cmd.Wait()
	})
	told := accept()
	if !told.Scan() || told.Text() != "began" {
		t.Fatalf("the server told %q, %v", told.Text(), told.Err())
	}
	return cmd, told
}

// teller returns an address for a server's -tell, and a function that waits for
// a server to start and returns what it tells from then on.
func teller(t *testing.T) (address string, accept func() *bufio.Scanner) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	// Whatever does not come must not hang the test.
	deadline := time.Now().Add(time.Minute)
	if err := listener.(*net.TCPListener).SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String(), func() *bufio.Scanner {
		t.Helper()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatalf("the server did not start: %v", err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		return bufio.NewScanner(conn)
	}
}

// Ctrl-C cancels a call, and its server hears of it before it is ended.
func TestInterruptedCall(t *testing.T) {
	cmd, told := begin(t, "-linger=false", []string{"UNGUARDED=1"}, "call", "s.slow")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if !told.Scan() || told.Text() != "cancelled" {
		t.Errorf("the server told %q, %v", told.Text(), told.Err())
	}
	if told.Scan() {
		t.Errorf("the server told %q", told.Text())
	}
	if err := told.Err(); err != nil {
		t.Errorf("the server lives: %v", err)
	}
	_ = cmd.Wait() // the code says all there is
	if said := cmd.Stderr.(*bytes.Buffer).String(); cmd.ProcessState.ExitCode() != 1 || said != "patchbay: interrupted\n" {
		t.Errorf("exit code %d:\n%s", cmd.ProcessState.ExitCode(), said)
	}
}

// A server does not outlive a patchbay that was killed, even if it ignores that
// nobody talks to it any more.
func TestGuard(t *testing.T) {
	cmd, told := begin(t, "-linger", nil, "call", "s.slow")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for told.Scan() { // ends with the server
	}
	if err := told.Err(); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server lives: %v", err)
	}
}

// The tools of a server are accepted by a person who saw how they changed, and
// whose default answer is no.
func TestApproveToolsPrompt(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	about := filepath.Join(project, "about")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(about, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	configure(t, home, fmt.Sprintf(`{"command": "mcptest-server", "args": ["-definition", %q], "env": {"GORACE": %q}, "pin": "strict"}`, about, quickExit))
	converse := func(args ...string) *conversation { return talk(t, home, project, args...) }

	write("Says it")
	if out, code := converse("call", "s.echo", "text=one").end(); code != 0 || !strings.Contains(out, "one") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	write("Says it to everybody")
	for _, flag := range []string{"--quiet", "--json", "--no-color"} {
		c := converse("approve", "--tools", "s", flag)
		c.until("Says it to everybody")
		c.answer(`Accept the tools of "s" as they are now? [y/N] `, "")
		if out, code := c.end(); code != 5 || !strings.Contains(out, "Not accepted.") {
			t.Errorf("%s: exit code %d:\n%s", flag, code, out)
		}
	}
	if out, code := converse("call", "s.echo", "text=two").end(); code != 5 || !strings.Contains(out, "tool_changed") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	c := converse("approve", "--tools", "s")
	c.answer("[y/N] ", "y")
	if out, code := c.end(); code != 0 || !strings.Contains(out, `Accepted "s" (user scope): 1 changed tool(s)`) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if out, code := converse("call", "s.echo", "text=three").end(); code != 0 || !strings.Contains(out, "three") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// A rule that says ask asks the person at the terminal, and shows what would be
// called. What a server prints cannot steer that terminal.
func TestCallPrompt(t *testing.T) {
	home, project := machine(t)
	configure(t, home, fmt.Sprintf(`{"command": "mcptest-server", "env": {"GORACE": %q}}`, quickExit))
	settings := filepath.Join(home, ".config", "patchbay", "settings.json")
	if err := os.WriteFile(settings, []byte(`{"permissions": {"ask": ["mcp__s__echo"]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	call := func(answer string) (string, int) {
		t.Helper()
		c := talk(t, home, project, "call", "s.echo", "text=a\tb\x1b[2Jc")
		c.until(`{"text":"a\tb\u001b[2Jc"}`)
		c.until("the rule mcp__s__echo")
		c.answer("Call it? [y/N] ", answer)
		return c.end()
	}
	if out, code := call(""); code != 5 || !strings.Contains(out, "mcp__s__echo was not permitted.") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if out, code := call("y"); code != 0 || !strings.Contains(out, "a\tb<U+001B>[2Jc") {
		t.Errorf("exit code %d:\n%q", code, out)
	}
}

// Nothing hangs: a command that is given up while its server says nothing ends,
// and the server with it.
func TestInterruptWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"test", "s"}, {"list", "--connect"}, {"logs", "s"}, {"get", "s", "--connect"}, {"approve", "--tools", "s"}} {
		cmd, told := begin(t, "-broken=hang", []string{"UNGUARDED=1"}, args...)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if told.Scan() || told.Err() != nil {
			t.Errorf("%v: the server lives: %q, %v", args, told.Text(), told.Err())
		}
		_ = cmd.Wait() // the code says all there is
		if said := cmd.Stderr.(*bytes.Buffer).String(); cmd.ProcessState.ExitCode() != 1 || said != "patchbay: interrupted\n" {
			t.Errorf("%v: exit code %d:\n%s", args, cmd.ProcessState.ExitCode(), said)
		}
	}
}
