// Package proc runs child processes that do not outlive their purpose. Output
// runs one to its end, Start one that stays until it is closed. Each is in a
// process group of its own, so that ending one ends what it started too; on
// Linux also those that have left the group, as long as they can be told to
// descend from it. On Windows the process itself is all that is ended. A Guard
// ends the children of a process that was killed.
//
// A child never inherits this process's environment, working directory or
// standard input by accident: what it gets is what its Spec says.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// waitDelay is how long a process that escaped its group may keep a finished
// child's output open before it is given up.
const waitDelay = 2 * time.Second

// Spec says what to run.
type Spec struct {
	// Path is the program. Without a separator it is looked up in the PATH of
	// Env, or in this process's if that has none; never in the current directory.
	Path string
	File string   // what is started in place of the file that Path means; empty means that one
	Args []string // without the program's name
	Dir  string   // empty means this process's directory
	Env  []string // all of the child's environment, as NAME=value; nil means none

	Guard *Guard // ends the child should this process die; nil means nobody does

	// For Output.
	Stdin      []byte        // what the child can read; nil means nothing
	MaxOutput  int           // bytes of output that are too many; 0 means 64 KiB
	KeepStderr int           // bytes of standard error that an ExitError has; 0 means none
	Timeout    time.Duration // 0 means none beyond the context's

	grace grace // for Start; zero means defaultGrace
}

const defaultMaxOutput = 64 << 10

// ErrTooMuchOutput is returned when a child printed more than its Spec allows.
var ErrTooMuchOutput = errors.New("printed too much")

// ExitError says how a child ended that did not end well. Its text has nothing
// of what the child printed: that may be a secret.
type ExitError struct {
	Code   int    // exit status; -1 if a signal ended it
	State  string // such as "exit status 3" or "signal: killed"
	Stderr int64  // bytes it wrote to standard error
	Head   []byte // the first of them, as many as Spec.KeepStderr
}

func (e *ExitError) Error() string {
	if e.Stderr == 0 {
		return e.State
	}
	return fmt.Sprintf("%s (and %d bytes on stderr)", e.State, e.Stderr)
}

// Output runs a child to its end and returns what it printed to standard
// output. A child need not read its standard input. When Output returns, the
// child and the rest of its group are gone.
func Output(ctx context.Context, s Spec) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("no end after %v: %w", s.Timeout, context.DeadlineExceeded))
		defer stop()
	}
	out := &limitedBuffer{max: s.MaxOutput, full: func() { cancel(ErrTooMuchOutput) }}
	if out.max == 0 {
		out.max = defaultMaxOutput
	}
	stderr := &head{max: s.KeepStderr}

	cmd, err := s.command(ctx)
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(s.Stdin), out, stderr
	cmd.WaitDelay = waitDelay
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, s.startError(cmd.Path, err)
	}
	tree := childTree(cmd.Process.Pid)
	s.Guard.add(tree.root, tree.start)
	defer s.Guard.drop(tree.root)
	err = waitGroup(cmd)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success():
		// What still holds the pipe has left the group: it is no part of the
		// child any more, and the output is complete.
		return out.kept, nil
	case context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, &ExitError{Code: cmd.ProcessState.ExitCode(), State: cmd.ProcessState.String(), Stderr: stderr.size, Head: stderr.kept}
	}
	return nil, err
}

// limitedBuffer keeps up to max bytes and calls full when there are more.
type limitedBuffer struct {
	kept []byte
	max  int
	full func()
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.kept)+len(p) > b.max {
		b.full()
		return 0, io.ErrShortWrite
	}
	b.kept = append(b.kept, p...)
	return len(p), nil
}

// head keeps the first bytes written to it, up to max, and counts all.
type head struct {
	kept []byte
	max  int
	size int64
}

func (h *head) Write(p []byte) (int, error) {
	h.size += int64(len(p))
	h.kept = append(h.kept, p[:min(len(p), h.max-len(h.kept))]...)
	return len(p), nil
}
