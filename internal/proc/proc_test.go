//go:build unix

package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain also is the child that leaves its group: with PROC_ESCAPE set, the
// test binary starts a session of its own, says so through the pipe PROC_READY,
// and reads the pipe PROC_ESCAPE to its end, its standard output still open.
func TestMain(m *testing.M) {
	if fifo := os.Getenv("PROC_ESCAPE"); fifo != "" {
		if _, err := syscall.Setsid(); err != nil {
			os.Exit(1)
		}
		if err := os.WriteFile(os.Getenv("PROC_READY"), []byte("up\n"), 0); err != nil {
			os.Exit(1)
		}
		if f, err := os.Open(fifo); err == nil {
			_, _ = io.Copy(io.Discard, f)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// sh is a Spec that runs a script.
func sh(script string, env ...string) Spec {
	return Spec{Path: "/bin/sh", Args: []string{"-c", script}, Env: append(env, "PATH="+os.Getenv("PATH"))}
}

// pipe makes a named pipe.
func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// family is a named pipe that processes hold open for writing as long as they
// live.
type family struct {
	path string
	r    *os.File
}

func newFamily(t *testing.T) family {
	t.Helper()
	path := pipe(t)
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return family{path, r}
}

// awaitUp returns when one of them has said that it runs.
func (f family) awaitUp(t *testing.T) {
	t.Helper()
	w, err := os.OpenFile(f.path, os.O_WRONLY, 0) // without a writer reading would find the end
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := io.ReadFull(f.r, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
}

// mustBeGone fails the test if one of them lives on.
func (f family) mustBeGone(t *testing.T) {
	t.Helper()
	if err := f.r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, f.r); err != nil {
		t.Errorf("a process of the group lives on: %v", err)
	}
}

func TestOutput(t *testing.T) {
	t.Setenv("NOT_PASSED_ON", "x")
	dir := t.TempDir()
	s := sh(`cat; printf '%s|%s|%s' "$PWD" "$GIVEN" "$NOT_PASSED_ON"; echo noise >&2`, "GIVEN=value")
	s.Dir = dir
	out, err := Output(t.Context(), s)
	if real, _ := filepath.EvalSymlinks(dir); err != nil || string(out) != real+"|value|" && string(out) != dir+"|value|" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestOutputEmptyEnvironment(t *testing.T) {
	out, err := Output(t.Context(), Spec{Path: "env"})
	if err != nil || len(out) > 0 {
		t.Errorf("without Env the child has %q, %v", out, err)
	}
}

func TestOutputExit(t *testing.T) {
	_, err := Output(t.Context(), sh("echo hunter2; echo hunter2 >&2; exit 3"))
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || exit.Code != 3 || exit.Stderr != 8 || err.Error() != "exit status 3 (and 8 bytes on stderr)" {
		t.Errorf("%#v", err)
	}
	_, err = Output(t.Context(), sh("kill -9 $$"))
	if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Code != -1 || err.Error() != "signal: killed" {
		t.Errorf("%#v", err)
	}
}

func TestOutputCannotStart(t *testing.T) {
	if _, err := Output(t.Context(), Spec{Path: "/no/such/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	s := sh("true")
	s.Dir = "/no/such/directory"
	if _, err := Output(t.Context(), s); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("nobody wants it")
	cancel(reason)
	if _, err := Output(ctx, sh("true")); err != reason {
		t.Errorf("%v, want the reason of the context", err)
	}
}

const background = `{ echo up; sleep 300; } >"$FAMILY" & wait`

func TestOutputCancelKillsTheTree(t *testing.T) {
	f := newFamily(t)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := Output(ctx, sh(background, "FAMILY="+f.path))
		failed <- err
	}()
	f.awaitUp(t)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.mustBeGone(t)
}

func TestOutputTimeoutKillsTheTree(t *testing.T) {
	f := newFamily(t)
	s := sh(background, "FAMILY="+f.path)
	s.Timeout = 300 * time.Millisecond
	if _, err := Output(t.Context(), s); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "300ms") {
		t.Error(err)
	}
	f.mustBeGone(t)
}

// A grandchild in the background neither keeps the output open nor stays.
func TestOutputGrandchildHoldsThePipe(t *testing.T) {
	f := newFamily(t)
	out, err := Output(t.Context(), sh(`exec 3>"$FAMILY"; sleep 300 & echo out`, "FAMILY="+f.path))
	if err != nil || string(out) != "out\n" {
		t.Errorf("%q, %v", out, err)
	}
	f.mustBeGone(t)
}

// One that left the group keeps nobody waiting for ever.
func TestOutputEscapedGrandchild(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fifo, ready := pipe(t), pipe(t)
	hold, err := os.OpenFile(fifo, os.O_RDWR, 0) // closing it lets the escaped one end
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	out, err := Output(t.Context(), sh(`"$SELF" & read up <"$PROC_READY"; echo "$up"`, "PROC_ESCAPE="+fifo, "PROC_READY="+ready, "SELF="+self))
	if err != nil || string(out) != "up\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestOutputFlood(t *testing.T) {
	for _, script := range []string{"yes", "yes & sleep 300", "trap '' PIPE; yes 2>/dev/null; sleep 300"} {
		if out, err := Output(t.Context(), sh(script)); !errors.Is(err, ErrTooMuchOutput) || out != nil {
			t.Errorf("%s: %d bytes, %v", script, len(out), err)
		}
	}
	s := sh("printf 12345")
	s.MaxOutput = 5
	if out, err := Output(t.Context(), s); err != nil || string(out) != "12345" {
		t.Errorf("just as much as is allowed: %q, %v", out, err)
	}
	s.MaxOutput = 4
	if _, err := Output(t.Context(), s); !errors.Is(err, ErrTooMuchOutput) {
		t.Errorf("one byte too much: %v", err)
	}
	if _, err := Output(t.Context(), sh("yes 2>/dev/null | head -c 10000000 >&2")); err != nil {
		t.Errorf("a flood on stderr: %v", err)
	}
}
