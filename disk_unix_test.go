//go:build unix

package patchbay_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// diskRoles are what this binary does for the tests below instead of testing.
var diskRoles = map[string]func(home string){"edit": runEditor, "full": runOnFullDisk}

// openAt opens a host of the role's own.
func openAt(home string) *patchbay.Host {
	h, err := patchbay.Open(context.Background(), patchbay.Options{
		Home: home, Dir: filepath.Join(home, "project"), Environ: []string{}, SystemRoot: filepath.Join(home, "system"), Lazy: true,
	})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	return h
}

// addNumbered adds a server of that number to the user's file.
func addNumbered(h *patchbay.Host, n, size int) error {
	server, err := json.Marshal(map[string]any{"command": "x", "args": []string{strings.Repeat("y", size)}})
	if err != nil {
		return err
	}
	_, err = h.Add(context.Background(), patchbay.AddRequest{Name: fmt.Sprint("n", n), Scope: config.ScopeUser, Server: server})
	return err
}

// runEditor adds one server after another and says so, until it is killed.
func runEditor(home string) {
	h := openAt(home)
	for n := len(h.Servers()); ; n++ {
		if err := addNumbered(h, n, 20); err != nil {
			fmt.Println("error:", err)
			return
		}
		if _, err := fmt.Println(n); err != nil {
			return
		}
	}
}

// role starts this binary in a role, at a home.
func role(t *testing.T, name, home string) (*exec.Cmd, io.Reader) {
	t.Helper()
	argv := append(self(t, name), home)
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// Row 33: a host that is killed while it changes a file leaves the old content
// or the new one, nothing that was confirmed is missing, and the next host goes
// on from there.
func TestKilledWhileEditing(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	confirmed := -1
	for round := range 12 {
		cmd, out := role(t, "edit", c.home)
		lines := bufio.NewScanner(out)
		for range 1 + round%3 { // and then in the middle of the next one, wherever that is
			if !lines.Scan() {
				t.Fatal("the editor ended")
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for said := lines.Text(); said != ""; said = lines.Text() { // what it said before it died counts too
			if _, err := fmt.Sscan(said, &confirmed); err != nil {
				t.Fatalf("the editor says %q", said)
			}
			lines.Scan()
		}
		_ = cmd.Wait() // it was killed
		h := c.open()
		if problems := h.Snapshot().Problems; len(problems) > 0 {
			t.Fatalf("round %d: %v", round, problems)
		}
		if n := len(h.Servers()); n != confirmed+1 && n != confirmed+2 {
			t.Fatalf("round %d: %d servers, of which %d were confirmed", round, n, confirmed+1)
		}
		h.Close()
	}
}

// runOnFullDisk is a host whose disk fills up, and then has room again.
func runOnFullDisk(home string) {
	signal.Ignore(syscall.SIGXFSZ)
	h := openAt(home)
	defer h.Close()
	var limit syscall.Rlimit
	try := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	try(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	room := func(bytes uint64) { // in any one file
		try(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: limit.Max}))
	}
	try(addNumbered(h, 0, 2000))
	room(3000)
	err := addNumbered(h, 1, 2000)
	fmt.Println("add:", errors.Is(err, syscall.EFBIG), len(h.Servers()))
	room(10)
	asked, err := h.Approval("shared")
	try(err)
	_, err = h.Approve(context.Background(), "shared", asked.Hash)
	st, _ := h.Server("shared")
	fmt.Println("approve:", errors.Is(err, syscall.EFBIG), st.State)
	room(limit.Max)
	fmt.Println("again:", addNumbered(h, 1, 2000), len(h.Servers()))
}

// Row 32: a change that the disk has no room for is an error; the file is as it
// was, and so is what the host knows. When there is room the change is made.
func TestDiskFull(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.write(filepath.Join(c.home, "project", ".mcp.json"), `{"mcpServers": {"shared": {"command": "x"}}}`)
	cmd, out := role(t, "full", c.home)
	said, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := string(said); got != "add: true 2\napprove: true needs-approval\nagain: <nil> 3\n" {
		t.Errorf("the host says:\n%s", got)
	}
	c.opts.Dir = filepath.Join(c.home, "project")
	h := c.open()
	if snap := h.Snapshot(); len(snap.Problems) > 0 || len(snap.Servers) != 3 {
		t.Errorf("%d servers, %v", len(snap.Servers), snap.Problems)
	}
	for _, pattern := range []string{".config/patchbay/*tmp*", ".local/state/patchbay/*tmp*"} {
		if left, err := filepath.Glob(filepath.Join(c.home, pattern)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}
