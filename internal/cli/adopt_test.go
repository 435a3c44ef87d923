//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A product whose servers are adopted sees what it saw before, byte for byte, and
// agents that are the same have one process. Servers of two products with the same
// name stay two, whichever of them has the name elsewhere.
func TestAdopted(t *testing.T) {
	s := newStation(t)
	files := map[string]string{"claude": filepath.Join(s.home, ".claude.json"), "cursor": filepath.Join(s.home, ".cursor", "mcp.json")}
	originals := map[string]string{}
	for product, file := range files {
		originals[product] = fmt.Sprintf("{\n  \"mcpServers\": {\n    // of %s\n    \"a\": {\"command\": \"mcptest-server\", \"args\": [\"-extra\"], \"env\": {\"GORACE\": %q, \"WHO\": %q}, \"timeout\": 5000}\n  }\n}\n", product, quickExit, product)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(originals[product]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// seen is what an agent gets to know of a server. The server is one of both eras,
	// and adds something to all that it answers in the newer one.
	seen := func(a *agent) (all []string) {
		t.Helper()
		all = append(all, a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`))
		if err := a.conn.Write(t.Context(), wire.Message{Method: "notifications/initialized"}); err != nil {
			t.Fatal(err)
		}
		for method, member := range map[string]string{"tools/list": "tools", "resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"} {
			list, _ := wire.Member(json.RawMessage(a.ask(method, `{}`)), member)
			all = append(all, method+string(list))
		}
		slices.Sort(all[1:])
		return all
	}
	// entry starts what a product's file says.
	entry := func(product, dir string) *agent {
		t.Helper()
		data, err := os.ReadFile(files[product])
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(data), `"a": `) // the comment before it is none of JSON
		var e struct {
			Command string
			Args    []string
			Env     map[string]string
			Timeout int
		}
		if err := json.NewDecoder(strings.NewReader(after)).Decode(&e); err != nil || e.Timeout != 5000 {
			t.Fatalf("%v in %s", err, data)
		}
		at := *s
		at.program, at.project, at.env = e.Command, dir, slices.Clone(s.env)
		for name, value := range e.Env {
			at.env = append(at.env, name+"="+value)
		}
		return at.start(e.Args...)
	}
	who := func(a *agent) string {
		t.Helper()
		return textOf(a.ask("tools/call", `{"name":"variable","arguments":{"name":"WHO"}}`))
	}
	direct := map[string][]string{}
	for product := range files {
		direct[product] = seen(entry(product, s.project))
		out, _ := s.run("adopt", product, "--json")
		var done patchbay.Adoption
		if err := json.Unmarshal([]byte(out), &done); err != nil || len(done.Servers) != 1 || done.Servers[0].Action != "adopted" || done.Servers[0].Endpoint != product+"/a" {
			t.Fatalf("%v: %s", err, out)
		}
	}
	pids := map[string]string{}
	for product := range files {
		for range 3 {
			a := entry(product, s.project)
			if got := seen(a); !slices.Equal(got, direct[product]) {
				t.Errorf("%s sees\n%q\nwant\n%q", product, got, direct[product])
			}
			if got := who(a); got != product {
				t.Errorf("%s uses the server of %s", product, got)
			}
			if pid := a.call("pid"); pids[product] == "" {
				pids[product] = pid
			} else if pids[product] != pid {
				t.Errorf("agents of %s use the processes %s and %s", product, pids[product], pid)
			}
		}
	}
	out, _ := s.run("status", "--json")
	var status control.Status
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	running := map[string]int{}
	for _, p := range status.Servers {
		running[p.Server]++
	}
	if len(status.Clients) != 6 || running["a"] != 1 || running["cursor/a"] != 1 || len(status.Servers) > 3 { // and s
		t.Errorf("status: %s", out)
	}
	// Some products start servers where their files are, as if those were a project's.
	if got := seen(entry("cursor", filepath.Dir(files["cursor"]))); !slices.Equal(got, direct["cursor"]) {
		t.Errorf("beside its file cursor sees\n%q\nwant\n%q", got, direct["cursor"])
	}
	everything := s.start("serve", "--stdio")
	list := strings.Join(seen(everything), "\n")
	if strings.Count(list, `__wipe"`) != 2 || !strings.Contains(list, `"a__wipe"`) || !strings.Contains(list, `"s__wipe"`) {
		t.Errorf("an agent that has everything sees %s", list)
	}
	for product, file := range files {
		s.run("release", product)
		if data, err := os.ReadFile(file); err != nil || string(data) != originals[product] {
			t.Errorf("released, %s has %v\n%s\nwant\n%s", product, err, data, originals[product])
		}
	}
}
