//go:build unix

package patchbay

import (
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// mounted is a file whose file system has been mounted again.
type mounted struct {
	fs.FileInfo
	stat syscall.Stat_t
}

func (m mounted) Sys() any { return &m.stat }

// A project stays the one that was approved when its device gets another number,
// and is another one when something else lies at its path.
func TestFileIdentity(t *testing.T) {
	info, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	again := mounted{info, *info.Sys().(*syscall.Stat_t)}
	again.stat.Dev++
	if got, want := fileIdentity(again), fileIdentity(info); got != want {
		t.Errorf("after another mount it is %s, and was %s", got, want)
	}
	again.stat.Ino++
	if got := fileIdentity(again); got == fileIdentity(info) {
		t.Errorf("another directory is the same: %s", got)
	}
}
