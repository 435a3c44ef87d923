//go:build unix

package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain also is the children that a shell cannot play; the first argument
// says which.
func TestMain(m *testing.M) {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch role {
	case "guard":
		playGuard(os.Args[2:])
	case "parent":
		playParent()
	case "leaver":
		playLeaver(false)
	case "flooding-leaver":
		playLeaver(true)
	case "recorder":
		playRecorder()
	default:
		goleak.VerifyTestMain(m)
	}
}

// playLeaver leaves its group and session, says so to $READY, and stays on,
// holding $FAMILY and its standard streams open, or writing to them all the
// time.
func playLeaver(flood bool) {
	signal.Ignore(syscall.SIGTERM)
	_, err := syscall.Setsid()
	family, err2 := os.OpenFile(os.Getenv("FAMILY"), os.O_WRONLY, 0)
	if err := errors.Join(err, err2, os.WriteFile(os.Getenv("READY"), []byte("up\n"), 0)); err != nil {
		panic(err)
	}
	for page := make([]byte, 4096); flood; {
		_, _ = os.Stdout.Write(page)
		_, _ = os.Stderr.Write(page)
	}
	time.Sleep(time.Minute) // nobody stays for ever, should the test go wrong
	runtime.KeepAlive(family)
}

// leave starts a leaver and waits until it has left. The environment has SELF,
// FAMILY and READY.
const leave = `"$SELF" leaver & leaver=$!; read up <"$READY"; `

func leaveEnv(t *testing.T, f family) []string {
	return []string{"FAMILY=" + f.path, "READY=" + pipe(t), "SELF=" + self(t, "")[0]}
}

// self returns the command line that starts this program in a role.
func self(t *testing.T, role string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{exe, role}
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
	if err := f.r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
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

// A child may read what it is given, in part or not at all.
func TestOutputStdin(t *testing.T) {
	input := bytes.Repeat([]byte("x"), 1<<20)
	for script, want := range map[string]string{"wc -c | tr -d ' '": "1048576\n", "head -c 3": "xxx", "echo done": "done\n"} {
		s := sh(script)
		s.Stdin = input
		if out, err := Output(t.Context(), s); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", script, out, err)
		}
	}
}

// Of standard error an error has only as much as was asked for, and its text
// nothing.
func TestOutputStderr(t *testing.T) {
	s := sh("printf 1234567890 >&2; exit 2")
	s.KeepStderr = 4
	_, err := Output(t.Context(), s)
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || exit.Code != 2 || exit.Stderr != 10 || string(exit.Head) != "1234" || strings.Contains(err.Error(), "1234") {
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

const background = `{ echo up; sleep 60; } >"$FAMILY" & wait`

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
	out, err := Output(t.Context(), sh(`exec 3>"$FAMILY"; sleep 60 & echo out`, "FAMILY="+f.path))
	if err != nil || string(out) != "out\n" {
		t.Errorf("%q, %v", out, err)
	}
	f.mustBeGone(t)
}

// One that left the group keeps nobody waiting for ever.
func TestOutputEscapedGrandchild(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	out, err := Output(t.Context(), sh(leave+`echo $leaver`, leaveEnv(t, f)...))
	if err != nil {
		t.Fatal(err)
	}
	leaver, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(leaver, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	f.mustBeGone(t)
}

func TestOutputFlood(t *testing.T) {
	for _, script := range []string{"yes", "yes & sleep 60", "trap '' PIPE; yes 2>/dev/null; sleep 60"} {
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
