//go:build unix

package atomicfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVar tells a re-executed test binary what to do instead of testing.
const childVar = "ATOMICFILE_TEST_CHILD"

func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	if job := os.Getenv(childVar); job != "" {
		if err := runChild(job, os.Args[1:]); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// oldContent and newContent are longer than any buffer, so that a part of one
// could be told from the whole.
var (
	oldContent = strings.Repeat("old line\n", 20_000)
	newContent = strings.Repeat("new line\n", 30_000)
)

func runChild(job string, args []string) error {
	path := args[0]
	switch job {
	case "add": // a line, when the parent says so
		_, _ = io.Copy(io.Discard, os.Stdin)
		_, err := Update(context.Background(), path, Options{}, appendLine(args[1]))
		return err
	case "crash": // at a step
		_, err := Update(context.Background(), path, Options{testOnlyStep: crashAt(args[1])}, func([]byte) ([]byte, error) {
			return []byte(newContent), nil
		})
		return err
	case "full": // a disk on which no file can grow beyond 64 KiB
		signal.Ignore(syscall.SIGXFSZ)
		limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		_, err := Update(context.Background(), path, Options{}, func([]byte) ([]byte, error) { return []byte(newContent), nil })
		return err
	case "hold": // the lock, until the parent says so
		_, err := Update(context.Background(), path, Options{}, func([]byte) ([]byte, error) {
			fmt.Println("held")
			_, _ = io.Copy(io.Discard, os.Stdin)
			return nil, nil
		})
		return err
	}
	return errors.New("unknown job")
}

// crashAt returns a hook that ends the process the hard way at a step. In the
// middle of writing means after half of the content.
func crashAt(at string) func(string, *os.File) {
	return func(step string, temp *os.File) {
		switch at {
		case step:
		case "middle of " + step:
			_, _ = temp.WriteString(newContent[:len(newContent)/2])
		default:
			return
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func child(t *testing.T, job string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), childVar+"="+job, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func TestManyProcessesLoseNothing(t *testing.T) {
	const processes = 50
	path := filepath.Join(t.TempDir(), "file")
	start, hold, err := os.Pipe() // closing hold starts them all
	if err != nil {
		t.Fatal(err)
	}
	cmds, outputs := make([]*exec.Cmd, processes), make([]bytes.Buffer, processes)
	for i := range cmds {
		cmds[i] = child(t, "add", path, fmt.Sprintf("line %d", i))
		cmds[i].Stdin, cmds[i].Stdout, cmds[i].Stderr = start, &outputs[i], &outputs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	_ = start.Close()
	_ = hold.Close()
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil || outputs[i].Len() > 0 {
			t.Errorf("process %d: %v %s", i, err, &outputs[i])
		}
	}
	data, _ := os.ReadFile(path)
	got := strings.Split(strings.TrimSpace(string(data)), "\n")
	slices.Sort(got)
	if got = slices.Compact(got); len(got) != processes {
		t.Errorf("%d different lines of %d survived", len(got), processes)
	}
	wantFiles(t, filepath.Dir(path), ".file.lock", "file")
}

func TestKilledAtEveryStep(t *testing.T) {
	for step, want := range map[string]string{
		"create": oldContent, "write": oldContent, "middle of write": oldContent, "sync": oldContent,
		"check": oldContent, "rename": oldContent, "sync directory": newContent,
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			put(t, path, oldContent)
			err := child(t, "crash", path, step).Run()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the child was not killed: %v", err)
			}
			if data, _ := os.ReadFile(path); string(data) != want {
				t.Errorf("%d bytes, want %d", len(data), len(want))
			}
			// The lock is free, and what the crash left is swept in time.
			age(t, dir, ".file.patchbay-*.tmp")
			if _, err := Update(t.Context(), path, Options{}, appendLine("next")); err != nil {
				t.Fatal(err)
			}
			wantContent(t, path, want+"next\n")
			wantFiles(t, dir, ".file.lock", "file")
		})
	}
}

func age(t *testing.T, dir, pattern string) {
	t.Helper()
	old := time.Now().Add(-2 * staleAfter)
	names, _ := filepath.Glob(filepath.Join(dir, pattern))
	for _, name := range names {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	put(t, path, oldContent)
	out, err := child(t, "full", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantError(t, errors.New(string(out)), "write "+path+":", "file too large")
	wantContent(t, path, oldContent)
	wantFiles(t, dir, ".file.lock", "file")
}

func TestHolderIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "")
	cmd := child(t, "hold", path)
	stdin, _ := cmd.StdinPipe()
	stdout, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := Update(ctx, path, Options{}, appendLine("x"))
	wantError(t, err, path, fmt.Sprint("process ", cmd.Process.Pid))
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := Update(t.Context(), path, Options{}, appendLine("x")); err != nil {
		t.Error(err)
	}
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode() &^ fs.ModeDir; got != want {
		t.Errorf("%s has mode %o, want %o", path, got, want)
	}
}

func TestModes(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ opt, file, dir fs.FileMode }{
		{0, 0o600, 0o700}, {0o600, 0o600, 0o700}, {0o644, 0o644, 0o755}, {0o666, 0o644, 0o755}, {0o640, 0o640, 0o750},
	} {
		path := filepath.Join(dir, fmt.Sprintf("%o", c.opt), "file")
		if err := Write(path, nil, Options{Mode: c.opt}); err != nil {
			t.Fatal(err)
		}
		wantMode(t, path, c.file)
		wantMode(t, filepath.Dir(path), c.dir)
	}

	path := filepath.Join(dir, "kept")
	for set, want := range map[fs.FileMode]fs.FileMode{0o640: 0o640, 0o664: 0o664, 0o755 | fs.ModeSetuid: 0o755} {
		put(t, path, "x")
		if err := os.Chmod(path, set); err != nil {
			t.Fatal(err)
		}
		if err := Write(path, []byte("y"), Options{}); err != nil {
			t.Fatal(err)
		}
		wantMode(t, path, want)
	}

	put(t, path, "x")
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	wantError(t, Write(path, []byte("y"), Options{}), path+": the file is read-only")
	wantContent(t, path, "x")
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

func TestSymlinkInPlaceOfTheFile(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	target, link := filepath.Join(elsewhere, "target"), filepath.Join(dir, "link")
	put(t, target, "old")
	if err := os.Chmod(target, 0o640); err != nil {
		t.Fatal(err)
	}
	symlink(t, target, filepath.Join(dir, "middle"))
	symlink(t, "middle", link)

	for _, opts := range []Options{{}, {Within: dir}} {
		wantError(t, Write(link, []byte("x"), opts), link+" is a symbolic link")
		_, err := Update(t.Context(), link, opts, appendLine("x"))
		wantError(t, err, link+" is a symbolic link")
	}
	wantContent(t, target, "old")

	if err := Write(link, []byte("new"), Options{FollowSymlink: true}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.Readlink(link); got != "middle" {
		t.Errorf("the link now leads to %q", got)
	}
	wantContent(t, target, "new")
	wantMode(t, target, 0o640)
	wantFiles(t, elsewhere, "target")
}

func TestSymlinkNotToFollow(t *testing.T) {
	dir := t.TempDir()
	foreign := "/etc/passwd" // not ours, unless we are root
	if os.Geteuid() == 0 {
		foreign = filepath.Join(dir, "foreign")
		put(t, foreign, "theirs")
		if err := os.Chown(foreign, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[string]string{
		foreign:                      "belongs to another user",
		filepath.Join(dir, "absent"): "leads nowhere",
		filepath.Join(dir, "link"):   "leads nowhere", // itself
		dir:                          "is a directory",
		"/dev/null":                  "is a device",
	} {
		link := filepath.Join(dir, "link")
		symlink(t, target, link)
		wantError(t, Write(link, []byte("x"), Options{FollowSymlink: true}), want)
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSymlinkOnTheWay(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, "link")
	symlink(t, elsewhere, link)
	path := filepath.Join(link, "file")

	wantError(t, Write(path, nil, Options{Within: dir}), link+" is a symbolic link")
	wantFiles(t, elsewhere)
	if err := Write(path, nil, Options{}); err != nil { // a home on another disk
		t.Fatal(err)
	}
	wantFiles(t, elsewhere, "file")
}

// A directory that turns into a link during the write takes nothing elsewhere.
func TestDirectoryTurnsIntoLink(t *testing.T) {
	for _, at := range []string{"create", "write", "check", "rename"} {
		top, elsewhere := t.TempDir(), t.TempDir()
		dir := filepath.Join(top, "dir")
		put(t, filepath.Join(elsewhere, "file"), "theirs")
		opts := Options{Within: top, testOnlyStep: func(step string, _ *os.File) {
			if step == at {
				if err := os.Rename(dir, dir+"-moved"); err != nil {
					t.Error(err)
				}
				symlink(t, elsewhere, dir)
			}
		}}
		if err := Write(filepath.Join(dir, "file"), []byte("ours"), opts); err != nil {
			t.Fatal(err)
		}
		wantContent(t, filepath.Join(elsewhere, "file"), "theirs")
		wantFiles(t, elsewhere, "file")
		wantContent(t, filepath.Join(dir+"-moved", "file"), "ours")
	}
}

// The same while the way is being walked: os.Root alone would follow a link to
// a sibling.
func TestDirectoryReplacedOnTheWay(t *testing.T) {
	top := t.TempDir()
	dir, sibling := filepath.Join(top, "dir"), filepath.Join(top, "sibling")
	if err := os.Mkdir(sibling, 0o700); err != nil {
		t.Fatal(err)
	}
	opts := Options{Within: top, testOnlyStep: func(step string, _ *os.File) {
		if step == "enter" {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
			symlink(t, "sibling", dir)
		}
	}}
	wantError(t, Write(filepath.Join(dir, "file"), nil, opts), dir+" was replaced")
	wantFiles(t, sibling)
}

// And for the file itself: what is edited is never what a link leads to.
func TestFileReplacedBeforeReading(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	put(t, path, "ours\n")
	put(t, other, "theirs\n")
	opts := Options{testOnlyStep: func(step string, _ *os.File) {
		if step == "read" {
			_ = os.Remove(path)
			symlink(t, "other", path)
		}
	}}
	_, err := Update(t.Context(), path, opts, func(old []byte) ([]byte, error) {
		t.Errorf("edit sees %q", old)
		return nil, nil
	})
	wantError(t, err, path+" is a symbolic link")
	wantContent(t, other, "theirs\n")
}

func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Read(pipe, 10)
	wantError(t, err, pipe+" is a pipe, not a regular file")
	wantError(t, Write(pipe, nil, Options{}), pipe+" is a pipe")
	_, err = Update(t.Context(), pipe, Options{}, appendLine("x"))
	wantError(t, err, pipe+" is a pipe")
	wantError(t, Write(dir, nil, Options{}), dir+" is a directory")

	// A pipe that takes the place of a file between looking and opening.
	f, err := os.OpenFile(pipe, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = readRegular(f, pipe, 10)
	wantError(t, err, "is a pipe")
}

// What lies in a project under the name of a lock file may be anything.
func TestLockFileIsNotTrusted(t *testing.T) {
	for name, plant := range map[string]func(t *testing.T, lock, victim string){
		"pipe": func(t *testing.T, lock, _ string) {
			if err := syscall.Mkfifo(lock, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"link beside":  func(t *testing.T, lock, victim string) { symlink(t, filepath.Base(victim), lock) },
		"link outside": func(t *testing.T, lock, victim string) { symlink(t, victim, lock) },
		"directory": func(t *testing.T, lock, _ string) {
			if err := os.Mkdir(lock, 0o700); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, victim := filepath.Join(dir, "file"), filepath.Join(dir, "victim")
			if name == "link outside" {
				victim = filepath.Join(t.TempDir(), "victim")
			}
			put(t, path, "old")
			put(t, victim, "untouched")
			plant(t, filepath.Join(dir, ".file.lock"), victim)
			_, err := Update(t.Context(), path, Options{}, appendLine("x"))
			wantError(t, err, "lock file", ".file.lock")
			wantContent(t, path, "old")
			wantContent(t, victim, "untouched")
		})
	}
}

// An error names the file as the caller knows it, not as the open directory does.
func TestErrorsNameTheFile(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("x", 300)
	for _, path := range []string{filepath.Join(dir, long, "file"), filepath.Join(dir, "sub", long)} {
		for _, opts := range []Options{{Within: dir}, {}} {
			wantError(t, Write(path, nil, opts), dir)
		}
	}
}
