package patchbay_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// A rule may say any name that a person has seen for a tool: the one its entry
// gives it, and one that had to be shortened.
func TestRulesByShownName(t *testing.T) {
	long := strings.Repeat("x", 60)
	entry := scripted()
	entry.Tools = []config.ToolRule{{Name: "echo", ExposedName: "say", AlwaysLoad: true}}
	h := withServers(t, map[string]config.Server{"srv": entry, long: scripted()}, nil)
	for _, name := range []string{"srv", long} {
		awaitState(t, h, name, config.Connected)
	}
	shown := map[string]string{} // by server
	for _, tool := range anyone(t, h).Tools() {
		if tool.Tool == "echo" {
			shown[tool.Server] = tool.Name
		}
	}
	if shown["srv"] != "say" || len(shown[long]) != 64 {
		t.Fatalf("shown as %q", shown)
	}
	for server, name := range shown {
		s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, DisallowedTools: []string{name}})
		if _, err := s.Call(t.Context(), patchbay.Call{Tool: server + ".echo"}); kindOf(err) != patchbay.KindToolNotFound {
			t.Errorf("%s is denied by its name %s: %v", server, name, err)
		}
		if _, d, err := s.Why(name); err != nil || d.Effect != patchbay.Deny || d.Rule == nil || d.Rule.Pattern != name {
			t.Errorf("why %s: %+v, %v", name, d, err)
		}
		s = session(t, h, patchbay.SessionOptions{AllowedTools: []string{name}})
		if _, err := s.Call(t.Context(), patchbay.Call{Tool: name}); err != nil {
			t.Errorf("%s is allowed by its name %s: %v", server, name, err)
		}
	}
}

// The settings say which tools are visible, to every session; a project can show
// less, never more.
func TestVisibleBySettings(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy = false
	c.declare(map[string]config.Server{"one": scripted(), "two": scripted()})
	user, project := filepath.Join(c.home, ".config", "patchbay", "settings.json"), filepath.Join(c.project, ".patchbay", "settings.json")
	c.write(user, `{"tools": ["mcp__one__*", "two/echo"]}`)
	c.write(project, `{"tools": ["mcp__*__echo", "mcp__two", "mcp__three(x)"]}`)
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if problems := h.Snapshot().Problems; len(problems) != 1 || problems[0].File != project || problems[0].Pointer != "/tools/2" {
		t.Errorf("problems: %v", problems)
	}
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	var names []string
	for _, tool := range s.Tools() {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "mcp__one__echo mcp__two__echo" {
		t.Errorf("visible: %s", got)
	}
	for name, file := range map[string]string{"mcp__two__pid": user, "mcp__one__pid": project} {
		if _, d, err := s.Why(name); err != nil || d.Effect != patchbay.Deny || d.Reason != "tools in "+file+" does not have it" {
			t.Errorf("why %s: %+v, %v", name, d, err)
		}
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "one.pid"}); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("got %v", err)
	}
	narrow := session(t, h, patchbay.SessionOptions{Tools: []string{"mcp__one", "mcp__two__pid"}})
	if tools := narrow.Tools(); len(tools) != 1 || tools[0].Name != "mcp__one__echo" {
		t.Errorf("with a list of its own: %v", tools)
	}
	c.write(user, `{"tools": []}`)
	if err := h.Reload(t.Context()); err != nil || len(s.Tools()) != 0 {
		t.Errorf("%v; visible: %v", err, s.Tools())
	}
}

// What no rule is about follows the settings and the session, and the stricter
// of the two where both say something.
func TestDefaults(t *testing.T) {
	for _, tt := range []struct {
		settings, session, want string
	}{
		{"", "", "ask"},
		{"allow", "", "allow"},
		{"deny", "", "deny"},
		{"", "allow", "allow"},
		{"deny", "allow", "deny"},
		{"ask", "allow", "ask"},
		{"allow", "deny", "deny"},
	} {
		h := withNotes(t, func(o *patchbay.Options) {
			if tt.settings != "" {
				c := &computer{t: t}
				c.write(filepath.Join(o.Home, ".config", "patchbay", "settings.json"), `{"permissions":{"default":"`+tt.settings+`"}}`)
			}
		})
		s := session(t, h, patchbay.SessionOptions{Default: patchbay.Effect(tt.session)})
		if _, d, err := s.Why("notes.echo"); err != nil || string(d.Effect) != tt.want {
			t.Errorf("settings %q, session %q: %+v, %v, want %s", tt.settings, tt.session, d, err, tt.want)
		}
	}
}

// The tools of the host's own need no rule, but heed those there are, and hooks.
func TestRulesForResourceTools(t *testing.T) {
	var asked, hooked atomic.Int32
	h := withNotes(t, func(o *patchbay.Options) {
		o.UI = &patchbay.UI{Confirm: func(context.Context, patchbay.ConfirmRequest) (bool, error) {
			asked.Add(1)
			return false, nil
		}}
		o.Hooks = &patchbay.Hooks{BeforeCall: func(context.Context, *patchbay.HookCall) error {
			hooked.Add(1)
			return nil
		}}
	})
	read := patchbay.Call{Tool: "read_mcp_resource", Arguments: json.RawMessage(`{"server":"notes","uri":"note://1"}`)}
	if _, err := session(t, h, patchbay.SessionOptions{}).Call(t.Context(), read); err != nil || asked.Load() != 0 || hooked.Load() != 1 {
		t.Errorf("no rule: %v, asked %d times, %d hooks", err, asked.Load(), hooked.Load())
	}
	ask := session(t, h, patchbay.SessionOptions{Rules: []patchbay.Rule{{Effect: patchbay.Ask, Pattern: "read_mcp_resource", Source: "test"}}})
	if _, err := ask.Call(t.Context(), read); kindOf(err) != patchbay.KindDenied || asked.Load() != 1 {
		t.Errorf("ask: %v, asked %d times", err, asked.Load())
	}
	deny := session(t, h, patchbay.SessionOptions{DisallowedTools: []string{"read_mcp_resource"}})
	if _, err := deny.Call(t.Context(), read); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("deny: %v", err)
	}
}

// Rules name servers and tools as they are called, in any case, and those that do
// nothing are named.
func TestRulesInRealSpelling(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy = false
	off := false
	c.declare(map[string]config.Server{"my.server": scripted(), "GitHub": scripted(), "off": {Command: "true", Enabled: &off}})
	c.userSettings(`{"permissions":{"deny":["mcp__my.server__pid","mcp__github__note","mcp__GITHUB__Crash","mcp__gitlab","mcp__github__nothing","mcp__off__x"]}}`)
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	for _, tool := range []string{"my.server.pid", "GitHub.note", "GitHub.crash"} {
		if _, d, err := s.Why(tool); err != nil || d.Effect != patchbay.Deny {
			t.Errorf("%s: %+v, %v", tool, d, err)
		}
	}
	if _, d, err := s.Why("GitHub.pid"); err != nil || d.Effect != patchbay.Allow {
		t.Errorf("another tool: %+v, %v", d, err)
	}
	var idle []string
	for _, p := range h.Snapshot().Problems {
		idle = append(idle, p.Message)
	}
	want := []string{`the rule "mcp__gitlab" fits no server and no tool that is there`, `the rule "mcp__github__nothing" fits no server and no tool that is there`}
	if !slices.Equal(idle, want) {
		t.Errorf("problems %q", idle)
	}
}
