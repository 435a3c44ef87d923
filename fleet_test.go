package patchbay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// listed counts the servers that have tools in a session.
func listed(s *patchbay.Session) map[string]int {
	tools := map[string]int{}
	for _, t := range s.Tools() {
		tools[t.Server]++
	}
	return tools
}

// Fifty servers, of which one hangs, one dies, one floods and one prints
// garbage. The others are listed before any of the four is done with, which is
// when the test lets them. The next host lists all tools at once: none of its
// servers has said a word by then.
func TestBadServersHarmNobody(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	servers := map[string]config.Server{
		"hangs":   scripted("-start=hang", lines.Arg("hangs")),
		"dies":    scripted("-start=exit", "-gate", lines.Arg("dies")),
		"floods":  scripted("-start=noise", "-stderr", "-gate", lines.Arg("floods")),
		"garbage": scripted("-start=noise", "-banner=50", "-gate", lines.Arg("garbage")),
	}
	bad := len(servers)
	var good []string
	for i := range 46 {
		name := fmt.Sprintf("good%02d", i)
		good = append(good, name)
		servers[name] = scripted("-gate", lines.Arg(name))
	}
	c := newComputer(t)
	c.opts.Lazy = false
	c.declare(servers)

	h := c.open()
	s := anyone(t, h)
	if n := len(s.Tools()); n != 0 {
		t.Errorf("%d tools before any server has listed its own", n)
	}
	for _, name := range good {
		lines.Next(name).Release()
	}
	snap := await(t, h, "46 servers are listed", func(patchbay.Snapshot) bool { return len(listed(s)) == len(servers)-bad })
	for _, st := range snap.Servers {
		if _, isBad := map[string]bool{"hangs": true, "dies": true, "floods": true, "garbage": true}[st.Name]; isBad && st.State != config.Connecting {
			t.Errorf("%s is %s before it was let go", st.Name, st.State)
		}
	}

	for name, reason := range map[string]string{"dies": "it wrote: line 29", "floods": "not protocol", "garbage": "not protocol"} {
		lines.Next(name).Release()
		st := awaitState(t, h, name, config.Failed)
		if !strings.Contains(st.Reason, reason) {
			t.Errorf("%s failed because %q, want %q", name, st.Reason, reason)
		}
	}
	if logs, err := h.Logs("floods"); err != nil || len(logs) < 1<<19 || len(logs) > 1<<20 {
		t.Errorf("%d bytes of what it wrote to its standard error, %v", len(logs), err)
	}
	for _, name := range good {
		if got := say(t, s, name+".echo", `{"text":"still here"}`); got != "still here" {
			t.Errorf("%s: %q", name, got)
		}
	}
	lines.Gates(true) // those that are tried again end sooner that way
	if err := h.Close(); err != nil {
		t.Error(err)
	}

	lines.Gates(false)
	h = c.open()
	s = anyone(t, h)
	for name, n := range listed(s) {
		if n != len(mcptest.ToolNames()) {
			t.Errorf("%s has %d tools", name, n)
		}
	}
	if n := len(listed(s)); n != len(servers)-bad {
		t.Errorf("%d servers are listed at once, want %d", n, len(servers)-bad)
	}
	for _, tool := range s.Tools() {
		if !tool.Cached {
			t.Fatalf("%s is not from the catalog of an earlier time", tool.Name)
		}
	}
	// A call waits for the connection.
	answer := make(chan string)
	go func() { answer <- say(t, s, good[0]+".echo", `{"text":"waited for"}`) }()
	lines.Gates(true)
	if got := <-answer; got != "waited for" {
		t.Errorf("got %q", got)
	}
}
