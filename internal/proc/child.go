package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// grace is how long a child has for each step of its end. All steps together
// take less than five seconds.
type grace struct {
	stdin time.Duration // to end by itself, its input being at the end
	term  time.Duration // to end because it was asked to
	kill  time.Duration // to be gone after it was killed
}

var defaultGrace = grace{stdin: 2 * time.Second, term: 2 * time.Second, kill: 500 * time.Millisecond}

// drainGrace is how long a finished child's standard error is read on systems
// that do not tell whether somebody who escaped holds it open.
const drainGrace = 250 * time.Millisecond

// stderrBuffer is how much of a child's standard error is read at a time: most
// children write nothing to it, or a line now and then.
const stderrBuffer = 4 << 10

// Child is a running process, the leader of a session and group of its own. Its
// methods are safe for concurrent use. Whoever starts one closes it, also when
// it has ended by itself.
type Child struct {
	Stdin  io.WriteCloser // closed when the child has ended
	Stdout io.ReadCloser  // at its end when the child has ended and all it printed was read

	cmd    *exec.Cmd
	guard  *Guard
	grace  grace
	tree   *tree // of the goroutine that supervises
	stdout *output
	stderr ring

	stop     func() // asks for the end, closes stopping
	stopping chan struct{}
	exited   chan struct{} // the child has exited; its descendants may live
	settled  chan struct{} // all has ended, or cannot be ended: closeErr is set
	done     chan struct{} // all has ended: err is set

	closeErr error
	err      error
}

// Start runs a child until it ends or is closed. Its standard error goes to a
// ring of 1 MiB, so that it can never block on it. There is no context: who
// waits for a child must not be able to take it away from the others.
//
// An error wraps fs.ErrNotExist if there is no such command (or directory),
// fs.ErrPermission if it is not executable, syscall.ENOEXEC if it is no program.
func Start(s Spec) (*Child, error) {
	cmd, err := s.command(context.Background())
	if err != nil {
		return nil, err
	}
	ownSession(cmd)
	var theirs, ours [3]*os.File
	for i := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			closeFiles(theirs[:i], ours[:i])
			return nil, fmt.Errorf("command %q: %w", s.Path, err)
		}
		theirs[i], ours[i] = w, r
		if i == 0 {
			theirs[i], ours[i] = r, w
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	err = cmd.Start()
	closeFiles(theirs[:])
	if err != nil {
		closeFiles(ours[:])
		return nil, s.startError(cmd.Path, err)
	}

	c := &Child{
		Stdin: ours[0], cmd: cmd, guard: s.Guard, grace: s.grace, tree: childTree(cmd.Process.Pid), stdout: &output{pipe: ours[1]},
		stopping: make(chan struct{}), exited: make(chan struct{}), settled: make(chan struct{}), done: make(chan struct{}),
	}
	c.Stdout = c.stdout
	c.stop = sync.OnceFunc(func() { close(c.stopping) })
	if c.grace == (grace{}) {
		c.grace = defaultGrace
	}
	c.guard.add(c.tree.root, c.tree.start)
	go c.supervise(&output{pipe: ours[2]})
	return c, nil
}

func closeFiles(lists ...[]*os.File) {
	for _, list := range lists {
		for _, f := range list {
			_ = f.Close()
		}
	}
}

// PID returns the number of the child, which is that of its group too.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Stderr returns the last 1 MiB of what the child wrote to standard error.
func (c *Child) Stderr() string { return string(c.stderr.bytes()) }

// StderrTail returns the last lines of Stderr.
func (c *Child) StderrTail(lines int) string { return string(lastLines(c.stderr.bytes(), lines)) }

// Done is closed when the child has exited, nothing of its group is left and
// Stderr is complete.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err says how the child ended: nil for a success, an *ExitError otherwise. It
// is nil before Done.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the child and all it started, if it has not ended yet: it closes
// its standard input, after a while asks all to end, and after another kills
// them. It returns when nothing is left, within five seconds. The error is not
// how the child ended, but that something could not be ended. It may be called
// at any time and more than once.
func (c *Child) Close() error {
	c.stop()
	<-c.settled
	_ = c.Stdout.Close()
	return c.closeErr
}

// supervise waits for the child's end, or brings it about, and clears up.
func (c *Child) supervise(stderr *output) {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.CopyBuffer(&c.stderr, stderr, make([]byte, stderrBuffer))
	}()
	go func() {
		defer close(c.exited)
		awaitExit(c.cmd)
	}()

	var gone bool
	select {
	case <-c.exited:
		_ = c.Stdin.Close()
		gone = c.gone()
	case <-c.stopping:
		c.tree.update(processes()) // later on, who left the group may have lost its parent
		_ = c.Stdin.Close()
		gone = c.endsWithin(c.grace.stdin)
	}
	if !gone {
		c.tree.terminate()
		gone = c.endsWithin(c.grace.term) || c.kill()
	}
	settle := sync.OnceFunc(func() { close(c.settled) })
	if !gone {
		c.closeErr = fmt.Errorf("process %d or one that it started cannot be killed", c.PID())
		settle() // nobody shall wait for what may never come
		<-c.exited
	}

	c.guard.drop(c.PID()) // before its number can be another's
	reap(c.cmd)
	_ = c.stdout.finish()
	if stderr.finish() != nil {
		defer time.AfterFunc(drainGrace, func() { _ = stderr.Close() }).Stop()
	}
	<-drained
	_ = stderr.Close()
	c.err = exitError(c.cmd.ProcessState)
	close(c.done)
	settle()
}

func exitError(state *os.ProcessState) error {
	switch {
	case state == nil:
		return &ExitError{Code: -1, State: "ended, its exit status taken by somebody else"}
	case state.Success():
		return nil
	}
	return &ExitError{Code: state.ExitCode(), State: state.String()}
}

// gone says whether the child has exited and nobody is left of its tree.
func (c *Child) gone() bool {
	select {
	case <-c.exited:
		c.tree.update(processes())
		return !c.tree.alive()
	default:
		return false
	}
}

// endsWithin waits until all are gone, or for the given time.
func (c *Child) endsWithin(limit time.Duration) bool {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-c.exited:
	case <-timeout.C:
		return false
	}
	// Nobody tells when those end that are not our children.
	for pause := time.Millisecond; !c.gone(); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-timeout.C:
			return false
		}
	}
	return true
}

// kill kills until nobody is left: who is killed may have started another just
// before.
func (c *Child) kill() bool {
	timeout := time.NewTimer(c.grace.kill)
	defer timeout.Stop()
	for pause := time.Millisecond; ; pause *= 2 {
		c.tree.kill()
		if c.endsWithin(pause) {
			return true
		}
		select {
		case <-timeout.C:
			return false
		default:
			c.tree.update(processes())
		}
	}
}

// output is the reading end of a child's standard output or error.
type output struct {
	pipe *os.File
	rest atomic.Int64 // bytes that may still be read after finish
}

// maxPipe is the most that a pipe holds.
const maxPipe = 1 << 20

// finish says that all who could write are gone: what they wrote can still be
// read, but an escaped process that holds the other end keeps no reader waiting.
// The error is that this system cannot do so.
func (o *output) finish() error {
	o.rest.Store(maxPipe)
	return o.pipe.SetReadDeadline(time.Unix(1, 0))
}

func (o *output) Read(p []byte) (int, error) {
	n, err := o.pipe.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if o.rest.Load() <= 0 {
		return 0, io.EOF // what comes now is of the escaped
	}
	n, err = readNow(o.pipe, p)
	o.rest.Add(-int64(n))
	return n, err
}

func (o *output) Close() error { return o.pipe.Close() }
