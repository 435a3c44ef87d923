package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// The faults below are those of the fault matrix, by its numbers, as far as they
// can be seen from here with real processes. What a matter of time is, or of one
// layer, is tested there with the same numbers in mind.

// asError returns an error of the library's own.
func asError(t *testing.T, err error) *patchbay.Error {
	t.Helper()
	e, ok := errors.AsType[*patchbay.Error](err)
	if !ok {
		t.Fatalf("%v (%T) is not an error of ours", err, err)
	}
	return e
}

// Row 1: a command that cannot be started fails at once, the error names the
// command, and it is not tried again by itself.
func TestBadCommands(t *testing.T) {
	leavesNothing(t)
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := map[string]struct{ command, want, hint string }{
		"missing": {filepath.Join(dir, "missing-program"), "missing-program", "Check that the command or URL is correct."},
		"in path": {"no-such-program", "not found in PATH", "Check that the command or URL is correct."},
	}
	if runtime.GOOS != "windows" {
		tests["not executable"] = struct{ command, want, hint string }{file("plain", "#!/bin/sh\n", 0o600), "not executable", "Check that the command may be executed."}
		tests["no program"] = struct{ command, want, hint string }{file("binary", "\x00\x01\x02", 0o700), "no program for this system", ""}
		tests["interpreter"] = struct{ command, want, hint string }{file("script", "#!/no/such/interpreter\n", 0o700), "interpreter", "Check that the command or URL is correct."}
	}
	servers := map[string]config.Server{"good": scripted()}
	for name, tt := range tests {
		servers[name] = config.Server{Command: tt.command, Env: map[string]config.Secret{"TOKEN": config.NewSecret("hunter2-hunter2")}}
	}
	h := withServers(t, servers, nil)
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		st, err := h.Server(name)
		if err != nil || st.State != config.Failed || st.NextRetry != nil || !strings.Contains(st.Reason, tt.want) {
			t.Errorf("%s: %s because %q, next %v, %v", name, st.State, st.Reason, st.NextRetry, err)
		}
		e := asError(t, h.Connect(t.Context(), name))
		if e.Kind != patchbay.KindTransport || !strings.HasPrefix(e.Message, fmt.Sprintf("Failed to connect to %q: ", name)) || e.Hint != tt.hint {
			t.Errorf("%s: %#v", name, e)
		}
		if strings.Contains(e.Message+st.Reason, "hunter2") {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	if got := say(t, anyone(t, h), "good.echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("got %q", got)
	}
}

// Row 2: a child that exits before it is connected says how and why, is tried
// again by itself, and a call gets that as its error.
func TestExitBeforeInitialize(t *testing.T) {
	leavesNothing(t)
	h := withServers(t, map[string]config.Server{"dies": scripted("-start=exit")}, nil)
	await(t, h, "the server is tried again, its status and last words being known", func(snap patchbay.Snapshot) bool {
		st := snap.Servers[0]
		return st.State == config.Failed && st.Reason == "the server exited: exit status 3; it wrote: line 29" && st.NextRetry != nil
	})
	logs, err := h.Logs("dies")
	if err != nil || !strings.HasSuffix(logs, "line 28\nline 29\n") {
		t.Errorf("logs %q, %v", logs, err)
	}
	_, err = anyone(t, h).Forward(t.Context(), "dies", "tools/list", nil)
	if e := asError(t, err); e.Kind != patchbay.KindTransport || !strings.Contains(e.Message, "exit status 3") || !e.RetrySafe || e.Hint != "It is safe to try again." {
		t.Errorf("%#v", e)
	}
}

// Row 3: a server that does not come up in time fails, and the others do not
// wait for it.
func TestStartTimesOut(t *testing.T) {
	leavesNothing(t)
	slow := scripted("-start=hang")
	slow.ConnectTimeout = new(int64(50))
	h := withServers(t, map[string]config.Server{"slow": slow, "good": scripted()}, nil)
	if st := awaitState(t, h, "slow", config.Failed); st.Reason != `Connection to MCP server "slow" timed out after 50ms` {
		t.Errorf("failed because %q", st.Reason)
	}
	e := asError(t, h.Connect(t.Context(), "slow"))
	if e.Kind != patchbay.KindTimeout || !strings.Contains(e.Hint, `Try increasing the timeout: "connectTimeout" of its entry`) {
		t.Errorf("%#v", e)
	}
	awaitState(t, h, "good", config.Connected)
}

// inFlight makes a call that is answered only when it is cancelled, and returns
// when it has arrived.
func inFlight(ctx context.Context, t *testing.T, s *patchbay.Session, server string) <-chan error {
	t.Helper()
	arrived, done := make(chan struct{}), make(chan error, 1)
	arrive := sync.OnceFunc(func() { close(arrived) })
	go func() {
		_, err := s.Call(ctx, patchbay.Call{Tool: server + ".late", Progress: func(json.RawMessage) { arrive() }})
		done <- err
	}()
	select {
	case <-arrived:
	case err := <-done:
		t.Fatalf("the call ended at once: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the call never arrived")
	}
	return done
}

// Row 5: when a server dies, every call under way gets one error that says what
// happened and whether a retry is safe; the next call has a new process.
func TestCrashDuringCall(t *testing.T) {
	leavesNothing(t)
	h := withServers(t, map[string]config.Server{"srv": scripted()}, nil)
	s := anyone(t, h)
	awaitState(t, h, "srv", config.Connected)
	before := say(t, s, "srv.pid", "")
	other := inFlight(t.Context(), t, s, "srv")
	_, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.crash"})
	for _, err := range []error{err, <-other} {
		e := asError(t, err)
		if e.Kind != patchbay.KindTransport || e.Message != "srv: the connection ended during tools/call: the server exited: exit status 3" ||
			e.Hint != "The call may have been carried out; look before trying again." || e.RetrySafe {
			t.Errorf("%#v", e)
		}
		if got := patchbay.ErrorText(err); got != "MCP error: "+e.Message+". "+e.Hint {
			t.Errorf("a model is told %q", got)
		}
	}
	if after := say(t, s, "srv.pid", ""); after == before {
		t.Errorf("process %s is still there", after)
	}
	await(t, h, "srv is restarted", func(snap patchbay.Snapshot) bool { return snap.Servers[0].Restarts == 1 })
}

// A caller that gives up gets its own cancellation back, whatever the server
// does, and the server lives on.
func TestCancellationStaysOne(t *testing.T) {
	leavesNothing(t)
	h := withServers(t, map[string]config.Server{"srv": scripted()}, nil)
	s := anyone(t, h)
	awaitState(t, h, "srv", config.Connected)
	pid := say(t, s, "srv.pid", "")

	ctx, cancel := context.WithCancel(t.Context())
	done := inFlight(ctx, t, s, "srv")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	reason := errors.New("changed my mind")
	why, because := context.WithCancelCause(t.Context())
	done = inFlight(why, t, s, "srv")
	because(reason)
	if err := <-done; !errors.Is(err, reason) {
		t.Errorf("cancelled for a reason: %v", err)
	}
	if got := say(t, s, "srv.pid", ""); got != pid {
		t.Errorf("process %s became %s", pid, got)
	}
}

// Row 6: a call that is not answered in time ends as a timeout, the server is
// told, and keeps its process.
func TestCallTimesOut(t *testing.T) {
	leavesNothing(t)
	impatient := scripted()
	impatient.Timeout = new(int64(1000))
	h := withServers(t, map[string]config.Server{"srv": impatient}, nil)
	s := anyone(t, h)
	awaitState(t, h, "srv", config.Connected)
	pid := say(t, s, "srv.pid", "")
	_, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.late"})
	if e := asError(t, err); e.Kind != patchbay.KindTimeout || !strings.Contains(e.Hint, "may have been carried out") {
		t.Errorf("%#v", e)
	}
	if got := say(t, s, "srv.pid", ""); got != pid {
		t.Errorf("process %s became %s", pid, got)
	}
}

// The caller's context bounds the wait, never the life of a server.
func TestCallerDoesNotOwnTheServer(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	h := withServers(t, map[string]config.Server{"srv": scripted("-gate", lines.Arg("srv"))}, func(o *patchbay.Options) { o.Lazy = true })
	s := anyone(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Forward(ctx, "srv", "ping", nil) // which has the server started
		done <- err
	}()
	line := lines.Next("srv")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	late, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	_, err := s.Forward(late, "srv", "ping", nil)
	if e := asError(t, err); e.Kind != patchbay.KindTimeout || !e.RetrySafe || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%#v", e)
	}
	if err := h.Connect(late, "srv"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	line.Release()
	awaitState(t, h, "srv", config.Connected)
	if got := say(t, s, "srv.pid", ""); got != fmt.Sprint(line.PID) {
		t.Errorf("process %s, want %d", got, line.PID)
	}
}

// Row 11: a child that never stops writing to its standard error is not blocked
// by that, and what is kept is bounded.
func TestStderrFlood(t *testing.T) {
	leavesNothing(t)
	h := withServers(t, map[string]config.Server{"srv": scripted("-stderr")}, nil)
	s := anyone(t, h)
	awaitState(t, h, "srv", config.Connected)
	for {
		if got := say(t, s, "srv.echo", `{"text":"hi"}`); got != "hi" {
			t.Fatalf("got %q", got)
		}
		logs, err := h.Logs("srv")
		if err != nil || len(logs) > 1<<20 {
			t.Fatalf("%d bytes, %v", len(logs), err)
		}
		if len(logs) > 1<<20-2000 { // a line is half of that
			return
		}
	}
}

// Row 15: what a server has started and left behind ends with the connection,
// although it holds the server's output.
func TestGrandchild(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	h := withServers(t, map[string]config.Server{"srv": scripted(lines.Arg("srv"))}, nil)
	s := anyone(t, h)
	awaitState(t, h, "srv", config.Connected)
	say(t, s, "srv.fork", `{"text":"first"}`)
	first := lines.Next("first")
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.crash"}); kindOf(err) != patchbay.KindTransport {
		t.Errorf("got %v", err)
	}
	first.WaitGone(t)
	say(t, s, "srv.fork", `{"text":"second"}`) // of the next process
	second := lines.Next("second")
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	second.WaitGone(t)
}

// Row 18: however often a server says that its tools have changed, they are
// listed again once at first and then at a measured pace.
func TestListChangedStorm(t *testing.T) {
	leavesNothing(t)
	description := filepath.Join(t.TempDir(), "description")
	var told atomic.Int32
	h := withServers(t, map[string]config.Server{"srv": scripted("-describe=" + description)}, nil)
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{Changed: func(patchbay.Lists) { told.Add(1) }}})
	awaitState(t, h, "srv", config.Connected)
	if err := os.WriteFile(description, []byte("new words"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := told.Load()
	say(t, s, "srv.changed", `{"count":10000}`)
	await(t, h, "the tools are those of now", func(patchbay.Snapshot) bool {
		for _, tool := range s.Tools() {
			if tool.Tool == "echo" {
				return tool.ForModel().Description == "new words"
			}
		}
		return false
	})
	// The pace leaves room for a handful of lists in the time that takes; the
	// notifications would make ten thousand.
	var lists int
	if _, err := fmt.Sscan(say(t, s, "srv.lists", ""), &lists); err != nil || lists < 2 || lists > 100 {
		t.Errorf("listed %d times, %v", lists, err)
	}
	if n := told.Load() - before; n > 100 {
		t.Errorf("the session was told of %d changes", n)
	}
}

// Row 19: lists that do not end, repeat themselves or are too large are cut, and
// the server says so of itself.
func TestEndlessLists(t *testing.T) {
	leavesNothing(t)
	tests := map[string]struct {
		tools int
		note  string
	}{
		"many":    {512, "more than 512 tools"},
		"endless": {64, "more than 64 pages of tools"},
		"loop":    {1, "the list of tools repeats itself"},
		"huge":    {1, "its definition is over 256 KiB"},
		"none":    {0, "no list today"},
	}
	servers := map[string]config.Server{}
	for name := range tests {
		servers[name] = scripted("-tools=" + name)
	}
	h := withServers(t, servers, nil)
	s := anyone(t, h)
	for name, tt := range tests {
		st := awaitState(t, h, name, config.Connected)
		if said := fmt.Sprint(st.Problems); st.Reason == "" || !strings.Contains(said, tt.note) {
			t.Errorf("%s: connected, %q, %s", name, st.Reason, said)
		}
		if n := listed(s)[name]; n != tt.tools {
			t.Errorf("%s: %d tools, want %d", name, n, tt.tools)
		}
	}
}

// Row 23: a server that is too busy to be connected is tried again when it says;
// a read is made twice, a call once.
func TestBusyHTTPServer(t *testing.T) {
	leavesNothing(t)
	var initializes, reads, calls atomic.Int32
	down := atomic.Bool{}
	inner := rpcServer(func(method string) string {
		switch method {
		case "initialize":
			return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"web","version":"1"}}`
		case "tools/list":
			return `{"tools":[{"name":"act","inputSchema":{"type":"object"}}]}`
		case "resources/list":
			return `{"resources":[]}`
		case "resources/templates/list":
			return `{"resourceTemplates":[]}`
		}
		return `{"contents":[{"uri":"x:y","text":"fine"}]}`
	})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch method := peekMethod(r); {
		case method == "initialize" && initializes.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case method == "resources/read" && down.Load() && reads.Add(1) == 1:
			w.WriteHeader(http.StatusBadGateway)
		case method == "tools/call" && down.Load():
			calls.Add(1)
			w.WriteHeader(http.StatusBadGateway)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(web.Close)
	h := withServers(t, map[string]config.Server{"web": {Type: config.HTTP, URL: web.URL}}, nil)
	s := anyone(t, h)
	awaitState(t, h, "web", config.Connected)
	if n := initializes.Load(); n != 2 {
		t.Errorf("initialized %d times, want 2", n)
	}
	down.Store(true)
	contents, err := s.ReadResource(t.Context(), "web", "x:y")
	if err != nil || len(contents) != 1 || contents[0].Text != "fine" || reads.Load() != 2 {
		t.Errorf("%v, %v after %d reads", contents, err, reads.Load())
	}
	_, err = s.Call(t.Context(), patchbay.Call{Tool: "web.act"})
	if e := asError(t, err); e.Kind != patchbay.KindServer || calls.Load() != 1 || !strings.Contains(e.Hint, "may have been carried out") {
		t.Errorf("%#v after %d calls", e, calls.Load())
	}
}

// Row 29: what is wrong with the network is told in its own words.
func TestNetworkErrors(t *testing.T) {
	leavesNothing(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // nobody is there now
	h := withServers(t, map[string]config.Server{"web": {Type: config.HTTP, URL: "http://" + listener.Addr().String() + "/mcp"}}, nil)
	_, err = anyone(t, h).Forward(t.Context(), "web", "ping", nil)
	for _, err := range []error{h.Connect(t.Context(), "web"), err} {
		e := asError(t, err)
		if e.Kind != patchbay.KindTransport || !strings.HasPrefix(e.Message, `Failed to connect to "web": `) || !strings.Contains(e.Message, "refused") ||
			e.Hint != "Check that the server is running and that its address is right." || !e.RetrySafe {
			t.Errorf("%#v", e)
		}
	}
}
