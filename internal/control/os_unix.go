//go:build unix

package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// alsoType are the bits of a mode that say nothing here about what a file is.
const alsoType = fs.FileMode(0)

// aside is added to the name of a socket that is not ready yet.
const aside = "~"

// gone are the errors of a connection to a socket that nobody serves, or nobody
// does any more.
var gone = []error{fs.ErrNotExist, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE}

// temporary is the directory for temporary files.
func temporary() string { return "/tmp" }

// checkOwner says why others might get at a file.
func checkOwner(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to other users (mode %04o); `chmod go= %s` closes it", path, info.Mode().Perm(), path)
	}
	return nil
}

// detach makes a command one that outlives this process and whatever started it:
// in a session of its own, and with none of the descriptors that this process
// was given by others, who may wait for their end.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	open, _ := os.ReadDir("/dev/fd") // where the system does not tell, they stay
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd) // as those that this program opened are already
		}
	}
}

// checkPeer says why the other side of a connection is not to be talked to.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var uid int
	var failed error
	if err := raw.Control(func(fd uintptr) { uid, failed = peerUser(int(fd)) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("the user on the other side of the control socket: %w", failed)
	}
	if uid != os.Geteuid() {
		return errors.New("the process on the other side of the control socket belongs to another user")
	}
	return nil
}
