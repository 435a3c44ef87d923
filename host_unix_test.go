//go:build unix

package patchbay_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// Approvals that somebody else could have written are none.
func TestApprovalsOthersCanWrite(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.project, ".mcp.json"), projectServer)
	c.approve("tool")
	file := filepath.Join(c.home, ".local", "state", "patchbay", "approvals.json")
	if err := os.Chmod(file, 0o620); err != nil {
		t.Fatal(err)
	}
	snap := c.open().Snapshot()
	if snap.Servers[0].State != config.NeedsApproval || len(snap.Problems) != 1 || !strings.Contains(snap.Problems[0].Message, "other users can write to it (mode 06") {
		t.Errorf("%s, %v", snap.Servers[0].State, snap.Problems)
	}
}

// What another user wrote into a project does not decide anything here.
func TestSettingsOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only the administrator can give a file away")
	}
	c := newComputer(t)
	c.projectSettings(`{"permissions":{"deny":["*"]}}`)
	file := filepath.Join(c.project, ".patchbay", "settings.json")
	if err := os.Chown(file, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	c.opts.Lazy = false
	c.declare(map[string]config.Server{"srv": scripted()})
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	if len(s.Tools()) == 0 {
		t.Error("its rules are applied")
	}
	if p := h.Snapshot().Problems; len(p) != 1 || p[0].File != file || p[0].Severity != config.SeverityWarning || !strings.Contains(p[0].Message, "another user") {
		t.Errorf("problems: %v", p)
	}
}

// Nothing is read from, or kept in, a directory into which others can write.
func TestStateOthersCanWrite(t *testing.T) {
	c := newComputer(t)
	dir := filepath.Join(c.home, ".local", "state", "patchbay")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o777: false, 0o770: false, 0o702: false, 0o755: true, 0o700: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		h, err := patchbay.Open(t.Context(), patchbay.Options{Dir: c.project, Home: c.home, Environ: []string{}})
		if err == nil {
			h.Close()
		}
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), dir) {
			t.Errorf("%o: %v", mode, err)
		}
	}
}
