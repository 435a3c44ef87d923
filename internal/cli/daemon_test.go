//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// All commands and agents use one process of a server.
func TestDaemonIsShared(t *testing.T) {
	s := newStation(t)
	s.serve()
	a, b := s.agent(), s.agent()
	pid := a.call("pid")
	if other := b.call("pid"); other != pid {
		t.Errorf("the agents use the processes %s and %s", pid, other)
	}
	if out, _ := s.run("call", "s.pid"); strings.TrimSpace(out) != pid {
		t.Errorf("call uses process %s, and the agents %s", out, pid)
	}
	if out, _ := s.run("logs", "s"); !strings.Contains(out, "mcptest-server") {
		t.Errorf("logs: %s", out)
	}
	out, errs := s.run("list")
	if !strings.Contains(out, "connected") || !strings.Contains(out, "Answered by the daemon") || errs != "" {
		t.Errorf("list: %s%s", out, errs)
	}
	if out, _ := s.run("get", "s"); !strings.Contains(out, "Answered by the daemon") {
		t.Errorf("get: %s", out)
	}
	if out, _ := s.run("list", "--no-daemon"); strings.Contains(out, "daemon") {
		t.Errorf("list --no-daemon: %s", out)
	}
	// Another project has entries and approvals of its own, and the process is
	// the same if it would be started the same way.
	elsewhere := *s
	elsewhere.project = filepath.Join(filepath.Dir(s.project), "elsewhere")
	if err := os.MkdirAll(filepath.Join(elsewhere.project, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	if other := elsewhere.agent().call("pid"); other != pid {
		t.Errorf("the agents of two projects use the processes %s and %s", pid, other)
	}
	s.run("reconnect", "s")
	if out, _ := s.run("call", "s.pid"); strings.TrimSpace(out) == pid {
		t.Error("the same process after reconnect")
	}
	if out, _ := s.run("call", "s.big", "--raw"); len(out) < 34<<20 {
		t.Errorf("a long result has %d bytes", len(out))
	}
}

// An agent whose daemon is killed in the middle of a call goes on: it learns
// that this call is lost, and the next one works.
func TestDaemonKilled(t *testing.T) {
	servers := listenToServers(t)
	s := newStation(t, "-tell", servers.address)
	daemon := s.serve()
	a := s.agent()
	id := a.send("tools/call", `{"name":"slow"}`)
	servers.hear("began")
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := textOf(a.answer(id)); !strings.Contains(got, "look before trying again") {
		t.Errorf("the call that was lost: %s", got)
	}
	if got := a.call("pid"); strings.Trim(got, "0123456789") != "" {
		t.Errorf("the next call: %s", got)
	}
	if said := a.said.String(); !strings.Contains(said, "the daemon ended; this session goes on with servers of its own") {
		t.Errorf("standard error: %s", said)
	}
	// It is the daemon now, and others find it.
	pid := a.call("pid")
	if out, errs := s.run("call", "s.pid"); strings.TrimSpace(out) != pid || errs != "" {
		t.Errorf("call uses process %s, and the agent %s\n%s", out, pid, errs)
	}
}

// The same in the modern era: requests describe themselves, and a subscription is
// opened anew without its client's doing.
func TestDaemonKilledUnderASubscription(t *testing.T) {
	s := newStation(t)
	daemon := s.serve()
	a := s.start("serve", "--stdio")
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}}`
	a.send("subscriptions/listen", `{"notifications":{"toolsListChanged":true},`+meta+`}`)
	hears := func(method string) {
		t.Helper()
		m, err := a.conn.Read()
		if err != nil || m.Method != method || !strings.Contains(string(m.Params), `"io.modelcontextprotocol/subscriptionId":1`) {
			t.Fatalf("got %s, %v", m.AppendTo(nil), err)
		}
	}
	hears("notifications/subscriptions/acknowledged")
	call := func() string {
		t.Helper()
		return textOf(a.ask("tools/call", `{"name":"s__pid","arguments":{},`+meta+`}`))
	}
	before := call()
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	hears("notifications/tools/list_changed")
	if after := call(); after == before {
		t.Errorf("the process is still %s", after)
	}
	s.run("disable", "s") // which this process, the daemon now, notices
	for {
		m, err := a.conn.Read()
		if err != nil {
			t.Fatal(err)
		}
		if m.Method == "notifications/subscriptions/acknowledged" {
			t.Error("acknowledged twice")
		}
		if m.Method == "notifications/tools/list_changed" {
			break
		}
	}
}

// A daemon that is told to end finishes what it has begun. What comes meanwhile
// is done by the next, and no agent notices.
func TestDaemonEndsInOrder(t *testing.T) {
	servers := listenToServers(t)
	s := newStation(t, "-tell", servers.address)
	daemon := s.serve()
	a, b := s.agent(), s.agent()
	pid := b.call("pid")
	id := a.send("tools/call", `{"name":"slow"}`)
	servers.hear("began")
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for b.call("pid") == pid { // until the daemon has heard of it
	}
	servers.release()
	if got := textOf(a.answer(id)); got != "released" {
		t.Errorf("the call that was under way: %s", got)
	}
	if err := daemon.Wait(); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	if one, two := a.call("pid"), b.call("pid"); one != two {
		t.Errorf("the agents use the processes %s and %s", one, two)
	}
}

// The first agent is the daemon of the others; when it leaves, one of them is,
// and so on. No call is lost, and they never have more than one process between
// them once things have settled.
func TestAgentsFollowEachOther(t *testing.T) {
	s := newStation(t)
	var agents []*agent
	for range 5 {
		agents = append(agents, s.agent())
	}
	process := regexp.MustCompile(`\(process (\d+)\)`)
	for len(agents) > 1 {
		pid := agents[0].call("pid")
		for _, a := range agents[1:] {
			if other := a.call("pid"); other != pid {
				t.Errorf("of %d agents some use process %s, some %s", len(agents), pid, other)
			}
		}
		out, _ := s.run("list")
		named := process.FindStringSubmatch(out)
		if named == nil {
			t.Fatalf("there is no daemon:\n%s", out)
		}
		at := slices.IndexFunc(agents, func(a *agent) bool { return fmt.Sprint(a.cmd.Process.Pid) == named[1] })
		if at < 0 {
			t.Fatalf("no agent has process %s", named[1])
		}
		daemon := agents[at]
		agents = slices.Delete(agents, at, at+1)
		var asked []wire.ID
		for _, a := range agents {
			asked = append(asked, a.send("tools/call", `{"name":"pid","arguments":{}}`))
		}
		if err := daemon.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for i, a := range agents {
			if got := textOf(a.answer(asked[i])); strings.Trim(got, "0123456789") != "" {
				t.Errorf("a call was answered with %s", got)
			}
		}
		if err := daemon.cmd.Wait(); err != nil {
			t.Errorf("the daemon ended with %v: %s", err, daemon.said.String())
		}
	}
	agents[0].conn.Close()
	if err := agents[0].cmd.Wait(); err != nil {
		t.Errorf("the last agent's patchbay ended with %v: %s", err, agents[0].said.String())
	}
}

// Clients start servers with the variables that they find good, which are seldom
// all: the daemon is the same.
func TestDaemonOfAFilteredEnvironment(t *testing.T) {
	s := newStation(t)
	env := s.env
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	s.env = append(env, "XDG_RUNTIME_DIR="+private, "TMPDIR="+private)
	s.serve()
	s.env = env
	if out, errs := s.run("list"); !strings.Contains(out, "daemon") || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
}

// Whoever has other files, or finds a socket that others can get at, works alone
// and says why.
func TestDaemonThatIsNotUsed(t *testing.T) {
	s := newStation(t)
	s.serve()
	refused := func(want string) {
		t.Helper()
		out, errs := s.run("list")
		if strings.Contains(out, "daemon") || !strings.Contains(errs, "patchbay: not using the daemon that is running: ") || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s%s", out, errs)
		}
		if _, errs := s.run("list", "--quiet"); errs != "" {
			t.Errorf("--quiet: %s", errs)
		}
	}
	env := s.env
	s.env = append(env, "XDG_CONFIG_HOME="+filepath.Join(s.home, "other"))
	refused("its configuration is in")
	s.env = env
	dirs, err := patchbay.Options{Dir: s.project, Home: s.home, Environ: env}.Directories()
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Dir(control.SocketPath(dirs))
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	refused("is open to other users")
	// What changes the options of the host means a host of the command's own.
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, errs := s.run("list", "--fail-on-invalid"); strings.Contains(out, "daemon") || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
}

// The person at the terminal sees how far a call is and answers what its server
// asks, with a daemon as without.
func TestCallOnATerminal(t *testing.T) {
	for _, daemon := range []bool{false, true} {
		t.Run(fmt.Sprintf("daemon=%v", daemon), func(t *testing.T) {
			s := newStation(t)
			if daemon {
				s.serve()
			}
			talk := func(args ...string) *conversation {
				t.Helper()
				return talkIn(t, s.project, append(s.env, "TERM=xterm"), args...)
			}
			c := talk("call", "s.count")
			c.until("33% step 1")
			c.until("100% step 3")
			if out, code := c.end(); code != 0 || !strings.Contains(out, "counted") {
				t.Errorf("exit code %d:\n%s", code, out)
			}
			const form = `{"message":"Who \u001b[2J are you?","requestedSchema":{"type":"object","required":["name","age"],"properties":{
				"name":{"type":"string","title":"Your name","minLength":2},"age":{"type":"integer","description":"In years"},
				"mood":{"type":"string","enum":["good","bad"],"default":"good"},
				"days":{"type":"array","items":{"anyOf":[{"const":"mo","title":"Monday"},{"const":"tu"}]}},"nick":{"type":"string"},"sure":{"type":"boolean"}}}}`
			c = talk("call", "s.ask", "--args", form)
			c.until(`Server "s" asks: Who <U+001B>[2J are you?`)
			c.answer("Your name: ", "")
			c.until("an answer is needed here")
			c.answer("Your name: ", "A")
			c.until("minLength: got 1, want 2")
			c.answer("Your name: ", "Ann")
			c.until("In years")
			c.answer("age [integer]: ", "old")
			c.until("that is not a whole number")
			c.answer("age [integer]: ", "41")
			c.answer(`mood [good, bad; default "good"]: `, "mixed")
			c.until(`"mixed" is not one of good, bad`)
			c.answer(`mood [good, bad; default "good"]: `, "")
			c.answer("days [any of mo (Monday), tu; optional]: ", "mo, Tuesday")
			c.until(`"Tuesday" is not one of mo, tu`)
			c.answer("days [any of mo (Monday), tu; optional]: ", "mo, tu")
			c.answer("nick [optional]: ", "")
			c.answer("sure [yes or no; optional]: ", "y")
			c.answer(`Send this to "s"? [y/N] `, "y")
			if out, code := c.end(); code != 0 || !strings.Contains(out, `{"action":"accept","content":{"age":41,"days":["mo","tu"],"mood":"good","name":"Ann","sure":true}}`) {
				t.Errorf("exit code %d:\n%s", code, out)
			}
			c = talk("call", "s.ask", "--args", `{"mode":"url","message":"Sign","elicitationId":"1","url":"https://sign.example.test/x?y=1"}`)
			c.until("Open https://sign.example.test/x?y=1")
			c.until("on   sign.example.test")
			c.answer("Go on? [y/N] ", "n")
			if out, code := c.end(); code != 0 || !strings.Contains(out, `{"action":"decline"}`) {
				t.Errorf("exit code %d:\n%s", code, out)
			}
			if err := os.WriteFile(filepath.Join(s.home, ".config", "patchbay", "settings.json"), []byte(`{"permissions": {"ask": ["mcp__s__pid"]}}`), 0o600); err != nil {
				t.Fatal(err)
			}
			s.run("reload")
			c = talk("call", "s.pid")
			c.until("the rule mcp__s__pid")
			c.answer("Call it? [y/N] ", "y")
			if out, code := c.end(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

// Interrupting a call cancels it at the server, with a daemon in between.
func TestInterruptedCallOfADaemon(t *testing.T) {
	servers := listenToServers(t)
	s := newStation(t, "-tell", servers.address)
	s.serve()
	cmd := s.command("call", "s.slow")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	servers.hear("began")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	servers.hear("cancelled")
	_ = cmd.Wait() // the code says all there is
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// A daemon that cannot connect to a server in time says so, as a command alone
// does.
func TestTimeoutOfADaemon(t *testing.T) {
	s := newStation(t, "-broken", "hang")
	s.start("serve", "--stdio").ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	for _, alone := range []string{"--no-daemon=false", "--no-daemon"} {
		cmd := s.command("test", "s", "--timeout", "50ms", alone)
		out, _ := cmd.CombinedOutput() // the code says all there is
		if cmd.ProcessState.ExitCode() != 124 || !strings.Contains(string(out), `Failed to connect to "s"`) || !strings.Contains(string(out), "no answer within") {
			t.Errorf("%s: exit code %d:\n%s", alone, cmd.ProcessState.ExitCode(), out)
		}
	}
}

// An unknown endpoint is an error, not a reason to look for another daemon.
func TestUnknownEndpointOfADaemon(t *testing.T) {
	s := newStation(t)
	s.serve()
	cmd := s.command("serve", "--stdio", "--endpoint", "nobody")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nobody") {
		t.Errorf("%v: %s", err, out)
	}
}
