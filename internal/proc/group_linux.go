package proc

import (
	"os/exec"

	"golang.org/x/sys/unix"
)

// waitGroup waits for the child and ends what is left of its group. It does so
// before the child is reaped: until then the group's number cannot be given to
// anybody else.
func waitGroup(cmd *exec.Cmd) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	_ = killGroup(cmd) // nobody being left is fine
	return cmd.Wait()
}
