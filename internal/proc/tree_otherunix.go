//go:build unix && !linux

package proc

import (
	"os/exec"
	"syscall"
)

// awaitExit waits until the child has exited, and reaps it.
func awaitExit(cmd *exec.Cmd) { _ = cmd.Wait() }

func reap(*exec.Cmd) error { return nil }

// waitGroup waits for the child and ends what is left of its group.
func waitGroup(cmd *exec.Cmd) error {
	err := cmd.Wait()
	_ = killGroup(cmd) // nobody being left is fine
	return err
}

// tree is a process group. Who left it is not looked for on this system.
type tree struct {
	root  int
	start uint64 // not known here
}

func childTree(pid int) *tree                { return &tree{root: pid} }
func rememberedTree(pid int, _ uint64) *tree { return &tree{root: pid} }

func processes() map[int]struct{} { return nil }

func (t *tree) update(map[int]struct{}) {}

func (t *tree) alive() bool { return syscall.Kill(-t.root, 0) == nil }

// terminate asks all to end. Who was stopped goes on, to be able to.
func (t *tree) terminate() {
	_ = syscall.Kill(-t.root, syscall.SIGTERM)
	_ = syscall.Kill(-t.root, syscall.SIGCONT)
}

func (t *tree) kill() { _ = syscall.Kill(-t.root, syscall.SIGKILL) }
