//go:build unix

package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long those that a dead parent left have to end, asked and then killed.
const (
	orphanTerm = 2 * time.Second
	orphanKill = time.Second
)

// Guard is a process that ends this one's children should this one die, however
// that happens. It is told of every child over a pipe; that the pipe is at its
// end tells it that this process is gone. It is safe for concurrent use, and a
// nil Guard guards nothing.
//
// A child that has just been started, and of which the guard does not know yet,
// is not guarded: it has only its standard input to find at its end.
type Guard struct {
	argv []string

	mu       sync.Mutex
	process  *exec.Cmd // nil when there is none
	pipe     *os.File
	children map[int]uint64 // start by number, to tell the next process
	closed   bool
}

// NewGuard starts the guard. argv is a command that calls RunGuard with its
// standard input, argv[0] the absolute path of its file: this very program, in
// general, with a first argument that says so.
func NewGuard(argv []string) (*Guard, error) {
	if len(argv) == 0 {
		return nil, errors.New("guard: no command")
	}
	g := &Guard{argv: argv, children: make(map[int]uint64)}
	if err := g.start(); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return g, nil
}

// start runs a guard and tells it of all children. In a session of its own, it
// is not reached by what a terminal or a supervisor sends to this one's group.
func (g *Guard) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(g.argv[0], g.argv[1:]...)
	cmd.Path = running(cmd.Path)
	cmd.Env, cmd.Dir = []string{}, "/" // it keeps no file system busy
	cmd.Stdin = r                      // and writes nowhere
	ownSession(cmd)
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		return err
	}
	g.process, g.pipe = cmd, w
	for pid, start := range g.children {
		if err := g.tell(addLine(pid, start)); err != nil {
			return err
		}
	}
	return nil
}

// add tells the guard of a child.
func (g *Guard) add(pid int, start uint64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.children[pid] = start
	g.report(addLine(pid, start))
}

// drop tells the guard that a child is gone.
func (g *Guard) drop(pid int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.children, pid)
	g.report(dropLine(pid))
}

// report writes a line to the guard. Should that have died, another takes its
// place; that none can be started keeps no child from running.
func (g *Guard) report(line string) {
	if g.closed || g.process != nil && g.tell(line) == nil {
		return
	}
	g.discard()
	if g.start() != nil {
		g.discard()
	}
}

// tell writes one line. A guard that does not read is as good as dead.
func (g *Guard) tell(line string) error {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := g.pipe.WriteString(line)
	return err
}

// discard gets rid of a guard process that is of no use any more. It is killed
// first, so that it does not take the end of its pipe for this process's.
func (g *Guard) discard() {
	if g.process == nil {
		return
	}
	_ = g.process.Process.Kill()
	_ = g.process.Wait()
	_ = g.pipe.Close()
	g.process = nil
}

// Close ends the guard, and with it the children that have not been closed.
func (g *Guard) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.process == nil {
		return nil
	}
	_ = g.pipe.Close()
	stuck := time.AfterFunc(orphanTerm+orphanKill+time.Second, func() { _ = g.process.Process.Kill() })
	defer stuck.Stop()
	err := g.process.Wait()
	g.process = nil
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

func addLine(pid int, start uint64) string { return fmt.Sprintf("+%d %d\n", pid, start) }
func dropLine(pid int) string              { return fmt.Sprintf("-%d\n", pid) }

// RunGuard is the guard process: it listens to its parent until that is gone,
// then ends the children it knows of. It ignores the signals that end a program
// politely: they are meant for its parent, whose end it then sees.
func RunGuard(r io.Reader) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	children := make(map[int]uint64)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		hear(children, lines.Text())
	}
	trees := make([]*tree, 0, len(children))
	for pid, start := range children {
		trees = append(trees, rememberedTree(pid, start))
	}
	endTrees(trees)
}

// hear takes in one line of the parent's. What is not understood is ignored;
// above all, no group is ever taken for one that is not a child's.
func hear(children map[int]uint64, line string) {
	if rest, ok := strings.CutPrefix(line, "-"); ok {
		if pid, err := strconv.Atoi(rest); err == nil {
			delete(children, pid)
		}
		return
	}
	rest, ok := strings.CutPrefix(line, "+")
	number, start, ok2 := strings.Cut(rest, " ")
	pid, err := strconv.Atoi(number)
	started, err2 := strconv.ParseUint(start, 10, 64)
	if ok && ok2 && err == nil && err2 == nil && pid > 1 {
		children[pid] = started
	}
}

// endTrees asks all to end, waits, and kills who is left.
func endTrees(trees []*tree) {
	alive := func() bool {
		all, any := processes(), false
		for _, t := range trees {
			t.update(all)
			any = any || t.alive()
		}
		return any
	}
	if !alive() {
		return
	}
	for _, t := range trees {
		t.terminate()
	}
	for deadline := time.Now().Add(orphanTerm); alive() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	for deadline := time.Now().Add(orphanKill); alive() && time.Now().Before(deadline); {
		for _, t := range trees {
			t.kill()
		}
		time.Sleep(10 * time.Millisecond)
	}
}
