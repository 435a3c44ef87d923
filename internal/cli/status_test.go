//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// status shows who is attached, which processes run for whom, and why there are
// two: names of variables, and no values.
func TestStatus(t *testing.T) {
	s := newStation(t)
	configure(t, s.home, fmt.Sprintf(`{"command": "mcptest-server", "args": ["-extra"], "env": {"GORACE": %q, "TOKEN": "${TOKEN}"}}`, quickExit))
	env := s.env
	agent := func(token, capabilities string) *agent {
		t.Helper()
		s.env = append(slices.Clone(env), "TOKEN="+token)
		a := s.start("serve", "--stdio", "--endpoint", "s")
		a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":`+capabilities+`,"clientInfo":{"name":"agent of `+token+`","version":"1"}}`)
		if err := a.conn.Write(t.Context(), wire.Message{Method: "notifications/initialized"}); err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, same := agent("tide", "{}"), agent("tide", "{}")
	able, other := agent("tide", `{"sampling":{}}`), agent("moon", "{}")
	pid := one.call("pid")
	if got := same.call("pid"); got != pid {
		t.Errorf("two agents that are the same use the processes %s and %s", pid, got)
	}
	want := map[string]string{
		able.call("pid"):  "clients with other capabilities",
		other.call("pid"): "another environment: TOKEN",
	}
	out, _ := s.run("status", "--json")
	var status control.Status
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	if len(status.Clients) != 4 || status.Clients[0].PID != one.cmd.Process.Pid || status.Clients[0].Name != "agent of tide" || status.Clients[0].Dir != s.project {
		t.Errorf("the clients are %+v", status.Clients)
	}
	why := map[string]string{}
	for _, p := range status.Servers {
		why[fmt.Sprint(p.PID)] = p.Why
		if p.Server != "s" || !slices.Equal(p.Dirs, []string{s.project}) || (p.Sessions == 2) != (fmt.Sprint(p.PID) == pid) {
			t.Errorf("a process: %+v", p)
		}
	}
	if len(why) != 3 {
		t.Fatalf("the processes are %+v, want %v", status.Servers, want)
	}
	// Which is the first is a matter of chance; the others differ from it.
	if first := fmt.Sprint(status.Servers[0].PID); first == pid {
		for p, reason := range want {
			if why[p] != reason {
				t.Errorf("process %s: %q, want %q", p, why[p], reason)
			}
		}
	}
	text, _ := s.run("status")
	for _, part := range []string{"agent of tide", "agent of moon", "SESSIONS", "another environment: TOKEN", pid} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	if secret := "moon"; strings.Count(text, secret) != 1 { // in the name of the agent
		t.Errorf("a value is in\n%s", text)
	}
	if again, _ := s.run("daemon", "status"); !strings.HasPrefix(again, "Daemon, process ") {
		t.Errorf("daemon status: %s", again)
	}
}
