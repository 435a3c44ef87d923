package proc

import "os"

// running returns a path under which the program at path can be started: if it
// is the one that runs, whatever has become of its file since.
func running(path string) string {
	if self, err := os.Executable(); err == nil && self == path {
		return "/proc/self/exe"
	}
	return path
}
