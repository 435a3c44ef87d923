package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// place is where a file is, or will be: an open directory and a name in it.
// Everything is done relative to the open directory, so renaming or replacing
// one of its parents meanwhile cannot lead a write elsewhere.
type place struct {
	path string // as the caller gave it, for messages
	real string // without symbolic links, the same in every process
	dir  *os.Root
	name string
	opts Options
}

func (p *place) close() { _ = p.dir.Close() }

// wrap names the caller's file in an error that names a temporary one or none.
func (p *place) wrap(err error) error {
	if errors.Is(err, errChanged) {
		return err
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("%s: %w", pe.Op, pe.Err)
	} else if le, ok := errors.AsType[*os.LinkError](err); ok {
		err = fmt.Errorf("%s: %w", le.Op, le.Err)
	}
	return fmt.Errorf("write %s: %w", p.path, err)
}

// named puts the whole path into an error that names the last part of it, which
// is all that operations in an open directory know.
func named(path string, err error) error {
	pe, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	op := pe.Op
	if op != "stat" && op != "lstat" {
		op = strings.TrimSuffix(op, "at") // openat, mkdirat
	}
	return &fs.PathError{Op: op, Path: path, Err: pe.Err}
}

// open finds the place of path and opens its directory, which it makes if it is
// missing.
func open(path string, opts Options) (*place, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if opts.Within != "" {
		if opts.FollowSymlink {
			return nil, errors.New("atomicfile: Within and FollowSymlink exclude each other")
		}
		return openWithin(path, opts)
	}
	target := path
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if !opts.FollowSymlink {
			return nil, symlinkError(path)
		}
		if target, err = ownTarget(path); err != nil {
			return nil, err
		}
	}
	dir, name := filepath.Split(target)
	if err := os.MkdirAll(dir, opts.dirMode()); err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &place{path: path, real: filepath.Join(dir, name), dir: root, name: name, opts: opts}, nil
}

// ownTarget returns the file a symbolic link leads to, if it is ours to replace.
func ownTarget(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%s is a symbolic link that leads nowhere: %w", path, err)
	}
	info, err := os.Lstat(target)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", notRegular(target, info.Mode())
	}
	if !ownedByUs(info) {
		return "", fmt.Errorf("%s is a symbolic link to %s, which belongs to another user; not writing through it", path, target)
	}
	return target, nil
}

// openWithin walks from opts.Within to the file's directory, one component at a
// time, and refuses every symbolic link on the way.
func openWithin(path string, opts Options) (*place, error) {
	within, err := filepath.Abs(opts.Within)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(within, path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return nil, fmt.Errorf("%s does not lie below %s", path, within)
	}
	if err := os.MkdirAll(within, opts.dirMode()); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(within)
	if err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(rel, string(filepath.Separator))
	name := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		within = filepath.Join(within, part)
		next, err := enter(dir, part, within, opts)
		_ = dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return &place{path: path, real: filepath.Join(real, rel), dir: dir, name: name, opts: opts}, nil
}

// enter opens the directory name in dir, which it makes if it is missing.
func enter(dir *os.Root, name, path string, opts Options) (*os.Root, error) {
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := dir.Mkdir(name, opts.dirMode()); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, named(path, err)
		}
		info, err = dir.Lstat(name)
	}
	switch {
	case err != nil:
		return nil, named(path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, symlinkError(path)
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	opts.step("enter", nil)
	next, err := dir.OpenRoot(name)
	if err != nil {
		return nil, named(path, err)
	}
	// What was opened must be what was looked at: a link put there in between
	// would have been followed.
	if opened, err := next.Stat("."); err != nil || !os.SameFile(info, opened) {
		_ = next.Close()
		return nil, fmt.Errorf("%s was replaced while it was being opened", path)
	}
	return next, nil
}

// stat describes the file; nil means that there is none. Anything but a regular
// file is an error.
func (p *place) stat() (fs.FileInfo, error) {
	info, err := p.dir.Lstat(p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, named(p.path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, symlinkError(p.path)
	case !info.Mode().IsRegular():
		return nil, notRegular(p.path, info.Mode())
	}
	return info, nil
}

// read returns the content of the file; nil means that there is none. A file
// that is replaced while it is being opened gives errChanged.
func (p *place) read(max int64) ([]byte, error) {
	info, err := p.stat()
	if err != nil || info == nil {
		return nil, err
	}
	p.opts.step("read", nil)
	f, err := p.dir.OpenFile(p.name, os.O_RDONLY|nonBlocking, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed in between
	}
	if err != nil {
		return nil, named(p.path, err)
	}
	defer f.Close()
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		return nil, errChanged // perhaps by a link, which opening followed
	}
	return readRegular(f, p.path, max)
}

func symlinkError(path string) error {
	return fmt.Errorf("%s is a symbolic link; not writing through it", path)
}

func notRegular(path string, mode fs.FileMode) error {
	kind := "a special file"
	switch {
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fmt.Errorf("%s is %s, not a regular file", path, kind)
}
