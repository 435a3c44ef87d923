// Package mcptest has MCP servers for tests, and misbehaves on request.
//
// A scripted server is the test binary itself, run again: a package's TestMain
// calls Main first, and Command then starts a child that speaks MCP on its
// standard streams. Arguments choose how the server behaves before it is
// connected, its tools what it does afterwards; server.go lists both.
//
// Only tests and benchmarks import this package.
package mcptest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// childEnv tells a child of Command that it is one.
const childEnv = "PATCHBAY_MCPTEST"

// lifetime bounds that of a child whose parent died without killing it.
const lifetime = 5 * time.Minute

// Main is for TestMain to call before anything else. In a child of Command it
// serves and ends the process; everywhere else it returns at once.
func Main() {
	if os.Getenv(childEnv) == "" {
		return
	}
	time.AfterFunc(lifetime, func() { os.Exit(4) })
	os.Exit(serve(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Command returns a scripted server, not yet started.
func Command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self, args...)
	cmd.Env = os.Environ()
	for name, value := range childVariables() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stderr = os.Stderr
	return cmd
}

func childVariables() map[string]string {
	return map[string]string{
		childEnv: "1",
		"GORACE": "atexit_sleep_ms=0", // which is a second otherwise
	}
}

// Launch returns what a configuration says of a scripted server, besides its
// command: the test binary, or a copy of it.
func Launch(args ...string) (arguments []string, env map[string]string) {
	return Command(args...).Args[1:], childVariables()
}

// A Child is a server that runs in a process of its own.
type Child struct {
	Conn *wire.StreamConn

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
}

// exitTime is what a child gets to end by itself once its input has ended.
const exitTime = 10 * time.Second

// Start runs a command and connects to its standard streams. The test fails if
// the process outlives the conn.
func Start(t testing.TB, cmd *exec.Cmd, opts *wire.StreamOptions) *Child {
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
	c := &Child{Conn: wire.NewStreamConn(out, in, opts), cmd: cmd, exited: make(chan struct{})}
	t.Cleanup(func() {
		c.Conn.Close()
		// Wait closes what Conn reads from, so it comes after Close.
		go func() {
			defer close(c.exited)
			_ = cmd.Wait() // some are killed, some exit with a status of their own
		}()
		select {
		case <-c.exited:
		case <-time.After(exitTime):
			t.Errorf("server %v still runs %v after its input ended", cmd.Args[1:], exitTime)
			c.Kill()
			<-c.exited
		}
	})
	return c
}

// Kill ends the process at once.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() }
