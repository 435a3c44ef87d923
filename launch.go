package patchbay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/discover"
	"github.com/patchbay-mcp/patchbay/internal/policy"
)

// hashedLaunch is what an approval of an entry covers, and the hash that stands
// for it.
type hashedLaunch struct {
	policy.Launch
	hash string
}

// launches gathers what it takes to launch each entry, by its origin: what an
// approval covers where one is needed, and the identity of the server anyway.
func (h *Host) launches(entries []config.Entry) map[string]hashedLaunch {
	projectID := ""
	if info, err := os.Stat(h.places().project); err == nil {
		projectID = fileIdentity(info)
	}
	programs := programDigests{left: maxProgramBytes, known: map[string]string{}}
	resolved := map[[3]string]string{} // many entries start the same program
	all := map[string]hashedLaunch{}
	for _, e := range entries {
		l := policy.LaunchOf(e)
		runs, path, dir := h.runs(e)
		key := [3]string{runs.Command, path, dir}
		if _, ok := resolved[key]; !ok {
			resolved[key] = resolveCommand(runs.Command, path, dir)
		}
		l.ResolvedCommand = resolved[key]
		if e.Origin.Project != "" {
			l.Project, l.ProjectID = h.places().realProject, projectID
			if l.ResolvedCommand != "" && discover.Inside(l.ResolvedCommand, h.places().realProject) {
				l.CommandDigest = programs.digest(l.ResolvedCommand)
			}
			l.Files = h.boundFiles(e, runs, dir, &programs)
		}
		all[originKey(e)] = hashedLaunch{l, policy.ApprovalHash(l)}
	}
	return all
}

// runs returns what of an entry decides which files run, as the child would get
// it, the PATH that the child would have, and the directory it would run in.
// Nothing but these is expanded: an entry of a project may not be approved yet.
func (h *Host) runs(e config.Entry) (s config.Server, path, dir string) {
	s = config.Server{Command: e.Server.Command, Args: e.Server.Args, Cwd: e.Server.Cwd, EnvFile: e.Server.EnvFile}
	for name, value := range e.Server.Env {
		if isPath(name) {
			s.Env = map[string]config.Secret{name: value}
		}
	}
	s, _ = config.Expand(s, e.Dialect, h.vars())
	path = h.opts.getenv("PATH")
	for _, value := range s.Env {
		path = value.Reveal()
	}
	if dir = s.Cwd; !filepath.IsAbs(dir) {
		dir = filepath.Join(h.workingDir(e), dir)
	}
	return s, path, dir
}

func isPath(variable string) bool {
	return variable == "PATH" || runtime.GOOS == "windows" && strings.EqualFold(variable, "PATH")
}

// maxBoundFiles bounds the files of one entry whose contents are hashed.
const maxBoundFiles = 64

// boundFiles finds the files of the project that an entry runs besides its
// command, or that decide what it runs: arguments that are code or configuration,
// and the file its variables come from. What a server reads and writes as data is
// not among them, or it would ask again after each use.
func (h *Host) boundFiles(e config.Entry, runs config.Server, dir string, programs *programDigests) []policy.BoundFile {
	var all []policy.BoundFile
	add := func(argument, value string, code func(string, os.FileInfo) bool) {
		if value == "" || len(all) == maxBoundFiles || discover.Remote(runtime.GOOS, value) || strings.Contains(value, "://") {
			return
		}
		if !filepath.IsAbs(value) {
			value = filepath.Join(dir, value)
		}
		path, err := filepath.EvalSymlinks(value)
		if err != nil || !discover.Inside(path, h.places().realProject) && !h.namedInProject(value) {
			return
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || !code(path, info) {
			return
		}
		if digest := programs.digest(path); digest != "" {
			all = append(all, policy.BoundFile{Argument: argument, Named: value, Path: path, Digest: digest})
		}
	}
	first := policy.IsInterpreter(runs.Command)
	for i, arg := range runs.Args {
		argument := arg
		if len(runs.Args) == len(e.Server.Args) {
			argument = e.Server.Args[i]
		}
		if strings.HasPrefix(arg, "-") {
			_, value, _ := strings.Cut(arg, "=")
			add(argument, value, isCode)
			continue
		}
		script := first
		add(argument, arg, func(path string, info os.FileInfo) bool { return script || isCode(path, info) })
		first = false
	}
	add(e.Server.EnvFile, runs.EnvFile, func(string, os.FileInfo) bool { return true })
	return all
}

// namedInProject reports whether a path lies in the project, wherever the links on
// it lead: they are the project's.
func (h *Host) namedInProject(path string) bool {
	path = filepath.Clean(path)
	return discover.Inside(path, h.places().project) || discover.Inside(path, h.places().realProject)
}

// isCode reports whether a file can be run, or is code or configuration by its
// name.
func isCode(path string, info os.FileInfo) bool {
	return policy.IsCode(path) || runtime.GOOS != "windows" && info.Mode()&0o111 != 0
}

// originKey tells every entry from every other.
func originKey(e config.Entry) string {
	return e.Origin.Provider + "\x00" + e.Origin.File + "\x00" + e.Origin.Pointer + "\x00" + e.Name
}

// resolveCommand finds the program a command would start, with the PATH and the
// directory that it would have. It returns nothing if there is none now; when
// there is one later, the hash changes.
func resolveCommand(command, searchPath, dir string) string {
	switch {
	case discover.Remote(runtime.GOOS, command):
		return "" // to look is to contact it
	case command == "" || strings.ContainsAny(command, "${}"):
		return "" // a placeholder that nobody can replace
	case filepath.IsAbs(command):
		path, _ := filepath.EvalSymlinks(command)
		return path
	case strings.ContainsAny(command, "/"+string(filepath.Separator)):
		path, _ := filepath.EvalSymlinks(filepath.Join(dir, command))
		return path
	}
	for _, dir := range filepath.SplitList(searchPath) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(dir, command)); err == nil {
			path, _ := filepath.EvalSymlinks(found)
			return path
		}
	}
	return ""
}

// checkLaunch compares what is about to be started with what was approved: file is
// what the command means to the child that is being made. The returned function
// compares again, once the child is there.
func (h *Host) checkLaunch(st ServerStatus, file string) (again func() error, err error) {
	l := st.launch
	check := func() error {
		if path, err := filepath.EvalSymlinks(file); err != nil {
			return err
		} else if path != l.ResolvedCommand && (l.ResolvedCommand != "" || discover.Inside(path, h.places().realProject)) {
			return fmt.Errorf("it would start %s, and %s was approved", path, cmp.Or(l.ResolvedCommand, "no program"))
		}
		for _, f := range l.Files {
			if path, err := filepath.EvalSymlinks(f.Named); err != nil || path != f.Path {
				return fmt.Errorf("%s changed since it was approved", f.Named)
			}
		}
		return nil
	}
	bound := l.Files
	if l.CommandDigest != "" {
		bound = append(slices.Clip(bound), policy.BoundFile{Path: l.ResolvedCommand, Digest: l.CommandDigest})
	}
	stamps := make([]string, len(bound))
	programs := programDigests{left: maxProgramBytes, known: map[string]string{}}
	err = check()
	for i, f := range bound {
		stamps[i] = fileStamp(f.Path)
		if err == nil && programs.digest(f.Path) != f.Digest {
			err = fmt.Errorf("%s changed since it was approved", f.Path)
		}
	}
	if err == nil {
		return func() error {
			err := check()
			for i, f := range bound {
				if err == nil && fileStamp(f.Path) != stamps[i] {
					err = fmt.Errorf("%s changed while it was started", f.Path)
				}
			}
			return err
		}, nil
	}
	h.reloadSoon()
	return nil, err
}

// reloadSoon reads everything again, on behalf of somebody who must not wait for
// it.
func (h *Host) reloadSoon() {
	h.sessionsMu.Lock()
	defer h.sessionsMu.Unlock()
	if h.closed {
		return
	}
	h.followers.Go(func() {
		if err := h.readAgain(h.life); err != nil && h.life.Err() == nil {
			h.opts.Logger.Warn("configuration not read again", "error", err)
		}
	})
}

// fileStamp changes whenever a file is changed or replaced, as far as the system
// says.
func fileStamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(fileIdentity(info), info.Size(), info.ModTime().UnixNano(), changeTime(info))
}

// boundPaths are the files whose contents approvals of this reading cover.
func (r *reading) boundPaths() []string {
	var all []string
	for _, st := range r.snap.Servers {
		if st.launch.CommandDigest != "" {
			all = append(all, st.launch.ResolvedCommand)
		}
		for _, f := range st.launch.Files {
			all = append(all, f.Named, f.Path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// maxProgramBytes bounds what is read of a project's programs in one go, so that
// no project can make a list slow.
const maxProgramBytes = 256 << 20

// programDigests hashes programs of the project, so that an edited one asks
// again. Each is read once.
type programDigests struct {
	left  int64 // bytes that may still be read
	known map[string]string
}

// digest returns the hash of a program, or nothing if it cannot be had; then the
// approval says that the content is not checked.
func (d *programDigests) digest(path string) string {
	sum, ok := d.known[path]
	if !ok {
		sum = d.read(path)
		d.known[path] = sum
	}
	return sum
}

func (d *programDigests) read(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > d.left {
		return ""
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, d.left))
	d.left -= n
	if err != nil || n != info.Size() { // it is being changed
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}
