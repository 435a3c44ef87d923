//go:build unix

package proc

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func newGuard(t *testing.T) *Guard {
	t.Helper()
	g, err := NewGuard(self(t, "guard"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// stubborn is a family that ends by nothing but a kill.
const stubborn = `trap '' TERM; exec 3>"$FAMILY"; sleep 60 & echo up >&3; sleep 60; exit`

// playGuard is a guard. With an argument, it is one of that family and says when
// it is up.
func playGuard(family []string) {
	var r io.Reader = os.Stdin
	for _, path := range family {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		r = &announced{r: r, say: f}
	}
	RunGuard(r)
}

// announced says when it is read for the first time.
type announced struct {
	r   io.Reader
	say io.StringWriter
}

func (a *announced) Read(p []byte) (int, error) {
	if a.say != nil {
		_, _ = a.say.WriteString("up\n")
		a.say = nil
	}
	return a.r.Read(p)
}

// playParent starts a stubborn family and one with a leaver, all under a guard
// that belongs to it too. It says the number of that and does nothing more.
func playParent() {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	g, err := NewGuard([]string{exe, "guard", os.Getenv("FAMILY")})
	if err != nil {
		panic(err)
	}
	play := func(script string) *Child {
		c, err := Start(Spec{Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ(), Guard: g})
		if err != nil {
			panic(err)
		}
		return c
	}
	play(stubborn)
	_, _ = io.CopyN(io.Discard, play(leave+"echo; sleep 60; exit").Stdout, 1)
	<-play("exit 0").Done()
	fmt.Println(g.process.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
	panic("not killed")
}

// Row 17: however a parent dies, what it started ends, and so does the guard.
func TestGuardWhenTheParentIsGone(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			f := newFamily(t)
			argv := self(t, "parent")
			parent := exec.Command(argv[0], argv[1:]...)
			parent.Env = append(leaveEnv(t, f), "PATH="+os.Getenv("PATH"))
			stdin, err := parent.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			stdout, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(stdout)
			line, err := out.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // stubborn and guard
				f.awaitUp(t)
			}
			guard, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			// It is not impressed by what ends other programs.
			for _, polite := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
				if err := syscall.Kill(guard, polite); err != nil {
					t.Error(err)
				}
			}
			if err := parent.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			// Who holds the parent's output would keep this waiting.
			if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			}
			_ = parent.Wait()
			f.mustBeGone(t)
		})
	}
}

// A guard that is closed ends what was not, and knows of those that a former
// guard was told of.
func TestGuardIsReplaced(t *testing.T) {
	t.Parallel()
	f, g := newFamily(t), newGuard(t)
	one := start(t, Spec{Path: "/bin/sh", Args: []string{"-c", stubborn}, Env: []string{"PATH=" + os.Getenv("PATH"), "FAMILY=" + f.path}, Guard: g})
	f.awaitUp(t)
	g.mu.Lock()
	former := g.process.Process
	g.mu.Unlock()
	if err := former.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := former.Wait(); err != nil {
		t.Fatal(err)
	}
	two := start(t, Spec{Path: "cat", Guard: g})
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	awaitDone(t, one)
	awaitDone(t, two)
	if one.Err() == nil || one.Err().Error() != "signal: killed" {
		t.Error(one.Err())
	}
	f.mustBeGone(t)
}

// A guard that is of no use keeps nobody from running.
func TestGuardThatDies(t *testing.T) {
	if _, err := NewGuard([]string{"/no/such/guard"}); err == nil || err.Error() != "guard: fork/exec /no/such/guard: no such file or directory" {
		t.Error(err)
	}
	if _, err := NewGuard(nil); err == nil {
		t.Error("a guard without a command")
	}
	g, err := NewGuard([]string{"/bin/sh", "-c", "exit 1"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c := start(t, Spec{Path: "cat", Guard: g})
		if err := c.Close(); err != nil || c.Err() != nil {
			t.Error(err, c.Err())
		}
	}
	_ = g.Close()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	c := start(t, Spec{Path: "cat", Guard: g})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Whatever a line says, kill is never called with a number that means more than
// one group: neither all processes nor one's own.
func FuzzHear(f *testing.F) {
	for _, line := range []string{"+123 456", "-123", "+1 2", "+0 2", "+-1 2", "+123", "-", "", "x", "+123 -1", "+2 18446744073709551616", "+99999999999999999999 1"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		children := map[int]uint64{77: 1}
		hear(children, line)
		for pid := range children {
			if pid <= 1 {
				t.Errorf("%q: %v", line, children)
			}
		}
		for pid, start := range maps.Clone(children) {
			again := map[int]uint64{}
			hear(again, strings.TrimSuffix(addLine(pid, start), "\n"))
			if !maps.Equal(again, map[int]uint64{pid: start}) {
				t.Errorf("%d %d: %v", pid, start, again)
			}
			hear(again, strings.TrimSuffix(dropLine(pid), "\n"))
			if len(again) > 0 {
				t.Errorf("%d not dropped", pid)
			}
		}
	})
}

// The guard is told of what Output runs, and that it has ended.
func TestGuardIsToldOfOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	g := &Guard{process: &exec.Cmd{}, pipe: w, children: map[int]uint64{}}
	s := sh("echo $$")
	s.Guard = g
	out, err := Output(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	told, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(out))
	first, rest, _ := strings.Cut(string(told), "\n")
	if !strings.HasPrefix(first, "+"+pid+" ") || rest != "-"+pid+"\n" || len(g.children) > 0 {
		t.Errorf("told %q of %s, and knows %v", told, pid, g.children)
	}
}
