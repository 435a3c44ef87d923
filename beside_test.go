package patchbay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// beside opens a host in another project, beside one.
func (c *computer) beside(h *patchbay.Host, project string, change func(*patchbay.Options)) *patchbay.Host {
	c.t.Helper()
	dir := filepath.Join(c.home, "src", project)
	c.write(filepath.Join(dir, ".git", "HEAD"), "ref: refs/heads/main\n")
	opts := patchbay.Options{Dir: dir, Beside: h, Lazy: c.opts.Lazy}
	if change != nil {
		change(&opts)
	}
	other, err := patchbay.Open(c.t.Context(), opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { other.Close() })
	return other
}

// runsIn returns the directory of a process, where the system tells.
func runsIn(t *testing.T, pid, unknown string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return unknown
	}
	dir, err := os.Readlink(fmt.Sprintf("/proc/%s/cwd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// everywhere is a server of which all directories have one process.
func everywhere(args ...string) config.Server {
	s := scripted(args...)
	s.Shared = config.SharedUser
	return s
}

// Hosts beside each other share the processes of the user's own servers that are
// for all directories, each leaves without touching what the other uses, and the last ends them.
func TestHostsBesideEachOther(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	c := newComputer(t)
	c.opts.Lazy = false
	c.opts.Guard = self(t, "guard")
	c.declare(map[string]config.Server{"srv": everywhere(lines.Arg("srv")), "per": scripted(lines.Arg("per"))})
	first := c.open()
	if err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := anyone(t, first)
	pid := say(t, a, "srv.pid", "")
	line := lines.Next("srv")
	if dir := runsIn(t, pid, c.home); dir != c.home {
		t.Errorf("it runs in %s", dir)
	}

	second := c.beside(first, "other", nil)
	b := anyone(t, second)
	if n := listed(b)["srv"]; n != listed(a)["srv"] {
		t.Errorf("%d tools at once, the other host has %d", n, listed(a)["srv"])
	}
	if got := say(t, b, "srv.pid", ""); got != pid {
		t.Errorf("process %s, the other host has %s", got, pid)
	}
	if err := second.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if mine, theirs := say(t, a, "per.pid", ""), say(t, b, "per.pid", ""); mine == theirs || runsIn(t, theirs, c.home+"/src/other") != c.home+"/src/other" {
		t.Errorf("processes %s and %s for entries that differ", mine, theirs)
	}
	ofFirst := lines.Next("per")

	waiting := inFlight(t.Context(), t, a, "srv")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waiting; err == nil {
		t.Error("a call of the closed host was answered")
	}
	ofFirst.WaitGone(t)
	if _, err := a.Call(t.Context(), patchbay.Call{Tool: "srv.pid"}); err == nil {
		t.Error("a closed host makes calls")
	}
	if got := say(t, b, "srv.pid", ""); got != pid {
		t.Errorf("process %s after the first host was closed, want %s", got, pid)
	}
	if _, err := patchbay.Open(t.Context(), patchbay.Options{Dir: c.project, Beside: first}); kindOf(err) != patchbay.KindDenied {
		t.Errorf("beside a closed host: %v", err)
	}
	third := c.beside(second, "third", nil)
	if got := say(t, anyone(t, third), "srv.pid", ""); got != pid {
		t.Errorf("process %s for a third host, want %s", got, pid)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-line.Gone():
		t.Error("the process ended with the second host")
	default:
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	line.WaitGone(t)
}

// A server may have another name next door, and a host that wants something else
// gets it without a word to the others.
func TestReloadBesideAnother(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.Lazy = false
	s := scripted()
	s.Cwd = c.home
	c.declare(map[string]config.Server{"srv": s})
	first := c.open()
	if err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := anyone(t, first)
	pid := say(t, a, "srv.pid", "")

	file := filepath.Join(c.home, "other.json")
	declare := func(s config.Server) {
		data, _ := json.Marshal(map[string]any{"mcpServers": map[string]json.RawMessage{"mine": config.EncodeServer(s)}})
		c.write(file, string(data))
	}
	declare(s)
	second := c.beside(first, "other", func(o *patchbay.Options) { o.Files, o.StrictConfig = []string{file}, true })
	b := anyone(t, second)
	if got := say(t, b, "mine.pid", ""); got != pid {
		t.Errorf("process %s under another name, want %s", got, pid)
	}
	if _, err := b.Call(t.Context(), patchbay.Call{Tool: "mine.crash"}); err == nil {
		t.Error("a server that crashed has answered")
	}
	await(t, first, "it is back for both", func(snap patchbay.Snapshot) bool {
		return snap.Servers[0].State == config.Connected && snap.Servers[0].Restarts == 1
	})
	pid = say(t, a, "srv.pid", "")
	if got := say(t, b, "mine.pid", ""); got != pid {
		t.Errorf("process %s after a crash, the other host has %s", got, pid)
	}

	s.Args = append(s.Args, "-banner=1")
	declare(s)
	if err := errors.Join(second.Reload(t.Context()), second.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	changed := say(t, b, "mine.pid", "")
	if changed == pid || say(t, a, "srv.pid", "") != pid {
		t.Errorf("processes %s and %s, the first was %s", changed, say(t, a, "srv.pid", ""), pid)
	}
	s.Args = s.Args[:len(s.Args)-1]
	declare(s)
	if err := errors.Join(second.Reload(t.Context()), second.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := say(t, b, "mine.pid", ""); got != pid {
		t.Errorf("process %s after it was changed back, want %s", got, pid)
	}
}

// Agents in two projects are of one kind if they can do the same.
func TestAgentsInTwoProjects(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	c := newComputer(t)
	c.opts.Lazy = false
	c.declare(map[string]config.Server{"srv": everywhere(lines.Arg("srv"))})
	first := c.open()
	awaitState(t, first, "srv", config.Connected)
	hosts := lines.Next("srv")
	second := c.beside(first, "other", nil)
	a, b := session(t, first, sampler()), session(t, second, sampler())
	pid := say(t, a, "srv.pid", "")
	hosts.WaitGone(t)
	shared := lines.Next("srv")
	if say(t, b, "srv.pid", "") != pid {
		t.Error("agents of one kind in two projects do not share a process")
	}
	a.Close()
	other := session(t, first, rooted())
	if say(t, other, "srv.pid", "") == pid || say(t, b, "srv.pid", "") != pid {
		t.Error("another kind of agent took over what the other project needs")
	}
	own := lines.Next("srv")
	b.Close()
	shared.WaitGone(t)
	if st := awaitState(t, second, "srv", config.Connected); st.Counts == nil || st.Counts.Tools == 0 {
		t.Errorf("%+v", st)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-own.Gone():
		t.Error("the process that stands for the server ended with the other host")
	default:
	}
}
