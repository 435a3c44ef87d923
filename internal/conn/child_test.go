//go:build unix

package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// scripted is a target that runs a server of mcptest.
func scripted(args ...string) Target {
	cmd := mcptest.Command(args...)
	server := config.Server{Command: cmd.Path, Args: cmd.Args[1:], Env: map[string]config.Secret{}}
	for _, assignment := range cmd.Env {
		name, value, _ := strings.Cut(assignment, "=")
		if strings.HasPrefix(name, "PATCHBAY_") || name == "GORACE" {
			server.Env[name] = config.NewSecret(value)
		}
	}
	return Target{ConnectHash: "1", Entry: config.Entry{Server: server}}
}

// shell is a target that runs a shell script.
func shell(script string, args ...string) Target {
	server := config.Server{Command: "/bin/sh", Args: append([]string{"-c", script}, args...)}
	return Target{ConnectHash: "1", Entry: config.Entry{Server: server}}
}

// behind runs a server of mcptest behind a shell script, which ends with
// exec "$0".
func behind(script string) Target {
	target := scripted()
	s := &target.Entry.Server
	s.Command, s.Args = "/bin/sh", []string{"-c", script, s.Command}
	return target
}

// tool calls a tool of a scripted server and returns its text.
func tool(ctx context.Context, s *Server, name, arguments string) (string, error) {
	result, err := s.Call(ctx, wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"` + name + `","arguments":` + arguments + `}`)})
	if err != nil {
		return "", err
	}
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(result, &r); err != nil || len(r.Content) != 1 {
		return "", fmt.Errorf("result %.100s", result)
	}
	return r.Content[0].Text, nil
}

func works(t *testing.T, s *Server) {
	t.Helper()
	if got, err := tool(t.Context(), s, "echo", `{"text":"hi"}`); err != nil || got != "hi" {
		t.Fatalf("echo: %q, %v", got, err)
	}
}

// Row 1 of the fault matrix: what cannot be started fails once, by its name.
func TestCommandThatDoesNotStart(t *testing.T) {
	mcptest.LeavesNothing(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, server := range map[string]config.Server{
		"missing":        {Command: "no-such-command-here"},
		"missing file":   {Command: filepath.Join(dir, "nothing")},
		"not executable": {Command: write("plain", "#!/bin/sh\n", 0o600)},
		"no program":     {Command: write("program", "\x7fELF nonsense", 0o700)},
		"no directory":   {Command: "/bin/sh", Cwd: filepath.Join(dir, "nowhere")},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, Options{Environ: os.Environ()})
			server.Env = map[string]config.Secret{"TOKEN": config.NewSecret("hush-hush")}
			s := one(t, m, Target{Entry: config.Entry{Server: server}})
			e := callError(t, s.Wait(t.Context()))
			st := wantState(t, s, config.Failed, server.Command)
			if e.Kind != KindTransport || !st.NextRetry.IsZero() || st.Attempt != 1 || strings.Contains(e.Error(), "hush-hush") {
				t.Errorf("%v, %+v", e, st)
			}
		})
	}
}

// Row 2: a child that exits before it answers fails with its status and what it
// wrote last, without the secrets it was given.
func TestExitBeforeInitialize(t *testing.T) {
	mcptest.LeavesNothing(t)
	target := shell(`i=0; while [ $i -lt 100 ]; do echo "line $i" >&2; i=$((i+1)); done; echo "bad key $API_KEY" >&2; exit 3`)
	target.Entry.Server.Env = map[string]config.Secret{"API_KEY": config.NewSecret("s3cr3t-value")}
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, target)
	e := callError(t, s.Wait(t.Context()))
	st := s.Status()
	for _, text := range []string{e.Error(), st.Reason, st.Stderr, s.Logs()} {
		if !strings.Contains(text, "bad key [redacted]") || strings.Contains(text, "s3cr3t") {
			t.Errorf("text %q", text)
		}
	}
	if !strings.Contains(st.Reason, "exit status 3") || strings.Count(st.Stderr, "\n") != 19 || !strings.HasPrefix(st.Stderr, "line 81\n") {
		t.Errorf("%q, %q", st.Reason, st.Stderr)
	}
	if !strings.HasPrefix(s.Logs(), "line 0\n") {
		t.Errorf("logs %q", s.Logs())
	}
}

// A child that refuses the handshake may repeat the secrets it was given.
func TestRefusalWithSecret(t *testing.T) {
	mcptest.LeavesNothing(t)
	target := shell(`while read line; do id=$(echo "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
if [ -n "$id" ]; then echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32000,"message":"no account for '$API_KEY'"}}'; fi; done`)
	target.Entry.Server.Env = map[string]config.Secret{"API_KEY": config.NewSecret("s3cr3t-value")}
	s := one(t, newManager(t, Options{Environ: os.Environ()}), target)
	e := callError(t, s.Wait(t.Context()))
	for _, text := range []string{e.Error(), s.Status().Reason} {
		if !strings.Contains(text, "no account for [redacted]") {
			t.Errorf("text %q", text)
		}
	}
}

// Row 5: a crash fails the calls under way, and the next finds a new process.
func TestChildCrashes(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, scripted())
	mustWait(t, s)
	for range 3 {
		_, err := tool(t.Context(), s, "crash", `{}`)
		if e := callError(t, err); e.Kind != KindTransport || e.RetrySafe || !strings.Contains(e.Error(), "exit status 3") {
			t.Errorf("%+v", e)
		}
		works(t, s)
	}
}

// Row 8: garbage among the messages is skipped; too much of it ends the child.
func TestChildPrintsGarbage(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, scripted("-banner", "50"))
	works(t, s)
	_, err := tool(t.Context(), s, "noise", `{"count":2000,"bytes":50}`)
	if e := callError(t, err); !errors.Is(err, wire.ErrNoise) || e.Kind != KindTransport {
		t.Errorf("%+v", e)
	}
	works(t, s)
}

// Row 11: a child that writes without end to its standard error is not blocked,
// and of what it wrote little is kept.
func TestStderrFlood(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, behind(`i=0; while [ $i -lt 64 ]; do head -c 1000000 /dev/zero; i=$((i+1)); done >&2; echo end >&2; exec "$0"`))
	works(t, s)
	if logs := s.Logs(); len(logs) > 1<<20 || !strings.HasSuffix(logs, "end\n") {
		t.Errorf("%d bytes of logs", len(logs))
	}
}

// Row 13: a child that closes its output has ended, though it lives.
func TestChildClosesItsOutput(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, scripted())
	works(t, s)
	_, err := tool(t.Context(), s, "mute", `{}`)
	if e := callError(t, err); e.Kind != KindTransport || !strings.Contains(e.Error(), "closed its output") && !strings.Contains(e.Error(), "exited") {
		t.Errorf("%+v", e)
	}
	works(t, s)
}

// Row 15: a grandchild that holds the pipes is ended with its parent.
func TestGrandchildHoldsThePipes(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, shell(`sleep 300 & echo "grandchild $!" >&2; exit 4`))
	callError(t, s.Wait(t.Context()))
	st := wantState(t, s, config.Failed, "exit status 4")
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	_, number, _ := strings.Cut(st.Stderr, "grandchild ")
	pid, err := strconv.Atoi(strings.TrimSpace(number))
	if err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Errorf("process %d lives", pid)
	}
}

// alive reports whether a process runs. One that has ended and was not waited
// for by whoever inherited it does not.
func alive(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		return !strings.Contains(string(stat), ") Z ")
	}
	return syscall.Kill(pid, 0) == nil
}

// A child that is killed is no different from one that crashes.
func TestChildIsKilled(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, behind(`echo $$ >&2; exec "$0"`))
	works(t, s)
	pid, err := strconv.Atoi(strings.TrimSpace(s.Logs()))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// It may answer until the signal reaches it, and if its end is noticed
	// between two calls the second finds another child.
	for err == nil && s.Status().Restarts == 0 {
		_, err = tool(t.Context(), s, "echo", `{}`)
	}
	if err != nil && !strings.Contains(callError(t, err).Error(), "signal: killed") {
		t.Error(err)
	}
	works(t, s)
	if again := strings.TrimSpace(s.Logs()); again == strconv.Itoa(pid) {
		t.Errorf("process %s was not replaced", again)
	}
}

// A child gets what any program needs and what its entry declares, no more.
func TestEnvironmentOfAChild(t *testing.T) {
	mcptest.LeavesNothing(t)
	dir := t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	host := []string{"PATH=" + os.Getenv("PATH"), "HOME=/home/x", "AWS_SECRET=no", "PASSED=on", "LANG=C", "HTTPS_PROXY=http://proxy", "NAME=me", "UNSET=me"}
	lookup := environment(host).lookup
	for _, cwd := range []string{"", "sub", filepath.Join(dir, "sub")} {
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		target := shell(`env >&2; pwd >&2; exit 1`)
		s := &target.Entry.Server
		s.Cwd, s.EnvVars, s.UnsetEnv = cwd, []string{"PASSED", "ABSENT"}, []string{"LANG", "UNSET"}
		s.Env = map[string]config.Secret{"GREETING": config.NewSecret("hi ${NAME}"), "HOME": config.NewSecret("/home/y"), "UNSET": config.NewSecret("set")}
		target.Entry.Dialect = config.DialectPatchbay
		m := newManager(t, Options{Environ: host, Vars: config.Vars{Lookup: lookup, WorkspaceRoot: dir}})
		server := one(t, m, target)
		callError(t, server.Wait(t.Context()))
		l, _ := server.manager.present("srv", Profile{})
		l.mu.Lock()
		logs := l.child.(*process).child.Stderr()
		l.mu.Unlock()
		for line, wanted := range map[string]bool{
			"GREETING=hi me": true, "HOME=/home/y": true, "PASSED=on": true, "HTTPS_PROXY=http://proxy": true, "UNSET=set": true,
			"HOME=/home/x": false, "AWS_SECRET=no": false, "LANG=C": false, "NAME=me": false, "UNSET=me": false,
			filepath.Join(dir, strings.TrimPrefix(cwd, dir)): true,
		} {
			if strings.Contains("\n"+logs, "\n"+line+"\n") != wanted {
				t.Errorf("%q there: %v, in\n%s", line, !wanted, logs)
			}
		}
	}
}

// Variables that are missing, commands that may not run: the entry fails, and
// nothing is started.
func TestEntryThatCannotBeResolved(t *testing.T) {
	mcptest.LeavesNothing(t)
	started := filepath.Join(t.TempDir(), "started")
	for name, env := range map[string]string{"missing variable": "${NO_SUCH}", "command": "!echo x"} {
		target := shell(`touch "$0"`, started)
		target.Entry.Dialect = config.DialectPatchbay
		target.Entry.Server.Env = map[string]config.Secret{"X": config.NewSecret(env)}
		m := newManager(t, Options{Environ: os.Environ()})
		s := one(t, m, target)
		if e := callError(t, s.Wait(t.Context())); e.Kind != KindConfig {
			t.Errorf("%s: %+v", name, e)
		}
		if st := wantState(t, s, config.Failed, ""); !st.NextRetry.IsZero() {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the command was started")
	}
}

// Many children are started together, serve together and are gone at the end.
func TestManyChildren(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	want := map[string]Target{"hangs": shell("cat >/dev/null"), "dies": shell("exit 1")}
	for i := range 8 {
		want[fmt.Sprint("good", i)] = scripted("-discover", "unknown")
	}
	m.Apply(want)
	var callers sync.WaitGroup
	for name := range want {
		if !strings.HasPrefix(name, "good") {
			continue
		}
		s, _ := m.Server(name, Profile{})
		for range 4 {
			callers.Go(func() {
				for range 10 {
					if got, err := tool(t.Context(), s, "echo", `{"text":"hi"}`); err != nil || got != "hi" {
						t.Errorf("%s: %q, %v", name, got, err)
					}
				}
			})
		}
	}
	callers.Wait()
	if st := statuses(m)["hangs"]; st.State != config.Connecting {
		t.Errorf("hangs: %+v", st)
	}
}

// A target that is reached differently gets another process; the calls in
// between wait for it.
func TestChildIsReplaced(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, behind(`echo old >&2; exec "$0"`))
	works(t, s)
	target := behind(`echo new >&2; exec "$0"`)
	target.ConnectHash = "2"
	one(t, m, target)
	works(t, s)
	if logs := s.Logs(); logs != "new\n" {
		t.Errorf("logs %q", logs)
	}
}

// A flood of notifications does not keep others from being answered.
func TestFlood(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	m.Apply(map[string]Target{"flood": scripted(), "calm": scripted()})
	flood, _ := m.Server("flood", Profile{})
	calm, _ := m.Server("calm", Profile{})
	works(t, flood)
	flooded := make(chan error, 1)
	go func() {
		_, err := tool(t.Context(), flood, "flood", `{"count":20000}`)
		flooded <- err
	}()
	for done := false; !done; {
		select {
		case err := <-flooded:
			if done = true; err != nil {
				t.Error(err)
			}
		default:
		}
		works(t, calm)
	}
	works(t, flood)
}

// Many callers of a server that crashes now and then: each call gets an answer
// or a reason, and nothing is left behind.
func TestCallersOfACrashingServer(t *testing.T) {
	mcptest.LeavesNothing(t)
	m := newManager(t, Options{Environ: os.Environ()})
	s := one(t, m, scripted("-discover", "unknown"))
	mustWait(t, s)
	var callers sync.WaitGroup
	for caller := range 20 {
		callers.Go(func() {
			for i := range 50 {
				want := fmt.Sprintf("%d-%d", caller, i)
				got, err := tool(t.Context(), s, "echo", `{"text":"`+want+`"}`)
				if err == nil && got != want {
					t.Errorf("%s was answered with %s", want, got)
				}
				if _, ours := errors.AsType[*CallError](err); err != nil && !ours {
					t.Errorf("%T %v", err, err)
				}
			}
		})
	}
	for range maxTries - 1 {
		if _, err := tool(t.Context(), s, "crash", `{}`); err == nil {
			t.Error("a crash was answered")
		}
	}
	callers.Wait()
	works(t, s)
}
