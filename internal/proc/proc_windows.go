package proc

import (
	"io"
	"os"
	"os/exec"
)

// ownGroup leaves the child as it is: its context ends it alone.
func ownGroup(*exec.Cmd) {}

func ownSession(*exec.Cmd) {}

func waitGroup(cmd *exec.Cmd) error { return cmd.Wait() }

func awaitExit(cmd *exec.Cmd) { _ = cmd.Wait() }

func reap(*exec.Cmd) error { return nil }

// readNow is for the end of a pipe that somebody else holds open. Pipes have no
// deadlines here, so nobody gets there.
func readNow(*os.File, []byte) (int, error) { return 0, io.EOF }

// tree is the process alone.
type tree struct {
	root  int
	start uint64 // not known here
}

func childTree(pid int) *tree { return &tree{root: pid} }

func processes() map[int]struct{} { return nil }

func (t *tree) update(map[int]struct{}) {}

func (t *tree) alive() bool { return false }

// terminate kills: there is no way to ask.
func (t *tree) terminate() { t.kill() }

func (t *tree) kill() {
	if p, err := os.FindProcess(t.root); err == nil {
		_ = p.Kill()
		_ = p.Release()
	}
}

// Guard does nothing on Windows: children outlive a parent that was killed,
// until they find their standard input at its end.
type Guard struct{}

// NewGuard returns a Guard that does nothing, and starts nothing.
func NewGuard([]string) (*Guard, error) { return &Guard{}, nil }

// Close does nothing.
func (*Guard) Close() error { return nil }

func (*Guard) add(int, uint64) {}
func (*Guard) drop(int)        {}

// RunGuard reads to the end, and does nothing.
func RunGuard(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
