package atomicfile

import (
	"fmt"
	"io"
	"os"
)

// Read returns the content of the regular file at path, following symbolic
// links. A file longer than max bytes is an error, and so is anything that is
// not a regular file: a pipe nobody writes to does not make it wait.
func Read(path string, max int64) ([]byte, error) {
	// Opening a device may act on it, so look before opening; and again
	// afterwards, for what was put there in between.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path, info.Mode())
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readRegular(f, path, max)
}

// readRegular reads an open file of at most max bytes; the result is never nil
// without an error.
func readRegular(f *os.File, path string, max int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path, info.Mode())
	}
	if info.Size() > max {
		return nil, tooLong(path, max)
	}
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > max { // it grew
		return nil, tooLong(path, max)
	}
	return data, nil
}

func tooLong(path string, max int64) error {
	return fmt.Errorf("%s is longer than %d bytes", path, max)
}
