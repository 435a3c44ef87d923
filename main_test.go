package patchbay_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// The test binary is also every other process of the tests: a scripted server,
// the guard of a host, and a host that is killed.
func TestMain(m *testing.M) {
	mcptest.Main()
	if len(os.Args) > 1 {
		if run := diskRoles[os.Args[1]]; run != nil {
			run(os.Args[2])
			os.Exit(0)
		}
		switch os.Args[1] {
		case "guard":
			patchbay.RunGuard()
			os.Exit(0)
		case "host":
			runHost(os.Args[2])
			os.Exit(0)
		}
	}
	remove, err := copySelf()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// serverProgram is a copy of this binary. Itself a host would not start.
var serverProgram string

func copySelf() (remove func(), err error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "patchbay-test")
	if err != nil {
		return nil, err
	}
	serverProgram = filepath.Join(dir, "server"+filepath.Ext(path))
	return func() { os.RemoveAll(dir) }, os.WriteFile(serverProgram, data, 0o700)
}

// self is this binary in another role.
func self(t *testing.T, role string) []string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{path, role}
}

// runHost is a host that does not end by itself: it says when its servers are
// connected. The file has them.
func runHost(file string) {
	path, _ := os.Executable()
	dir := filepath.Dir(file)
	h, err := patchbay.Open(context.Background(), patchbay.Options{
		Home: dir, Dir: dir, Environ: []string{}, Files: []string{file}, StrictConfig: true, Guard: []string{path, "guard"},
	})
	if err == nil {
		err = h.Wait(context.Background())
	}
	fmt.Println("ready", err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // or the end of the test that started it
}

// scripted declares a server of mcptest.
func scripted(args ...string) config.Server {
	args, env := mcptest.Launch(args...)
	s := config.Server{Command: serverProgram, Args: args, Env: map[string]config.Secret{}}
	for name, value := range env {
		s.Env[name] = config.NewSecret(value)
	}
	return s
}

// declare writes servers into a file of the user's.
func (c *computer) declare(servers map[string]config.Server) (file string) {
	c.t.Helper()
	entries := map[string]json.RawMessage{}
	for name, s := range servers {
		entries[name] = config.EncodeServer(s)
	}
	data, err := json.MarshalIndent(map[string]any{"mcpServers": entries}, "", "\t")
	if err != nil {
		c.t.Fatal(err)
	}
	file = filepath.Join(c.home, ".config", "patchbay", "mcp.json")
	c.write(file, string(data))
	return file
}

// withServers opens a host that has begun to connect to the servers.
func withServers(t *testing.T, servers map[string]config.Server, change func(*patchbay.Options)) *patchbay.Host {
	t.Helper()
	c := newComputer(t)
	c.opts.Lazy = false
	if change != nil {
		change(&c.opts)
	}
	c.declare(servers)
	return c.open()
}

// anyone is a session that may call everything.
func anyone(t *testing.T, h *patchbay.Host) *patchbay.Session {
	t.Helper()
	return session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
}

// say calls a tool with arguments in JSON, or none, and returns its text.
func say(t *testing.T, s *patchbay.Session, tool, arguments string) string {
	t.Helper()
	r, err := s.Call(t.Context(), patchbay.Call{Tool: tool, Arguments: json.RawMessage(arguments)})
	return modelText(t, r, err)
}

// await waits until the host is as it should be. The limit is for a test that
// fails.
func await(t *testing.T, h *patchbay.Host, what string, ok func(patchbay.Snapshot) bool) patchbay.Snapshot {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	for snap := range h.Watch(ctx) {
		if ok(snap) {
			return snap
		}
	}
	for _, st := range h.Servers() {
		t.Logf("%s is %s: %s", st.Name, st.State, st.Reason)
	}
	t.Fatalf("never: %s", what)
	return patchbay.Snapshot{}
}

// awaitState waits until a server is in a state, and returns how it stands.
func awaitState(t *testing.T, h *patchbay.Host, name string, state config.State) patchbay.ServerStatus {
	t.Helper()
	var found patchbay.ServerStatus
	await(t, h, fmt.Sprintf("%s is %s", name, state), func(snap patchbay.Snapshot) bool {
		for _, st := range snap.Servers {
			if st.Name == name && st.InForce {
				found = st
			}
		}
		return found.State == state
	})
	return found
}

// leavesNothing is called first, so that it looks last.
func leavesNothing(t *testing.T) {
	t.Helper()
	mcptest.LeavesNothing(t)
}
