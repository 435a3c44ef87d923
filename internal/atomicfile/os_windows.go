package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// nonBlocking is of no use here: opening a pipe by name does not wait.
const nonBlocking = 0

// lockOffset lies beyond the content, since nobody can read a locked byte.
const lockOffset = 1 << 30

// tryLock takes an exclusive lock on an open file, if nobody else has it.
func tryLock(f *os.File) (bool, error) {
	at := &windows.Overlapped{Offset: lockOffset}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// ownedByUs trusts the access rights of the directory, which decide here who
// may replace a file.
func ownedByUs(fs.FileInfo) bool { return true }

// keepOwner does nothing: a new file inherits its rights from the directory.
func keepOwner(*os.File, fs.FileInfo) {}

// rename tries again for a while when somebody, a virus scanner as a rule, has
// the file open without sharing it.
func rename(dir *os.Root, from, to string) error {
	const longest = 500 * time.Millisecond
	for pause := time.Millisecond; ; pause *= 2 {
		err := dir.Rename(from, to)
		if pause > longest || (!errors.Is(err, windows.ERROR_SHARING_VIOLATION) && !errors.Is(err, windows.ERROR_ACCESS_DENIED)) {
			return err
		}
		time.Sleep(pause)
	}
}

// syncDir does nothing: a directory cannot be synced here.
func syncDir(*os.Root) error { return nil }
