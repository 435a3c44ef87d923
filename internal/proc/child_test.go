//go:build unix

package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
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

// awaitDone fails the test if the child does not end by itself.
func awaitDone(t *testing.T, c *Child) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("no end")
	}
}

// awaitLine reads what the child says first.
func awaitLine(t *testing.T, c *Child, want string) {
	t.Helper()
	got := make([]byte, len(want)+1)
	if _, err := io.ReadFull(c.Stdout, got); err != nil || string(got) != want+"\n" {
		t.Fatalf("%q, %v; stderr: %s", got, err, c.Stderr())
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
	awaitDone(t, c)
	if c.Err() != nil || c.Stderr() != "over\n" {
		t.Errorf("%v, %q", c.Err(), c.Stderr())
	}
	if _, err := lines.ReadByte(); err != io.EOF {
		t.Error(err)
	}
}

// What a child printed before it ended is read whole, however late.
func TestChildOutputOutlivesIt(t *testing.T) {
	c := start(t, sh("printf 0123456789"))
	awaitDone(t, c)
	got, err := io.ReadAll(iotest{c.Stdout})
	if string(got) != "0123456789" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// iotest reads one byte at a time.
type iotest struct{ io.Reader }

func (r iotest) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

func TestChildExits(t *testing.T) {
	for script, want := range map[string]string{"exit 3": "exit status 3", "kill -9 $$": "signal: killed"} {
		c := start(t, sh("for i in 1 2 3; do echo line $i >&2; done; "+script))
		awaitDone(t, c)
		exit, ok := errors.AsType[*ExitError](c.Err())
		if !ok || exit.Error() != want {
			t.Errorf("%s: %v", script, c.Err())
		}
		if got := c.StderrTail(2); got != "line 2\nline 3\n" {
			t.Errorf("%s: %q", script, got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An embedding program that reaps whatever it can does no harm.
func TestChildReapedBySomebodyElse(t *testing.T) {
	c := start(t, sh("read go"))
	var status syscall.WaitStatus
	go func() { _, _ = io.WriteString(c.Stdin, "go\n") }()
	for {
		if _, err := syscall.Wait4(c.PID(), &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	awaitDone(t, c)
	unknown := exitError(nil) // what the child's end is if we really were faster
	if c.Err() != nil && c.Err().Error() != unknown.Error() {
		t.Error(c.Err())
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
		{Spec{Path: ".."}, fs.ErrNotExist, `command "..": not found in PATH: file does not exist`},
		{Spec{Path: "no-such"}, fs.ErrNotExist, `command "no-such": not found in PATH: file does not exist`},
		{Spec{Path: "plain"}, fs.ErrPermission, `command "plain": found in PATH, but not executable: permission denied`},
		{Spec{Path: "/no/such"}, fs.ErrNotExist, `command "/no/such": no such file or directory`},
		{Spec{Path: plain}, fs.ErrPermission, `command "` + plain + `": not executable: permission denied`},
		{Spec{Path: dir}, fs.ErrPermission, `command "` + dir + `": not executable: permission denied`},
		{Spec{Path: "foreign"}, syscall.ENOEXEC, `command "foreign": no program for this system (wrong architecture, or a script without a #! line): exec format error`},
		{Spec{Path: foreign}, syscall.ENOEXEC, ""},
		{Spec{Path: "orphan"}, fs.ErrNotExist, `command "orphan": the interpreter it asks for is missing: no such file or directory`},
		{Spec{Path: orphan}, fs.ErrNotExist, ""},
		{Spec{Path: "./orphan", Dir: dir}, fs.ErrNotExist, `command "./orphan": the interpreter it asks for is missing: no such file or directory`},
		{Spec{Path: "/bin/sh", Dir: "/no/such"}, fs.ErrNotExist, `command "/bin/sh": working directory "/no/such": no such file or directory`},
		{Spec{Path: "/bin/sh", Dir: plain}, syscall.ENOTDIR, `command "/bin/sh": working directory "` + plain + `": not a directory`},
		{Spec{Path: "/bin/sh", Env: []string{"NUL=hunter2\x00"}}, nil, `command "/bin/sh": exec: environment variable contains NUL`},
	} {
		tt.spec.Env = append(tt.spec.Env, "PATH="+dir, "TOKEN=hunter2")
		c, err := Start(tt.spec)
		if c != nil || err == nil || tt.is != nil && !errors.Is(err, tt.is) || tt.text != "" && err.Error() != tt.text {
			t.Errorf("%+v: %v", tt.spec, err)
		}
	}
}

func TestLookUp(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	for _, d := range []string{dir, other} {
		if err := os.WriteFile(filepath.Join(d, "tool"), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", other)
	for _, tt := range []struct {
		env  []string
		want string
	}{
		{nil, other + "/tool"},
		{[]string{"PATH_=/x"}, other + "/tool"},
		{[]string{"PATH=" + dir}, dir + "/tool"},
		{[]string{"PATH=/no/such:" + dir + ":" + other}, dir + "/tool"},
		{[]string{"PATH=" + dir, "PATH=" + other}, other + "/tool"},
		{[]string{"PATH="}, ""},
		{[]string{"PATH=.::./"}, ""},
		{[]string{"PATH=.:" + other}, other + "/tool"},
	} {
		got, err := Spec{Path: "tool", Env: tt.env}.LookUp()
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q: %q, %v", tt.env, got, err)
		}
	}
}

// playRecorder says what reaches it and does not end.
func playRecorder() {
	signals := make(chan os.Signal, 9)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println("end of input")
	for s := range signals {
		fmt.Println(s)
	}
}

func TestCloseEscalates(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	argv := self(t, "recorder")
	s := sh(`exec 3>"$FAMILY"; exec "$@"`, "FAMILY="+f.path)
	s.Args = append(append(s.Args, "sh"), argv...)
	s.grace = grace{stdin: time.Second, term: time.Second, kill: 5 * time.Second}
	c := start(t, s)
	awaitLine(t, c, "up")
	seen := make(chan string)
	go func() {
		all, _ := io.ReadAll(c.Stdout)
		seen <- string(all)
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != "end of input\nterminated\n" || c.Err() == nil || c.Err().Error() != "signal: killed" {
		t.Errorf("%q, then %v", got, c.Err())
	}
	f.mustBeGone(t)
}

// The real limits end the worst within what is promised.
func TestGraceIsFiveSeconds(t *testing.T) {
	g := defaultGrace
	if all := g.stdin + g.term + g.kill + drainGrace; all >= 5*time.Second {
		t.Error(all)
	}
}

// A step that was enough is the last one.
func TestCloseIsGentle(t *testing.T) {
	for _, tt := range []struct {
		script string
		grace  grace
		want   string
	}{
		{`echo up; cat; exit 5`, grace{stdin: 20 * time.Second}, "exit status 5"},
		{`trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done`, grace{stdin: time.Millisecond, term: 20 * time.Second}, "exit status 7"},
	} {
		s := sh(tt.script)
		s.grace = tt.grace
		c := start(t, s)
		awaitLine(t, c, "up")
		if err := c.Close(); err != nil || c.Err() == nil || c.Err().Error() != tt.want {
			t.Errorf("%s: %v, %v", tt.script, err, c.Err())
		}
	}
}

func TestCloseAnyTimeAndOften(t *testing.T) {
	c := start(t, sh("cat"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			select {
			case <-c.Done():
			default:
				t.Error("closed but not done")
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil || c.Err() != nil {
		t.Error(err, c.Err())
	}
	if _, err := c.Stdout.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// Neither a writer nor a reader that is stuck with a child stays so.
func TestCloseWakesReadersAndWriters(t *testing.T) {
	c := start(t, Spec{Path: "sleep", Args: []string{"60"}, grace: grace{stdin: time.Millisecond, term: 5 * time.Second, kill: 5 * time.Second}})
	ended := make(chan error, 2)
	go func() {
		_, err := c.Stdin.Write(make([]byte, 1<<20))
		ended <- err
	}()
	go func() {
		_, err := c.Stdout.Read(make([]byte, 1))
		ended <- err
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	}
}

// Row 13: a child that has closed its output lives on until it is closed.
func TestCloseWithoutOutput(t *testing.T) {
	c := start(t, sh("exec >/dev/null; cat"))
	if n, err := c.Stdout.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatal(n, err)
	}
	select {
	case <-c.Done():
		t.Error("it has ended")
	default:
	}
	if err := c.Close(); err != nil || c.Err() != nil {
		t.Error(err, c.Err())
	}
}

// Row 15: a grandchild that holds the pipes keeps nobody waiting and ends.
func TestGrandchildHoldsThePipes(t *testing.T) {
	f := newFamily(t)
	c := start(t, sh(`exec 3>"$FAMILY"; sleep 60 & echo out; exit 3`, "FAMILY="+f.path))
	out, err := io.ReadAll(c.Stdout)
	if string(out) != "out\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	awaitDone(t, c)
	if c.Err() == nil || c.Err().Error() != "exit status 3" {
		t.Error(c.Err())
	}
	f.mustBeGone(t)
}

// One that escaped altogether keeps the pipes, but nobody waiting.
func TestEscapedGrandchildHoldsThePipes(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	s := sh(leave+`echo $leaver; echo err >&2`, leaveEnv(t, f)...)
	c := start(t, s)
	out, err := io.ReadAll(c.Stdout)
	if err != nil {
		t.Error(err)
	}
	awaitDone(t, c)
	if c.Err() != nil || c.Stderr() != "err\n" {
		t.Errorf("%v, %q", c.Err(), c.Stderr())
	}
	var leaver int
	if _, err := fmt.Sscan(string(out), &leaver); err != nil {
		t.Fatalf("%q", out)
	}
	if err := syscall.Kill(leaver, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	f.mustBeGone(t)
}

// Nor does one that writes to them without end; it has nobody to write to in
// the end.
func TestEscapedGrandchildFloodsThePipes(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	c := start(t, sh(strings.ReplaceAll(leave, "leaver &", "flooding-leaver &")+"exit 3", leaveEnv(t, f)...))
	n, err := io.Copy(io.Discard, c.Stdout)
	if err != nil {
		t.Error(err)
	}
	awaitDone(t, c)
	if c.Err() == nil || c.Err().Error() != "exit status 3" {
		t.Errorf("%v after %d bytes", c.Err(), n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	f.mustBeGone(t)
}

// However fast the escaped write, the end comes.
func TestOutputEndsAfterFinish(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	o := &output{pipe: r}
	if err := o.finish(); err != nil {
		t.Fatal(err)
	}
	total, page := 0, make([]byte, 4096)
	for {
		if _, err := w.Write(page); err != nil {
			t.Fatal(err)
		}
		n, err := o.Read(make([]byte, len(page)))
		total += n
		if err == io.EOF && total == maxPipe {
			return
		}
		if err != nil || total > maxPipe {
			t.Fatalf("%v after %d bytes", err, total)
		}
	}
}

// Row 11: a flood neither blocks the child nor is kept.
func TestStderrFlood(t *testing.T) {
	t.Parallel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := start(t, sh("head -c 1000000000 /dev/zero >&2; echo the end >&2; echo out"))
	awaitLine(t, c, "out")
	awaitDone(t, c)
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if got := c.Stderr(); len(got) != ringSize || !strings.HasSuffix(got, "\x00the end\n") {
		t.Errorf("%d bytes, at the end %q", len(got), got[max(0, len(got)-20):])
	}
}

func TestLastLines(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""}, {"\n", 1, "\n"}, {"a", 1, "a"}, {"a\n", 1, "a\n"}, {"a\nb", 1, "b"}, {"a\nb\n", 1, "b\n"}, {"a\nb\n", 2, "a\nb\n"},
		{"a\nb\n", 9, "a\nb\n"}, {"a\n\n\n", 2, "\n\n"}, {"a\nb\n", 0, ""}, {"a\nb\n", -1, ""},
	} {
		if got := string(lastLines([]byte(tt.text), tt.n)); got != tt.want {
			t.Errorf("%d of %q: %q", tt.n, tt.text, got)
		}
	}
}

// A ring is the end of all that was written to it.
func TestRing(t *testing.T) {
	var r ring
	var all []byte
	for i, size := range []int{0, 1, 1000, ringSize - 1001, 1, ringSize - 1, ringSize, ringSize + 1, 3*ringSize + 7, 12345} {
		p := bytes.Repeat([]byte{byte('a' + i)}, size)
		if size > 2 {
			p[0], p[size-1] = '<', '>'
		}
		if n, err := r.Write(p); n != size || err != nil {
			t.Fatal(n, err)
		}
		all = append(all, p...)
		if want := all[max(0, len(all)-ringSize):]; !bytes.Equal(r.bytes(), want) {
			t.Fatalf("after write %d of %d bytes", i, size)
		}
	}
}
