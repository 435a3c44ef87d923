package discover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// TestMistakesOfOthers checks what other importers are known to get wrong. The
// golden files hold all of it; here it has names.
func TestMistakesOfOthers(t *testing.T) {
	m := newMachine(t)
	for _, product := range []string{"claude-code", "claude-desktop", "codex", "gemini", "vscode", "windsurf", "opencode", "antigravity", "zed"} {
		m.lay("testdata/config/" + product)
	}
	m.write("home/.config/Claude/settings.json", `{"mcpServers": {"wrong-file": {"command": "x"}}}`)
	m.write("project/.vscode/tasks.json", `{"servers": {"wrong-file": {"command": "x"}}}`)
	entries := map[string]config.Entry{}
	for _, e := range Scan(t.Context(), m.env).Entries {
		key := e.Origin.Provider + "/" + e.Name
		if _, ok := entries[key]; !ok {
			entries[key] = e
		}
	}
	for _, tt := range []struct {
		what, entry string
		ok          func(s config.Server) bool
	}{
		{"Claude Desktop keeps its servers in claude_desktop_config.json", "claude-desktop/notes", func(s config.Server) bool { return s.Command == "npx" }},
		{"Codex: bearer_token_env_var", "codex/figma_remote", func(s config.Server) bool { return s.BearerTokenEnvVar == "FIGMA_TOKEN" }},
		{"Codex: http_headers", "codex/figma_remote", func(s config.Server) bool { return s.Headers["X-Region"].Reveal() == "eu" }},
		{"Codex: enabled_tools and disabled_tools", "codex/files", func(s config.Server) bool {
			return slices.Equal(s.EnabledTools, []string{"read", "list"}) && slices.Equal(s.DisabledTools, []string{"rm"})
		}},
		{"Codex: fractions of a second", "codex/files", func(s config.Server) bool { return *s.Timeout == 90500 }},
		{"Gemini: httpUrl is Streamable HTTP", "gemini/api", func(s config.Server) bool { return s.Type == config.HTTP && s.URL != "" }},
		{"Gemini: a lone url is SSE", "gemini/sse", func(s config.Server) bool { return s.Type == config.SSE }},
		{"VS Code: servers at the top, not under mcp", "vscode/pg", func(s config.Server) bool { return s.Command == "uvx" }},
		{"VS Code has a file of the user's", "vscode/user-wide", func(s config.Server) bool { return s.Command == "npx" }},
		{"VS Code: null removes a variable, a number is text", "vscode/pg", func(s config.Server) bool {
			return slices.Equal(s.UnsetEnv, []string{"DROP"}) && s.Env["N"].Reveal() == "3"
		}},
		{"Windsurf: serverUrl", "windsurf/remote", func(s config.Server) bool { return s.URL != "" }},
		{"Antigravity: serverUrl", "antigravity/r", func(s config.Server) bool { return s.URL != "" }},
		{"Claude: servers of one directory", "claude/local-only", func(s config.Server) bool { return s.Command == "node" }},
		{"Claude: headersHelper", "claude/live", func(s config.Server) bool { return strings.HasSuffix(s.HeadersHelper, "/scripts/hdr.sh") }},
		{"Claude: oauth", "claude/hdr", func(s config.Server) bool { return s.OAuth != nil && s.OAuth.CallbackPort == 8123 }},
		{"opencode has remote servers too", "opencode/nooauth", func(s config.Server) bool { return s.Type == config.HTTP && s.OAuth.Disabled }},
		{"Zed counts in seconds", "zed/local", func(s config.Server) bool { return *s.Timeout == 90_000 }},
	} {
		if e, found := entries[tt.entry]; !found || !tt.ok(e.Server) {
			t.Errorf("%s: %s", tt.what, tt.entry)
		}
	}
	for key := range entries {
		if strings.Contains(key, "wrong-file") {
			t.Errorf("%s was read", key)
		}
	}
}

func TestClaudePolicies(t *testing.T) {
	command := func(argv ...string) claudeMatch { return claudeMatch{command: argv} }
	process := config.Entry{Name: "files", Server: config.Server{Command: "npx", Args: []string{"-y", "@acme/files"}}}
	remote := config.Entry{Name: "docs", Server: config.Server{URL: "https://MCP.example.test/v1/mcp"}}
	for _, tt := range []struct {
		list            []claudeMatch
		process, remote bool
	}{
		{nil, false, false}, // an empty list is a lock-down
		{[]claudeMatch{{name: "files"}, {name: "docs"}}, true, true},
		{[]claudeMatch{{name: "files"}, command("npx", "-y", "@acme/other")}, false, false},
		{[]claudeMatch{{name: "docs"}, command("npx", "-y", "@acme/files")}, true, true},
		{[]claudeMatch{command("npx", "-y")}, false, false},
		{[]claudeMatch{{url: "https://*.example.test/*"}, {name: "files"}}, true, true},
		{[]claudeMatch{{url: "https://other.test/*"}, {name: "docs"}}, false, false},
	} {
		if p, r := claudeAllows(tt.list, &process), claudeAllows(tt.list, &remote); p != tt.process || r != tt.remote {
			t.Errorf("%+v: process %v, remote %v", tt.list, p, r)
		}
	}
}

func TestWildcard(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"a*", "ab", true}, {"*b", "ab", true}, {"a*b", "ab", true},
		{"a*b", "a", false}, {"ab*ba", "aba", false}, {"a*b*c", "a1b2c", true}, {"a*b*c", "a1c2b", false}, {"**", "x", true}, {"", "x", false},
	} {
		if got := wildcard(tt.pattern, tt.text); got != tt.want {
			t.Errorf("wildcard(%s) = %v", fmt.Sprintf("%q, %q", tt.pattern, tt.text), got)
		}
	}
}

// .mcp.json belongs to several products, each of which writes its own form.
func TestSharedFile(t *testing.T) {
	for _, tt := range []struct {
		text, server string
		dialect      config.Dialect
		problem      string
	}{
		{`{"mcpServers": {"a": {"command": "x"}}}`, "a", config.DialectClaude, ""},
		{`{"servers": {"a": {"transport": "stdio", "command": "x", "timeoutMs": 5}}}`, "a", config.DialectElectric, ""},
		{`{"a": {"command": "x"}, "b": {"url": "https://b.example.test"}}`, "a", config.DialectClaude, ""},
		{`{"a": {"command": "x"}, "note": "not a server"}`, "", "", `no "mcpServers" is here`},
		{`{"mcpservers": {"a": {"command": "x"}}}`, "", "", `no "mcpServers" is here`},
		{`{}`, "", "", ""},
	} {
		m := newMachine(t)
		m.write("project/.mcp.json", tt.text)
		r := Scan(t.Context(), m.env)
		name, problem := "", ""
		var dialect config.Dialect
		if len(r.Entries) > 0 {
			name, dialect = r.Entries[0].Name, r.Entries[0].Dialect
		}
		if len(r.Problems) > 0 {
			problem = r.Problems[0].Message
		}
		if name != tt.server || dialect != tt.dialect || problem != tt.problem {
			t.Errorf("%s: %q in %q, problem %q", tt.text, name, dialect, problem)
		}
	}
}
