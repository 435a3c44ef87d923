//go:build unix

package proc

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start starts a child that the end of the test closes.
func start(t *testing.T, s Spec) *Child {
	t.Helper()
	c, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// await fails the test if the channel is not closed in good time.
func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not seen", what)
	}
}

func TestChildTalks(t *testing.T) {
	c := start(t, sh("cat; echo over >&2"))
	lines := bufio.NewReader(c.Stdout)
	for _, say := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(c.Stdin, say); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); got != say || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if c.Err() != nil {
		t.Error("an error before the end")
	}
	_ = c.Stdin.Close()
	await(t, "the end", c.Done())
	if c.Err() != nil || c.Stderr() != "over\n" {
		t.Errorf("%v, %q", c.Err(), c.Stderr())
	}
	if _, err := lines.ReadByte(); err != io.EOF {
		t.Error(err)
	}
}

func TestChildExits(t *testing.T) {
	for script, want := range map[string]string{"exit 3": "exit status 3", "kill -9 $$": "signal: killed"} {
		c := start(t, sh("for i in 1 2 3; do echo line $i >&2; done; "+script))
		await(t, script, c.Done())
		exit, ok := errors.AsType[*ExitError](c.Err())
		if !ok || exit.Error() != want {
			t.Errorf("%s: %v", script, c.Err())
		}
		if got := c.StderrTail(2); got != "line 2\nline 3\n" {
			t.Errorf("%s: %q", script, got)
		}
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	plain := write("plain", "#!/bin/sh\n", 0o600)
	foreign := write("foreign", "MZ\x00", 0o700)
	orphan := write("orphan", "#!/no/such/interpreter\n", 0o700)
	for _, tt := range []struct {
		spec Spec
		is   error
		text string
	}{
		{Spec{Path: ""}, fs.ErrNotExist, `command "": not found in PATH: file does not exist`},
		{Spec{Path: "no-such"}, fs.ErrNotExist, `command "no-such": not found in PATH: file does not exist`},
		{Spec{Path: "plain"}, fs.ErrPermission, `command "plain": found in PATH, but not executable: permission denied`},
		{Spec{Path: "/no/such"}, fs.ErrNotExist, `command "/no/such": no such file or directory`},
		{Spec{Path: plain}, fs.ErrPermission, `command "` + plain + `": not executable: permission denied`},
		{Spec{Path: dir}, fs.ErrPermission, `command "` + dir + `": not executable: permission denied`},
		{Spec{Path: "foreign"}, syscall.ENOEXEC, `command "foreign": no program for this system (wrong architecture, or a script without a #! line): exec format error`},
		{Spec{Path: foreign}, syscall.ENOEXEC, ""},
		{Spec{Path: "orphan"}, fs.ErrNotExist, `command "orphan": the interpreter it asks for is missing: no such file or directory`},
		{Spec{Path: orphan}, fs.ErrNotExist, ""},
		{Spec{Path: "/bin/sh", Dir: "/no/such"}, fs.ErrNotExist, `command "/bin/sh": working directory "/no/such": no such file or directory`},
	} {
		tt.spec.Env = []string{"PATH=" + dir, "TOKEN=hunter2"}
		c, err := Start(tt.spec)
		if c != nil || !errors.Is(err, tt.is) || tt.text != "" && err.Error() != tt.text || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", tt.spec, err)
		}
	}
}

func TestCloseEscalates(t *testing.T) {
	f := newFamily(t)
	s := sh(`trap 'echo term' TERM; exec 3>"$FAMILY"; cat >/dev/null; echo eof; while :; do sleep 0.05; done`, "FAMILY="+f.path)
	s.grace = grace{stdin: 100 * time.Millisecond, term: 300 * time.Millisecond, kill: 5 * time.Second, drain: time.Second}
	c := start(t, s)
	seen := make(chan string)
	go func() {
		all, _ := io.ReadAll(c.Stdout)
		seen <- string(all)
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != "eof\nterm\n" || c.Err() == nil || c.Err().Error() != "signal: killed" {
		t.Errorf("%q, then %v", got, c.Err())
	}
	f.mustBeGone(t)
}
