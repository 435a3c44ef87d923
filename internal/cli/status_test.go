//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// status shows who is attached, which agent uses which process, and how those of a
// server differ: names of variables, and no values.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	configure(t, s.home, fmt.Sprintf(`{"command": "mcptest-server", "args": ["-extra"], "env": {"GORACE": %q, "GH": "${TOKEN}"}}`, quickExit))
	env, dir := s.env, s.project
	newAgent := func(name, token, capabilities string) *agent {
		t.Helper()
		s.env = append(slices.Clone(env), "TOKEN="+token)
		a := s.start("serve", "--stdio", "--endpoint", "s")
		a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":`+capabilities+`,"clientInfo":{"name":"`+name+`","version":"1"}}`)
		if err := a.conn.Write(t.Context(), wire.Message{Method: "notifications/initialized"}); err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, same := newAgent("one", "tide", "{}"), newAgent("same", "tide", "{}")
	able, other := newAgent("able", "tide", `{"sampling":{}}`), newAgent("other", "moon", "{}")
	s.project = t.TempDir()
	elsewhere := newAgent("elsewhere", "tide", "{}")
	s.project = dir

	// Each agent uses the process that status says, and those that are equal the same.
	pids := map[string]string{}
	for name, a := range map[string]*agent{"one": one, "same": same, "able": able, "other": other, "elsewhere": elsewhere} {
		pids[name] = a.call("pid")
	}
	out, _ := s.run("status", "--json")
	var status control.Status
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	if len(status.Clients) != 5 || status.Clients[0].PID != one.cmd.Process.Pid || status.Clients[0].Name != "one" || status.Clients[0].Dir != s.project {
		t.Errorf("the clients are %+v", status.Clients)
	}
	used, all := map[string]string{}, map[string]control.ServerProcess{}
	for _, p := range status.Servers {
		all[fmt.Sprint(p.PID)] = p
		for _, u := range p.Users {
			used[strings.TrimSuffix(u.Name, " 1")] = fmt.Sprint(p.PID)
			if u.Name == "one 1" && u.PID != one.cmd.Process.Pid {
				t.Errorf("the agent is %+v, want process %d", u, one.cmd.Process.Pid)
			}
		}
	}
	if !maps.Equal(used, pids) || pids["one"] != pids["same"] || len(all) != 4 {
		t.Fatalf("the agents use %v, status says %v:\n%s", pids, used, out)
	}
	// Which is the first is a matter of chance; each of the others differs from the
	// one that is most like it, in one thing if that one is a neighbour of it.
	want := map[string]string{"able": "capability sampling; protocol era", "other": "variable TOKEN", "elsewhere": "directory"}
	for name, difference := range want {
		p, first := all[pids[name]], all[pids["one"]]
		if p.PID < first.PID {
			p, first = first, p
		}
		if p.Unlike == nil || p.Unlike.PID == first.PID && p.Unlike.String() != difference || p.Unlike.Count() > 2 {
			t.Errorf("%s: %+v, want %q", name, p.Unlike, difference)
		}
	}
	text, _ := s.run("status")
	for _, part := range []string{"AGENT", fmt.Sprintf("one 1 (%d), same 1 (%d)", one.cmd.Process.Pid, same.cmd.Process.Pid), "variable TOKEN", "capability sampling", "directory"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	if strings.Contains(out+text, "moon") || strings.Contains(out+text, "tide") {
		t.Errorf("a value is in\n%s%s", out, text)
	}
	if again, _ := s.run("daemon", "status"); !strings.HasPrefix(again, "Daemon, process ") {
		t.Errorf("daemon status: %s", again)
	}
}
