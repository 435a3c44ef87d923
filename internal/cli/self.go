package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// programName is what this program is called.
const programName = "patchbay"

// itself is how others can start this program.
type itself struct {
	path      string // absolute; empty if it is not known
	onPath    bool   // its name is enough
	temporary bool   // it is gone when this process ends, as that of `go run` is
}

// itself finds out how others can start this program.
func (a *app) itself() itself {
	self := itself{path: a.env.Executable}
	info, err := os.Stat(self.path)
	if err != nil {
		return itself{}
	}
	name := programName
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	for _, dir := range filepath.SplitList(a.lookup("PATH")) {
		found, err := os.Stat(filepath.Join(dir, name))
		if err != nil || found.IsDir() || !filepath.IsAbs(dir) {
			continue
		}
		if os.SameFile(info, found) { // the one that would be started
			return itself{path: filepath.Join(dir, name), onPath: true}
		}
		break
	}
	self.temporary = strings.Contains(filepath.ToSlash(self.path), "/go-build")
	return self
}

// program is what to start: a name if that is enough, else a path.
func (s itself) program() string {
	if s.onPath || s.path == "" || s.temporary {
		return programName
	}
	return s.path
}

// command is the program as a person would write it.
func (s itself) command() string {
	return quoted(s.program())
}

func quoted(program string) string {
	if strings.ContainsAny(program, " '\"$`()&;|<>*?") {
		return shellQuote(program)
	}
	return program
}

// started is the program as the person who started it by a name would write it.
func (s itself) started(name string) string {
	switch {
	case s.temporary:
		return goRun
	case s.onPath || s.path == "":
		return programName
	case strings.ContainsRune(name, filepath.Separator):
		return quoted(name)
	}
	return s.command()
}

// goRun is how a program is started that is gone when it ends.
const goRun = "go run ./cmd/patchbay"

// installFirst is said where a temporary program would be written down.
const installFirst = "This build is gone when it ends. Run `go install ./cmd/patchbay` first, and use that."
