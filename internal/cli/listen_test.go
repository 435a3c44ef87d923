//go:build unix

package cli_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/control"
)

// Beside a daemon, serve has that listen: clients over HTTP use the processes of the
// agents that are attached, the address outlives the daemon, and goes with serve.
func TestServeBesideADaemon(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	a := s.agent()
	pid := a.call("pid")
	g := startGateway(t, s.home, s.project)
	overHTTP := func() string { return g.call("/mcp/s", "tools/call", `{"name":"pid","arguments":{}}`) }
	if got := overHTTP(); !strings.Contains(got, `"`+pid+`"`) {
		t.Errorf("over HTTP the server is %s, and process %s for an agent", got, pid)
	}
	status := func() (status control.Status) {
		t.Helper()
		out, _ := s.run("status", "--json")
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			t.Fatal(err)
		}
		return status
	}
	was := status()
	if l := was.Listeners; len(l) != 1 || l[0].URL != g.url || l[0].PID != g.cmd.Process.Pid || l[0].Dir != s.project {
		t.Errorf("the listeners are %+v", l)
	}

	// What leads to the address leads back.
	s.run("add", "loop", "--url", g.url+"/mcp")
	if out, _ := s.run("get", "loop", "--json"); !strings.Contains(out, `"skip"`) {
		t.Errorf("an entry for the gateway itself: %s", out)
	}
	second := patchbayCommand(t, s.home, s.project, "serve", "--http", strings.TrimPrefix(g.url, "http://"))
	if out, _ := second.CombinedOutput(); second.ProcessState.ExitCode() != 6 || !strings.Contains(string(out), "already (process "+strconv.Itoa(g.cmd.Process.Pid)+")") {
		t.Errorf("a second one: exit code %d:\n%s", second.ProcessState.ExitCode(), out)
	}

	s.run("daemon", "stop")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get(g.url + "/healthz"); err == nil {
			resp.Body.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the address is not served again: %v", err)
		}
	}
	pid = a.call("pid")
	if got := overHTTP(); !strings.Contains(got, `"`+pid+`"`) || status().PID == was.PID {
		t.Errorf("with the next daemon the server is %s over HTTP, and process %s for an agent", got, pid)
	}

	if out, code := g.end(syscall.SIGTERM); code != 0 || !strings.Contains(out, "The daemon listens (process "+strconv.Itoa(was.PID)+")") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if got := a.call("pid"); got != pid || len(status().Listeners) != 0 {
		t.Errorf("after serve has ended an agent uses process %s, and %s before", got, pid)
	}
	if resp, err := http.Get(g.url + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("the address is still served")
	}
}
