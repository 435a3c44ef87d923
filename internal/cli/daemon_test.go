//go:build unix

package cli_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// All commands and agents use one process of a server.
func TestDaemonIsShared(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	configure(t, s.home, fmt.Sprintf(`{"command": "mcptest-server", "args": ["-extra"], "env": {"GORACE": %q}, "shared": "user"}`, quickExit))
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
	t.Parallel()
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
	if said := a.said.String(); !strings.Contains(said, "the daemon ended; attached to the one that took its place") {
		t.Errorf("standard error: %s", said)
	}
	// It has started a daemon, and others find that.
	pid := a.call("pid")
	if out, errs := s.run("call", "s.pid"); strings.TrimSpace(out) != pid || errs != "" {
		t.Errorf("call uses process %s, and the agent %s\n%s", out, pid, errs)
	}
}

// The same in the modern era: requests describe themselves, and a subscription is
// opened anew without its client's doing.
func TestDaemonKilledUnderASubscription(t *testing.T) {
	t.Parallel()
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
	s.run("disable", "s") // which the daemon that it started notices
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
	t.Parallel()
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

// The agents' daemon is nobody's child: closing the window of the agent that
// started it, as roughly as may be, harms no other.
func TestDaemonOutlivesItsStarter(t *testing.T) {
	servers := listenToServers(t)
	s := newStation(t, "-tell", servers.address)
	first, second := s.agent(), s.agent()
	pid := first.call("pid")
	id := second.send("tools/call", `{"name":"slow"}`)
	servers.hear("began")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait() // it was killed
	servers.release()
	if got := textOf(second.answer(id)); got != "released" {
		t.Errorf("the other agent's call: %s", got)
	}
	if other := second.call("pid"); other != pid {
		t.Errorf("the server was process %s and is %s", pid, other)
	}
	if said := second.said.String(); said != "" {
		t.Errorf("the other agent was told %s", said)
	}
}

// The daemon has nothing of the process that started it: no terminal, no
// directory, no descriptor.
func TestDaemonIsDetached(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	in, held, err := os.Pipe() // which the agent's product gave it by accident
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := s.command("daemon", "start")
	cmd.ExtraFiles = []*os.File{held}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "Started the daemon") {
		t.Fatalf("%v: %s", err, out)
	}
	held.Close()
	if err := in.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("it still has what the process that started it was given: %v", err)
	}
	daemon := s.daemon()
	if session, err := unix.Getsid(daemon.Pid); err != nil || session != daemon.Pid {
		t.Errorf("its session is %d, %v", session, err)
	}
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", daemon.Pid)); err == nil && dir != "/" {
		t.Errorf("its directory is %s", dir)
	}
	if out, _ := s.run("daemon", "start"); !strings.HasPrefix(out, "The daemon is running") {
		t.Errorf("a second start: %s", out)
	}
	if out, _ := s.run("daemon", "stop"); !strings.HasPrefix(out, "The daemon has ended") {
		t.Errorf("stop: %s", out)
	}
}

// However often the daemon ends, and in whatever way, its agents lose no call
// without being told, and share one process between them once things have
// settled.
func TestDaemonsFollowEachOther(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	var agents []*agent
	for range 5 {
		agents = append(agents, s.agent())
	}
	agents[0].ask("tools/list", `{}`) // in which pid is harmless
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		pid := agents[0].call("pid")
		for _, a := range agents[1:] {
			if other := a.call("pid"); other != pid {
				t.Errorf("some agents use process %s, some %s", pid, other)
			}
		}
		daemon := s.daemon()
		var asked []wire.ID
		for _, a := range agents {
			asked = append(asked, a.send("tools/call", `{"name":"pid","arguments":{}}`))
		}
		if err := daemon.Signal(sig); err != nil {
			t.Fatal(err)
		}
		for i, a := range agents {
			got := textOf(a.answer(asked[i]))
			if told := strings.Contains(got, "look before trying again"); strings.Trim(got, "0123456789") != "" && (!told || sig == syscall.SIGTERM) {
				t.Errorf("%v: a call was answered with %s", sig, got)
			}
		}
		agents[0].moved(pid)
	}
}

// moved waits until an agent's calls are those of another process.
func (a *agent) moved(pid string) {
	a.t.Helper()
	for now := pid; now == pid || strings.Trim(now, "0123456789") != ""; { // as long as the daemon has not heard of its end, and then once
		now = a.call("pid")
	}
}

// A daemon ends some time after its last client, and not before.
func TestDaemonEndsWhenIdle(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	cmd := s.command("daemon", "run", "--idle", "300ms")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A daemon that does not come up is given up soon, and the agent has servers of
// its own.
func TestDaemonDoesNotStart(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]struct{ starts, reason string }{
		"crashes": {"started\nstarted\nstarted\n", "no room in the harbour"},
		"hangs":   {"started\n", "it did not answer within 5s"},
	} {
		t.Run(how, func(t *testing.T) {
			s := newStation(t)
			starts := filepath.Join(s.home, how)
			s.env = append(s.env, "FAILING_DAEMON="+starts)
			a := s.agent()
			if got := a.call("pid"); strings.Trim(got, "0123456789") != "" {
				t.Errorf("a call: %s", got)
			}
			log := filepath.Join(s.home, ".local", "state", "patchbay", "daemon.log")
			if said, want := a.said.String(), "patchbay: the daemon does not start: "+want.reason+" (its log is "+log+"); this session has servers of its own\n"; said != want {
				t.Errorf("it said %s, want %s", said, want)
			}
			if n, err := os.ReadFile(starts); string(n) != want.starts {
				t.Errorf("its starts: %q, %v", n, err)
			}
		})
	}
}

// install makes another build, of that time.
func (s *station) install(name string, at time.Time) string {
	s.t.Helper()
	built, err := exec.LookPath("patchbay")
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(built)
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(s.home), name, "patchbay")
	write(s.t, path, string(text)+name)
	if err := errors.Join(os.Chmod(path, 0o700), os.Chtimes(path, at, at)); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// Builds that nobody stamped are told apart by what is in them.
func TestUnstampedBuilds(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.serve()
	if _, errs := s.run("list"); errs != "" {
		t.Errorf("the same build: %s", errs)
	}
	s.program = s.install("other", time.Now())
	if out, errs := s.run("list"); strings.Contains(out, "daemon") || !strings.Contains(errs, "not using the daemon that is running: it is version (devel) ") {
		t.Errorf("another build: %s%s", out, errs)
	}
}

// An agent of a later build replaces the daemon; whoever is attached follows. The
// file of the earlier build may be gone by then, and still its agents go on.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.env = slices.DeleteFunc(s.env, func(v string) bool { return v == "UNGUARDED=1" })
	now := time.Now()
	s.program = s.install("old", now.Add(-time.Hour))
	old := s.agent()
	old.call("pid")
	before := s.daemon().Pid
	if runtime.GOOS == "linux" { // which keeps a program that runs
		if err := os.Remove(s.program); err != nil {
			t.Fatal(err)
		}
	}
	s.program = s.install("new", now)
	next := s.agent()
	pid := next.call("pid")
	daemon := s.daemon()
	if daemon.Pid == before {
		t.Error("the daemon is still that of the earlier build")
	}
	if other := old.call("pid"); other != pid {
		t.Errorf("the agents use the processes %s and %s", other, pid)
	}
	// An agent of the earlier build takes the daemon as it is.
	if runtime.GOOS != "linux" {
		return
	}
	next.conn.Close()
	_ = next.cmd.Wait() // it has left
	if err := os.Remove(s.program); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Kill(); err != nil { // now the earlier one has to start its own
		t.Fatal(err)
	}
	old.moved(pid)
	s.program = ""
	if again := s.daemon(); again.Pid == daemon.Pid {
		t.Error("the daemon was killed, and still it is there")
	}
	if said := old.said.String(); strings.Contains(said, "servers of its own") {
		t.Errorf("it said %s", said)
	}
	if log, err := os.ReadFile(filepath.Join(s.home, ".local", "state", "patchbay", "daemon.log")); err != nil || strings.Contains(string(log), "guard") {
		t.Errorf("the log has %s, %v", log, err) // because it could not be started
	}
}

// "daemon": false means servers of one's own, for agents and commands.
func TestDaemonOff(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	one := s.agent()
	write(t, filepath.Join(s.home, ".config", "patchbay", "settings.json"), `{"gateway": {"daemon": false}}`)
	if two := s.agent(); one.call("pid") == two.call("pid") {
		t.Error("an agent uses the daemon's servers")
	}
	if out, _ := s.run("list"); strings.Contains(out, "daemon") {
		t.Errorf("list: %s", out)
	}
}

// Clients start servers with the variables that they find good, which are seldom
// all: the daemon is the same.
func TestDaemonOfAFilteredEnvironment(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	env := s.env
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	s.env = append(env, "XDG_RUNTIME_DIR="+private, "TMPDIR="+private)
	s.serve()
	for _, home := range []string{s.home, s.home + "/"} {
		s.env = append([]string{"HOME=" + home}, env[1:]...)
		if out, errs := s.run("list"); !strings.Contains(out, "daemon") || errs != "" {
			t.Errorf("%s: %s%s", home, out, errs)
		}
	}
}

// Whoever has other files, or finds a socket that others can get at, works alone
// and says why.
func TestDaemonThatIsNotUsed(t *testing.T) {
	t.Parallel()
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
	run := filepath.Dir(s.socket())
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	refused("is open to other users (mode 0755); `chmod go= " + run + "` closes it")
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	s := newStation(t)
	s.serve()
	cmd := s.command("serve", "--stdio", "--endpoint", "nobody")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 3 || string(out) != "patchbay: No MCP server named \"nobody\".\nConfigured: s\n" {
		t.Errorf("%v: %s", err, out)
	}
}
