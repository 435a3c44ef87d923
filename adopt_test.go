//go:build unix

package patchbay_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// An adopted server is the same to rules, hooks and pins however it is reached,
// and has one process: for its product, and for those who have everything.
func TestAdoptedIsOneServer(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy = false
	for _, file := range []string{".claude.json", ".cursor/mcp.json"} {
		server := scripted("-discover=unknown")
		server.Env["FOR"] = config.NewSecret(file)
		c.write(filepath.Join(c.home, file), `{"mcpServers": {"a": `+string(config.EncodeServer(server))+`}}`)
	}
	c.write(filepath.Join(c.home, ".config", "patchbay", "settings.json"),
		`{"permissions": {"deny": ["mcp__a__pid"]}, `+hookSettings("PreToolUse", "mcp__a__echo", `grep -q '"tool_name":"mcp__a__echo"' && exit 2`, 0)[1:])
	h := c.open()
	for _, product := range []string{"claude", "cursor"} {
		done, err := h.Adopt(t.Context(), patchbay.AdoptRequest{Product: product, Command: []string{"/opt/patchbay", "serve", "--stdio"}})
		if err != nil || len(done.Servers) != 1 || done.Servers[0].Action != "adopted" {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	if all := h.Servers(); len(all) != 2 || all[0].Adopted != "claude/a" || !all[0].InForce || all[1].Adopted != "cursor/a" || all[1].InForce {
		t.Errorf("the servers are %+v", all)
	}
	awaitState(t, h, "a", config.Connected)
	everything := anyone(t, h)
	for _, name := range []string{"claude/a", "cursor/a"} {
		var asked []string
		s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Servers: []string{name}, Client: &patchbay.Client{
			Elicit: func(_ context.Context, server string, _ json.RawMessage) (json.RawMessage, error) {
				asked = append(asked, server)
				return json.RawMessage(`{"action":"decline"}`), nil
			},
		}})
		if err := h.Connect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := s.FindOwn(name, "pid"); err == nil {
			t.Errorf("%s has a tool that a rule denies", name)
		}
		echo, err := s.FindOwn(name, "echo")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Call(t.Context(), patchbay.Call{Tool: echo.Name}); kindOf(err) != patchbay.KindDenied {
			t.Errorf("%s: a call that a hook blocks: %v", name, err)
		}
		ask, err := s.FindOwn(name, "ask")
		if err != nil {
			t.Fatal(err)
		}
		if got := say(t, s, ask.Name, `{"count":1}`); got != "decline" || !slices.Equal(asked, []string{name}) {
			t.Errorf("%s: asked as %q, and then %q", name, asked, got)
		}
	}
	for _, tool := range everything.Tools() {
		if tool.Server != "" && tool.Server != "a" {
			t.Errorf("everything has %s of %s", tool.Name, tool.Server)
		}
	}
	running := map[string]int{}
	for _, p := range h.Processes() {
		running[p.Server]++
	}
	if running["claude/a"] != 0 || running["cursor/a"] == 0 || running["a"] == 0 {
		t.Errorf("the processes are %v", running)
	}
	if _, err := h.Server("claude/b"); kindOf(err) != patchbay.KindNotFound || !strings.Contains(err.Error(), "claude/b") {
		t.Errorf("what is not adopted: %v", err)
	}
}
