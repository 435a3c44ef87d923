package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newHost(t *testing.T) *patchbay.Host {
	t.Helper()
	home := t.TempDir()
	project := filepath.Join(home, "project")
	if err := os.MkdirAll(filepath.Join(project, ".cursor"), 0o755); err != nil {
		t.Fatal(err)
	}
	entry := `{"mcpServers": {"tool": {"command": "acme", "env": {"KEY": "FAKE-1"}}}}`
	if err := os.WriteFile(filepath.Join(project, ".cursor", "mcp.json"), []byte(entry), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := patchbay.Open(t.Context(), patchbay.Options{
		Dir: project, Home: home, Environ: []string{}, SystemRoot: filepath.Join(home, "system"),
		Lazy: true, InProcess: map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(notes())},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// notes is a server with one of each kind.
func notes() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "ping"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "pong"}}}, nil, nil
	})
	s.AddResource(&mcp.Resource{URI: "note://1", Name: "first"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "one"}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	return s
}

// TestEveryMethod calls each method of the client through the handler, and
// demands that there is no method it forgot.
func TestEveryMethod(t *testing.T) {
	c := control.InProcess(newHost(t))
	ctx := t.Context()
	called := map[string]bool{}
	step := func(method string, err error) {
		t.Helper()
		called[method] = true
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	state := func(want config.State) {
		t.Helper()
		s, err := c.Server(ctx, "tool", false)
		step("Server", err)
		if s.State != want {
			t.Errorf("tool is %s, want %s", s.State, want)
		}
	}
	snap, err := c.Snapshot(ctx, true)
	step("Snapshot", err)
	if len(snap.Servers) != 2 || snap.Servers[1].Name != "tool" || !json.Valid(snap.Servers[1].Config) {
		t.Fatalf("servers: %+v", snap.Servers)
	}
	state(config.NeedsApproval)
	a, err := c.Approval(ctx, "tool")
	step("Approval", err)
	ch, err := c.Approve(ctx, "tool", a.Hash)
	step("Approve", err)
	if ch.Action != "approved" || filepath.Base(ch.File) != "approvals.json" {
		t.Errorf("Approve: %+v", ch)
	}
	state(config.Pending)
	_, err = c.Reject(ctx, "tool", a.Hash)
	step("Reject", err)
	state(config.Disabled)
	forgotten, err := c.ResetProjectChoices(ctx)
	step("ResetProjectChoices", err)
	if forgotten.Forgotten != 1 {
		t.Errorf("forgot %d choices, want 1", forgotten.Forgotten)
	}
	state(config.NeedsApproval)

	ch, err = c.Add(ctx, patchbay.AddRequest{Name: "mine", Scope: config.ScopeUser, Server: json.RawMessage(`{"command":"x"}`)})
	step("Add", err)
	if ch.Action != "added" {
		t.Errorf("Add: %+v", ch)
	}
	ch, err = c.SetShared(ctx, "mine", true)
	step("SetShared", err)
	if ch.Action != "shared" {
		t.Errorf("SetShared: %+v", ch)
	}
	if _, err = c.GiveInputs(ctx, "mine", map[string]string{"key": "value"}); err == nil || !strings.Contains(err.Error(), "asks for no input") {
		t.Errorf("GiveInputs: %v", err)
	}
	step("GiveInputs", nil)
	ch, err = c.SetEnabled(ctx, "mine", false)
	step("SetEnabled", err)
	if ch.Action != "disabled" {
		t.Errorf("SetEnabled: %+v", ch)
	}
	ch, err = c.Rename(ctx, patchbay.RenameRequest{RemoveRequest: patchbay.RemoveRequest{Name: "mine"}, NewName: "own"})
	step("Rename", err)
	if ch.Action != "renamed" || ch.Name != "own" {
		t.Errorf("Rename: %+v", ch)
	}
	ch, err = c.Remove(ctx, patchbay.RemoveRequest{Name: "own"})
	step("Remove", err)
	if ch.Action != "removed" {
		t.Errorf("Remove: %+v", ch)
	}
	changes, err := c.Import(ctx, patchbay.ImportRequest{Provider: "cursor", DryRun: true})
	step("Import", err)
	if len(changes) != 1 {
		t.Errorf("Import: %+v", changes)
	}
	entry := patchbay.InstallRequest{Product: "kiro", Command: []string{"patchbay", "serve"}}
	done, err := c.Install(ctx, entry)
	step("Install", err)
	if done.Action != "installed" {
		t.Errorf("Install: %+v", done)
	}
	done, err = c.Uninstall(ctx, entry)
	step("Uninstall", err)
	if done.Action != "removed" || !done.Deleted {
		t.Errorf("Uninstall: %+v", done)
	}
	adoption, err := c.Adopt(ctx, patchbay.AdoptRequest{Product: "cursor", Command: entry.Command, DryRun: true})
	step("Adopt", err)
	if len(adoption.Servers) != 1 {
		t.Errorf("Adopt: %+v", adoption)
	}
	adoption, err = c.Release(ctx, patchbay.AdoptRequest{Product: "cursor"})
	step("Release", err)
	if len(adoption.Servers) != 0 {
		t.Errorf("Release: %+v", adoption)
	}
	before, _ := c.Snapshot(ctx, false)
	other := filepath.Join(before.Project, ".mcp.json")
	if err := os.WriteFile(other, []byte(`{"mcpServers": {}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	step("Reload", c.Reload(ctx))
	if after, _ := c.Snapshot(ctx, false); after.Seq <= before.Seq {
		t.Errorf("Reload: seq %d after %d", after.Seq, before.Seq)
	}

	step("Wait", c.Wait(ctx))
	step("Connect", c.Connect(ctx, "notes"))
	step("Reconnect", c.Reconnect(ctx, "notes"))
	_, err = c.Logs(ctx, "notes")
	step("Logs", err)
	tools, err := c.Tools(ctx)
	step("Tools", err)
	if len(tools) != 3 { // its own, and two for resources
		t.Errorf("Tools: %+v", tools)
	}
	if s, err := c.Server(ctx, "notes", false); err != nil || len(s.Tools) != 1 || s.Tools[0].Name != "ping" {
		t.Errorf("Server: %+v, %v", s.Tools, err)
	}
	r, err := c.Call(ctx, patchbay.Call{Tool: "notes.ping"}, control.CallOptions{Model: true})
	step("Call", err)
	if r.Model.Text != "pong" {
		t.Errorf("Call: %+v", r)
	}
	e, err := c.Why(ctx, "notes.ping")
	step("Why", err)
	if e.Decision.Effect != patchbay.Allow {
		t.Errorf("Why: %+v", e)
	}
	res, err := c.Resources(ctx, "notes")
	step("Resources", err)
	content, err := c.ReadResource(ctx, "notes", "note://1")
	step("ReadResource", err)
	if len(res) != 1 || len(content) != 1 || content[0].Text != "one" {
		t.Errorf("Resources: %+v, %+v", res, content)
	}
	prompts, err := c.Prompts(ctx, "notes")
	step("Prompts", err)
	if len(prompts) != 1 {
		t.Errorf("Prompts: %+v", prompts)
	}
	_, err = c.Prompt(ctx, "notes", "greet", nil)
	step("Prompt", err)
	changed, err := c.ToolChanges(ctx, "notes")
	step("ToolChanges", err)
	if len(changed) != 0 {
		t.Errorf("ToolChanges: %+v", changed)
	}
	ch, err = c.AcceptTools(ctx, "notes", changed)
	step("AcceptTools", err)
	if ch.Action != "accepted" || filepath.Base(ch.File) != "pins.json" {
		t.Errorf("AcceptTools: %+v", ch)
	}

	token, err := c.Token(ctx, false)
	step("Token", err)
	if again, _ := c.Token(ctx, false); token.IsZero() || again.Reveal() != token.Reveal() {
		t.Error("Token: not the same twice")
	}
	for snap, err := range c.Watch(ctx) {
		step("Watch", err)
		if len(snap.Servers) != 2 {
			t.Errorf("Watch: %+v", snap)
		}
		break
	}
	if _, ok := c.Daemon(); ok {
		t.Error("there is a daemon")
	}
	if _, err := c.Attach(ctx, ""); err == nil {
		t.Error("attached to nothing")
	}
	c.Close()
	for _, method := range []string{"Daemon", "Attach", "Close", "Status", "Stop", "Listen"} { // see the tests of daemons
		called[method] = true
	}

	typ := reflect.TypeFor[*control.Client]()
	for i := range typ.NumMethod() {
		if name := typ.Method(i).Name; !called[name] {
			t.Errorf("%s was not called", name)
		}
	}
}

func TestErrorsTravel(t *testing.T) {
	c := control.InProcess(newHost(t))
	_, err := c.Server(t.Context(), "tol", false)
	e, ok := errors.AsType[*patchbay.Error](err)
	if !ok || e.Kind != patchbay.KindNotFound || e.Hint == "" {
		t.Errorf("got %#v", err)
	}
	_, err = c.Add(t.Context(), patchbay.AddRequest{Name: "x", Server: json.RawMessage(`{"type":"http"}`)})
	if e, ok := errors.AsType[*patchbay.Error](err); !ok || e.Kind != patchbay.KindConfigInvalid || len(e.Problems) != 1 || e.Problems[0].Pointer != "/url" {
		t.Errorf("got %#v", err)
	}
	// A name may be anything, and is always found in its place.
	for _, name := range []string{"a/b?c#d", "", ".", "..", "%2e", "a&secrets=true", "a b", "é\x00"} {
		if _, err := c.Server(t.Context(), name, false); kindOf(err) != patchbay.KindNotFound {
			t.Errorf("Server(%q): %v", name, err)
		}
		if _, err := c.Approval(t.Context(), name); kindOf(err) != patchbay.KindNotFound {
			t.Errorf("Approval(%q): %v", name, err)
		}
		if _, err := c.Remove(t.Context(), patchbay.RemoveRequest{Name: name, From: "cursor"}); kindOf(err) != patchbay.KindNotFound {
			t.Errorf("Remove(%q): %v", name, err)
		}
		if _, err := c.Import(t.Context(), patchbay.ImportRequest{Provider: "cursor", Names: []string{name}}); kindOf(err) != patchbay.KindNotFound {
			t.Errorf("Import(%q): %v", name, err)
		}
	}
	if _, err := c.Add(t.Context(), patchbay.AddRequest{Name: "..", Server: json.RawMessage(`{"command":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Server(t.Context(), "..", false); err != nil || s.Name != ".." {
		t.Errorf("got %q, %v", s.Name, err)
	}
}

func kindOf(err error) patchbay.Kind {
	if e, ok := errors.AsType[*patchbay.Error](err); ok {
		return e.Kind
	}
	return ""
}

func TestPagesAreRefused(t *testing.T) {
	h := control.Handler(newHost(t))
	for _, header := range []string{"Origin", "Referer", "Sec-Fetch-Site"} {
		r := httptest.NewRequest("GET", "/v1/snapshot", nil)
		r.Header.Set(header, "http://127.0.0.1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: status %d", header, w.Code)
		}
	}
}

// What was saved a moment ago counts in the next answer, whether or not the host
// has been told of it.
func TestAnswersAreCurrent(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, ".cursor", "mcp.json")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := patchbay.Open(t.Context(), patchbay.Options{
		Dir: home, Home: home, Environ: []string{}, SystemRoot: filepath.Join(home, "system"), Lazy: true, WatchFiles: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	c := control.InProcess(h)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if err := os.WriteFile(file, []byte(`{"mcpServers": {"`+name+`": {"command": "x"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Server(t.Context(), name, false); err != nil {
			t.Error(err)
		}
		if s, err := c.Snapshot(t.Context(), false); err != nil || len(s.Servers) != 1 || s.Servers[0].Name != name {
			t.Errorf("%v, %+v", err, s.Servers)
		}
	}
}
