//go:build unix

package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// CheckOwner tells whether the `!commands` of a user's file may run: the file
// must belong to the user, and nobody else may be able to write it.
func CheckOwner(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("its owner is not known")
	case int(st.Uid) != os.Getuid():
		return fmt.Errorf("it belongs to user %d", st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write it (mode %04o)", info.Mode().Perm())
	}
	return nil
}
