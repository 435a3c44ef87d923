//go:build unix

package patchbay_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if snap.Servers[0].State != config.NeedsApproval || len(snap.Problems) != 1 || !strings.Contains(snap.Problems[0].Message, "other users can write the file") {
		t.Errorf("%s, %v", snap.Servers[0].State, snap.Problems)
	}
}
