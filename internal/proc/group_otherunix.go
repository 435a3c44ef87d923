//go:build unix && !linux

package proc

import "os/exec"

// waitGroup waits for the child and ends what is left of its group.
func waitGroup(cmd *exec.Cmd) error {
	err := cmd.Wait()
	_ = killGroup(cmd) // nobody being left is fine
	return err
}
