package discover

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A survey differs from the one before exactly if something changed at a place
// of the table, and tells where to wait for that.
func TestSurvey(t *testing.T) {
	m := newMachine(t)
	cursor := m.write("home/.cursor/mcp.json", oneServer)
	target := m.write("dotfiles/gemini.json", `{}`)
	approvals := filepath.Join(m.env.StateDir, "approvals.json")
	long := time.Now().Add(-time.Hour)
	for _, file := range []string{cursor, target} {
		if err := os.Chtimes(file, long, long); err != nil {
			t.Fatal(err)
		}
	}
	last := NewSurvey(m.env, approvals)
	changed := func(what string, want bool) {
		t.Helper()
		now := NewSurvey(m.env, approvals)
		if got := !now.Same(last); got != want {
			t.Errorf("%s: changed is %v", what, got)
		}
		last = now
		for path := range now.files { // so that none is too young to tell
			_ = os.Chtimes(path, long, long)
		}
		last = NewSurvey(m.env, approvals)
	}
	watched := func(path string, want bool) {
		t.Helper()
		if got := last.Concerns(path) && slices.Contains(last.Dirs, filepath.Dir(path)); got != want {
			t.Errorf("%s: watched is %v", path, got)
		}
	}
	home := func(path string) string { return filepath.Join(m.env.Home, path) }
	changed("nothing", false)
	watched(cursor, true)
	watched(home(".claude.json"), true) // may appear
	watched(home(".gemini"), true)      // so may the directory of a file
	watched(home(".bash_history"), false)
	watched(home(".cursor/other"), false)

	m.write("home/.cursor/mcp.json", `{}`)
	changed("written", true)
	m.write("home/.cursor/other", `{}`)
	changed("another file", false)
	m.write("project/.mcp.json", oneServer)
	changed("a new file", true)
	if err := os.Remove(cursor); err != nil {
		t.Fatal(err)
	}
	changed("one is gone", true)
	if err := os.Mkdir(home(".gemini"), 0o755); err != nil {
		t.Fatal(err)
	}
	changed("a directory", false)
	watched(home(".gemini/settings.json"), true)
	watched(home(".gemini/extensions"), true)
	if err := os.Symlink(target, home(".gemini/settings.json")); err != nil {
		t.Fatal(err)
	}
	changed("a link", true)
	watched(target, true)
	m.write("dotfiles/gemini.json", `{"mcpServers": {}}`)
	changed("where it leads", true)
	m.write("home/.gemini/extensions/one/readme", "")
	watched(home(".gemini/extensions/two"), false)
	changed("an extension", true)
	watched(home(".gemini/extensions/two"), true)
	watched(home(".gemini/extensions/one/gemini-extension.json"), true)
	m.write("home/.local/state/patchbay/approvals.json", "{}")
	changed("a further file", true)
}

// A file that changed a moment ago may change again within one tick of its
// clock, and count as the same.
func TestSurveyOfAYoungFile(t *testing.T) {
	m := newMachine(t)
	file := m.write("home/.cursor/mcp.json", oneServer)
	now := time.Now()
	if err := os.Chtimes(file, now, now); err != nil {
		t.Fatal(err)
	}
	if last := NewSurvey(m.env); NewSurvey(m.env).Same(last) && last.taken.Sub(now) < settled {
		t.Error("taken for settled")
	}
}
