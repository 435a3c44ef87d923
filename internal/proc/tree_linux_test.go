package proc

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who left the group and session ends with the child that started it, also
// when that ends at the first step and no longer is its parent then.
func TestCloseEndsLeavers(t *testing.T) {
	for name, script := range map[string]string{"polite": leave + "echo up; cat >&2", "stubborn": `trap '' TERM; ` + leave + "echo up; sleep 60; exit"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFamily(t)
			s := sh(script, leaveEnv(t, f)...)
			s.grace = grace{stdin: 100 * time.Millisecond, term: 100 * time.Millisecond, kill: 20 * time.Second}
			c := start(t, s)
			awaitLine(t, c, "up")
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			f.mustBeGone(t)
		})
	}
}

// Who made a group of its own in the child's session ends with the child, even
// if that dies at once.
func TestDeadChildTakesItsSession(t *testing.T) {
	f := newFamily(t)
	c := start(t, sh(`exec 3>"$FAMILY"; set -m; sleep 60 & set +m; kill -9 $$`, "FAMILY="+f.path))
	awaitDone(t, c)
	f.mustBeGone(t)
}

// A child that is stopped gets to do what it wants to do at its end.
func TestCloseContinuesTheStopped(t *testing.T) {
	s := sh("trap 'exit 7' TERM; kill -STOP $$; while :; do sleep 0.02; done")
	s.grace = grace{stdin: time.Millisecond, term: 20 * time.Second, kill: time.Second}
	c := start(t, s)
	for {
		if err := unix.Waitid(unix.P_PID, c.PID(), nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if c.Err() == nil || c.Err().Error() != "exit status 7" {
		t.Error(c.Err())
	}
}

// A child has its three streams, as programs expect them, and nothing else of
// this process's; nor has the guard more than its pipe.
func TestDescriptors(t *testing.T) {
	g := newGuard(t)
	start(t, Spec{Path: "cat", Guard: g}) // whose pipes are nobody else's
	c := start(t, Spec{Path: "cat", Guard: g})
	inherited := openFiles(t, os.Getpid())
	for fd := range inherited {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 || fd < 3 {
			delete(inherited, fd)
		}
	}
	io.WriteString(c.Stdin, "up\n")
	awaitLine(t, c, "up") // it is cat by now
	child, guard := openFiles(t, c.PID()), openFiles(t, g.process.Process.Pid)
	for fd := range 3 {
		if !strings.HasPrefix(child[fd], "pipe:") {
			t.Errorf("%d of the child is %s", fd, child[fd])
		}
	}
	if !strings.HasPrefix(guard[0], "pipe:") || guard[1] != "/dev/null" || guard[2] != "/dev/null" {
		t.Errorf("the guard has %v", guard)
	}
	for fd, what := range guard {
		runtimes := strings.HasPrefix(what, "anon_inode:") || strings.HasPrefix(what, "/sys/fs/cgroup/")
		if fd > 2 && inherited[fd] != what && !runtimes {
			t.Errorf("%d of the guard is %s", fd, what)
		}
	}
	for fd, what := range child {
		if fd > 2 && inherited[fd] != what {
			t.Errorf("%d of the child is %s", fd, what)
		}
	}

	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/0", c.PID()))
	var pos, flags int
	if _, err2 := fmt.Sscanf(string(info), "pos: %d\nflags: %o", &pos, &flags); err != nil || err2 != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("standard input of the child: %s", info)
	}
}

// openFiles returns what a process has open.
func openFiles(t *testing.T, pid int) map[int]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	open := make(map[int]string)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if what, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // that of the reading itself is gone
			open[fd] = what
		}
	}
	return open
}

// Row 16: many children leave nothing behind. TestSoakChildren has more.
func TestManyChildren(t *testing.T) {
	manyChildren(t, func(i int) bool { return i < 200 })
}

// manyChildren starts and ends one child after another as long as it is to go
// on.
func manyChildren(t *testing.T, goOn func(i int) bool) {
	t.Helper()
	g := newGuard(t)
	cycle := func(i int) {
		c, err := Start(Spec{Path: "/bin/sh", Args: []string{"-c", "echo out; echo err >&2; exit $0", fmt.Sprint(i % 2)}, Guard: g})
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			<-c.Done()
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := Start(Spec{Path: "/no/such/program", Guard: g}); err == nil {
			t.Error("started")
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what we do not
	cycle(0)                                         // what is opened once and for all
	before := len(openFiles(t, os.Getpid()))
	for i := 0; goOn(i); i++ {
		cycle(i)
	}
	if after := len(openFiles(t, os.Getpid())); after > before+2 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	for pid, p := range processes() {
		if p.parent == os.Getpid() && pid != g.process.Process.Pid {
			t.Errorf("process %d is left", pid)
		}
	}
	if len(g.children) > 0 {
		t.Errorf("the guard still knows of %v", g.children)
	}
}

func TestTreeUpdate(t *testing.T) {
	all := map[int]process{
		1:   {start: 1, alive: true},
		10:  {parent: 1, group: 10, session: 10, start: 100, alive: true},  // root
		11:  {parent: 10, group: 10, session: 10, start: 101, alive: true}, // its child
		12:  {parent: 11, group: 12, session: 12, start: 102, alive: true}, // who left
		13:  {parent: 12, group: 12, session: 12, start: 103, alive: true}, // a leaver's child
		14:  {parent: 1, group: 10, session: 10, start: 104, alive: true},  // an orphan of the group
		15:  {parent: 1, group: 15, session: 10, start: 105, alive: true},  // an orphan of the session
		16:  {parent: 10, group: 10, session: 10, start: 106},              // dead
		17:  {parent: 1, group: 17, session: 17, start: 107, alive: true},  // a stranger
		100: {parent: 17, group: 17, session: 17, start: 17, alive: true},
	}
	check := func(step string, tr *tree, want ...int) {
		t.Helper()
		tr.update(all)
		if got := slices.Sorted(maps.Keys(tr.known)); !slices.Equal(got, want) || tr.alive() != (len(want) > 0) {
			t.Errorf("%s: %v, want %v", step, got, want)
		}
	}
	tr := rememberedTree(10, 100)
	check("all alive", tr, 10, 11, 12, 13, 14, 15)
	check("only the number is the same", rememberedTree(10, 99))

	// The root and a leaver end, whose number another gets; orphans stay known.
	delete(all, 10)
	all[11] = process{parent: 1, group: 10, session: 10, start: 101, alive: true}
	all[12] = process{parent: 17, group: 17, session: 17, start: 200, alive: true}
	all[13] = process{parent: 1, group: 12, session: 12, start: 103, alive: true}
	check("orphans", tr, 11, 13, 14, 15)
	check("orphans, seen for the first time", rememberedTree(10, 100), 11, 14, 15)

	all[10] = process{parent: 1, group: 10, session: 10, start: 300, alive: true}
	for _, pid := range []int{11, 14, 15} {
		delete(all, pid)
	}
	check("a stranger in the root's place", tr, 13)
	all = nil
	check("nobody", tr)
}

// A process that has taken over a number is not signalled.
func TestTreeSignalsNoStranger(t *testing.T) {
	c := start(t, Spec{Path: "cat"})
	own, ok := readProcess(c.PID())
	if !ok || own.group != c.PID() || own.session != c.PID() || own.parent != os.Getpid() || !own.alive {
		t.Fatalf("%+v", own)
	}
	stale := own
	stale.start--
	stale.group = 0
	for _, stranger := range []*tree{
		rememberedTree(c.PID(), own.start-1),
		{root: 1 << 30, known: map[int]process{c.PID(): stale}},
	} {
		stranger.signal(syscall.SIGKILL)
		stranger.update(processes())
		stranger.signal(syscall.SIGKILL)
	}
	if _, err := io.WriteString(c.Stdin, "alive\n"); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, c, "alive")
}

func FuzzParseStat(f *testing.F) {
	f.Add("a) Z 1 (", 7)
	f.Add("x", 1)
	f.Add("\n) 9 9 9", -1)
	f.Add("", 1<<40)
	f.Fuzz(func(t *testing.T, name string, n int) {
		_, _ = parseStat([]byte(name)) // no panic
		rest := fmt.Sprintf("S %d %d %d 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 99 99", n, n+1, n+2)
		p, ok := parseStat([]byte("42 (" + name + ") " + rest))
		if want := (process{parent: n, group: n + 1, session: n + 2, start: 12345, alive: true}); !ok || p != want {
			t.Errorf("%+v, %v", p, ok)
		}
	})
}
