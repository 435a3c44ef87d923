//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// A conversation runs patchbay on a real terminal and answers its questions.
type conversation struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	seen bytes.Buffer

	before string // what was printed before the last text that was waited for
}

func talk(t *testing.T, home, project string, args ...string) *conversation {
	t.Helper()
	env := append(os.Environ(), "HOME="+home, "TERM=xterm", "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "XDG_RUNTIME_DIR=", "NO_COLOR=", "UNGUARDED=1")
	return talkIn(t, project, env, args...)
}

// talkIn is talk with all of the environment.
func talkIn(t *testing.T, project string, env []string, args ...string) *conversation {
	t.Helper()
	program, err := exec.LookPath("patchbay") // TestMain put it there
	if err != nil {
		t.Fatal(err)
	}
	// A question that never comes must not hang the test.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = project, env
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	c := &conversation{t: t, tty: tty, cmd: cmd}
	t.Cleanup(func() { tty.Close() })
	return c
}

// until reads what the program prints up to a text.
func (c *conversation) until(text string) {
	c.t.Helper()
	buf := make([]byte, 1024)
	for !strings.Contains(c.seen.String(), text) {
		n, err := c.tty.Read(buf)
		c.seen.Write(buf[:n])
		if err != nil {
			c.t.Fatalf("the program ended before it printed %q:\n%s", text, c.seen.String())
		}
	}
	before, rest, _ := strings.Cut(c.seen.String(), text)
	c.before = before
	c.seen.Reset()
	c.seen.WriteString(rest)
}

func (c *conversation) answer(question, answer string) {
	c.t.Helper()
	c.until(question)
	if _, err := c.tty.WriteString(answer + "\n"); err != nil {
		c.t.Fatal(err)
	}
}

// end reads the rest and returns it with the exit code.
func (c *conversation) end() (string, int) {
	buf := make([]byte, 1024)
	for {
		n, err := c.tty.Read(buf)
		c.seen.Write(buf[:n])
		if err != nil { // Linux reports EIO when the other side is gone
			break
		}
	}
	_ = c.cmd.Wait() // the code says all there is
	return c.seen.String(), c.cmd.ProcessState.ExitCode()
}

func machine(t *testing.T) (home, project string) {
	t.Helper()
	dir := t.TempDir()
	home, project = filepath.Join(dir, "home"), filepath.Join(dir, "project")
	for _, d := range []string{home, filepath.Join(project, ".git")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return home, project
}

func TestWizard(t *testing.T) {
	home, project := machine(t)
	c := talk(t, home, project, "add")
	c.answer("Name: ", "not a name")
	c.until("Server name can only contain")
	c.answer("Name: ", "files")
	c.answer("Command line or URL: ", `npx -y @acme/files "two words`)
	c.until("unfinished quote")
	c.answer("Command line or URL: ", `npx -y @acme/files "two words"`)
	for range 7 { // however often: nothing typed is lost
		c.answer("Environment variable", "KEY")
		c.until("please write it as KEY=value, or nothing to go on")
	}
	c.answer("Environment variable", "KEY=${FILES_KEY}")
	c.answer("Environment variable", "")
	c.answer("Scope", "user")
	c.until(`npx -y @acme/files "two words"`)
	c.answer("Add it? [Y/n] ", "")
	out, code := c.end()
	if code != 0 || !strings.Contains(out, `Added "files" (user scope)`) {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	got, err := os.ReadFile(filepath.Join(home, ".config", "patchbay", "mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "$schema": "https://raw.githubusercontent.com/patchbay-mcp/patchbay/main/docs/schema/mcp.schema.json",
  "mcpServers": {
    "files": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@acme/files", "two words"],
      "env": {
        "KEY": "${FILES_KEY}"
      }
    }
  }
}
`
	if string(got) != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestWizardNo(t *testing.T) {
	home, project := machine(t)
	c := talk(t, home, project, "add")
	c.answer("Name: ", "docs")
	c.answer("Command line or URL: ", "https://docs.example.test/mcp")
	c.answer("Type, http or sse [http]: ", "")
	c.answer("Header", "Authorization: Bearer tr0ub4dor")
	c.answer("Header", "")
	c.answer("Scope", "")
	c.until("Type:         http")
	c.until("Target:       https://docs.example.test/mcp")
	c.answer("Add it? [Y/n] ", "n")
	out, code := c.end()
	_, said, _ := strings.Cut(out, "Nothing was added.")
	if code != 5 || !strings.Contains(said, "patchbay add-json -s local docs '{") || !strings.Contains(said, "have to be given anew") || strings.Contains(said, "tr0ub4dor") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if _, err := os.Stat(filepath.Join(home, ".local")); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
}

// An approval shows everything, and its default answer is no.
func TestApprovePrompt(t *testing.T) {
	home, project := machine(t)
	entry := `{"mcpServers": {"tool": {"command": "acme", "args": ["--run", "\u001b[2Jhidden"]}}}`
	if err := os.WriteFile(filepath.Join(project, ".mcp.json"), []byte(entry), 0o644); err != nil {
		t.Fatal(err)
	}
	c := talk(t, home, project, "approve", "tool")
	c.until("<U+001B>[2Jhidden")
	c.answer(`Approve "tool"? [y/N] `, "")
	if out, code := c.end(); code != 5 || !strings.Contains(out, "Not approved.") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	c = talk(t, home, project, "approve", "tool")
	c.answer(`Approve "tool"? [y/N] `, "yes")
	if out, code := c.end(); code != 0 || !strings.Contains(out, `Approved "tool" (project scope)`) {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
}

// What is asked about is shown, whatever the run prints otherwise.
func TestApprovePromptIsNeverQuiet(t *testing.T) {
	home, project := machine(t)
	if err := os.WriteFile(filepath.Join(project, ".mcp.json"), []byte(`{"mcpServers": {"tool": {"command": "acme"}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--quiet", "--json"} {
		c := talk(t, home, project, "approve", "tool", flag)
		c.until("Command      acme")
		c.answer(`Approve "tool"? [y/N] `, "no")
		if out, code := c.end(); code != 5 {
			t.Errorf("%s: exit code %d:\n%s", flag, code, out)
		}
	}
}

// Ctrl-C leaves at any question, and changes nothing.
func TestInterrupt(t *testing.T) {
	home, project := machine(t)
	if err := os.WriteFile(filepath.Join(project, ".mcp.json"), []byte(`{"mcpServers": {"tool": {"command": "acme"}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for question, args := range map[string][]string{"Name: ": {"add"}, "[y/N] ": {"approve", "tool"}} {
		c := talk(t, home, project, args...)
		c.until(question)
		// Typed, it would make the terminal drop what is printed next.
		if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if out, code := c.end(); code != 1 || !strings.Contains(out, "patchbay: interrupted") {
			t.Errorf("%v: exit code %d:\n%s", args, code, out)
		}
	}
	if _, err := os.Stat(filepath.Join(home, ".local")); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
}

func TestColoursOnATerminalOnly(t *testing.T) {
	home, project := machine(t)
	if out, _ := talk(t, home, project, "list").end(); strings.Contains(out, "\x1b[") {
		t.Errorf("colours without anything to show: %q", out)
	}
	if out, code := talk(t, home, project, "add", "-s", "user", "x", "--", "x").end(); code != 0 {
		t.Fatal(out)
	}
	if out, _ := talk(t, home, project, "list").end(); !strings.Contains(out, "\x1b[1mNAME") {
		t.Errorf("no colours on a terminal: %q", out)
	}
	if out, _ := talk(t, home, project, "list", "--no-color").end(); strings.Contains(out, "\x1b[") {
		t.Errorf("colours with --no-color: %q", out)
	}
}
