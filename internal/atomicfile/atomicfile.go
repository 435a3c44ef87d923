// Package atomicfile replaces files whole: a reader, a crash or a full disk
// finds the old content or the new, never a part of either.
//
// Write replaces a file. Update edits one: it holds a lock that other processes
// of ours respect, hands the content to a function and writes the result only
// if nobody else, an editor for example, changed the file in between. Read is
// the careful way to open a file that something else may have replaced by a
// pipe. All three may be called from any number of goroutines and processes at
// once.
//
// A new content is a temporary file in the same directory, synced, renamed over
// the old one, and the directory synced. Permission bits and, where the system
// allows it, the owner of the old file are kept; a hard link to it is not.
package atomicfile

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"
)

const (
	maxUpdateSize   = 256 << 20    // of a file that Update reads
	updateAttempts  = 5            // against writers that do not take our lock
	staleAfter      = time.Hour    // when a temporary file has no writer any more
	tempMark        = ".patchbay-" // in the name of every temporary file of ours
	tempSuffix      = ".tmp"       //
	tempRandomBytes = 8            //
	defaultMode     = fs.FileMode(0o600)
)

// Options say how a file is placed. The zero value writes a private file and
// refuses a symbolic link in its place.
type Options struct {
	// Mode is that of a new file, before the umask; 0 means 0600. Directories
	// that are missing are made as readable as the file. An existing file keeps
	// its own mode.
	Mode fs.FileMode

	// Private takes an existing file from everybody but its owner, also if its
	// content stays as it is.
	Private bool

	// FollowSymlink writes through a symbolic link to its target, provided that
	// the target is a regular file of the current user's; the link stays.
	// Without it a link in place of the file is an error.
	FollowSymlink bool

	// Within, if set, is a directory that the file must lie below, with no
	// symbolic link in any component between the two; not even one that
	// appears while the write is going on leads out of it. It cannot be
	// combined with FollowSymlink.
	Within string

	// LockDir is where Update keeps its lock files, which stay behind; empty
	// means beside the file. Every process that edits a file must name the
	// same directory.
	LockDir string

	// testOnlyStep, if set, is called before every step with the temporary
	// file, as long as it is open.
	testOnlyStep func(step string, temp *os.File)
}

func (o Options) mode() fs.FileMode {
	if o.Mode == 0 {
		return defaultMode
	}
	return o.Mode.Perm()
}

// keep is the mode of a file that had another content before.
func (o Options) keep(old fs.FileMode) fs.FileMode {
	if o.Private && runtime.GOOS != "windows" { // where the bits tell nothing
		return old.Perm() &^ 0o077
	}
	return old.Perm()
}

// dirMode lets those enter a directory who may read the file in it.
func (o Options) dirMode() fs.FileMode {
	m := o.mode() | 0o700
	return m | (m&0o444)>>2
}

func (o Options) step(name string, temp *os.File) {
	if o.testOnlyStep != nil {
		o.testOnlyStep(name, temp)
	}
}

// Write makes data the content of the file at path, creating it and its
// directory where they are missing. It takes no lock: the last writer wins.
func Write(path string, data []byte, opts Options) error {
	p, err := open(path, opts)
	if err != nil {
		return err
	}
	defer p.close()
	return p.replace(data, nil)
}

// errChanged reports that a file is no longer what was read before.
var errChanged = errors.New("the file changed meanwhile")

// Update replaces the content of the file at path by what edit makes of it, and
// reports whether it did. A missing file is nil. Result nil, or the same bytes,
// leave the file alone; an error of edit does too and is returned as it is.
//
// Updates of one file by several processes take place one after another. When
// some other program changes the file between reading and writing, edit is
// called again with what it wrote, so it must have no effect of its own.
//
// Waiting for the lock ends with ctx, and after half a minute in any case.
func Update(ctx context.Context, path string, opts Options, edit func(old []byte) ([]byte, error)) (changed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	// An edit that has nothing to say about a missing file must leave no
	// directory and no lock file behind.
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if data, err := edit(nil); err != nil || data == nil {
			return false, err
		}
	}
	p, err := open(path, opts)
	if err != nil {
		return false, err
	}
	defer p.close()
	lock, err := p.lock(ctx)
	if err != nil {
		return false, err
	}
	defer lock.release()

	for range updateAttempts {
		old, err := p.read(maxUpdateSize)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return false, err
		}
		data, err := edit(old)
		if err != nil || data == nil {
			return false, err
		}
		if old != nil && bytes.Equal(old, data) {
			if info, err := p.stat(); err != nil || info == nil || p.opts.keep(info.Mode()) == info.Mode().Perm() {
				return false, err
			}
		}
		err = p.replace(data, func() error { return p.unchanged(old) })
		if !errors.Is(err, errChanged) {
			return err == nil, err
		}
	}
	return false, fmt.Errorf("%s: another program keeps changing this file; nothing was written", path)
}

// unchanged returns errChanged unless the file still has the content old.
func (p *place) unchanged(old []byte) error {
	now, err := p.read(maxUpdateSize)
	if err == nil && ((now == nil) != (old == nil) || !bytes.Equal(now, old)) {
		err = errChanged
	}
	return err
}

// replace writes data beside the file and renames it into place, unless check,
// called in the last moment, forbids it.
func (p *place) replace(data []byte, check func() error) (err error) {
	old, err := p.stat()
	if err != nil {
		return err
	}
	if old != nil && old.Mode()&0o200 == 0 {
		return fmt.Errorf("%s: the file is read-only", p.path)
	}
	p.sweep()

	name := "." + p.name + tempMark + randomName() + tempSuffix
	p.opts.step("create", nil)
	mode := p.opts.mode()
	if old != nil {
		mode = defaultMode // until it has the owner of the old one
	}
	temp, err := p.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return p.wrap(err)
	}
	defer func() {
		_ = temp.Close() // a second time after success
		if err != nil {
			_ = p.dir.Remove(name)
			err = p.wrap(err)
		}
	}()
	p.opts.step("write", temp)
	if _, err := temp.Write(data); err != nil {
		return err
	}
	if old != nil {
		keepOwner(temp, old)
		if err := temp.Chmod(p.opts.keep(old.Mode())); err != nil {
			return err
		}
	}
	p.opts.step("sync", temp)
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	p.opts.step("check", nil)
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	p.opts.step("rename", nil)
	if err := rename(p.dir, name, p.name); err != nil {
		return err
	}
	p.opts.step("sync directory", nil)
	return syncDir(p.dir)
}

// sweep removes temporary files of this target that a crash left behind. It is
// tidying: whatever goes wrong with it, the write goes on.
func (p *place) sweep() {
	dir, err := p.dir.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if !p.isTemp(name) {
			continue
		}
		info, err := p.dir.Lstat(name)
		if err == nil && info.Mode().IsRegular() && ownedByUs(info) && time.Since(info.ModTime()) > staleAfter {
			_ = p.dir.Remove(name)
		}
	}
}

func (p *place) isTemp(name string) bool {
	random, ok := strings.CutPrefix(name, "."+p.name+tempMark)
	if !ok {
		return false
	}
	random, ok = strings.CutSuffix(random, tempSuffix)
	_, err := hex.DecodeString(random)
	return ok && err == nil && len(random) == 2*tempRandomBytes
}

func randomName() string {
	b := make([]byte, tempRandomBytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
