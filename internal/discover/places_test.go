package discover

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlaces compares where every provider's files lie on each operating
// system with testdata/places: paths are data, whatever machine runs the test.
func TestPlaces(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  Env
		vars map[string]string
	}{
		{name: "linux", env: Env{OS: "linux", Home: "/home/u", ConfigDir: "/home/u/.config/patchbay"}},
		{name: "darwin", env: Env{OS: "darwin", Home: "/Users/u", ConfigDir: "/Users/u/Library/Application Support/patchbay"}},
		{name: "windows", env: Env{OS: "windows", Home: "C:/Users/u", ConfigDir: "C:/Users/u/AppData/Roaming/patchbay"}},
		{name: "windows-moved", env: Env{OS: "windows", Home: "C:/Users/u"}, vars: map[string]string{
			"APPDATA": `D:\Roaming`, "CODEX_HOME": `D:\codex`, "CLAUDE_CONFIG_DIR": `D:\claude`,
		}},
		{name: "linux-moved", env: Env{OS: "linux", Home: "/home/u"}, vars: map[string]string{
			"XDG_CONFIG_HOME": "/x/config", "CODEX_HOME": "/x/codex", "CLAUDE_CONFIG_DIR": "/x/claude", "CLINE_DIR": "/x/cline",
			"OPENCODE_CONFIG": "/x/my.json", "OPENCODE_CONFIG_DIR": "/x/opencode", "PI_CODING_AGENT_DIR": "/x/pi", "KIMI_CODE_HOME": "/x/kimi",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.env.Getenv = func(name string) string { return tt.vars[name] }
			s := newScan(tt.env)
			var out strings.Builder
			for _, p := range Providers() {
				for _, place := range p.Places {
					if place.OS != "" && place.OS != tt.env.OS {
						continue
					}
					file := place.Path
					if !place.relative() {
						root, rest, _ := s.resolve(place.Path)
						if root == "" {
							continue
						}
						file = path.Join(filepath.ToSlash(root), rest)
					}
					fmt.Fprintf(&out, "%-15s %-8s %s\n", p.ID, place.Scope, file)
				}
			}
			golden(t, "testdata/places/"+tt.name+".txt", []byte(out.String()))
			for _, p := range s.result.Problems {
				t.Error(p)
			}
		})
	}
}

func TestProviders(t *testing.T) {
	seen := map[string]bool{}
	last := Provider{Priority: 1000}
	for _, p := range Providers() {
		if seen[p.ID] {
			t.Errorf("%s: the id is taken", p.ID)
		}
		seen[p.ID] = true
		if p.Priority > last.Priority || p.Priority == last.Priority && p.ID < last.ID {
			t.Errorf("%s (%d) is out of order after %s (%d)", p.ID, p.Priority, last.ID, last.Priority)
		}
		last = p
		if len(p.Places) == 0 && p.Note == "" {
			t.Errorf("%s has no place and does not say why", p.ID)
		}
		for _, place := range p.Places {
			if place.read == nil && place.script == nil && place.Note == "" {
				t.Errorf("%s: nobody reads %s", p.ID, place.Path)
			}
			if place.read != nil && p.dialect == "" {
				t.Errorf("%s has no dialect", p.ID)
			}
		}
	}
}

func TestAncestors(t *testing.T) {
	for _, tt := range []struct{ dir, root, want string }{
		{"/a/b/c", "/a", "/a/b/c /a/b /a"},
		{"/a", "/a", "/a"},
		{"/a/b/", "/a/", "/a/b /a"},
		{"/a/b", "/", "/a/b /a /"},
		{"/a/bc", "/a/b", "/a/bc /a/b"},
		{"", "", ""},
	} {
		if got := strings.Join(ancestors(tt.dir, tt.root), " "); filepath.ToSlash(got) != tt.want {
			t.Errorf("ancestors(%q, %q) = %q, want %q", tt.dir, tt.root, got, tt.want)
		}
	}
}

func TestRelativeVariableIsIgnored(t *testing.T) {
	m := newMachine(t)
	m.write("home/.codex/config.toml", "[mcp_servers.mine]\ncommand = \"x\"\n")
	m.write("project/evil/config.toml", "[mcp_servers.evil]\ncommand = \"x\"\n")
	m.env.Getenv = func(name string) string {
		if name == "CODEX_HOME" {
			return "./evil"
		}
		return ""
	}
	r := Scan(t.Context(), m.env)
	if len(r.Entries) != 1 || r.Entries[0].Name != "mine" {
		t.Errorf("found %v", names(r))
	}
	if len(r.Problems) != 1 || r.Problems[0].Message != "CODEX_HOME is not an absolute path and is ignored" {
		t.Errorf("problems: %v", r.Problems)
	}
}

// names lists the entries of a result as provider/name.
func names(r Result) []string {
	out := []string{}
	for _, e := range r.Entries {
		out = append(out, e.Origin.Provider+"/"+e.Name)
	}
	return out
}

func TestRemote(t *testing.T) {
	for p, want := range map[string]bool{
		`\\server\share\x.exe`: true, `//server/share/x.exe`: true, `\/server/x`: true, `\\?\UNC\server\share`: true,
		`C:\x.exe`: false, `\x.exe`: false, "x.exe": false, "": false,
	} {
		if got := Remote("windows", p); got != want {
			t.Errorf("Remote(%q) = %v", p, got)
		}
		if Remote("linux", p) {
			t.Errorf("on Linux %q is a path like any other", p)
		}
	}
}
