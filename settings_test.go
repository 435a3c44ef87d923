package patchbay_test

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// What a program that serves does not take up of changed settings is a problem of
// their file, until they are as they were.
func TestSettingsThatTakeARestart(t *testing.T) {
	const usual = `{"gateway": {"listen": "127.0.0.1:7001", "allowedHosts": ["a"]}}`
	for _, tt := range []struct {
		before string // empty means usual
		after  string
		change func(*patchbay.Options)
		want   []string
	}{
		{after: usual},
		{after: `{"gateway": {"listen": "127.0.0.1:7001", "allowedHosts": ["a"], "allowedOrigins": []}}`},
		{before: `{}`, after: `{"gateway": {"listen": "` + config.DefaultListen + `"}}`},
		{after: `{"gateway": {"listen": "127.0.0.1:7001", "allowedHosts": ["a"], "profiles": {"few": {"servers": []}}}}`},
		{after: `{}`, want: []string{"/gateway/listen", "/gateway/allowedHosts"}},
		{after: `{"gateway": {"listen": "127.0.0.1:7002", "allowedHosts": ["a"], "allowedOrigins": ["https://b.example.test"]}}`, want: []string{"/gateway/listen", "/gateway/allowedOrigins"}},
		{after: `{}`, change: func(o *patchbay.Options) { o.Served = []string{"http://127.0.0.1:7003/mcp"} }, want: []string{"/gateway/allowedHosts"}},
		{after: `{}`, change: func(o *patchbay.Options) { o.Serves = false }},
	} {
		before := cmp.Or(tt.before, usual)
		c := newComputer(t)
		c.opts.Serves = true
		if tt.change != nil {
			tt.change(&c.opts)
		}
		file := filepath.Join(c.home, ".config", "patchbay", "settings.json")
		c.write(file, before)
		h := c.open()
		c.write(file, tt.after)
		if err := h.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range h.Snapshot().Problems {
			got = append(got, p.Pointer)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v instead of %v", tt.after, got, tt.want)
		}
		c.write(file, before)
		if err := h.Reload(t.Context()); err != nil || len(h.Snapshot().Problems) > 0 {
			t.Errorf("as it was: %v, %v", h.Snapshot().Problems, err)
		}
	}
}

// A list of files says which servers there are. Rules and hooks are the user's
// own, whatever servers they are about.
func TestStrictConfigKeepsSettings(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy, c.opts.StrictConfig = false, true
	c.opts.Files = []string{c.declare(map[string]config.Server{"srv": scripted()})}
	c.write(filepath.Join(c.home, ".cursor", "mcp.json"), `{"mcpServers":{"other":{"command":"true"}}}`)
	c.userSettings(`{"permissions":{"deny":["mcp__srv__pid"]},"gateway":{"profiles":{"few":{"servers":["srv"]}}},
		"hooks":{"PreToolUse":[{"matcher":"mcp__srv__note","hooks":[{"type":"command","command":"echo not now >&2; exit 2"}]}]}}`)
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Server("other"); err == nil {
		t.Error("a server of another file is there")
	}
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.echo"}); err != nil {
		t.Error(err)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.pid"}); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("a denied tool: %v", err)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.note"}); kindOf(err) != patchbay.KindDenied || !strings.Contains(err.Error(), "not now") {
		t.Errorf("a tool that a hook blocks: %v", err)
	}
	if len(h.Settings().Gateway.Profiles) != 1 {
		t.Error("the settings of the gateway are not there")
	}
}

// The default of the settings is about the tools of the host's own, too.
func TestDefaultForResourceTools(t *testing.T) {
	for standard, want := range map[string]patchbay.Effect{"": patchbay.Allow, "allow": patchbay.Allow, "ask": patchbay.Ask, "deny": patchbay.Deny} {
		h := withNotes(t, func(o *patchbay.Options) {
			c := &computer{t: t}
			c.write(filepath.Join(o.Home, ".config", "patchbay", "settings.json"), `{"permissions":{"default":"`+standard+`"}}`)
			if standard == "" {
				c.write(filepath.Join(o.Home, ".config", "patchbay", "settings.json"), `{}`)
			}
		})
		s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow})
		if _, d, err := s.Why("read_mcp_resource"); err != nil || d.Effect != want {
			t.Errorf("default %q: %+v, %v", standard, d, err)
		}
		_, err := s.Call(t.Context(), patchbay.Call{Tool: "read_mcp_resource", Arguments: json.RawMessage(`{"server":"notes","uri":"note://1"}`)})
		if (err == nil) != (want == patchbay.Allow) {
			t.Errorf("default %q: %v", standard, err)
		}
	}
}
