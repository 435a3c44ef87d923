//go:build acceptance

package acceptance

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Clients whose servers are adopted read their files as before: they have the same
// servers, with the same tools, under the same names.
func TestAdopted(t *testing.T) {
	w := newWorld(t, (*world).addToProducts)
	sees := map[string]func(*testing.T) string{"claude": w.claudeSees, "codex": w.codexSees, "mcporter": w.mcporterSees}
	files := map[string]string{"codex": ".codex/config.toml", "mcporter": ".mcporter/mcporter.json"} // Claude Code writes its own all the time
	read := func(product string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(w.home, files[product]))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	before, original := map[string]string{}, map[string]string{}
	for _, product := range slices.Sorted(maps.Keys(sees)) {
		before[product] = sees[product](t)
		if files[product] != "" {
			original[product] = read(product)
		}
		has(t, product, before[product], "everything")
		has(t, "patchbay adopt "+product, w.run(t, w.patchbay, "adopt", product), "adopted")
	}
	for _, product := range slices.Sorted(maps.Keys(sees)) {
		if got := sees[product](t); got != before[product] {
			t.Errorf("%s sees\n%s\nwant\n%s", product, got, before[product])
		}
		has(t, "patchbay release "+product, w.run(t, w.patchbay, "release", product), "released")
		if files[product] != "" && read(product) != original[product] {
			t.Errorf("released, %s has\n%s\nwant\n%s", product, read(product), original[product])
		}
	}
}

// addToProducts has a server be known to clients, each in its own file.
func (w *world) addToProducts(t *testing.T) {
	t.Helper()
	command := []string{"node", filepath.Join(modules(t, "SERVERS"), "@modelcontextprotocol", "server-everything", "dist", "index.js"), "stdio"}
	w.run(t, "node", append([]string{client(t, "@anthropic-ai", "claude-code", "cli-wrapper.cjs"), "mcp", "add", "-s", "user", "everything", "--"}, command...)...)
	w.run(t, "node", append([]string{client(t, "@openai", "codex", "bin", "codex.js"), "mcp", "add", "everything", "--"}, command...)...)
	args, _ := json.Marshal(command[1:])                        // texts always marshal
	path := filepath.Join(w.home, ".mcporter", "mcporter.json") // in which mcporter starts it
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{\n  \"mcpServers\": {\n    \"everything\": {\"command\": \"node\", \"args\": "+string(args)+"}\n  }\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// claudeSees lists the servers of Claude Code, and whether it can connect to them.
func (w *world) claudeSees(t *testing.T) (all string) {
	t.Helper()
	for line := range strings.Lines(w.run(t, "node", client(t, "@anthropic-ai", "claude-code", "cli-wrapper.cjs"), "mcp", "list")) {
		name, _, found := strings.Cut(line, ": ")
		if at := strings.LastIndex(line, " - "); found && at > 0 {
			all += name + line[at:]
		}
	}
	has(t, "claude mcp list", all, "✔ Connected")
	return all
}

// codexSees lists the servers and tools of Codex.
func (w *world) codexSees(t *testing.T) string {
	t.Helper()
	var status struct {
		Data []struct {
			Name  string
			Tools map[string]json.RawMessage
		}
	}
	app := w.codexApp(t)
	if err := json.Unmarshal([]byte(app.ask(t, "mcpServerStatus/list", `{}`)), &status); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, server := range status.Data {
		for _, name := range slices.Sorted(maps.Keys(server.Tools)) {
			all = append(all, server.Name+" "+name+" "+string(server.Tools[name]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func (w *world) mcporterSees(t *testing.T) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(w.run(t, "node", client(t, "mcporter", "dist", "cli.js"), "list", "everything", "--schema")) {
		if tools, rest, ok := strings.Cut(line, " · "); ok && strings.Contains(rest, "STDIO") { // and how long it took, and the command
			line = tools + "\n"
		}
		all = append(all, line)
	}
	return strings.Join(all, "")
}
