package patchbay

import (
	"io/fs"
	"syscall"
)

// changeTime is when a file was last changed or renamed, in nanoseconds: unlike its
// modification time nobody can set it.
func changeTime(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Ctim.Nano()
}
