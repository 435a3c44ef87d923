//go:build unix

package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// hookSettings is a settings file with one hook for an event.
func hookSettings(event, matcher, command string, timeout int) string {
	hook := map[string]any{"type": "command", "command": command}
	if timeout > 0 {
		hook["timeout"] = timeout
	}
	data, _ := json.Marshal(map[string]any{"hooks": map[string]any{event: []any{map[string]any{"matcher": matcher, "hooks": []any{hook}}}}})
	return string(data)
}

// notesComputer has the server notes.
func notesComputer(t *testing.T) *computer {
	t.Helper()
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(notes())}
	c.opts.Environ = []string{"PATH=/bin:/usr/bin", "HOST_SECRET=hunter2"}
	return c
}

// openConnected opens a host whose server notes is connected.
func (c *computer) openConnected() *patchbay.Host {
	c.t.Helper()
	h := c.open()
	if err := h.Connect(c.t.Context(), "notes"); err != nil {
		c.t.Fatal(err)
	}
	return h
}

// outcome calls notes.echo with the text hi and returns what came of it.
func outcome(t *testing.T, s *patchbay.Session) string {
	t.Helper()
	r, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(`{"text":"hi"}`)})
	if err != nil {
		if kindOf(err) != patchbay.KindDenied {
			t.Errorf("%v is of kind %q", err, kindOf(err))
		}
		return err.Error()
	}
	return modelText(t, r, nil)
}

// specific prints what a hook has to say about an event.
func specific(members string) string { return `echo '{"hookSpecificOutput":{` + members + `}}'` }

func TestPreToolUse(t *testing.T) {
	const place = "SETTINGS:1"
	noAnswer := "mcp__notes__echo was refused: the hook at " + place + " gave no answer: "
	for name, tt := range map[string]struct {
		matcher, command string
		standard         patchbay.Effect // what happens without the hook
		want             string
	}{
		"says nothing":       {"", "cat >/dev/null", patchbay.Allow, "hi"},
		"need not read":      {"", "true", patchbay.Allow, "hi"},
		"prints text":        {"", "echo all is well", patchbay.Allow, "hi"},
		"blocks":             {"", "echo no hi today >&2; echo '{}'; exit 2", patchbay.Allow, "mcp__notes__echo was refused: no hi today"},
		"blocks in silence":  {"", "exit 2", patchbay.Allow, "mcp__notes__echo was refused: the hook at " + place + " blocks it"},
		"denies":             {"", specific(`"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"rude"`), patchbay.Allow, "mcp__notes__echo was refused: rude"},
		"blocks by decision": {"", `echo '{"decision":"block","reason":"rude"}'`, patchbay.Allow, "mcp__notes__echo was refused: rude"},
		"stops":              {"", `echo '{"continue":false,"stopReason":"enough"}'`, patchbay.Allow, "mcp__notes__echo was refused: enough"},
		"changes arguments":  {"", specific(`"updatedInput":{"text":"hello"}`), patchbay.Allow, "hello"},
		"allows":             {"", specific(`"permissionDecision":"allow"`), patchbay.Ask, "hi"},
		"approves":           {"", `echo '{"decision":"approve"}'`, patchbay.Ask, "hi"},
		"asks":               {"", specific(`"permissionDecision":"ask","permissionDecisionReason":"sure?"`), patchbay.Allow, "MCPTool requires permission."},
		"allows a denied":    {"", specific(`"permissionDecision":"allow"`), patchbay.Deny, "mcp__notes__echo is denied: no rule is about it; then it is denied"},

		// As in other products a hook with another status is passed over.
		"fails": {"", "exit 1", patchbay.Allow, "hi"},

		// One that gives no answer guards what it was to guard.
		"is not there":        {"", "./no-such-hook", patchbay.Allow, noAnswer + "exit status 127"},
		"is killed":           {"", "kill -9 $$", patchbay.Allow, noAnswer + "signal: killed"},
		"takes too long":      {"", "sleep 60", patchbay.Allow, noAnswer + "no end after 1s"},
		"prints broken JSON":  {"", `echo '{"hookSpecificOutput":'`, patchbay.Allow, noAnswer + "it printed an object that is not valid JSON"},
		"decides strangely":   {"", specific(`"permissionDecision":"maybe"`), patchbay.Allow, noAnswer + "its permissionDecision is not known"},
		"gives no object":     {"", specific(`"updatedInput":[1]`), patchbay.Allow, noAnswer + "its updatedInput is no object"},
		"is of another event": {"", specific(`"hookEventName":"PostToolUse"`), patchbay.Allow, noAnswer + "it answered another event"},
		"floods":              {"", "yes '{'", patchbay.Allow, noAnswer + "printed too much"},

		"is about another":         {"mcp__other__.*", "exit 2", patchbay.Allow, "hi"},
		"is about the tool":        {"mcp__notes__echo", "exit 2", patchbay.Allow, "refused"},
		"is about the server":      {"mcp__notes", "exit 2", patchbay.Allow, "refused"},
		"is about a pattern":       {"^mcp__.*__ec", "exit 2", patchbay.Allow, "refused"},
		"is about another writing": {"notes/echo", "exit 2", patchbay.Allow, "refused"},
		"is about one of two":      {"mcp__x__y|mcp_notes_echo", "exit 2", patchbay.Allow, "refused"},
		"is about part of it":      {"mcp__notes__ech", "exit 2", patchbay.Allow, "hi"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := notesComputer(t)
			timeout := 0
			if name == "takes too long" {
				timeout = 1
			}
			c.userSettings(hookSettings("PreToolUse", tt.matcher, tt.command, timeout))
			h := c.openConnected()
			want := strings.ReplaceAll(tt.want, "SETTINGS", filepath.Join(c.home, ".config", "patchbay", "settings.json"))
			if got := outcome(t, session(t, h, patchbay.SessionOptions{Default: tt.standard})); !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// What a hook is told of an event, and where it runs: in the project, with as
// little as a server.
func TestHookInput(t *testing.T) {
	leavesNothing(t)
	c := notesComputer(t)
	c.userSettings(`{"hooks": {
		"PreToolUse": [{"hooks": [{"type": "command", "command": "cat >before.json; env >environment"}]}],
		"PostToolUse": [{"hooks": [{"type": "command", "command": "cat >\"$CLAUDE_PROJECT_DIR\"/after.json"}]}]
	}}`)
	h := c.openConnected()
	if got := outcome(t, session(t, h, patchbay.SessionOptions{Name: "alice", Default: patchbay.Allow})); got != "hi" {
		t.Fatal(got)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(c.project, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	want := fmt.Sprintf(`{"session_id":"alice","cwd":%q,"hook_event_name":"PreToolUse","tool_name":"mcp__notes__echo","tool_input":{"text":"hi"},`+
		`"mcp_server":{"name":"notes","source":"sdk"},"mcp_tool_name":"echo"}`, c.project)
	if got := read("before.json"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var after struct {
		Event    string `json:"hook_event_name"`
		Response struct {
			Content []struct{ Text string }
		} `json:"tool_response"`
	}
	if err := json.Unmarshal([]byte(read("after.json")), &after); err != nil || after.Event != "PostToolUse" || len(after.Response.Content) != 1 || after.Response.Content[0].Text != "hi" {
		t.Errorf("%+v, %v", after, err)
	}
	if env := read("environment"); strings.Contains(env, "HOST_SECRET") || !strings.Contains(env, "PATCHBAY_PROJECT_DIR="+c.project) || !strings.Contains(env, "PWD="+c.project) {
		t.Errorf("the environment is %s", env)
	}
}

// What hooks decide is in the records of calls.
func TestHookDecisionsAreRecorded(t *testing.T) {
	for command, want := range map[string]string{
		"exit 2": "deny hook denied", specific(`"permissionDecision":"allow"`): "allow hook ok", specific(`"permissionDecision":"ask"`): "ask hook denied", "true": "ask  denied",
	} {
		c := notesComputer(t)
		var got string
		c.opts.Observe = func(r patchbay.CallRecord) { got = string(r.Decision) + " " + r.Source + " " + r.Outcome }
		c.userSettings(hookSettings("PreToolUse", "", command, 0))
		outcome(t, session(t, c.openConnected(), patchbay.SessionOptions{}))
		if got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestPostToolUse(t *testing.T) {
	for name, tt := range map[string]struct{ command, want string }{
		"says nothing":  {"true", "hi"},
		"text":          {specific(`"updatedMCPToolOutput":"bye"`), "bye"},
		"content":       {specific(`"updatedMCPToolOutput":[{"type":"text","text":"bye"}]`), "bye"},
		"result":        {specific(`"updatedMCPToolOutput":{"isError":true,"content":[{"type":"text","text":"bye"}]}`), "Error: bye"},
		"null":          {specific(`"updatedMCPToolOutput":null`), "hi"},
		"nothing of it": {specific(`"updatedMCPToolOutput":{"text":"bye"}`), "gave no answer: its updatedMCPToolOutput is no result of a tool"},
		"blocks":        {"echo secret in it >&2; exit 2", "The result of mcp__notes__echo was refused: secret in it"},
		"decides":       {`echo '{"decision":"block","reason":"secret in it"}'`, "The result of mcp__notes__echo was refused: secret in it"},
		"fails":         {"exit 3", "hi"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := notesComputer(t)
			c.userSettings(hookSettings("PostToolUse", "", tt.command, 0))
			if got := outcome(t, anyone(t, c.openConnected())); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Hooks of settings are around those of the program, and the strictest decides.
func TestOrderOfHooks(t *testing.T) {
	c := notesComputer(t)
	appendTo := func(event, letter string) string {
		if event == "PreToolUse" {
			return `sed 's/.*"text":"\([^"]*\)".*/{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{"text":"\1` + letter + `"}}}/'`
		}
		return `sed 's/.*"type":"text","text":"\([^"]*\)".*/{"hookSpecificOutput":{"updatedMCPToolOutput":"\1` + letter + `"}}/'`
	}
	settings, err := json.Marshal(map[string]any{"hooks": map[string]any{
		"PreToolUse": []any{
			map[string]any{"matcher": "mcp__notes__echo", "hooks": []any{
				map[string]any{"type": "command", "command": appendTo("PreToolUse", "1")},
				map[string]any{"type": "command", "command": appendTo("PreToolUse", "2")},
			}},
			map[string]any{"hooks": []any{map[string]any{"type": "command", "command": appendTo("PreToolUse", "3")}}},
		},
		"PostToolUse": []any{map[string]any{"hooks": []any{map[string]any{"type": "command", "command": appendTo("PostToolUse", "6")}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.userSettings(string(settings))
	permission := patchbay.Effect("")
	c.opts.Hooks = &patchbay.Hooks{
		BeforeCall: func(_ context.Context, call *patchbay.HookCall) error {
			call.Arguments = json.RawMessage(strings.Replace(string(call.Arguments), `"}`, `4"}`, 1))
			call.Permission = permission
			return nil
		},
		AfterCall: func(_ context.Context, _ *patchbay.HookCall, r *patchbay.Result) (*patchbay.Result, error) {
			r.Raw = json.RawMessage(strings.Replace(string(r.Raw), `4"`, `45"`, 1))
			return r, nil
		},
	}
	s := session(t, c.openConnected(), patchbay.SessionOptions{Default: patchbay.Ask})
	for _, tt := range []struct {
		permission patchbay.Effect
		want       string
	}{
		{"", "hi123456"}, {patchbay.Allow, "hi123456"}, {patchbay.Ask, "MCPTool requires permission."},
		{patchbay.Deny, "mcp__notes__echo was refused: a hook denies it"},
	} {
		permission = tt.permission
		if got := outcome(t, s); got != tt.want {
			t.Errorf("%q: %q", tt.permission, got)
		}
	}
}

// Hooks of a project run when they are approved, as they were approved, and
// never widen what is allowed.
func TestProjectHooks(t *testing.T) {
	leavesNothing(t)
	c := notesComputer(t)
	script := filepath.Join(c.project, "hooks", "guard.sh")
	c.write(script, "echo guarded >&2; exit 2\n")
	c.projectSettings(hookSettings("PreToolUse", "", `sh "$CLAUDE_PROJECT_DIR/hooks/guard.sh"`, 0))
	h := c.openConnected()
	s := anyone(t, h)
	if got := outcome(t, s); got != "hi" {
		t.Fatalf("before approval: %q", got)
	}
	hooks := h.Snapshot().Hooks
	if hooks == nil || hooks.State != config.NeedsApproval || hooks.Commands != 1 || hooks.Run() {
		t.Errorf("they stand as %+v", hooks)
	}
	told := false
	for _, p := range h.Snapshot().Problems {
		told = told || strings.HasPrefix(p.Message, "the hooks of the project do not run: comes from the project") && strings.Contains(p.Hint, "patchbay approve --hooks")
	}
	if !told {
		t.Errorf("nobody is told: %v", h.Snapshot().Problems)
	}
	approve := func() {
		t.Helper()
		req, err := h.Approval(patchbay.ProjectHooks)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`sh "$CLAUDE_PROJECT_DIR/hooks/guard.sh"`, "PreToolUse", "about *", script, c.project} {
			if !strings.Contains(req.Text, want) {
				t.Errorf("what is shown lacks %q:\n%s", want, req.Text)
			}
		}
		if _, err := h.Approve(t.Context(), patchbay.ProjectHooks, req.Hash); err != nil {
			t.Fatal(err)
		}
	}
	approve()
	if got := outcome(t, s); !strings.HasSuffix(got, "was refused: guarded") {
		t.Fatalf("approved: %q", got)
	}

	// An edited script is another one, noticed at once and after a reload.
	c.write(script, specific(`"permissionDecision":"allow","updatedInput":{"text":"changed"}`))
	if got := outcome(t, s); !strings.Contains(got, "guard.sh changed since it was approved") {
		t.Errorf("edited: %q", got)
	}
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := h.Snapshot().Hooks; st.State != config.NeedsApproval || st.Reason != "changed since it was approved" {
		t.Errorf("edited: %+v", st)
	}
	if got := outcome(t, s); got != "hi" {
		t.Errorf("edited and reloaded: %q", got)
	}
	approve()
	if got := outcome(t, s); got != "changed" {
		t.Errorf("approved again: %q", got)
	}
	// What it allows still is asked about.
	if got := outcome(t, session(t, h, patchbay.SessionOptions{})); got != "MCPTool requires permission." {
		t.Errorf("a project's hook allows: %q", got)
	}

	req, err := h.Approval(patchbay.ProjectHooks)
	if err != nil || !req.Approved {
		t.Fatal(req, err)
	}
	if _, err := h.Approve(t.Context(), patchbay.ProjectHooks, "other"); kindOf(err) != patchbay.KindDenied {
		t.Errorf("what was not shown: %v", err)
	}
	if _, err := h.Reject(t.Context(), patchbay.ProjectHooks, req.Hash); err != nil {
		t.Fatal(err)
	}
	if st := h.Snapshot().Hooks; st.State != config.Disabled || outcome(t, s) != "hi" {
		t.Errorf("rejected: %+v", st)
	}

	// The approval is of this project alone.
	approve()
	c.opts.Dir = filepath.Join(c.home, "src", "copy")
	c.write(filepath.Join(c.opts.Dir, "hooks", "guard.sh"), "exit 2")
	c.write(filepath.Join(c.opts.Dir, ".patchbay", "settings.json"), hookSettings("PreToolUse", "", `sh "$CLAUDE_PROJECT_DIR/hooks/guard.sh"`, 0))
	if st := c.open().Snapshot().Hooks; st == nil || st.State != config.NeedsApproval {
		t.Errorf("a copy of the project: %+v", st)
	}
}

func TestInvalidProjectHooks(t *testing.T) {
	c := notesComputer(t)
	if _, err := c.open().Approval(patchbay.ProjectHooks); kindOf(err) != patchbay.KindNotFound {
		t.Errorf("a project without hooks: %v", err)
	}
	c.projectSettings(hookSettings("PreToolUse", "(", "exit 2", 0))
	h := c.openConnected()
	req, err := h.Approval(patchbay.ProjectHooks)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Approve(t.Context(), patchbay.ProjectHooks, req.Hash); kindOf(err) != patchbay.KindConfigInvalid {
		t.Errorf("approved although invalid: %v", err)
	}
	if got := outcome(t, anyone(t, h)); got != "hi" {
		t.Errorf("got %q", got)
	}
}

// Hooks of the user's that cannot run, because of a mistake or because others may
// have written them, let nothing pass that they may have been about.
func TestHooksThatCannotRun(t *testing.T) {
	c := notesComputer(t)
	for text, want := range map[string]string{
		`{"hooks": {"PreToolUse": [{"hooks": [{"type": "prompt"}]}]}}`: `unknown type of hook "prompt"`,
		hookSettings("PreToolUse", "mcp__notes__(", "true", 0):         "its matcher cannot be understood",
		`{"hooks": "guard.sh"}`: "the hooks are no object",
	} {
		c.userSettings(text)
		if got := outcome(t, anyone(t, c.openConnected())); !strings.Contains(got, "gave no answer: "+want) {
			t.Errorf("%s: %q", text, got)
		}
	}
	c.userSettings(hookSettings("PreToolUse", "", "true", 0))
	file := filepath.Join(c.home, ".config", "patchbay", "settings.json")
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := outcome(t, anyone(t, c.openConnected())); !strings.Contains(got, "others may write it") {
		t.Errorf("a file that others may write: %q", got)
	}
}

// The log has what hooks did, and nothing of what they were told or said.
func TestHooksTellNoSecrets(t *testing.T) {
	log := newLogged()
	c := notesComputer(t)
	c.opts.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c.userSettings(`{"hooks": {"PreToolUse": [{"hooks": [
		{"type": "command", "command": "cat >&2; exit 1"},
		{"type": "command", "command": "cat; true"},
		{"type": "command", "command": "cat >&2; exit 2"}
	]}]}}`)
	s := anyone(t, c.openConnected())
	_, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(`{"text":"hunter2"}`)})
	if kindOf(err) != patchbay.KindDenied || !strings.Contains(err.Error(), "hunter2") {
		t.Errorf("whoever called gets the reason: %v", err)
	}
	log.await(t, "exit status 1 (and ")
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has it:\n%s", log)
	}
}

// Who gives up waiting for a call gives up its hooks too, and closing a host ends
// them.
func TestHooksEnd(t *testing.T) {
	leavesNothing(t)
	c := notesComputer(t)
	c.userSettings(hookSettings("PreToolUse", "", "echo >started; exec sleep 600", 600))
	h := c.openConnected()
	s := anyone(t, h)
	started := makeFIFO(t, c.project, "started")
	for _, end := range []func(cancel func()){
		func(cancel func()) { cancel() },
		func(func()) { h.Close() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := s.Call(ctx, patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(`{"text":"hi"}`)})
			failed <- err
		}()
		if _, err := os.ReadFile(started); err != nil { // which waits for who writes
			t.Fatal(err)
		}
		end(cancel)
		if err := <-failed; !errors.Is(err, context.Canceled) && kindOf(err) != patchbay.KindDenied {
			t.Errorf("got %v", err)
		}
		cancel()
	}
}

// makeFIFO makes a file that can be read once somebody writes.
func makeFIFO(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
