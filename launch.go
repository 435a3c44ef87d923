package patchbay

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	if info, err := os.Stat(h.places.project); err == nil {
		projectID = fileIdentity(info)
	}
	programs := programDigests{left: maxProgramBytes, known: map[string]string{}}
	resolved := map[string]string{} // many entries start the same program
	all := map[string]hashedLaunch{}
	for _, e := range entries {
		l := policy.LaunchOf(e)
		if e.Origin.Project != "" {
			l.Project, l.ProjectID = h.places.realProject, projectID
		}
		path, ok := resolved[e.Server.Command]
		if !ok {
			path = h.resolveCommand(e.Server.Command)
			resolved[e.Server.Command] = path
		}
		l.ResolvedCommand = path
		if path != "" && e.Origin.Project != "" && discover.Inside(path, h.places.realProject) {
			l.CommandDigest = programs.digest(path)
		}
		all[originKey(e)] = hashedLaunch{l, policy.ApprovalHash(l)}
	}
	return all
}

// originKey tells every entry from every other.
func originKey(e config.Entry) string {
	return e.Origin.Provider + "\x00" + e.Origin.File + "\x00" + e.Origin.Pointer + "\x00" + e.Name
}

// resolveCommand finds the program a command would start, with the PATH of the
// environment the host was opened with. It returns nothing if there is none now;
// when there is one later, the hash changes.
func (h *Host) resolveCommand(command string) string {
	switch {
	case discover.Remote(runtime.GOOS, command):
		return "" // to look is to contact it
	case filepath.IsAbs(command):
		path, _ := filepath.EvalSymlinks(command)
		return path
	case command == "" || strings.ContainsAny(command, "${}") || strings.ContainsRune(command, filepath.Separator):
		return "" // discovery made paths absolute, but for placeholders
	}
	for _, dir := range filepath.SplitList(h.opts.getenv("PATH")) {
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
