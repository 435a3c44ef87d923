//go:build unix

package secret

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newResolver returns a resolver with a few variables.
func newResolver(t *testing.T, env ...string) *Resolver {
	t.Helper()
	vars := map[string]string{"NAMED": "from-env", "EMPTY": "", "lower": "from-lower", "TRICK": "!echo pwned", "POINTER": "NAMED"}
	r := New(Options{
		Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		Dir:    t.TempDir(), Env: append(env, "PATH="+os.Getenv("PATH")),
	})
	t.Cleanup(r.Close)
	return r
}

func TestResolve(t *testing.T) {
	r := newResolver(t, "GIVEN=given")
	for _, tt := range []struct{ in, want, fails string }{
		{in: "literal", want: "literal"},
		{in: "NAMED", want: "from-env"},
		{in: "lower", want: "from-lower"},
		{in: "EMPTY", want: "EMPTY"},
		{in: "UNSET_NAME", want: "UNSET_NAME"},
		{in: "", want: ""},
		{in: "!echo '  out  '", want: "out"},
		{in: "!echo $GIVEN | tr a-z A-Z", want: "GIVEN"},
		{in: "!basename \"$PWD\"", want: filepath.Base(r.opts.Dir)},
		{in: "!exit 3", fails: "its command failed: exit status 3"},
		{in: "!echo hunter2 >&2; exit 1", fails: "its command failed: exit status 1 (and 8 bytes on stderr)"},
		{in: "!true", fails: "its command failed: it printed nothing"},
		{in: "!", fails: "its command failed: it printed nothing"},
		{in: "!yes", fails: "its command failed: printed too much"},
	} {
		got, err := r.Resolve(t.Context(), config.NewSecret(tt.in), true)
		if got.Reveal() != tt.want || fmt.Sprint(err) != map[bool]string{true: "<nil>", false: tt.fails}[tt.fails == ""] {
			t.Errorf("%q: %q, %v", tt.in, got.Reveal(), err)
		}
	}
}

func TestResolveNotAllowed(t *testing.T) {
	r := newResolver(t)
	canary := filepath.Join(t.TempDir(), "canary")
	if got, err := r.Resolve(t.Context(), config.NewSecret("!echo x >"+canary), false); err == nil || !got.IsZero() {
		t.Errorf("%q, %v", got.Reveal(), err)
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("the command ran")
	}
}

// Many callers share one run, and the next ones its result.
func TestResolveRunsOnce(t *testing.T) {
	r := newResolver(t)
	runs := filepath.Join(t.TempDir(), "runs")
	value := config.NewSecret("!echo run >>" + runs + "; echo out")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, err := r.Resolve(t.Context(), value, true); err != nil || got.Reveal() != "out" {
				t.Errorf("%q, %v", got.Reveal(), err)
			}
		})
	}
	wg.Wait()
	if data, _ := os.ReadFile(runs); string(data) != "run\n" {
		t.Errorf("runs: %q", data)
	}
}

// A caller that gives up does not take the run away from the others.
func TestResolveImpatientCaller(t *testing.T) {
	r := newResolver(t)
	fifo := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	value := config.NewSecret("!cat " + fifo)
	ctx, cancel := context.WithCancel(t.Context())
	impatient, patient := make(chan error, 1), make(chan string, 1)
	go func() {
		_, err := r.Resolve(ctx, value, true)
		impatient <- err
	}()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the command runs
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		got, err := r.Resolve(t.Context(), value, true)
		patient <- fmt.Sprint(got.Reveal(), err)
	}()
	cancel()
	if err := <-impatient; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	fmt.Fprintln(w, "out")
	w.Close()
	if got := <-patient; got != "out<nil>" {
		t.Error(got)
	}
}

func TestCloseEndsCommands(t *testing.T) {
	r := newResolver(t)
	fifo := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := r.Resolve(t.Context(), config.NewSecret("!cat "+fifo), true)
		failed <- err
	}()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := r.Resolve(t.Context(), config.NewSecret("!echo x"), true); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	r.Close()
}

// A failure is remembered for a while, a success for good.
func TestResolveRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		var runs atomic.Int32
		r.run = func(context.Context, string) ([]byte, error) {
			if runs.Add(1) < 3 {
				return nil, errors.New("no")
			}
			return []byte("out"), nil
		}
		resolve := func(wantRuns int32, ok bool) {
			t.Helper()
			if _, err := r.Resolve(t.Context(), config.NewSecret("!x"), true); (err == nil) != ok || runs.Load() != wantRuns {
				t.Errorf("%v after %d runs, want %d", err, runs.Load(), wantRuns)
			}
		}
		resolve(1, false)
		time.Sleep(retryAfter - time.Nanosecond)
		resolve(1, false)
		time.Sleep(time.Nanosecond)
		resolve(2, false)
		time.Sleep(retryAfter)
		resolve(3, true)
		time.Sleep(1000 * time.Hour)
		resolve(3, true)
	})
}

func TestCheckOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o644: true, 0o400: true, 0o660: ownGroup(os.Getgid()), 0o602: false, 0o666: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckOwner(info); (err == nil) != ok {
			t.Errorf("%04o: %v", mode, err)
		}
		other := *info.Sys().(*syscall.Stat_t)
		other.Uid++
		if err := CheckOwner(owned{info, &other}); err == nil {
			t.Errorf("%04o: another user's file", mode)
		}
	}
}

// owned is a file of somebody else.
type owned struct {
	os.FileInfo
	st *syscall.Stat_t
}

func (o owned) Sys() any { return o.st }

func TestRunHeadersHelper(t *testing.T) {
	r := newResolver(t)
	s := config.Server{
		URL:           "https://h.test/mcp",
		Headers:       map[string]config.Secret{"authorization": config.NewSecret("old"), "X-Kept": config.NewSecret("kept")},
		HeadersHelper: `printf '{"Authorization":"%s at %s"}' "$CLAUDE_CODE_MCP_SERVER_NAME" "$CLAUDE_CODE_MCP_SERVER_URL"`,
	}
	got, err := r.RunHeadersHelper(t.Context(), "docs", s)
	if err != nil || len(got.Headers) != 2 || got.Headers["Authorization"].Reveal() != "docs at https://h.test/mcp" || got.Headers["X-Kept"].Reveal() != "kept" {
		t.Errorf("%d headers, %v", len(got.Headers), err)
	}
	if s.Headers["authorization"].Reveal() != "old" {
		t.Error("the server given was changed")
	}
	for _, helper := range []string{"echo hunter2", "echo '[]'", "echo null", `echo '{"A":1}'`, `printf '{"A":"hunter2\\n"}'`, `echo '{"hunter2 x":"y"}'`, "echo hunter2; exit 1", "true"} {
		s.HeadersHelper = helper
		if _, err := r.RunHeadersHelper(t.Context(), "docs", s); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", helper, err)
		}
	}
	s.HeadersHelper = ""
	if _, err := r.RunHeadersHelper(t.Context(), "docs", s); err != nil {
		t.Error(err)
	}
}
