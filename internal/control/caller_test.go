package control_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/control"
)

// A view is of one directory and one environment; what differs from window to
// window makes no other, unless an entry names it.
func TestDaemonServesAViewForEachEnvironment(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(b.dir("one"), ".mcp.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers": {"x": {"command": "x", "env": {"A": "${TOKEN_X}"}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	unset := func(environ ...string) string {
		t.Helper()
		c, err := control.Dial(t.Context(), b.socket, control.Caller{Dir: b.dir("one"), Environ: environ}, b.self)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		snap, err := c.Snapshot(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range snap.Servers {
			if st.Name == "x" {
				return strings.Join(st.Unset, " ")
			}
		}
		t.Fatal("x is missing")
		return ""
	}
	expect := func(opened int32) {
		t.Helper()
		if n := b.opened.Load(); n != opened {
			t.Errorf("%d views were opened, want %d", n, opened)
		}
	}
	if got := unset("TERM=a", "TOKEN_X=one"); got != "" {
		t.Errorf("unset is %q", got)
	}
	if got := unset("TERM=b", "SHLVL=2", "TOKEN_X=one", "VSCODE_PID=1"); got != "" {
		t.Errorf("unset is %q", got)
	}
	expect(1)
	if got := unset("TERM=a"); got != "TOKEN_X" {
		t.Errorf("in an environment of its own unset is %q", got)
	}
	expect(2)
	unset("TERM=a", "TOKEN_X=two")
	expect(3)
	unset("TERM=a", "TOKEN_X=\xff")
	unset("TERM=a", "TOKEN_X=\xfe")
	expect(5)

	// Where an entry says that it does matter, it does.
	other := filepath.Join(b.dir("one"), ".patchbay", "mcp.json")
	if err := os.MkdirAll(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte(`{"mcpServers": {"y": {"command": "y", "envVars": ["TERM"], "args": ["${VSCODE_PID:-0}"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, environ := range [][]string{{"TERM=a", "NEW=1"}, {"TERM=b", "NEW=1"}, {"TERM=a", "NEW=1", "VSCODE_PID=1"}, {"TERM=a", "NEW=1", "SHLVL=1"}} {
		unset(environ...)
	}
	expect(8)
}
