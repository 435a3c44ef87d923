package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
)

// Lock is an exclusive lock that a process holds for as long as it does
// something that only one may do.
type Lock struct{ f *os.File }

// Hold takes the lock that the file at path stands for, which it makes if it is
// missing, and returns nil if another process holds it. The system releases the
// lock when the process ends, however it ends; the file stays.
func Hold(path string) (*Lock, error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := openLockFile(dir, filepath.Base(path))
	if err != nil {
		return nil, err
	}
	ok, err := tryLock(f)
	if err != nil || !ok {
		_ = f.Close()
		if err != nil {
			err = fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, err
	}
	fileLock{f}.sign()
	return &Lock{f}, nil
}

// Release lets another process have the lock.
func (l *Lock) Release() { _ = l.f.Close() }
