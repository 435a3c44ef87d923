package patchbay_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// The servers of Claude Code's plugins are read as the product reads them: of those
// that are installed here and switched on, and a project that switches one on has
// to be approved.
func TestClaudePlugins(t *testing.T) {
	c := newComputer(t)
	claude := filepath.Join(c.home, ".claude")
	root := func(name string) string { return filepath.Join(claude, "plugins", "cache", "m", name, "1.0.0") }
	install := func(name, more string) string {
		return fmt.Sprintf(`"%s@m": [{"scope": "user", "installPath": %q%s}]`, name, filepath.ToSlash(root(name)), more)
	}
	const server = `{"mcpServers": {"s": {"command": "${CLAUDE_PLUGIN_ROOT}/bin/serve", "args": ["${CLAUDE_PLUGIN_DATA}/db", "${CLAUDE_PROJECT_DIR}"], "env": {"X": "${CLAUDE_PLUGIN_ROOT}"}}}}`
	c.write(filepath.Join(claude, "plugins", "installed_plugins.json"), `{"version": 2, "plugins": {`+strings.Join([]string{
		install("mine", ""), install("off", ""), install("unsaid", ""), install("theirs", ""), install("inline", ""), install("named", ""), install("escapes", ""),
		fmt.Sprintf(`"old@m": {"version": "1.0.0", "installPath": %q}`, filepath.ToSlash(root("old"))),
		fmt.Sprintf(`"here@m": [{"scope": "project", "projectPath": "/nowhere", "installPath": "/nowhere"}, {"scope": "local", "projectPath": %q, "installPath": %q}]`, filepath.ToSlash(c.project), filepath.ToSlash(root("here"))),
		fmt.Sprintf(`"elsewhere@m": [{"scope": "project", "projectPath": "/elsewhere", "installPath": %q}]`, filepath.ToSlash(root("elsewhere"))),
		`"relative@m": [{"scope": "user", "installPath": "project"}]`,
	}, ",")+`}}`)
	c.write(filepath.Join(claude, "settings.json"), `{"enabledPlugins": {"mine@m": true, "off@m": false, "inline@m": true, "named@m": true, "escapes@m": true, "old@m": true, "here@m": true, "elsewhere@m": true, "relative@m": true, "absent@m": true}}`)
	c.write(filepath.Join(c.project, ".claude", "settings.json"), `{"enabledPlugins": {"mine@m": false, "off@m": true, "theirs@m": true}}`)
	for _, name := range []string{"mine", "off", "unsaid", "theirs", "old", "here", "elsewhere"} {
		c.write(filepath.Join(root(name), ".mcp.json"), server)
	}
	c.write(filepath.Join(root("inline"), ".claude-plugin", "plugin.json"), `{"name": "inline", "mcpServers": {"s": {"type": "http", "url": "https://x.example.test/mcp", "headers": {"A": "${CLAUDE_PLUGIN_ROOT}"}}}}`)
	c.write(filepath.Join(root("inline"), ".mcp.json"), `{"bare": {"command": "x"}}`)
	c.write(filepath.Join(root("named"), ".claude-plugin", "plugin.json"), `{"name": "named", "mcpServers": ["./servers.json", "bundle.mcpb"]}`)
	c.write(filepath.Join(root("named"), "servers.json"), server)
	c.write(filepath.Join(root("escapes"), ".claude-plugin", "plugin.json"), `{"name": "escapes", "mcpServers": "../../off/1.0.0/.mcp.json"}`)

	h := c.open()
	got := map[string]config.State{}
	for _, st := range h.Servers() {
		got[st.Name] = st.State
		if st.Origin.Plugin == "" || !strings.HasPrefix(st.Title, "plugin:") || !strings.HasSuffix(st.Origin.Plugin, "@m") {
			t.Errorf("%s is %q of %q", st.Name, st.Title, st.Origin.Plugin)
		}
	}
	want := map[string]config.State{
		"plugin_mine_s": config.Pending, "plugin_old_s": config.Pending, "plugin_here_s": config.Pending, "plugin_inline_s": config.Pending,
		"plugin_inline_bare": config.Pending, "plugin_named_s": config.Pending, "plugin_theirs_s": config.NeedsApproval,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	st, err := h.Server("plugin:mine:s")
	if err != nil {
		t.Fatal(err)
	}
	s, data := st.Server, filepath.Join(claude, "plugins", "data", "mine-m")
	if s.Command != root("mine")+"/bin/serve" || len(s.Args) != 2 || s.Args[0] != data+"/db" || s.Args[1] != c.project {
		t.Errorf("it runs %s %q", s.Command, s.Args)
	}
	for name, want := range map[string]string{"X": root("mine"), "CLAUDE_PLUGIN_ROOT": root("mine"), "CLAUDE_PLUGIN_DATA": data} {
		if got := s.Env[name].Reveal(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// A change of such a file is noticed like any other.
	env := discover.Env{OS: "linux", Home: c.home, Dir: c.project, Project: c.project}
	before := discover.NewSurvey(env)
	if file := filepath.Join(root("named"), "servers.json"); !before.Concerns(file) {
		t.Errorf("%s is not watched", file)
	}
	// What the administrator leaves to plugins alone, they may bring.
	for _, dir := range []string{"etc/claude-code", "Library/Application Support/ClaudeCode", "Program Files/ClaudeCode"} {
		c.write(filepath.Join(c.opts.SystemRoot, filepath.FromSlash(dir), "managed-settings.json"), `{"strictPluginOnlyCustomization": ["mcp"], "enabledPlugins": {"theirs@m": true, "old@m": false}}`)
	}
	c.write(filepath.Join(c.home, ".claude.json"), `{"mcpServers": {"own": {"command": "x"}}}`)
	got = map[string]config.State{}
	for _, st := range c.open().Servers() {
		got[st.Name] = st.State
	}
	delete(want, "plugin_old_s")
	want["own"], want["plugin_theirs_s"] = config.Disabled, config.Pending
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
