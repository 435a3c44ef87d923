package discover

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// Patchbay can take the place of the servers of a product's own files, whatever
// else is in them: they are still found as they were, the product finds nothing
// but Patchbay, and at the end every byte is as it was.
func TestAdoptRoundTrip(t *testing.T) {
	samples, err := os.ReadDir("testdata/config")
	if err != nil {
		t.Fatal(err)
	}
	adopted := map[string]int{}
	for _, sample := range directoryNames(samples) {
		t.Run(sample, func(t *testing.T) {
			m := newMachine(t)
			m.lay("testdata/config/" + sample)
			for id, n := range adoptAll(t, m) {
				adopted[id] += n
			}
		})
	}
	t.Run("layouts", func(t *testing.T) {
		m := newMachine(t)
		for path, text := range layouts {
			m.write(path, text)
		}
		long := strings.Repeat("x", config.MaxFileSize) // of which no more is read than the servers
		m.write("home/.claude.json", `{"history": "`+long+`", "mcpServers": {"a": {"command": "x"}}, "projects": {"/srv/app": {"mcpServers": {"a": {"command": "y"}}, "history": ["`+long+`"]}}}`)
		for id, n := range adoptAll(t, m) {
			adopted[id] += n
		}
	})
	for _, id := range []string{"claude", "claude-desktop", "cursor", "vscode", "codex", "gemini", "zed", "windsurf", "opencode", "goose"} {
		if adopted[id] == 0 {
			t.Errorf("no server of %s was adopted", id)
		}
	}
}

// layouts are files as people write them.
var layouts = map[string]string{
	"home/.config/Code/User/mcp.json": "{\r\n\t\"servers\": {\r\n\t\t// mine\r\n\t\t\"a\": { \"type\": \"stdio\", \"command\": \"x\", \"env\": { \"K\": \"v\" } },\r\n\t\t\"b\": {\"type\":\"http\",\"url\":\"http://localhost:1/mcp\",}, // last\r\n\t},\r\n}\r\n",
	"home/.config/zed/settings.json":  "\ufeff// Zed\n{\"theme\": \"x\", \"context_servers\": {\"old\": {\"source\": \"custom\", \"command\": {\"path\": \"p\", \"args\": [], \"env\": {}}}, \"new\": {\"command\": \"p\", /* why */ \"args\": []}}}",
	"home/.codex/config.toml":         "# top\n\n# about a\n[mcp_servers.a] # here\n# how\ncommand = \"x\"\nargs = [\n  \"1\", # one\n  \"# two\",\n]\n# how long\nstartup_timeout_sec = 20\n\n  [mcp_servers.a.env]\n  T = \"\"\"\n# not a comment\"\"\"\n\n[mcp_servers.a.tools.t]\napproval_mode = \"prompt\"\n\n# about b\n[mcp_servers.\"b c\"]\nurl = \"http://localhost:1/mcp\"\nbearer_token_env_var = \"BT\"\n\n\n[other]\nk = 1",
	"home/.config/goose/config.yaml":  "# top\nextensions:\n\n  # about a\n  a:\n    # how\n    type: stdio\n    cmd: x\n    args:\n    - -y\n    - |\n      # text\n\n    envs:\n      K: v\n    # how long\n    timeout: 5\n    enabled: true\n    name: a\n\n  # about b\n  b:\n    type: stdio\n    cmd: y\n    enabled: true\nOTHER: 1",
}

func adoptAll(t *testing.T, m *machine) map[string]int {
	t.Helper()
	before := Scan(t.Context(), m.env).Entries
	original := map[string][]byte{}
	now := map[string][]byte{}
	adopted := map[string]int{}
	for _, e := range before {
		file := e.Origin.File
		if e.Skip != "" || !e.Valid() || e.Origin.Project != "" || e.Origin.Scope != user && e.Origin.Scope != local || e.Origin.Provider == SelfName {
			continue
		}
		if original[file] == nil {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			original[file], now[file] = data, data
		}
		out, a, err := Adopt(now[file], e, e.Origin.Provider+"/"+e.Name, testSelf["stdio"], nil)
		switch {
		case errors.Is(err, ErrOtherFile), errors.Is(err, ErrAsks), errors.Is(err, ErrSandboxed):
			continue
		case errors.Is(err, ErrForm) && (strings.HasPrefix(t.Name(), "TestAdoptRoundTrip/_") || e.Origin.Provider == "goose" && e.Name == "old"):
			continue // written as nobody does, or in one line of YAML
		case err != nil:
			t.Errorf("%s in %s: %v", e.Name, file, err)
			continue
		}
		now[file] = out
		m.env.Adopted = append(m.env.Adopted, a)
		adopted[a.Provider]++

		again, b, err := Adopt(out, e, a.Name, testSelf["stdio"], &a)
		if err != nil || string(again) != string(out) || b != a {
			t.Errorf("%s a second time: %v\n%.2000s\nafter\n%.2000s", a.Name, err, again, out)
		}
	}
	for file, data := range now {
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	records := m.env.Adopted
	if got, want := placeless(Scan(t.Context(), m.env).Entries), placeless(before); !reflect.DeepEqual(got, want) {
		for i := range want {
			if i < len(got) && !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("it is read as\n%+v\nwant\n%+v\nfrom\n%.2000s", got[i], want[i], now[want[i].Origin.File])
			}
		}
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	m.env.Adopted = nil
	for _, e := range Scan(t.Context(), m.env).Entries {
		for _, a := range records {
			if a.File == e.Origin.File && a.Pointer == e.Origin.Pointer && e.Skip == "" {
				t.Errorf("without its original %s is not Patchbay: %+v", a.Name, e)
			}
		}
	}
	for _, a := range records {
		out, err := a.Release(now[a.File])
		if err != nil {
			t.Errorf("release of %s: %v\n%.2000s", a.Name, err, now[a.File])
			continue
		}
		now[a.File] = out
	}
	for file, want := range original {
		if string(now[file]) != string(want) {
			t.Errorf("released it is\n%.2000s\nwant\n%.2000s", now[file], want)
		}
	}
	return adopted
}

// What is edited since is not taken for what was written, and what the product
// has a say in is read as it is now.
func TestAdoptEdited(t *testing.T) {
	m := newMachine(t)
	file := m.write("home/.codex/config.toml", "[mcp_servers.a]\ncommand = \"x\"\nenv = { K = \"v\" }\ntool_timeout_sec = 5\nenabled_tools = [\"t\"]\n")
	before := Scan(t.Context(), m.env).Entries[0]
	read := func() []byte {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	out, a, err := Adopt(read(), before, "codex/a", testSelf["stdio"], nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "[mcp_servers.a]\ncommand = \"/opt/patch bay/patchbay\"\nargs = [\"serve\",\"--stdio\",\"--endpoint\",\"codex/a\"]\ntool_timeout_sec = 5\nenabled_tools = [\"t\"]\n"
	if string(out) != want {
		t.Fatalf("adopted it is\n%s\nwant\n%s", out, want)
	}
	m.env.Adopted = []Adopted{a}
	for _, c := range []struct {
		name, from, to string
		error          error
		check          func(config.Entry) bool
	}{
		{"laid out anew", `args = [`, `args =   [`, nil, func(e config.Entry) bool { return e.Server.Command == "x" && e.Adopted == a.Name }},
		{"a member changed", `_sec = 5`, `_sec = 6`, ErrEdited, func(e config.Entry) bool { return e.Server.Command == "x" && *e.Server.Timeout == 6000 }},
		{"a member removed", "enabled_tools = [\"t\"]\n", "", ErrEdited, func(e config.Entry) bool { return e.Server.Command == "x" && e.Server.EnabledTools == nil }},
		{"a member added", "tool_timeout", "enabled = false\ntool_timeout", ErrEdited, func(e config.Entry) bool { return e.Server.Command == "x" && !e.Enabled() }},
		{"another command", `"--endpoint","codex/a"`, ``, ErrReplaced, func(e config.Entry) bool { return e.Adopted == "" && e.Skip != "" }},
		{"no entry", want, "", ErrReplaced, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			edited := strings.Replace(want, c.from, c.to, 1)
			if _, err := a.Release([]byte(edited)); !errors.Is(err, c.error) {
				t.Errorf("release: %v, want %v", err, c.error)
			}
			m.write("home/.codex/config.toml", edited)
			entries := Scan(t.Context(), m.env).Entries
			if c.check == nil && len(entries) == 0 {
				return
			}
			if len(entries) != 1 || !c.check(entries[0]) || entries[0].Adopted != "" && entries[0].Server.Env["K"].Reveal() != "v" {
				t.Errorf("it is read as %+v", entries)
			}
		})
	}
}

// placeless drops from entries what tells that they were adopted, and where
// exactly in their files they are.
func placeless(entries []config.Entry) []config.Entry {
	for i := range entries {
		e := &entries[i]
		e.Adopted, e.Origin.Line = "", 0
		var kept []config.Problem
		for _, p := range e.Problems {
			p.Line, p.Column = 0, 0
			if !strings.Contains(p.Message, "and is gone") { // as that of these tests is
				kept = append(kept, p)
			}
		}
		e.Problems = kept
	}
	return entries
}

// Files that came with a plugin or an extension are not the user's to change.
func TestAdoptOwnFilesOnly(t *testing.T) {
	for file, provider := range map[string]string{"/home/x/.claude/plugins/p/.mcp.json": claudeProvider, "/home/x/.gemini/extensions/e/gemini-extension.json": "gemini"} {
		e := config.Entry{Name: "a", Origin: config.Origin{Provider: provider, Scope: user, File: file, Pointer: "/mcpServers/a"}}
		if _, _, err := Adopt([]byte(`{"mcpServers": {"a": {"command": "x"}}}`), e, provider+"/a", testSelf["stdio"], nil); !errors.Is(err, ErrOtherFile) {
			t.Errorf("%s: %v, want %v", file, err, ErrOtherFile)
		}
	}
}
