package patchbay_test

import (
	"context"
	"encoding/json"
	"path/filepath"
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
