//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Agents in different terminals, with different environments, each act with their
// own values, whoever started the daemon. Those for whom a process would be the
// same have one.
func TestEachAgentHasItsOwnEnvironment(t *testing.T) {
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
