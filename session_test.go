package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

type text struct {
	Text string `json:"text"`
}

// notes is an in-process server with a few tools, a resource and a prompt.
func notes() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, &mcp.ServerOptions{
		// The era in which a server can ask back while it serves a call.
		SupportedProtocolVersions: []string{"2025-11-25"},
	})
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Says it again.", Annotations: readOnly},
		func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("no ink")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "long"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("é", 150_000)}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Your name?"})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer.Action}}}, nil, nil
	})
	s.AddResource(&mcp.Resource{URI: "note://1", Name: "first", MIMEType: "text/plain"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
			{URI: r.Params.URI, MIMEType: "text/plain", Text: "one"}, {URI: r.Params.URI, MIMEType: "image/png", Blob: []byte{1, 2, 3}},
		}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "Hello " + r.Params.Arguments["who"]}}}}, nil
	})
	return s
}

// withNotes opens a host that has the server above.
func withNotes(t *testing.T, change func(*patchbay.Options)) *patchbay.Host {
	t.Helper()
	c := newComputer(t)
	c.opts.Lazy = false
	c.opts.InProcess = map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(notes())}
	if change != nil {
		change(&c.opts)
	}
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

func session(t *testing.T, h *patchbay.Host, o patchbay.SessionOptions) *patchbay.Session {
	t.Helper()
	s, err := h.NewSession(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func modelText(t *testing.T, r *patchbay.Result, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.ForModel()
	if err != nil {
		t.Fatal(err)
	}
	return m.Text
}

func kindOf(err error) patchbay.Kind {
	if e, ok := errors.AsType[*patchbay.Error](err); ok {
		return e.Kind
	}
	return ""
}

func TestToolsAndCalls(t *testing.T) {
	h := withNotes(t, nil)
	s := session(t, h, patchbay.SessionOptions{AllowedTools: []string{"mcp__notes__*"}})
	var names []string
	for _, tool := range s.Tools() {
		names = append(names, tool.Name)
	}
	want := []string{"list_mcp_resources", "read_mcp_resource", "mcp__notes__ask", "mcp__notes__echo", "mcp__notes__fail", "mcp__notes__long"}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	// Any rendering that means one tool will do.
	for _, name := range []string{"mcp__notes__echo", "mcp_notes_echo", "mcp__notes_echo", "notes.echo", "notes/echo"} {
		r, err := s.Call(t.Context(), patchbay.Call{Tool: name, Arguments: json.RawMessage(`{"text":"hi"}`)})
		if got := modelText(t, r, err); got != "hi" {
			t.Errorf("%s: %q", name, got)
		}
	}
	r, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.fail", Arguments: json.RawMessage(`{"text":""}`)})
	if got := modelText(t, r, err); got != "Error: no ink" || !r.IsError() {
		t.Errorf("fail: %q", got)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.ecoh"}); kindOf(err) != patchbay.KindToolNotFound || !strings.Contains(err.Error(), "notes.echo") {
		t.Errorf("misspelt: %v", err)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(`[]`)}); kindOf(err) != patchbay.KindConfigInvalid {
		t.Errorf("arguments: %v", err)
	}
}

func TestNamingStyle(t *testing.T) {
	h := withNotes(t, func(o *patchbay.Options) { o.Naming.Style = config.NamingXcsh })
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	r, err := s.Call(t.Context(), patchbay.Call{Tool: "mcp_notes_echo", Arguments: json.RawMessage(`{"text":"hi"}`)})
	if got := modelText(t, r, err); got != "hi" || r.Tool.Name != "mcp_notes_echo" {
		t.Errorf("%s: %q", r.Tool.Name, got)
	}
}

func TestLongResultIsSaved(t *testing.T) {
	s := session(t, withNotes(t, nil), patchbay.SessionOptions{Default: patchbay.Allow})
	r, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.long"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.ForModel()
	if err != nil {
		t.Fatal(err)
	}
	if n := utf8.RuneCountInString(m.Text); n > 100_000 || !strings.Contains(m.Text, m.SavedTo) || m.SavedTo == "" {
		t.Errorf("%d characters, saved to %q", n, m.SavedTo)
	}
	whole, err := os.ReadFile(m.SavedTo)
	if err != nil || string(whole) != strings.Repeat("é", 150_000) {
		t.Errorf("%d bytes, %v", len(whole), err)
	}
	if info, _ := os.Stat(m.SavedTo); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if !strings.Contains(string(r.Raw), strings.Repeat("é", 150_000)) {
		t.Error("the raw form was cut")
	}
}

// The settings may say how long a result may be, for models and for what is
// forwarded. Where they do not, what is forwarded is as it is.
func TestResultLimitOfSettings(t *testing.T) {
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(notes())}
	h := c.open()
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	s.Load(t.Context())
	whole := strings.Repeat("é", 150_000)
	forwarded := func() string {
		t.Helper()
		raw, err := s.Forward(t.Context(), "notes", "tools/call", json.RawMessage(`{"name":"long","arguments":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		var result struct{ Content []struct{ Text string } }
		if err := json.Unmarshal(raw, &result); err != nil || len(result.Content) != 1 {
			t.Fatalf("%d parts, %v", len(result.Content), err)
		}
		return result.Content[0].Text
	}
	if got := forwarded(); got != whole {
		t.Errorf("%d bytes were forwarded", len(got))
	}
	for _, limit := range []int{1000, 120_000} {
		c.write(filepath.Join(c.home, ".config", "patchbay", "settings.json"), fmt.Sprintf(`{"limits": {"resultChars": %d}}`, limit))
		if err := h.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.long"})
		if err != nil || !strings.Contains(string(r.Raw), whole) {
			t.Fatalf("the raw form was cut, or %v", err)
		}
		for how, got := range map[string]string{"forwarded": forwarded(), "for a model": modelText(t, r, nil)} {
			if n := utf8.RuneCountInString(got); n > limit || n < limit-10 {
				t.Errorf("%s: %d characters of %d", how, n, limit)
			}
			_, rest, _ := strings.Cut(got, "the whole text is in ")
			file, _, _ := strings.Cut(rest, " ")
			if saved, err := os.ReadFile(file); err != nil || string(saved) != whole {
				t.Errorf("%s: %d bytes are saved, %v", how, len(saved), err)
			}
		}
	}
}

// What was saved goes after a week.
func TestSavedResultsAreSwept(t *testing.T) {
	now := time.Now()
	h := withNotes(t, func(o *patchbay.Options) { o.Now = func() time.Time { return now } })
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	save := func() string {
		t.Helper()
		r, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.long"})
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.ForModel()
		if err != nil {
			t.Fatal(err)
		}
		return m.SavedTo
	}
	first := save()
	now = now.Add(6 * 24 * time.Hour)
	save()
	if _, err := os.Stat(first); err != nil {
		t.Errorf("after six days: %v", err)
	}
	now = now.Add(2 * 24 * time.Hour)
	save()
	if _, err := os.Stat(first); !os.IsNotExist(err) {
		t.Errorf("after eight days: %v", err)
	}
}

func TestPermissions(t *testing.T) {
	var asked atomic.Int32
	h := withNotes(t, func(o *patchbay.Options) {
		o.UI = &patchbay.UI{Confirm: func(_ context.Context, r patchbay.ConfirmRequest) (bool, error) {
			asked.Add(1)
			return r.Tool.Tool == "echo", nil
		}}
	})
	echo := patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(`{"text":"x"}`)}
	fail := patchbay.Call{Tool: "notes.fail", Arguments: json.RawMessage(`{"text":"x"}`)}

	s := session(t, h, patchbay.SessionOptions{})
	if _, err := s.Call(t.Context(), echo); err != nil || asked.Load() != 1 {
		t.Errorf("no rule: %v, asked %d times", err, asked.Load())
	}
	if _, err := s.Call(t.Context(), fail); kindOf(err) != patchbay.KindDenied {
		t.Errorf("refused: %v", err)
	}
	s = session(t, h, patchbay.SessionOptions{AllowedTools: []string{"mcp__notes"}, DisallowedTools: []string{"mcp__notes__fail"}})
	if _, err := s.Call(t.Context(), echo); err != nil || asked.Load() != 2 {
		t.Errorf("allowed: %v, asked %d times", err, asked.Load())
	}
	if _, err := s.Call(t.Context(), fail); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("a denied tool is still there: %v", err)
	}
	if _, err := s.Forward(t.Context(), "notes", "tools/call", json.RawMessage(`{"name":"fail","arguments":{}}`)); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("a denied tool can be forwarded to: %v", err)
	}
	s = session(t, h, patchbay.SessionOptions{DisallowedTools: []string{"mcp__notes"}})
	for _, tool := range s.Tools() {
		if tool.Server == "notes" {
			t.Errorf("%s is shown although its server is denied", tool.Name)
		}
	}
	s = session(t, h, patchbay.SessionOptions{Tools: []string{"mcp__notes__echo"}})
	if n := len(s.Tools()); n != 1 {
		t.Errorf("%d tools visible, want 1", n)
	}
}

// Without anybody to ask, a call that no rule is about is denied in the seed's
// words.
func TestNobodyToAsk(t *testing.T) {
	s := session(t, withNotes(t, nil), patchbay.SessionOptions{})
	_, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(`{"text":"x"}`)})
	if err == nil || err.Error() != "MCPTool requires permission." {
		t.Errorf("got %v", err)
	}
}

func TestHooks(t *testing.T) {
	h := withNotes(t, func(o *patchbay.Options) {
		o.Hooks = &patchbay.Hooks{
			BeforeCall: func(_ context.Context, c *patchbay.HookCall) error {
				if c.Tool == "fail" {
					return errors.New("not today")
				}
				c.Arguments = json.RawMessage(`{"text":"changed"}`)
				return nil
			},
			AfterCall: func(_ context.Context, _ *patchbay.HookCall, r *patchbay.Result) (*patchbay.Result, error) {
				r.Raw = json.RawMessage(strings.Replace(string(r.Raw), "changed", "changed twice", 1))
				return r, nil
			},
		}
	})
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	r, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(`{"text":"x"}`)})
	if got := modelText(t, r, err); got != "changed twice" {
		t.Errorf("got %q", got)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.fail"}); kindOf(err) != patchbay.KindDenied || !strings.Contains(err.Error(), "not today") {
		t.Errorf("got %v", err)
	}
}

func TestResources(t *testing.T) {
	s := session(t, withNotes(t, nil), patchbay.SessionOptions{})
	want := []patchbay.Resource{{URI: "note://1", Name: "first", MIMEType: "text/plain", Server: "notes", Definition: json.RawMessage(`{"mimeType":"text/plain","name":"first","uri":"note://1"}`)}}
	got, err := s.ListResources(t.Context(), "")
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	contents, err := s.ReadResource(t.Context(), "notes", "note://1")
	if err != nil || len(contents) != 2 || contents[0].Text != "one" {
		t.Fatalf("%+v, %v", contents, err)
	}
	blob, err := os.ReadFile(contents[1].BlobSavedTo)
	if err != nil || string(blob) != "\x01\x02\x03" || filepath.Ext(contents[1].BlobSavedTo) != ".png" {
		t.Errorf("%q in %s, %v", blob, contents[1].BlobSavedTo, err)
	}
	// The tools for models, under both of their names.
	for _, name := range []string{"read_mcp_resource", "ReadMcpResourceTool"} {
		r, err := s.Call(t.Context(), patchbay.Call{Tool: name, Arguments: json.RawMessage(`{"server":"notes","uri":"note://1"}`)})
		if got := modelText(t, r, err); !strings.Contains(got, `"text":"one"`) || !strings.Contains(got, `"blobSavedTo":`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	r, err := s.Call(t.Context(), patchbay.Call{Tool: "ListMcpResourcesTool"})
	if got := modelText(t, r, err); got != `[{"uri":"note://1","name":"first","mimeType":"text/plain","server":"notes"}]` {
		t.Errorf("got %s", got)
	}
	if _, err := s.ReadResource(t.Context(), "nope", "note://1"); kindOf(err) != patchbay.KindNotFound {
		t.Errorf("got %v", err)
	}
}

// A rule that denies a server is about all it offers.
func TestDeniedServer(t *testing.T) {
	h := withNotes(t, nil)
	s := session(t, h, patchbay.SessionOptions{DisallowedTools: []string{"mcp__notes"}, Default: patchbay.Allow})
	for name, use := range map[string]func() error{
		"list":    func() error { _, err := s.ListResources(t.Context(), "notes"); return err },
		"read":    func() error { _, err := s.ReadResource(t.Context(), "notes", "note://1"); return err },
		"prompts": func() error { _, err := s.ListPrompts(t.Context(), "notes"); return err },
		"prompt":  func() error { _, err := s.GetPrompt(t.Context(), "notes", "greet", nil); return err },
		"forward": func() error { _, err := s.Forward(t.Context(), "notes", "resources/list", nil); return err },
		"model": func() error {
			_, err := s.Call(t.Context(), patchbay.Call{Tool: "read_mcp_resource", Arguments: json.RawMessage(`{"server":"notes","uri":"note://1"}`)})
			return err
		},
	} {
		if err := use(); kindOf(err) != patchbay.KindDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, err := s.ListResources(t.Context(), "")
	if err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestPrompts(t *testing.T) {
	s := session(t, withNotes(t, nil), patchbay.SessionOptions{})
	list, err := s.ListPrompts(t.Context(), "notes")
	if err != nil || len(list) != 1 || list[0].Name != "greet" {
		t.Fatalf("%+v, %v", list, err)
	}
	got, err := s.GetPrompt(t.Context(), "notes", "greet", map[string]string{"who": "world"})
	if err != nil || !strings.Contains(string(got), "Hello world") {
		t.Errorf("%s, %v", got, err)
	}
}

// What a session's user cannot do is not declared, and what it can is asked of
// that user.
func TestElicitation(t *testing.T) {
	h := withNotes(t, nil)
	ask := patchbay.Call{Tool: "notes.ask"}
	able := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		Elicit: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"action":"decline"}`), nil
		},
	}})
	r, err := able.Call(t.Context(), ask)
	if got := modelText(t, r, err); got != "decline" {
		t.Errorf("got %q", got)
	}
	unable := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	r, err = unable.Call(t.Context(), ask)
	if got := modelText(t, r, err); !strings.HasPrefix(got, "Error: ") {
		t.Errorf("got %q", got)
	}
}

func TestBatch(t *testing.T) {
	s := session(t, withNotes(t, nil), patchbay.SessionOptions{Default: patchbay.Allow})
	var calls []patchbay.Call
	for i := range 5 {
		calls = append(calls, patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(fmt.Sprintf(`{"text":"%d"}`, i))})
	}
	calls = append(calls, patchbay.Call{Tool: "notes.fail", Arguments: json.RawMessage(`{"text":""}`)}, patchbay.Call{Tool: "nope"})
	out := s.Batch(t.Context(), calls)
	for i := range 5 {
		if got := modelText(t, out[i].Result, out[i].Err); got != fmt.Sprint(i) {
			t.Errorf("call %d: %q", i, got)
		}
	}
	if !out[5].Result.IsError() || kindOf(out[6].Err) != patchbay.KindToolNotFound {
		t.Errorf("%+v", out[5:])
	}
}

func TestExport(t *testing.T) {
	s := session(t, withNotes(t, nil), patchbay.SessionOptions{Tools: []string{"mcp__notes__echo"}})
	for api, want := range map[string]string{
		"anthropic": `"input_schema":`, "openai": `"type":"function"`, "gemini": `"parametersJsonSchema":`,
	} {
		got, err := s.Export(api)
		if err != nil || !strings.Contains(string(got), want) || !strings.Contains(string(got), "mcp__notes__echo") {
			t.Errorf("%s: %s, %v", api, got, err)
		}
	}
	if _, err := s.Export("fax"); kindOf(err) != patchbay.KindConfigInvalid {
		t.Errorf("got %v", err)
	}
}

func TestLoad(t *testing.T) {
	h := withNotes(t, nil)
	if err := h.Apply(t.Context(), map[string]config.Server{"gone": {Command: filepath.Join(t.TempDir(), "no-such-program")}}); err != nil {
		t.Fatal(err)
	}
	s := session(t, h, patchbay.SessionOptions{})
	tools, failed := s.Load(t.Context())
	if len(tools) != 6 || len(failed) != 1 || kindOf(failed["gone"]) != patchbay.KindTransport {
		t.Errorf("%d tools, %v", len(tools), failed)
	}
	if !strings.HasPrefix(failed["gone"].Error(), `Failed to connect to "gone": `) {
		t.Errorf("got %v", failed["gone"])
	}
}

// Servers that connect when they are needed are loaded side by side.
func TestLoadIsParallel(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	servers := map[string]config.Server{}
	for _, name := range []string{"a", "b", "c"} {
		servers[name] = scripted("-gate", lines.Arg(name))
	}
	h := withServers(t, servers, func(o *patchbay.Options) { o.Lazy = true })
	s := session(t, h, patchbay.SessionOptions{})
	loaded := make(chan int)
	go func() {
		tools, failed := s.Load(t.Context())
		if len(failed) > 0 {
			t.Error(failed)
		}
		loaded <- len(tools)
	}()
	for name := range servers { // all of them start before one answers
		lines.Next(name)
	}
	lines.Gates(true)
	if n := <-loaded; n != 3*len(mcptest.ToolNames()) {
		t.Errorf("%d tools", n)
	}
}

func TestWatch(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy = false
	h := c.open()
	seen := 0
	for snap := range h.Watch(t.Context()) {
		seen++
		if seen == 1 {
			if _, err := h.Add(t.Context(), patchbay.AddRequest{Name: "x", Scope: config.ScopeUser, Server: json.RawMessage(`{"command":"no-such-program-here"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		if len(snap.Servers) == 1 && snap.Servers[0].State == config.Failed {
			return
		}
	}
	t.Error("the failure was never seen")
}

// Settings that cannot be read allow nothing: what they might have denied is
// asked about. Settings that break while the host runs stay in force.
func TestDamagedSettings(t *testing.T) {
	echo := patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(`{"text":"x"}`)}
	for name, damage := range map[string]string{
		"half":      `{"permissions": {"deny": ["mcp__notes__echo"]}`,
		"too large": strings.Repeat(" ", config.MaxFileSize+1),
	} {
		c := newComputer(t)
		c.opts.Lazy = false
		c.opts.InProcess = map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(notes())}
		file := filepath.Join(c.home, ".config", "patchbay", "settings.json")
		c.write(file, damage)
		h := c.open()
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := anyone(t, h)
		if _, err := s.Call(t.Context(), echo); kindOf(err) != patchbay.KindDenied || !strings.Contains(asError(t, err).Hint, "settings.json, which is damaged,") {
			t.Errorf("%s: %v", name, err)
		}
		if problems := h.Snapshot().Problems; len(problems) != 1 || problems[0].File != file {
			t.Errorf("%s: %v", name, problems)
		}
		c.write(file, `{"permissions": {"deny": ["mcp__notes__fail"]}}`)
		if err := h.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Call(t.Context(), echo); err != nil {
			t.Errorf("%s, mended: %v", name, err)
		}
		c.write(file, damage)
		if err := h.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Call(t.Context(), echo); err != nil {
			t.Errorf("%s, once more: %v", name, err)
		}
		if _, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.fail"}); kindOf(err) != patchbay.KindToolNotFound {
			t.Errorf("%s, once more: a denied tool gives %v", name, err)
		}
	}
}

// In the xcsh style two tools may have one name. If the settings say so the last
// one has it, and the other is not offered under any.
func TestLastWins(t *testing.T) {
	one := func(tool, answer string) patchbay.LocalServer {
		s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: tool}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer}}}, nil, nil
		})
		return patchbay.FromSDK(s)
	}
	c := newComputer(t)
	c.opts.Lazy = false
	c.opts.InProcess = map[string]patchbay.LocalServer{"a": one("b_c", "first"), "a_b": one("c", "second")}
	c.write(filepath.Join(c.home, ".config", "patchbay", "settings.json"), `{"naming": {"style": "xcsh", "collision": "last-wins"}}`)
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := anyone(t, h)
	if tools := s.Tools(); len(tools) != 1 || tools[0].Name != "mcp_a_b_c" || tools[0].Server != "a_b" {
		t.Errorf("%+v", tools)
	}
	if got := say(t, s, "mcp_a_b_c", ""); got != "second" {
		t.Errorf("got %q", got)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "a.b_c"}); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("got %v", err)
	}
	if _, d, err := s.Why("a.b_c"); err != nil || d.Effect != patchbay.Deny || !strings.Contains(d.Reason, "the last one wins") {
		t.Errorf("%+v, %v", d, err)
	}
}
