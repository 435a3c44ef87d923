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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A station is a home with one server, s, in which patchbay runs.
type station struct {
	t             *testing.T
	home, project string
	env           []string
	program       string // what agents start; empty means the patchbay that is tested
}

// newStation returns one whose socket has a short path, and whose server has
// every tool there is.
func newStation(t *testing.T, flags ...string) *station {
	t.Helper()
	dir, err := os.MkdirTemp("", "pb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &station{t: t, home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project")}
	t.Cleanup(s.stopDaemon)
	for _, d := range []string{s.home, filepath.Join(s.project, ".git")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	args, _ := json.Marshal(append([]string{"-extra"}, flags...)) // strings always marshal
	configure(t, s.home, fmt.Sprintf(`{"command": "mcptest-server", "args": %s, "env": {"GORACE": %q}}`, args, quickExit))
	s.env = []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "GORACE=" + quickExit, "UNGUARDED=1"}
	return s
}

// stopDaemon ends the daemon, if there is one, and looks whether it is gone.
func (s *station) stopDaemon() {
	s.t.Helper()
	if out, err := stopDaemon(s.home, s.project); err != nil {
		s.t.Errorf("daemon stop: %v: %s", err, out)
	}
	socket, err := control.Own(s.socket())
	if err != nil {
		s.t.Errorf("there still is a daemon: %v", err)
		return
	}
	socket.Close()
}

func (s *station) socket() string {
	s.t.Helper()
	dirs, err := patchbay.Options{Dir: s.project, Home: s.home, Environ: s.env}.Directories()
	if err != nil {
		s.t.Fatal(err)
	}
	return control.SocketPath(dirs)
}

// daemon returns the daemon's process, once there is one.
func (s *station) daemon() *os.Process {
	s.t.Helper()
	out, _ := s.run("status", "--json")
	var status control.Status
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		s.t.Fatalf("status: %v: %s", err, out)
	}
	p, err := os.FindProcess(status.PID)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *station) command(args ...string) *exec.Cmd {
	s.t.Helper()
	program, err := exec.LookPath("patchbay") // TestMain put it there
	if err != nil {
		s.t.Fatal(err)
	}
	if s.program != "" {
		program = s.program
	}
	// What never ends must not hang the test: it tells what it does and ends.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir, cmd.Env = s.project, s.env
	return cmd
}

// run runs a command to its end.
func (s *station) run(args ...string) (stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%v: %v\n%s%s", args, err, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// serve starts a daemon and returns when it serves.
func (s *station) serve() *exec.Cmd {
	s.t.Helper()
	return s.serveAloud(io.Discard, &failing{t: s.t})
}

// serveAloud is serve with somewhere to write to, and flags.
func (s *station) serveAloud(stdout, stderr io.Writer, flags ...string) *exec.Cmd {
	s.t.Helper()
	cmd := s.command(append([]string{"serve", "--http", "127.0.0.1:0"}, flags...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have been killed
		_ = cmd.Wait()
	})
	printed := bufio.NewReader(out)
	if line, err := printed.ReadString('\n'); !strings.HasPrefix(line, "Serving ") {
		s.t.Fatalf("the daemon printed %q, %v", line, err)
	}
	go io.Copy(stdout, printed)
	return cmd
}

// failing is the standard error of a process that has nothing to say.
type failing struct{ t *testing.T }

func (f *failing) Write(p []byte) (int, error) {
	f.t.Errorf("the daemon said: %s", p)
	return len(p), nil
}

// An agent is an MCP client of `serve --stdio`.
type agent struct {
	t    *testing.T
	cmd  *exec.Cmd
	conn wire.Conn
	said lines
	last int64
}

// lines is what a process wrote to its standard error.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// until waits until a process has said something.
func (l *lines) until(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(l.String(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not say %q, but %s", want, l.String())
		}
	}
}

// start runs a command that speaks MCP.
func (s *station) start(args ...string) *agent {
	s.t.Helper()
	a := &agent{t: s.t, cmd: s.command(args...)}
	in, err := a.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	a.cmd.Stderr = &a.said
	if err := a.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	a.conn = wire.NewStreamConn(out, in, nil)
	s.t.Cleanup(func() {
		a.conn.Close()
		_ = a.cmd.Wait() // a second time, perhaps
		if s.t.Failed() {
			s.t.Logf("an agent's patchbay said: %s", a.said.String())
		}
	})
	return a
}

// agent starts one and opens its session.
func (s *station) agent() *agent {
	s.t.Helper()
	a := s.start("serve", "--stdio", "--endpoint", "s")
	a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if err := a.conn.Write(s.t.Context(), wire.Message{Method: "notifications/initialized"}); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// send sends a request and returns its id.
func (a *agent) send(method, params string) wire.ID {
	a.t.Helper()
	a.last++
	m := wire.Message{ID: wire.NumberID(a.last), Method: method, Params: json.RawMessage(params)}
	if err := a.conn.Write(a.t.Context(), m); err != nil {
		a.t.Fatalf("%s: %v", method, err)
	}
	return m.ID
}

// answer returns the result of a request.
func (a *agent) answer(id wire.ID) string {
	a.t.Helper()
	for {
		m, err := a.conn.Read()
		if err != nil {
			a.t.Fatalf("no answer to %s: %v\n%s", id, err, a.said.String())
		}
		if m.Kind() != wire.KindResponse {
			continue
		}
		if m.ID != id || m.Error != nil {
			a.t.Fatalf("the answer to %s: %s", id, m.AppendTo(nil))
		}
		return string(m.Result)
	}
}

func (a *agent) ask(method, params string) string {
	a.t.Helper()
	return a.answer(a.send(method, params))
}

// call calls a tool and returns its text.
func (a *agent) call(tool string) string {
	a.t.Helper()
	return textOf(a.ask("tools/call", `{"name":"`+tool+`","arguments":{}}`))
}

func textOf(result string) string {
	var r struct{ Content []struct{ Text string } }
	if json.Unmarshal([]byte(result), &r) != nil || len(r.Content) != 1 {
		return result
	}
	return r.Content[0].Text
}

// servers is what all processes of a server tell, whoever started them.
type servers struct {
	t       *testing.T
	address string
	lines   chan string

	mu    sync.Mutex
	conns []net.Conn
}

func listenToServers(t *testing.T) *servers {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &servers{t: t, address: l.Addr().String(), lines: make(chan string, 100)}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			work.Go(func() {
				for in := bufio.NewScanner(c); in.Scan(); {
					s.lines <- in.Text()
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		work.Wait()
	})
	return s
}

// hear waits until one of them says this.
func (s *servers) hear(want string) {
	s.t.Helper()
	select {
	case line := <-s.lines:
		if line != want {
			s.t.Fatalf("a server told %q, want %q", line, want)
		}
	case <-time.After(time.Minute): // so that the test does not hang
		s.t.Fatalf("no server told %q", want)
	}
}

// release has the tool slow return, wherever it is called.
func (s *servers) release() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_, _ = c.Write([]byte(".")) // to those that are there
	}
}
