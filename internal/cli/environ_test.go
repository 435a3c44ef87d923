//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Agents in different terminals, with different environments, each act with their
// own values, whoever started the daemon. Those for whom a process would be the
// same have one.
func TestEachAgentHasItsOwnEnvironment(t *testing.T) {
	t.Parallel()
	servers := listenToServers(t)
	s := newStation(t)
	configure(t, s.home, fmt.Sprintf(`{"command": "mcptest-server", "args": ["-extra", "-tell", %q],
		"env": {"GORACE": %q, "EXPANDED": "${GITHUB_TOKEN}", "WHOLE": "GITHUB_TOKEN"}, "envVars": ["GITHUB_TOKEN"]}`, servers.address, quickExit))
	// Another program of the same name, for the agent with another PATH.
	other := filepath.Join(filepath.Dir(s.home), "bin")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	wrapper := "#!/bin/sh\nexport WRAPPED=yes\nPATH=\"${PATH#*:}\" exec mcptest-server \"$@\"\n"
	if err := os.WriteFile(filepath.Join(other, "mcptest-server"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	second := *s
	second.project = filepath.Join(filepath.Dir(s.project), "second")
	if err := os.MkdirAll(filepath.Join(second.project, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	in := func(at station, environ ...string) *agent {
		t.Helper()
		at.env = append(slices.Clone(s.env), environ...)
		return at.agent()
	}
	first := in(*s, "GITHUB_TOKEN=one", "TERM=xterm", "SHLVL=1", "SSH_TTY=/dev/pts/1")
	same := in(*s, "GITHUB_TOKEN=one", "TERM=tmux", "SHLVL=3", "TMUX=/tmp/tmux", "CLAUDE_CODE_SSE_PORT=1", "PATH="+os.Getenv("PATH")+":/nowhere")
	token := in(second, "GITHUB_TOKEN=two")
	path := in(second, "GITHUB_TOKEN=one", "PATH="+other+":"+os.Getenv("PATH"))
	without := in(*s, "GITHUB_TOKEN=")

	for a, want := range map[*agent]string{first: "one one one ", same: "one one one ", token: "two two two ", path: "one one one yes", without: "  GITHUB_TOKEN "} {
		var got []string
		for _, name := range []string{"GITHUB_TOKEN", "EXPANDED", "WHOLE", "WRAPPED"} {
			got = append(got, textOf(a.ask("tools/call", `{"name":"variable","arguments":{"name":"`+name+`"}}`)))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("an agent acts with %q, want %q", strings.Join(got, " "), want)
		}
	}
	if first.call("pid") != same.call("pid") {
		t.Error("two agents for which the process would be the same do not share it")
	}
	for a, dir := range map[*agent]string{first: s.project, same: s.project, token: second.project, path: second.project} {
		if got := a.call("cwd"); got != dir {
			t.Errorf("the server of an agent in %s runs in %s", dir, got)
		}
	}
	servers.mu.Lock()
	defer servers.mu.Unlock()
	if n := len(servers.conns); n != 4 {
		t.Errorf("%d processes were started, want 4", n)
	}
	for _, said := range []string{first.said.String(), token.said.String()} {
		if strings.Contains(said, "one") || strings.Contains(said, "two") {
			t.Errorf("a value was told: %s", said)
		}
	}
}

// One process serves all directories if a person says so, and each directory has
// its own again when they take it back.
func TestShareAServer(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	second := *s
	second.project = filepath.Join(filepath.Dir(s.project), "second")
	if err := os.MkdirAll(filepath.Join(second.project, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.serve()
	a, b := s.agent(), second.agent()
	if a.call("pid") == b.call("pid") {
		t.Error("two directories have one process")
	}
	if out, _ := s.run("share", "s"); !strings.Contains(out, "s") {
		t.Errorf("share: %s", out)
	}
	waitUntil(t, func() bool { return a.call("pid") == b.call("pid") }, "all directories have one process")
	if dir := b.call("cwd"); dir != s.home {
		t.Errorf("it runs in %s", dir)
	}
	s.run("share", "s", "--off")
	waitUntil(t, func() bool { return b.call("cwd") == second.project && a.call("cwd") == s.project }, "each directory has its own again")
}

// waitUntil waits for what another process notices by itself.
func waitUntil(t *testing.T, is func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// Programs of a user's own entries get what they get in their product; those of a
// project get what any program needs, and what they name.
func TestWhatServersInherit(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const entry = `{"command": "mcptest-server", "args": ["-extra"]}`
	write(filepath.Join(s.home, ".claude.json"), `{"mcpServers": {"claude": `+entry+`}}`)
	write(filepath.Join(s.home, ".codex", "config.toml"), "[mcp_servers.codex]\ncommand = \"mcptest-server\"\nargs = [\"-extra\"]\n")
	write(filepath.Join(s.project, ".mcp.json"), `{"mcpServers": {"project": `+entry+`}}`)
	s.env = append(s.env, "GITHUB_TOKEN=one", "PATCHBAY_TOKEN=ours", "SSL_CERT_FILE=/etc/ca.pem", "SSH_AUTH_SOCK=/tmp/agent")
	s.run("approve", "project", "--yes")
	expect := func(want map[string]string) {
		t.Helper()
		for server, value := range want {
			var got []string
			for _, name := range []string{"GITHUB_TOKEN", "PATCHBAY_TOKEN", "SSL_CERT_FILE", "SSH_AUTH_SOCK"} {
				out, _ := s.run("call", server+".variable", "name="+name)
				got = append(got, strings.TrimSpace(out))
			}
			if strings.Join(got, ",") != value {
				t.Errorf("%s gets %q, want %q", server, strings.Join(got, ","), value)
			}
		}
	}
	const list = ",,/etc/ca.pem,/tmp/agent"
	expect(map[string]string{"claude": "one,,/etc/ca.pem,/tmp/agent", "codex": list, "project": list, "s": list})
	write(filepath.Join(s.home, ".config", "patchbay", "settings.json"), `{"discovery": {"inheritEnv": "basic"}}`)
	expect(map[string]string{"claude": list})

	// What a server that fails did not get is named, and its value is not.
	configure(t, s.home, `{"command": "mcptest-server", "args": ["-broken", "crash"]}`)
	out, _ := s.command("test", "s").CombinedOutput() // it fails
	if !strings.Contains(string(out), "does not get") || !strings.Contains(string(out), "GITHUB_TOKEN") || strings.Contains(string(out), "one,") || strings.Contains(string(out), "SSL_CERT_FILE") {
		t.Errorf("test: %s", out)
	}
}

// A command without a terminal uses the process that an agent has, whatever that
// declares.
func TestCallUsesTheAgentsProcess(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	a := s.start("serve", "--stdio", "--endpoint", "s")
	a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{},"sampling":{},"roots":{"listChanged":true}},"clientInfo":{"name":"test","version":"1"}}`)
	if err := a.conn.Write(t.Context(), wire.Message{Method: "notifications/initialized"}); err != nil {
		t.Fatal(err)
	}
	pid := a.call("pid")
	for range 3 {
		if out, _ := s.run("call", "s.pid"); strings.TrimSpace(out) != pid {
			t.Errorf("call uses process %s, and the agent %s", out, pid)
		}
	}
	if again := a.call("pid"); again != pid {
		t.Errorf("the agent's process is %s, and was %s", again, pid)
	}
}
