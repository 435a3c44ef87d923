//go:build acceptance

package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

func TestMain(m *testing.M) {
	mcptest.Main()
	os.Exit(withProgram(m.Run))
}

// program is the Patchbay that is tested.
var program string

func withProgram(run func() int) int {
	dir, err := os.MkdirTemp("", "patchbay")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "patchbay")
	if out, err := exec.Command("go", "build", "-o", program, "../../../cmd/patchbay").CombinedOutput(); err != nil {
		log.Printf("%v\n%s", err, out)
		return 1
	}
	return run()
}

// patience is how long something may take that takes a few seconds.
const patience = time.Minute

// world is a person's computer: a home with a Patchbay that knows a few servers,
// a project, and a gateway that is running.
type world struct {
	home, project string
	patchbay      string // the program
	url, token    string // of the gateway
	environ       []string
}

// newWorld returns one with some servers.
func newWorld(t *testing.T, add func(w *world, t *testing.T)) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{home: filepath.Join(dir, "home"), project: filepath.Join(dir, "home", "project"), patchbay: filepath.Join(dir, "bin", "patchbay")}
	run := filepath.Join(dir, "run") // as a login gives it to a person, and many clients do not pass it on
	for _, dir := range []string{w.project, filepath.Join(w.home, ".codex"), filepath.Dir(w.patchbay), run} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(program, w.patchbay); err != nil {
		t.Fatal(err)
	}
	w.write(t, "note.txt", "remember the milk\n")
	w.environ = append(os.Environ(),
		"HOME="+w.home, "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "XDG_CACHE_HOME=", "XDG_RUNTIME_DIR="+run,
		"PATH="+filepath.Dir(w.patchbay)+string(os.PathListSeparator)+os.Getenv("PATH"),
		// Nobody else is to be asked for anything.
		"NO_COLOR=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"CODEX_HOME="+filepath.Join(w.home, ".codex"))
	t.Cleanup(func() { w.nothingLeft(t) })
	add(w, t)
	w.serve(t)
	w.token = strings.TrimSpace(w.run(t, w.patchbay, "token"))
	w.environ = append(w.environ, "PATCHBAY_TOKEN="+w.token)
	return w
}

// add makes a server known to Patchbay.
func (w *world) add(t *testing.T, name string, args ...string) {
	t.Helper()
	w.run(t, w.patchbay, append([]string{"add", "-s", "user", name}, args...)...)
}

// addServers has servers of the MCP project, which are of the older era, and one
// of the newer.
func (w *world) addServers(t *testing.T) {
	t.Helper()
	add := func(name string, args ...string) { t.Helper(); w.add(t, name, args...) }
	script := func(name string) string {
		return filepath.Join(modules(t, "SERVERS"), "@modelcontextprotocol", "server-"+name, "dist", "index.js")
	}
	add("everything", "--", "node", script("everything"), "stdio")
	add("files", "--", "node", script("filesystem"), w.project)
	add("memory", "-e", "MEMORY_FILE_PATH="+filepath.Join(w.home, "memory.json"), "--", "node", script("memory"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	arguments, env := mcptest.Launch()
	var scripted []string
	for name, value := range env {
		scripted = append(scripted, "-e", name+"="+value)
	}
	add("modern", append(append(scripted, "--", self), arguments...)...)
}

// modules is where npm packages are.
func modules(t *testing.T, which string) string {
	t.Helper()
	dir := os.Getenv("ACCEPTANCE_" + which)
	if dir == "" {
		t.Fatalf("ACCEPTANCE_%s does not say where the npm packages are: use run", which)
	}
	return dir
}

// serve starts the gateway, as a person does in a terminal.
func (w *world) serve(t *testing.T) {
	t.Helper()
	var diagnostics bytes.Buffer
	cmd := w.command(context.Background(), w.patchbay, "serve", "--http", "127.0.0.1:0")
	cmd.Stderr = &diagnostics
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	read := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("patchbay serve: %v", err)
		}
		// With all that happened, there was nothing to complain of. That a server has
		// more tools for clients that can be asked is told once.
		for line := range strings.Lines(diagnostics.String()) {
			if !strings.Contains(line, `msg="new tools"`) || !strings.Contains(line, `everything tools=`) {
				t.Errorf("patchbay serve says: %s", line)
			}
		}
	})
	if lines.Scan() {
		w.url, _, _ = strings.Cut(strings.TrimPrefix(lines.Text(), "Serving "), " ")
	}
	go func() {
		defer close(read)
		for lines.Scan() { // it must not have to wait for us
		}
	}()
	if !strings.HasPrefix(w.url, "http://127.0.0.1:") {
		t.Fatalf("patchbay serve does not say where: %q\n%s", lines.Text(), diagnostics.String())
	}
}

func (w *world) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = w.project, w.environ
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs a program and returns what it prints.
func (w *world) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := w.command(ctx, program, args...)
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", w.shown(program, args), err, out.String(), diagnostics.String())
	}
	return out.String()
}

// shown is a command line without the token.
func (w *world) shown(program string, args []string) string {
	line := filepath.Base(program) + " " + strings.Join(args, " ")
	if w.token != "" {
		line = strings.ReplaceAll(line, w.token, "TOKEN")
	}
	return line
}

// client returns the script of a client's package.
func client(t *testing.T, path ...string) string {
	t.Helper()
	return filepath.Join(append([]string{modules(t, "CLIENTS")}, path...)...)
}

func (w *world) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(w.project, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// nothingLeft fails the test if a process of this world lives on.
func (w *world) nothingLeft(t *testing.T) {
	_ = w.command(context.Background(), w.patchbay, "daemon", "stop").Run() // there may be none
	if runtime.GOOS != "linux" {
		return // nowhere else is it easily told
	}
	end := time.Now().Add(time.Minute)
	for left := w.processes(); len(left) > 0; left = w.processes() {
		if time.Now().After(end) {
			t.Errorf("still running: %v", left)
			return
		}
		time.Sleep(50 * time.Millisecond) // the end of somebody else's child is no event for us
	}
}

// processes are those whose home is ours, which even a filtered environment says,
// and those of our program, which lets nobody see its environment.
func (w *world) processes() []string {
	var all []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(filepath.Join(dir, "environ")) // many are not ours to read
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if bytes.Contains(environ, []byte("HOME="+w.home+"\x00")) || bytes.HasPrefix(line, []byte(w.patchbay+"\x00")) {
			all = append(all, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return all
}

// has fails the test unless a text contains all that is wanted.
func has(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s:\n%.3000s\nwant %q in it", what, text, w)
		}
	}
}
