package discover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// state says in one line what a scan found: each entry, with a mark if it is
// off, the overrides, and the files that are broken.
func state(r Result) string {
	var out []string
	for _, e := range r.Entries {
		text := e.Name
		if e.Off != "" {
			text += " off"
		}
		if e.Origin.Project != "" {
			text += " of a project"
		}
		out = append(out, text)
	}
	for _, name := range r.DisabledServers {
		out = append(out, "disabled "+name)
	}
	for _, f := range r.Files {
		if f.Status == Invalid || f.Status == Unreadable {
			out = append(out, f.Status+" "+filepath.Base(f.Path))
		}
	}
	return strings.Join(out, ", ")
}

// A file that breaks goes on saying what it said, about its own servers and
// about those of others, until it is repaired or gone.
func TestMemory(t *testing.T) {
	m := newMachine(t)
	m.env.Memory = &Memory{}
	expect := func(when, want string) {
		t.Helper()
		if got := state(Scan(t.Context(), m.env)); got != want {
			t.Errorf("%s: %s\nwant %s", when, got, want)
		}
	}
	own := m.write("home/.config/patchbay/mcp.json", `{"mcpServers": {"a": {"command": "x"}}, "disabledServers": ["p"]}`)
	m.write("project/.mcp.json", `{"mcpServers": {"p": {"command": "x"}, "q": {"command": "x"}}}`)
	settings := m.write("project/.claude/settings.json", `{"disabledMcpjsonServers": ["q"]}`)
	const all = "a, p of a project, q off of a project, disabled p"
	expect("at first", all)

	m.write("home/.config/patchbay/mcp.json", `{"mcpServers": {"a": {"comm`)
	m.write("project/.claude/settings.json", `{"disabledMcpjsonServers": [`)
	m.write("project/.mcp.json", `{`)
	broken := all + ", invalid mcp.json, invalid .mcp.json, invalid settings.json"
	expect("broken", broken)
	expect("still broken", broken)

	m.write("project/.mcp.json", `{"mcpServers": {"r": {"command": "x"}}}`)
	m.write("project/.claude/settings.json", `{}`)
	expect("two repaired", "a, r of a project, disabled p, invalid mcp.json")

	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	expect("deleted", "r of a project")
	m.write("home/.config/patchbay/mcp.json", `{`)
	expect("broken from its birth", "r of a project, invalid mcp.json")
	if err := os.Remove(settings); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(settings, 0o755); err != nil {
		t.Fatal(err)
	}
	expect("replaced by a directory", "r of a project, invalid mcp.json, unreadable settings.json")
}

// What a project's file said stays the project's, even if another file lies in
// its place.
func TestMemoryKeepsTheOwner(t *testing.T) {
	m := newMachine(t)
	m.env.Memory = &Memory{}
	target := m.write("project/shared.json", oneServer)
	link := m.write("home/.cursor/mcp.json", "")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if got := state(Scan(t.Context(), m.env)); got != "x of a project" {
		t.Fatal(got)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	m.write("home/.cursor/mcp.json", "{")
	if got := state(Scan(t.Context(), m.env)); got != "x of a project, invalid mcp.json" {
		t.Error(got)
	}
}
