package discover

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// age makes a file old enough for its time to tell it from the next change.
func age(t *testing.T, file string) {
	t.Helper()
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, long, long); err != nil {
		t.Fatal(err)
	}
}

// A file is read once for all who scan, and again when it has changed.
func TestFilesAreReadOnce(t *testing.T) {
	m := newMachine(t)
	var cache Cache
	var views []Env
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		env := m.env
		env.Dir = filepath.Join(filepath.Dir(m.env.Home), name)
		env.Project, env.Memory, env.Cache = env.Dir, &Memory{}, &cache
		views = append(views, env)
	}
	scan := func(want string, reads int64) {
		t.Helper()
		before := cache.reads.Load()
		for range 3 {
			for _, env := range views {
				if got := state(Scan(t.Context(), env)); got != want {
					t.Errorf("%s: %s, want %s", filepath.Base(env.Dir), got, want)
				}
			}
		}
		if got := cache.reads.Load() - before; got != reads {
			t.Errorf("%d files were read for %s, want %d", got, want, reads)
		}
	}
	age(t, m.write("home/.cursor/mcp.json", oneServer))
	claude := m.write("home/.claude.json", `{"mcpServers": {"y": {"command": "x"}}}`)
	age(t, claude)
	scan("y, x", 2)
	m.write("home/.claude.json", `{"mcpServers": {"z": {"command": "x"}}}`)
	if err := os.Chtimes(claude, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	scan("z, x", 1)
	m.write("home/.claude.json", `{"mcpServers": {`)
	age(t, claude)
	scan("z, x, invalid .claude.json", 1)

	// What no scan remembers is not kept.
	one := views[0]
	one.Memory = &Memory{}
	views = []Env{one}
	if err := os.Remove(claude); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	age(t, m.write("home/.qwen/settings.json", `{}`))
	scan("x", 2)
	if len(cache.files) != 2 {
		t.Errorf("%d files are kept", len(cache.files))
	}
}

// longClaudeFile is as long as that of somebody who has used Claude Code for
// years, and has a server of the user's and one of the project's.
func longClaudeFile(project string) string {
	history := strings.Repeat(`        {"display": "what \"was\" typed, over and over", "pastedContents": {}},`+"\n", 280_000)
	return "{\n  \"numStartups\": 1,\n  \"projects\": {\n    \"/elsewhere\": {\n      \"history\": [\n" + history + "      ],\n      \"mcpServers\": {\"no\": {\"command\": \"x\"}}\n    },\n" +
		"    \"" + project + "\": {\n      \"mcpServers\": {\n        \"l\": {\"command\": \"x\"}\n      },\n      \"disabledMcpServers\": [\"off\"]\n    }\n  },\n" +
		"  \"mcpServers\": {\n    \"u\": {\"command\": \"x\"},\n    \"off\": {\"command\": \"x\"}\n  }\n}\n"
}

// However long .claude.json is, its servers are read, in little memory.
func TestLongClaudeFile(t *testing.T) {
	m := newMachine(t)
	file := m.write("home/.claude.json", longClaudeFile(m.env.Project))
	info, err := os.Stat(file)
	if err != nil || info.Size() < 20<<20 {
		t.Fatal(info.Size(), err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := Scan(t.Context(), m.env)
	runtime.ReadMemStats(&after)
	if got := state(r); got != "l, u, off off" || len(r.Problems) > 0 {
		t.Errorf("%s: %v", got, r.Problems)
	}
	if r.Entries[1].Origin.Line != 280_017 {
		t.Errorf("u is at line %d", r.Entries[1].Origin.Line)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
		t.Errorf("%d bytes for a file of %d", got, info.Size())
	}
	if err := os.Truncate(file, 256<<20+1); err != nil {
		t.Fatal(err)
	}
	if r := Scan(t.Context(), m.env); state(r) != "unreadable .claude.json" || r.Problems[0].Message != "larger than 256 MiB" {
		t.Errorf("%s: %v", state(r), r.Problems)
	}
}
