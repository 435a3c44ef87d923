//go:build unix

package proc

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes the child the leader of a new process group, all of which is
// killed when its context ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
}

// ownSession makes the child the leader of a new session and group, without a
// terminal: it can neither be stopped by this one's nor ask its user.
func ownSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// readNow reads what is in the pipe, and is at the end when nothing is.
func readNow(pipe *os.File, p []byte) (int, error) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var readErr error
	err = conn.Control(func(fd uintptr) {
		for {
			n, readErr = syscall.Read(int(fd), p)
			if readErr != syscall.EINTR {
				return
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case readErr != nil && !errors.Is(readErr, syscall.EAGAIN):
		return 0, readErr
	case n <= 0:
		return 0, io.EOF
	}
	return n, nil
}
