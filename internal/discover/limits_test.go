package discover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// TestLimits gives readers far more than anybody writes. Each bound holds, says
// so, and leaves what came before it usable.
func TestLimits(t *testing.T) {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for _, tt := range []struct {
		file, text string
		entries    int
		problem    string // of the file
	}{
		{"project/.mcp.json", `{"mcpServers": {` + many(2500, `"s%d": {"command": "x"},`) + `}}`, 2000, "more than 2000 servers; the rest is not read"},
		{"project/.continue/mcpServers/a.yaml", "mcpServers:\n" + many(2500, "- {name: s%d, command: x}\n"), 2000, "more than 2000 servers; the rest is not read"},
		{"project/.mcp.json", strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101), 0, "nested more than 100 levels deep"},
		{"project/.codex/config.toml", "a = " + strings.Repeat("[", 101) + strings.Repeat("]", 101), 0, "nested more than 100 levels deep"},
		{"project/.codex/config.toml", strings.Repeat("a.", 101) + "a = 1", 0, "nested more than 100 levels deep"},
		{"project/.codex/config.toml", "a = " + strings.Repeat("{a = ", 101) + "1" + strings.Repeat("}", 101), 0, "nested more than 100 levels deep"},
		{"project/.codex/config.toml", "a = [" + strings.Repeat("1,", 100_000) + "]", 0, "more than 100000 values"},
		{"project/.codex/config.toml", many(100_001, "a%d = 1\n"), 0, "more than 100000 values"},
		{"home/.continue/config.yaml", strings.Repeat("- ", 102) + "a", 0, "nested more than 100 levels deep"},
		{"home/.continue/config.yaml", "[" + strings.Repeat("1,", 100_000) + "]", 0, "more than 100000 values"},
		{"project/.claude/settings.json", `{"disabledMcpjsonServers": [` + many(1500, `"s%d",`) + `]}`, 0, "more than 1000 elements; the rest is ignored"},
	} {
		m := newMachine(t)
		m.write(tt.file, tt.text)
		r := Scan(t.Context(), m.env)
		if len(r.Entries) != tt.entries {
			t.Errorf("%.40s…: %d entries", tt.text, len(r.Entries))
		}
		if len(r.Problems) != 1 || r.Problems[0].Message != tt.problem || r.Problems[0].Line < 1 {
			t.Errorf("%.40s…: %v", tt.text, r.Problems)
		}
	}
}

// TestManyMistakes: one entry's mistakes are counted, not collected for ever.
func TestManyMistakes(t *testing.T) {
	m := newMachine(t)
	m.write("project/.mcp.json", `{"mcpServers": {"a": {"args": [`+strings.Repeat("1,", 3_000)+`], "env": {`+strings.Repeat(`"A": 1,`, 3_000)+`}}, "b": {"command": "x"}}}`)
	r := Scan(t.Context(), m.env)
	if len(r.Entries) != 2 || len(r.Entries[0].Problems) != config.MaxProblems || len(r.Entries[1].Problems) != 0 {
		t.Errorf("entries: %v", names(r))
	}
}

func TestManyFiles(t *testing.T) {
	m := newMachine(t)
	for i := range 300 {
		m.write(fmt.Sprintf("project/.amazonq/cli-agents/a%03d.json", i), fmt.Sprintf(`{"mcpServers": {"s%d": {"command": "x"}}}`, i))
	}
	r := Scan(t.Context(), m.env)
	if len(r.Entries) != 256 || r.Entries[255].Name != "s255" {
		t.Errorf("%d entries", len(r.Entries))
	}
	if len(r.Problems) != 1 || r.Problems[0].Message != "more than 256 files; the rest is not read" {
		t.Errorf("problems: %v", r.Problems)
	}
}

// What a project holds in many files is bounded too, and never at the cost of
// the user's own.
func TestManyServersInManyFiles(t *testing.T) {
	m := newMachine(t)
	for i := range 6 {
		m.write(fmt.Sprintf("project/.amazonq/cli-agents/%d.json", i), `{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}}`)
	}
	m.write("home/.config/Code/User/mcp.json", `{"servers": {"mine": {"command": "x"}}}`) // last in the table
	for _, tt := range []struct {
		entries, bytes, want int
		problem              string
	}{
		{maxEntries, maxBytes, 13, ""},
		{10, maxBytes, 10, "more than 5000 servers in all files; the rest is not read"},
		{maxEntries, 200, 5, "more than 64 MiB in all files; the rest is not read"},
	} {
		s := newScan(m.env)
		s.entriesLeft, s.bytesLeft = tt.entries, tt.bytes
		r := s.run(t.Context())
		if len(r.Entries) != tt.want || r.Entries[tt.want-1].Name != "mine" {
			t.Errorf("%d entries: %v", len(r.Entries), names(r))
		}
		problem := ""
		if len(r.Problems) > 0 {
			problem = r.Problems[0].Message
		}
		if problem != tt.problem {
			t.Errorf("problems: %v", r.Problems)
		}
	}
}

func TestExecutesNamesEachOnce(t *testing.T) {
	m := newMachine(t)
	m.write("home/.config/patchbay/mcp.json", `{"mcpServers": {"a": {"url": "https://x.example.test/mcp", "type": "http", "headersHelper": "helper --x",
		"headers": {"B": "!two", "A": "!one", "C": "!two", "D": "plain!", "E": "!"}}}}`)
	r := Scan(t.Context(), m.env)
	if got := r.Entries[0].Executes; !slices.Equal(got, []string{"helper --x", "one", "two"}) {
		t.Errorf("executes %q", got)
	}
}
