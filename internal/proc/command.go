package proc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// command returns the command of a Spec, not started.
func (s Spec) command(ctx context.Context) (*exec.Cmd, error) {
	path := s.File
	if path == "" {
		var err error
		if path, err = s.LookUp(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, path, s.Args...)
	cmd.Args[0] = s.Path
	cmd.Dir, cmd.Env = s.Dir, append([]string{}, s.Env...) // nil would be this process's own
	return cmd, nil
}

// LookUp returns the file that Path means. A directory of PATH that is not
// absolute is passed over: what it means depends on where one is, and a project
// must not be able to put itself in front of a command.
func (s Spec) LookUp() (string, error) {
	if strings.ContainsAny(s.Path, "/"+string(filepath.Separator)) || filepath.VolumeName(s.Path) != "" {
		return s.Path, nil
	}
	reason := fs.ErrNotExist
	for _, dir := range filepath.SplitList(s.searchPath()) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file, err := exec.LookPath(filepath.Join(dir, s.Path))
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			reason = fs.ErrPermission
		}
	}
	if reason == fs.ErrPermission {
		return "", fmt.Errorf("command %q: found in PATH, but not executable: %w", s.Path, reason)
	}
	return "", fmt.Errorf("command %q: not found in PATH: %w", s.Path, reason)
}

// searchPath is the child's PATH, this process's if the child has none.
func (s Spec) searchPath() string {
	path := os.Getenv("PATH")
	for _, assignment := range s.Env {
		name, value, _ := strings.Cut(assignment, "=")
		if name == "PATH" || runtime.GOOS == "windows" && strings.EqualFold(name, "PATH") {
			path = value // the last one counts, for the child too
		}
	}
	return path
}

// startError says in the command's own terms why it did not start. It keeps the
// cause: fs.ErrNotExist, fs.ErrPermission or syscall.ENOEXEC.
func (s Spec) startError(file string, err error) error {
	cause := withoutPath(err)
	if s.Dir != "" {
		if err := searchable(s.Dir); err != nil {
			return fmt.Errorf("command %q: working directory %q: %w", s.Path, s.Dir, withoutPath(err))
		}
	}
	switch {
	case errors.Is(cause, syscall.ENOEXEC), runtime.GOOS == "windows" && cause == errBadExeFormat:
		return fmt.Errorf("command %q: no program for this system (wrong architecture, or a script without a #! line): %w", s.Path, cause)
	case errors.Is(cause, fs.ErrNotExist) && s.exists(file):
		return fmt.Errorf("command %q: the interpreter it asks for is missing: %w", s.Path, cause)
	case errors.Is(cause, fs.ErrPermission) && s.exists(file):
		return fmt.Errorf("command %q: not executable: %w", s.Path, cause)
	}
	return fmt.Errorf("command %q: %w", s.Path, cause)
}

// searchable says why one cannot change to a directory.
func searchable(dir string) error {
	_, err := os.Stat(dir + string(filepath.Separator) + ".")
	return err
}

// withoutPath returns the cause of an error about a file.
func withoutPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// errBadExeFormat is what Windows says of a file that is no program.
const errBadExeFormat = syscall.Errno(193)

func (s Spec) exists(file string) bool {
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.Dir, file)
	}
	_, err := os.Stat(file)
	return err == nil
}
