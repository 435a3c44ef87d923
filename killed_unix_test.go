//go:build unix

package patchbay_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// Row 17: a host that is killed takes its servers with it, those too that do not
// end when their input does.
func TestKilledHost(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	servers := map[string]config.Server{}
	for i := range 4 {
		name := fmt.Sprintf("srv%d", i)
		servers[name] = scripted("-stay", lines.Arg(name))
	}
	file := newComputer(t).declare(servers)
	argv := append(self(t, "host"), file)
	cmd := exec.Command(argv[0], argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready <nil>\n" {
		t.Errorf("the host says %q, %v", line, err)
	}
	var up []*mcptest.Lifeline
	for name := range servers {
		up = append(up, lines.Next(name))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for _, line := range up {
		line.WaitGone(t)
	}
}
