package patchbay_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay"
)

// inotify counts the inotify instances of this process.
func inotify(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// Hosts beside each other have changes reported once, whichever of them leaves,
// and each follows its own files.
func TestHostsWatchTogether(t *testing.T) {
	c := watching(t)
	before := inotify(t)
	var hosts []*patchbay.Host
	for i := range 8 {
		c.opts.Dir = filepath.Join(c.home, fmt.Sprintf("p%d", i))
		c.write(filepath.Join(c.opts.Dir, ".git", "HEAD"), "")
		h := c.open()
		hosts, c.opts.Beside = append(hosts, h), h
	}
	c.replace(filepath.Join(c.home, ".claude.json"), `{"mcpServers": {"a": {"command": "x"}}}`)
	for _, h := range hosts {
		c.has(h, "a")
	}
	if got := inotify(t) - before; got != 1 {
		t.Errorf("%d inotify instances for %d hosts", got, len(hosts))
	}
	hosts[0].Close()
	c.write(filepath.Join(c.home, "p7", ".cursor", "mcp.json"), `{"mcpServers": {"b": {"command": "x"}}}`)
	c.has(hosts[7], "a", "b")
	c.has(hosts[6], "a")
	c.replace(filepath.Join(c.home, ".claude.json"), `{"mcpServers": {"c": {"command": "x"}}}`)
	for i, h := range hosts[1:7] {
		c.has(h, "c")
		hosts[i+1].Close()
	}
	hosts[7].Close()
	if got := inotify(t) - before; got != 0 {
		t.Errorf("%d inotify instances are left", got)
	}
}
