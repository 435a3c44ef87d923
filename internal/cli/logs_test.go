//go:build unix

package cli_test

import (
	"path/filepath"
	"syscall"
	"testing"
)

// logs -f prints what the server wrote and what it writes from then on, and is no
// error when a person has enough.
func TestFollowLogs(t *testing.T) {
	home, project := machine(t)
	sign := filepath.Join(home, "sign")
	configure(t, home, `{"command": "sh", "args": ["-c", "(while ! test -e `+sign+`; do sleep 0.05; done; echo two more words >&2) & exec mcptest-server"], "env": {"GORACE": "`+quickExit+`"}}`)
	c := talk(t, home, project, "logs", "-f", "s")
	c.until("mcptest-server <U+001B>[31mstarts")
	write(t, sign, "")
	c.until("two more words\r\n")
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if out, code := c.end(); code != 0 || out != "" {
		t.Errorf("exit code %d, and after that it printed %q", code, out)
	}
}
