package atomicfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	lockWait    = 30 * time.Second
	lockPollMin = 2 * time.Millisecond
	lockPollMax = 50 * time.Millisecond
)

// fileLock is an exclusive lock on one file's edits, held by keeping a lock file
// open and locked. The system releases it when the process ends, however it
// ends. The lock file stays: removing it while others wait for it would let two
// of them believe to hold the lock.
type fileLock struct{ f *os.File }

func (l fileLock) release() { _ = l.f.Close() }

// lock waits until nobody else edits the file.
func (p *place) lock(ctx context.Context) (fileLock, error) {
	dir, name := p.dir, "."+p.name+".lock"
	if p.opts.LockDir != "" {
		if err := os.MkdirAll(p.opts.LockDir, 0o700); err != nil {
			return fileLock{}, err
		}
		root, err := os.OpenRoot(p.opts.LockDir)
		if err != nil {
			return fileLock{}, err
		}
		defer root.Close()
		sum := sha256.Sum256([]byte(p.real))
		dir, name = root, hex.EncodeToString(sum[:16])+".lock"
	}
	f, err := openLockFile(dir, name)
	if err != nil {
		return fileLock{}, err
	}
	if err := p.await(ctx, f); err != nil {
		_ = f.Close()
		return fileLock{}, err
	}
	l := fileLock{f}
	l.sign()
	return l, nil
}

// openLockFile opens or creates a lock file. A project may hold anything under
// that name; only a regular file, and no link to one, is good enough.
func openLockFile(dir *os.Root, name string) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE|nonBlocking, defaultMode)
	if err != nil {
		return nil, fmt.Errorf("lock file %s: %w", path, err)
	}
	opened, err := f.Stat()
	if err == nil {
		var found fs.FileInfo
		if found, err = dir.Lstat(name); err == nil && (!found.Mode().IsRegular() || !os.SameFile(found, opened)) {
			err = errors.New("not a regular file")
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock file %s: %w", path, err)
	}
	return f, nil
}

// await polls, because a blocking lock could not be given up with ctx. The
// random part of the interval keeps many waiters from asking in step.
func (p *place) await(ctx context.Context, f *os.File) error {
	timeout := time.NewTimer(lockWait)
	defer timeout.Stop()
	pause := lockPollMin
	for {
		if ok, err := tryLock(f); err != nil {
			return fmt.Errorf("lock %s: %w", p.path, err)
		} else if ok {
			return nil
		}
		poll := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-poll.C:
			pause = min(2*pause, lockPollMax)
		case <-timeout.C:
			poll.Stop()
			return fmt.Errorf("%s is being changed by %s; gave up after %s", p.path, holder(f), lockWait)
		case <-ctx.Done():
			poll.Stop()
			return fmt.Errorf("%s is being changed by %s: %w", p.path, holder(f), context.Cause(ctx))
		}
	}
}

// sign leaves word of who holds the lock, for the message to those who wait in
// vain. The lock is as good without it.
func (l fileLock) sign() {
	text := fmt.Sprintf("process %d", os.Getpid())
	if _, err := l.f.WriteAt([]byte(text), 0); err == nil {
		_ = l.f.Truncate(int64(len(text)))
	}
}

// holder tells who holds the lock, as far as is known.
func holder(f *os.File) string {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 200))
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(text), ""))
	if clean == "" {
		return "another process"
	}
	return "another process (" + clean + ")"
}
