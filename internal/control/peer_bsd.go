//go:build darwin || freebsd

package control

import "golang.org/x/sys/unix"

// peerUser is the user of the process that connected to, or made, a socket.
func peerUser(fd int) (int, error) {
	const solLocal = 0 // SOL_LOCAL
	cred, err := unix.GetsockoptXucred(fd, solLocal, unix.LOCAL_PEERCRED)
	if err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}
