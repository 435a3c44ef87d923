//go:build unix

package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What an entry of VS Code asks its user for is asked once, on a terminal, and the
// daemon keeps it for all agents. Passwords are nowhere to be seen.
func TestInputs(t *testing.T) {
	const password, pin, evil = `s3cr&t "word"`, "~#~7", "eu\x1b[31m" // the short one is in no number, hash or path by chance
	s := newStation(t)
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(s.home, ".config/Code/User/mcp.json"), fmt.Sprintf(`{
  "inputs": [
    {"type": "promptString", "id": "key", "description": "The key of the vault", "password": true},
    {"type": "pickString", "id": "region", "description": "Where", "options": ["eu\u001b[31m", {"label": "America", "value": "us"}], "default": "us"},
    {"type": "promptString", "id": "user", "default": "me"},
    {"type": "command", "id": "run", "command": "acme.token"},
  ],
  "servers": {
    "vault": {"command": "mcptest-server", "args": ["-extra"], "env": {"GORACE": %[1]q, "KEY": "${input:key}", "REGION": "${input:region}", "ME": "${input:user}"}},
    "loud": {"command": "mcptest-server", "args": ["-broken", "chatty", "--", "${input:key}"], "env": {"GORACE": %[1]q, "KEY": "${input:key}"}},
    "gone": {"url": "http://127.0.0.1:1/${input:key}/mcp?q=${input:key}"},
    "nothere": {"command": "${input:key}"},
    "runs": {"command": "mcptest-server", "args": ["${input:run}"]},
  }
}`, quickExit))
	fails := func(code int, args ...string) string {
		t.Helper()
		out, err := s.command(args...).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != code {
			t.Errorf("%v: %v, want exit code %d\n%s", args, err, code, out)
		}
		return string(out)
	}
	has := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in: %s", w, text)
			}
		}
	}

	// Without a daemon.
	has(fails(4, "test", "vault"), `Server "vault" needs input: "key", "region", "user"`, "inputs vault")
	has(fails(4, "inputs", "vault"), "No daemon is running", "daemon start", "inputs vault")
	has(fails(4, "inputs", "vault", "--no-daemon"), "none is used here")
	has(fails(1, "test", "runs"), `the input "run" is the result of the VS Code command "acme.token", which only VS Code can run`)
	out, _ := s.run("list")
	has(out, `needs input: "key", "region", "user"; run patchbay inputs vault`)
	s.run("get", "vault")

	var said lines
	s.serveAloud(&said, &said, "--log-level", "debug")
	a := s.start("serve", "--stdio")
	a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	variable := func(name string) string {
		t.Helper()
		return textOf(a.ask("tools/call", `{"name":"vault__variable","arguments":{"name":"`+name+`"}}`))
	}
	has(variable("KEY"), `Server "vault" needs input: "key", "region", "user"`, "patchbay inputs vault")
	has(fails(4, "inputs", "vault"), "no terminal to ask on", "inputs vault")
	has(fails(1, "inputs", "s"), "asks for no input")
	has(fails(1, "inputs", "runs"), "which only VS Code can run")

	// What is typed for the password does not show; the rest does. It is asked for in
	// another directory than the agent's, which has the same file.
	c := talkIn(t, s.home, append(s.env, "TERM=xterm"), "inputs", "vault")
	c.until("The key of the vault")
	c.answer("key: ", password)
	c.until("2  America (us)")
	shown := c.before
	c.answer("region [us]: ", "Asia")
	c.until("one of the numbers")
	c.answer("region [us]: ", "1")
	c.answer("user [me]: ", "")
	rest, code := c.end()
	if code != 0 || !strings.Contains(rest, `Answered "vault"`) {
		t.Errorf("exit code %d: %s", code, rest)
	}
	if strings.Contains(shown+rest, "s3cr") || strings.Contains(shown, "\x1b") {
		t.Errorf("the terminal shows %q", shown+rest)
	}
	// Everybody has it, and an empty line keeps it.
	for name, want := range map[string]string{"KEY": password, "REGION": evil, "ME": "me"} {
		if got := variable(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	c = talkIn(t, s.project, append(s.env, "TERM=xterm"), "inputs", "vault")
	c.answer("key [as it is]: ", "")
	c.answer("region [as it is]: ", "America")
	c.answer("user [as it is]: ", "you")
	if rest, code = c.end(); code != 0 {
		t.Errorf("exit code %d: %s", code, rest)
	}
	for name, want := range map[string]string{"KEY": password, "REGION": "us", "ME": "you"} {
		if got := variable(name); got != want {
			t.Errorf("%s is %q then, want %q", name, got, want)
		}
	}

	// Servers that fail, or talk, tell nobody, however short it is. One that left
	// would leave the terminal as it was.
	for server, answer := range map[string]string{"loud": pin, "gone": password, "nothere": password} {
		c := talkIn(t, s.project, append(s.env, "TERM=xterm"), "inputs", server)
		c.answer("key: ", answer)
		if rest, code := c.end(); code != 0 {
			t.Errorf("exit code %d: %s", code, rest)
		}
	}
	all := fails(6, "test", "gone") + fails(6, "test", "nothere")
	for _, args := range [][]string{
		{"test", "loud"}, {"logs", "loud"}, {"list", "--json", "--show-secrets"}, {"status", "--json"}, {"get", "vault", "--json", "--show-secrets"},
	} {
		out, errs := s.run(args...)
		all += out + errs
	}
	has(all, "with the key [redacted]")
	c = talkIn(t, s.project, append(s.env, "TERM=xterm"), "inputs", "loud")
	c.until("key [as it is]: ")
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if rest, code := c.end(); code != 1 {
		t.Errorf("interrupted: exit code %d: %s", code, rest)
	}
	all += said.String() + a.said.String()
	for _, secret := range []string{"s3cr", pin} {
		if i := strings.Index(all, secret); i >= 0 {
			t.Errorf("a password was told: %q", all[max(0, i-200):i+len(secret)+50])
		}
	}
	if audit, err := filepath.Glob(filepath.Join(s.home, ".local/state/patchbay/*")); err != nil || len(audit) == 0 {
		t.Fatal(audit, err)
	}
	_ = filepath.WalkDir(s.home, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, _ := os.ReadFile(path); bytes.Contains(data, []byte("s3cr")) || bytes.Contains(data, []byte(pin)) {
				t.Errorf("%s has a password", path)
			}
		}
		return nil
	})
}
