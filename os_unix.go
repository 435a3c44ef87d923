//go:build unix

package patchbay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openNonblock keeps an open from waiting for the other end of a pipe.
const openNonblock = syscall.O_NONBLOCK

// ownedByUser reports whether a file belongs to the user or the administrator.
func ownedByUser(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Uid == 0 || int(st.Uid) == os.Geteuid()
}

// private reports whether nobody but its owner can use a file.
func private(info fs.FileInfo) bool { return info.Mode()&0o077 == 0 }

// ownAlone says why somebody else could have written a file, or into a
// directory.
func ownAlone(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !ownedByUser(info):
		return errors.New("it belongs to another user")
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("other users can write to it (mode %04o)", info.Mode().Perm())
	}
	return nil
}

// fileIdentity tells a file from others that are at its path at other times. The
// device does not count: on many file systems it has another number whenever it is
// mounted.
func fileIdentity(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(st.Ino)
}
