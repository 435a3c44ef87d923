package discover

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

const oneServer = `{"mcpServers": {"x": {"command": "x"}}}`

// TestWhoOwnsAFile checks which entries are a project's, and so need approval:
// where a file lies decides, not what its product calls the scope.
func TestWhoOwnsAFile(t *testing.T) {
	for _, tt := range []struct {
		name string
		lay  func(t *testing.T, m *machine)
		want []string // provider/scope, with "!" where it needs approval
	}{
		{
			name: "a user's file",
			lay:  func(_ *testing.T, m *machine) { m.write("home/.cursor/mcp.json", oneServer) },
			want: []string{"cursor/user"},
		},
		{
			name: "a project's file",
			lay:  func(_ *testing.T, m *machine) { m.write("project/.cursor/mcp.json", oneServer) },
			want: []string{"cursor/project!"},
		},
		{
			name: "a local file that lies in the project",
			lay:  func(_ *testing.T, m *machine) { m.write("project/.qoder/settings.local.json", oneServer) },
			want: []string{"qoder/local!"},
		},
		{
			name: "our own local file",
			lay: func(_ *testing.T, m *machine) {
				m.write("home/.local/state/patchbay/projects/LOCAL/mcp.json", oneServer)
			},
			want: []string{"patchbay/local"},
		},
		{
			name: "a variable that leads into the project",
			lay: func(_ *testing.T, m *machine) {
				m.write("project/conf/.claude.json", oneServer)
				m.env.Getenv = func(name string) string {
					return map[string]string{"CLAUDE_CONFIG_DIR": filepath.Join(m.env.Project, "conf")}[name]
				}
			},
			want: []string{"claude/user!"},
		},
		{
			name: "a user's link into the project",
			lay: func(t *testing.T, m *machine) {
				target := m.write("project/shared.json", oneServer)
				link(t, target, filepath.Join(m.env.Home, ".cursor/mcp.json"))
			},
			want: []string{"cursor/user!"},
		},
		{
			name: "a project's link out of it",
			lay: func(t *testing.T, m *machine) {
				target := m.write("root/tmp/mcp.json", oneServer)
				link(t, target, filepath.Join(m.env.Project, ".mcp.json"))
			},
			want: []string{"claude/project!"},
		},
		{
			name: "a project's link to the user's file gains nothing",
			lay: func(t *testing.T, m *machine) {
				target := m.write("home/.cursor/mcp.json", oneServer)
				link(t, target, filepath.Join(m.env.Project, ".cursor/mcp.json"))
			},
			want: []string{"cursor/user"},
		},
		{
			name: "a linked project directory",
			lay: func(t *testing.T, m *machine) {
				m.write("project/.cursor/mcp.json", oneServer)
				m.write("project/conf/config.toml", "[mcp_servers.x]\ncommand = \"x\"\n")
				alias := filepath.Join(filepath.Dir(m.env.Project), "alias")
				link(t, m.env.Project, alias)
				m.env.Getenv = func(name string) string {
					return map[string]string{"CODEX_HOME": filepath.Join(m.env.Project, "conf")}[name]
				}
				m.env.Project, m.env.Dir = alias, alias
			},
			want: []string{"codex/user!", "cursor/project!"},
		},
		{
			name: "the home directory is the project",
			lay: func(_ *testing.T, m *machine) {
				m.write("home/.cursor/mcp.json", oneServer)
				m.write("home/.mcp.json", oneServer)
				m.env.Project, m.env.Dir = m.env.Home, m.env.Home
			},
			want: []string{"claude/project!", "cursor/user"},
		},
		{
			name: "the home directory lies in the project",
			lay: func(_ *testing.T, m *machine) {
				m.write("home/.cursor/mcp.json", oneServer)
				m.write("home/.config/patchbay/mcp.json", oneServer)
				m.write("home/elsewhere/config.toml", "[mcp_servers.x]\ncommand = \"x\"\n")
				m.env.Project = filepath.Dir(m.env.Home)
				m.env.Dir = m.env.Home
				m.env.Getenv = func(name string) string {
					return map[string]string{"CODEX_HOME": filepath.Join(m.env.Home, "elsewhere")}[name]
				}
			},
			want: []string{"patchbay/user", "codex/user!", "cursor/user"},
		},
		{
			name: "a variable that says what is so anyway",
			lay: func(_ *testing.T, m *machine) {
				m.write("home/.codex/config.toml", "[mcp_servers.x]\ncommand = \"x\"\n")
				m.env.Project, m.env.Dir = m.env.Home, m.env.Home
				m.env.Getenv = func(name string) string {
					return map[string]string{"CODEX_HOME": filepath.Join(m.env.Home, ".codex")}[name]
				}
			},
			want: []string{"codex/user"},
		},
		{
			name: "a file named on the command line",
			lay: func(_ *testing.T, m *machine) {
				m.write("project/extra.json", oneServer)
				m.env.Files = []string{"extra.json"}
			},
			want: []string{"flag/user"},
		},
		{
			name: "a project file named on the command line",
			lay: func(_ *testing.T, m *machine) {
				m.env.Files = []string{m.write("project/.mcp.json", oneServer)}
			},
			want: []string{"flag/user"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			tt.lay(t, m)
			var got []string
			r := Scan(t.Context(), m.env)
			for _, e := range r.Entries {
				s := e.Origin.Provider + "/" + string(e.Origin.Scope)
				switch e.Origin.Project {
				case "":
				case m.env.Project:
					s += "!"
				default:
					s += " of " + e.Origin.Project
				}
				got = append(got, s)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v; problems %v", got, tt.want, r.Problems)
			}
		})
	}
}

func link(t *testing.T, target, at string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, at); err != nil {
		t.Fatal(err)
	}
}

func TestNearestDirectoryFirst(t *testing.T) {
	m := newMachine(t)
	m.write(".mcp.json", `{"mcpServers": {"above": {"command": "x"}}}`) // above the project
	m.write("project/.mcp.json", `{"mcpServers": {"top": {"command": "./x"}}}`)
	m.write("project/a/.mcp.json", `{"mcpServers": {"middle": {"command": "./x"}}}`)
	m.write("project/a/b/.mcp.json", `{"mcpServers": {"near": {"command": "./x"}}}`)
	m.write("project/other/.mcp.json", `{"mcpServers": {"aside": {"command": "x"}}}`)
	m.env.Dir = filepath.Join(m.env.Project, "a", "b")
	r := Scan(t.Context(), m.env)
	if got := strings.Join(names(r), " "); got != "claude/near claude/middle claude/top" {
		t.Errorf("found %s", got)
	}
	// Each command belongs to the directory its file is in.
	for i, dir := range []string{"a/b", "a", "."} {
		if want := filepath.Join(m.env.Project, dir, "x"); r.Entries[i].Server.Command != want {
			t.Errorf("command %s, want %s", r.Entries[i].Server.Command, want)
		}
	}
}

func TestStrictReadsOnlyNamedFiles(t *testing.T) {
	m := newMachine(t)
	m.write("home/.cursor/mcp.json", oneServer)
	m.write("home/.config/patchbay/mcp.json", oneServer)
	named := m.write("root/named.json", `{"mcpServers": {"named": {"command": "./tool"}}, "disabledServers": ["y"]}`)
	electric := m.write("root/electric.json", `{"servers": {"el": {"transport": "http", "url": "https://x.example.test/mcp"}}}`)
	missing := filepath.Join(m.env.Root, "missing.json")
	m.env.Files, m.env.Strict = []string{named, electric, missing}, true
	r := Scan(t.Context(), m.env)
	if got := strings.Join(names(r), " "); got != "flag/named flag/el" {
		t.Errorf("found %s", got)
	}
	if want := filepath.Join(m.env.Root, "tool"); r.Entries[0].Server.Command != want || r.Entries[0].Origin.Priority != 105 {
		t.Errorf("entry %+v", r.Entries[0])
	}
	if !slices.Equal(r.DisabledServers, []string{"y"}) {
		t.Errorf("disabled: %v", r.DisabledServers)
	}
	if len(r.Problems) != 1 || r.Problems[0].Severity != config.SeverityError || r.Problems[0].String() != missing+": no such file" {
		t.Errorf("problems: %v", r.Problems)
	}
}

func TestDisabledProviders(t *testing.T) {
	m := newMachine(t)
	m.write("home/.cursor/mcp.json", oneServer)
	m.write("home/.codeium/windsurf/mcp_config.json", oneServer)
	m.env.Disabled = []string{"cursor"}
	if got := strings.Join(names(Scan(t.Context(), m.env)), " "); got != "windsurf/x" {
		t.Errorf("found %s", got)
	}
}

// TestOverridesReachOnlyTheirOwn checks that a project's lists decide about the
// project's entries alone, whoever's product they are in.
func TestOverridesReachOnlyTheirOwn(t *testing.T) {
	m := newMachine(t)
	m.write("home/.omp/agent/mcp.json", `{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x", "enabled": false}, "c": {"command": "x"}}, "enabledServers": ["b"], "disabledServers": ["c"]}`)
	m.write("project/.omp/mcp.json", `{"mcpServers": {"d": {"command": "x"}, "e": {"command": "x", "enabled": false}}, "disabledServers": ["a", "d"], "enabledServers": ["c", "e"]}`)
	want := map[string]bool{"a": true, "b": true, "c": false, "d": false, "e": true}
	for _, e := range Scan(t.Context(), m.env).Entries {
		if e.Enabled() != want[e.Name] {
			t.Errorf("%s: enabled %v (%s)", e.Name, e.Enabled(), e.Off)
		}
	}
}

// TestSeedMessages checks that what discovery leaves to validation comes out
// there in the words of the seeds.
func TestSeedMessages(t *testing.T) {
	m := newMachine(t)
	m.write("project/.mcp.json", `{"mcpServers": {"ws": {"type": "ws", "url": "wss://x.example.test"}, "both": {"url": "https://x.example.test", "command": "y"}, "none": {}}}`)
	want := map[string]string{
		"ws":   `Server "ws": unknown server type "ws"`,
		"both": `Server "both": both "command" and "url" are set - server should be either stdio (command) OR http/sse (url), not both`,
		"none": `Server "none": stdio server requires "command" field`,
	}
	for _, e := range Scan(t.Context(), m.env).Entries {
		problems := config.Validate(e.Name, e.Server, config.Lenient)
		if len(problems) != 1 || problems[0].Message != want[e.Name] {
			t.Errorf("%s: %v", e.Name, problems)
		}
	}
}

// TestClaudeLocalScope finds the servers of this user for this directory, which
// the user's own file keeps under the directory's path.
func TestClaudeLocalScope(t *testing.T) {
	for _, tt := range []struct {
		goos, key, dir, project string
		want                    bool
	}{
		{"linux", "/w/app", "/w/app", "/w/app", true},
		{"linux", "/w/app/", "/w/app/sub", "/w/app", true},
		{"linux", "/w/app/sub", "/w/app/sub", "/w/app", true},
		{"linux", "/w/APP", "/w/app", "/w/app", false},
		{"linux", "/w", "/w/app", "/w/app", false},
		{"windows", `c:/work/APP`, `C:\Work\App`, `C:\Work\App`, true},
		{"windows", `C:\Work\Other`, `C:\Work\App`, `C:\Work\App`, false},
	} {
		m := newMachine(t)
		key, err := json.Marshal(tt.key)
		if err != nil {
			t.Fatal(err)
		}
		m.write("home/.claude.json", `{"projects": {`+string(key)+`: {"mcpServers": {"x": {"command": "x"}}}}}`)
		m.env.OS, m.env.Dir, m.env.Project = tt.goos, tt.dir, tt.project
		r := Scan(t.Context(), m.env)
		if got := len(r.Entries) == 1 && r.Entries[0].Origin.Scope == config.ScopeLocal && r.Entries[0].Origin.Project == ""; got != tt.want {
			t.Errorf("%s in %s (%s): %v", tt.key, tt.dir, tt.goos, names(r))
		}
	}
}

// TestManagedStaysManaged: whoever works in the root directory does not make the
// administrator's servers a project's.
func TestManagedStaysManaged(t *testing.T) {
	m := newMachine(t)
	m.write("root/etc/claude-code/managed-mcp.json", oneServer)
	m.env.Project = filepath.Dir(m.env.Home)
	r := Scan(t.Context(), m.env)
	if len(r.Entries) != 1 || r.Entries[0].Origin.Project != "" || r.Entries[0].Origin.Priority != 110 {
		t.Errorf("found %+v", r.Entries)
	}
}
