package patchbay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// Applying what is in force already changes nothing; applying something else
// restarts what is different and nothing more.
func TestApplyKeepsConnections(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.Lazy = false
	h := c.open()
	s := anyone(t, h)
	apply := func(servers map[string]config.Server) {
		t.Helper()
		if err := h.Apply(t.Context(), servers); err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	apply(map[string]config.Server{"a": scripted(), "b": scripted()})
	a, b := say(t, s, "a.pid", ""), say(t, s, "b.pid", "")

	apply(map[string]config.Server{"a": scripted(), "b": scripted()})
	if say(t, s, "a.pid", "") != a || say(t, s, "b.pid", "") != b {
		t.Error("applying the same restarted a server")
	}
	for _, st := range h.Servers() {
		if st.State != config.Connected || st.Restarts != 0 {
			t.Errorf("%s is %s after %d restarts", st.Name, st.State, st.Restarts)
		}
	}
	apply(map[string]config.Server{"a": scripted("-banner=1"), "c": scripted()})
	if say(t, s, "a.pid", "") == a {
		t.Error("a server with other arguments kept its process")
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "b.pid"}); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("a server that is not there any more: %v", err)
	}
}

// A server of the program that is invalid has failed, and the others are there.
func TestInvalidServersOfTheProgram(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.Lazy = false
	c.opts.InProcess = map[string]patchbay.LocalServer{"": patchbay.FromSDK(mcp.NewServer(&mcp.Implementation{Name: "nameless"}, nil))}
	h := c.open()
	if err := h.Apply(t.Context(), map[string]config.Server{"good": scripted(), "bad": {}, "b b": scripted()}); err != nil {
		t.Fatal(err)
	}
	s := anyone(t, h)
	if got := say(t, s, "good.echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("the good one says %q", got)
	}
	got := map[string]string{}
	for _, st := range h.Servers() {
		if st.State == config.Failed {
			got[st.Name] = st.Reason
		}
	}
	want := map[string]string{
		"_":   "Server name cannot be empty",
		"bad": `Server "bad": stdio server requires "command" field`,
		"b_b": "Server name can only contain letters, numbers, dash, underscore, and dot",
	}
	for _, st := range h.Servers() {
		if st.State == config.Failed && st.Kind != patchbay.KindConfigInvalid {
			t.Errorf("%s: kind %q", st.Name, st.Kind)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("failed are %q\nwant %q", got, want)
	}
	if e := asError(t, h.Connect(t.Context(), "bad")); e.Kind != patchbay.KindConfigInvalid || len(e.Problems) != 1 {
		t.Errorf("%#v", e)
	}

	c.opts.FailOnInvalid = true
	_, err := patchbay.Open(t.Context(), c.opts)
	if e := asError(t, err); e.Kind != patchbay.KindConfigInvalid || len(e.Problems) != 1 {
		t.Errorf("%#v", e)
	}
}

// Row 35: a configuration that breaks while the host runs is reported with its
// place, and what it said when it was good goes on.
func TestReloadOfABrokenFile(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.Lazy = false
	file := c.declare(map[string]config.Server{"mine": scripted(), "off": scripted()})
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(good), "{", `{"disabledServers": ["off"],`, 1)
	c.write(file, text)
	c.write(filepath.Join(c.home, ".cursor", "mcp.json"), fmt.Sprintf(`{"mcpServers": {"theirs": %s}}`, config.EncodeServer(scripted())))
	h := c.open()
	s := anyone(t, h)
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	mine, theirs := say(t, s, "mine.pid", ""), say(t, s, "theirs.pid", "")

	for name, change := range map[string]func(){
		"half saved": func() { c.write(file, text[:len(text)/2]) },
		"no object":  func() { c.write(file, "[]") },
		"a directory": func() {
			if err := os.Mkdir(file, 0o755); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		change()
		if err := h.Reload(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		snap := h.Snapshot()
		if !slices.ContainsFunc(snap.Problems, func(p config.Problem) bool { return p.File == file && p.Severity != config.SeverityNote }) {
			t.Errorf("%s: the problem is not reported: %v", name, snap.Problems)
		}
		if say(t, s, "mine.pid", "") != mine || say(t, s, "theirs.pid", "") != theirs {
			t.Errorf("%s: a server was restarted", name)
		}
		if st, err := h.Server("off"); err != nil || st.State != config.Disabled {
			t.Errorf("%s: what was disabled is %s, %v", name, st.State, err)
		}
	}
	// A file that is gone is gone on purpose.
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Server("mine"); kindOf(err) != patchbay.KindNotFound {
		t.Errorf("got %v", err)
	}
	if say(t, s, "theirs.pid", "") != theirs {
		t.Error("the other file's server was restarted")
	}
}

// Closing a host ends its servers and all that waits for them.
func TestClose(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	h := withServers(t, map[string]config.Server{"up": scripted(lines.Arg("up")), "hangs": scripted("-start=hang", lines.Arg("hangs"))}, func(o *patchbay.Options) {
		o.Guard = self(t, "guard")
	})
	s := anyone(t, h)
	awaitState(t, h, "up", config.Connected)
	up, hangs := lines.Next("up"), lines.Next("hangs")
	calls := []<-chan error{inFlight(t.Context(), t, s, "up")}
	waits := make(chan error, 1)
	go func() {
		_, err := s.Forward(t.Context(), "hangs", "ping", nil)
		waits <- err
	}()
	calls = append(calls, waits)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for range h.Watch(t.Context()) {
		}
	}()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for _, line := range []*mcptest.Lifeline{up, hangs} {
		line.WaitGone(t)
	}
	for i, call := range calls {
		if err := <-call; err == nil {
			t.Errorf("call %d was answered", i)
		}
	}
	<-watched
	if err := h.Close(); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "up.echo"}); err == nil {
		t.Error("a closed host makes calls")
	}
	if err := h.Reload(t.Context()); err != nil {
		t.Errorf("reload: %v", err)
	}
	h.Servers()
}

// A server's status has its tools, with what it explicitly says of them and
// nothing else.
func TestStatusHasTools(t *testing.T) {
	web := httptest.NewServer(rpcServer(func(method string) string {
		if method == "initialize" {
			return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"}}`
		}
		return `{"tools":[
			{"name":"look","description":"Looks around.","annotations":{"title":"Look","readOnlyHint":true,"idempotentHint":true,"destructiveHint":"yes"}},
			{"name":"act","description":"` + strings.Repeat("é", 1000) + `","annotations":{"destructiveHint":false,"openWorldHint":true}},
			{"name":"plain"}]}`
	}))
	t.Cleanup(web.Close)
	h := withServers(t, map[string]config.Server{"web": {Type: config.HTTP, URL: web.URL}}, nil)
	st := awaitState(t, h, "web", config.Connected)
	tools := slices.Clone(st.Tools)
	if len(tools) != 3 || len(tools[1].Description) > 1<<10 {
		t.Fatalf("%+v", tools)
	}
	tools[1].Description = "…"
	if got, _ := json.Marshal(tools); string(got) != `[{"name":"look","description":"Looks around.","annotations":{"readOnly":true}},`+
		`{"name":"act","description":"…","annotations":{"destructive":false,"openWorld":true}},{"name":"plain"}]` {
		t.Errorf("got %s", got)
	}
}

// Servers run without a guard if there is none to be had, and that is said.
func TestWithoutAGuard(t *testing.T) {
	var log bytes.Buffer
	h := withServers(t, map[string]config.Server{"up": scripted()}, func(o *patchbay.Options) {
		o.Guard, o.Logger = []string{filepath.Join(t.TempDir(), "gone")}, slog.New(slog.NewTextHandler(&log, nil))
	})
	awaitState(t, h, "up", config.Connected)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "servers are not guarded") {
		t.Errorf("the log has %s", log.String())
	}
}

// What is wrong with a value is told with its place, also if it shows only when
// the server is started.
func TestPlaceOfAWarning(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	s := scripted()
	s.Env = maps.Clone(s.Env)
	s.Env["A"] = config.NewSecret("!exit 3")
	file := c.declare(map[string]config.Server{"srv": s})
	h := c.open()
	if err := h.Connect(t.Context(), "srv"); err != nil {
		t.Fatal(err)
	}
	st, err := h.Server("srv")
	if err != nil || len(st.Problems) != 1 {
		t.Fatalf("%v, %v", st.Problems, err)
	}
	if p := st.Problems[0]; p.File != file || p.Line != st.Origin.Line || p.Pointer != "/mcpServers/srv/env/A" {
		t.Errorf("%+v", p)
	}
}

// A call that Close ends, or that comes later, says so, and not that its server is
// not configured.
func TestTextsAfterClose(t *testing.T) {
	leavesNothing(t)
	began := make(chan struct{})
	server := mcp.NewServer(&mcp.Implementation{Name: "srv"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "hold"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		close(began)
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"srv": patchbay.FromSDK(server)}
	h := c.open()
	s := anyone(t, h)
	held := make(chan error, 1)
	go func() {
		_, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.hold"})
		held <- err
	}()
	<-began
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	_, later := s.Call(t.Context(), patchbay.Call{Tool: "srv.hold"})
	for what, err := range map[string]error{"under way": <-held, "later": later, "connect": h.Connect(t.Context(), "srv")} {
		if e := asError(t, err); !strings.Contains(e.Message, "host is closed") {
			t.Errorf("%s: %s", what, e.Message)
		}
	}
}
