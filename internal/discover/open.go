package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
)

var errAbsent = errors.New("no such file")

// lookUp tells what lies at a path without opening it: nothing at all (no info,
// no error), a regular file, or something that cannot be a configuration file;
// and whether a link led there.
func lookUp(path string) (info fs.FileInfo, linked bool, err error) {
	info, err = os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, false, nil
	case err != nil:
		return nil, false, reason(err)
	}
	if linked = info.Mode()&fs.ModeSymlink != 0; linked {
		if target, _ := os.Readlink(path); Remote(runtime.GOOS, target) {
			return nil, true, errors.New("a symbolic link to another machine")
		}
		info, err = os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, true, errors.New("a symbolic link that leads nowhere")
		}
		if err != nil {
			return nil, true, reason(err)
		}
	}
	return info, linked, regular(info)
}

// openFile opens a regular file of bearable size. It never waits: a pipe put in
// the file's place after lookUp is opened without waiting for a writer, and then
// refused.
func openFile(path string, most int64) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, reason(err)
	}
	info, err := f.Stat()
	if err != nil {
		err = reason(err)
	} else if err = regular(info); err == nil && info.Size() > most {
		err = fmt.Errorf("larger than %d MiB", most>>20)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

func regular(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return errors.New("a directory, not a file")
	case !mode.IsRegular():
		return errors.New("not a regular file")
	}
	return nil
}

// reason strips the operation and the path, which the problem names already.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
