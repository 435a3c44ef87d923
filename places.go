package patchbay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// places are the directories and files that are Patchbay's own, and the project
// the host works in.
type places struct {
	project     string // root of the repository around the working directory, or that directory
	realProject string // the same without symbolic links: what decisions are about
	config      string // the user's configuration
	cache       string // what can be had again: catalogs, long results
	state       string // what the user decided: approvals, local servers; never inside a project
}

func (p places) userFile() string     { return filepath.Join(p.config, "mcp.json") }
func (p places) projectFile() string  { return filepath.Join(p.project, ".patchbay", "mcp.json") }
func (p places) userSettings() string { return filepath.Join(p.config, "settings.json") }
func (p places) projectSettings() string {
	return filepath.Join(p.project, ".patchbay", "settings.json")
}
func (p places) localFile() string     { return discover.LocalFile(p.state, p.realProject) }
func (p places) approvalsFile() string { return filepath.Join(p.state, "approvals.json") }
func (p places) lockDir() string       { return filepath.Join(p.state, "locks") }

// Directories are Patchbay's own, for one user.
type Directories struct {
	Config string `json:"config"` // the user's servers and settings
	State  string `json:"state"`  // what the user decided, and what is secret
	Cache  string `json:"cache"`  // what can be had again
}

// Directories returns those of a host opened with these options. They need not
// exist.
func (o Options) Directories() (Directories, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Directories{}, err
	}
	p, err := findPlaces(o)
	return Directories{p.config, p.state, p.cache}, err
}

func findPlaces(o Options) (places, error) {
	p := places{project: findProject(o.Dir, o.Home)}
	p.realProject = discover.RealPath(p.project)
	base := func(variable, fallback string) (string, error) {
		return userDirectory(o.getenv(variable), fallback, p.realProject)
	}
	var err error
	switch runtime.GOOS {
	case "darwin":
		support := filepath.Join(o.Home, "Library", "Application Support")
		p.config, p.state, p.cache = support, support, filepath.Join(o.Home, "Library", "Caches")
	case "windows":
		if p.config, err = base("APPDATA", filepath.Join(o.Home, "AppData", "Roaming")); err != nil {
			return p, err
		}
		p.state, err = base("LOCALAPPDATA", filepath.Join(o.Home, "AppData", "Local"))
		p.cache = filepath.Join(p.state, "cache")
	default:
		if p.config, err = base("XDG_CONFIG_HOME", filepath.Join(o.Home, ".config")); err != nil {
			return p, err
		}
		if p.cache, err = base("XDG_CACHE_HOME", filepath.Join(o.Home, ".cache")); err != nil {
			return p, err
		}
		p.state, err = base("XDG_STATE_HOME", filepath.Join(o.Home, ".local", "state"))
	}
	for _, dir := range []*string{&p.config, &p.state, &p.cache} {
		*dir = filepath.Join(*dir, "patchbay")
	}
	return p, err
}

// places are where everything is now.
func (h *Host) places() places { return *h.located.Load() }

// scanEnv is what a scan is to see now.
func (h *Host) scanEnv() discover.Env {
	env := h.scan
	env.Project = h.places().project
	return env
}

// locate finds the project anew: a repository may have been made around the
// working directory, or be gone. What is Patchbay's own stays where it is, and
// never comes to lie in a project.
func (h *Host) locate() (now places, moved bool) {
	was := h.places()
	now = was
	now.project = findProject(h.opts.Dir, h.opts.Home)
	now.realProject = discover.RealPath(now.project)
	state := discover.RealPath(was.state)
	if discover.Inside(state, now.realProject) && !discover.Inside(state, was.realProject) {
		return was, false
	}
	return now, now != was
}

// findProject returns the nearest directory at or above dir that is the root of
// a repository, and dir itself if there is none. The home directory is not
// taken for a project of everything below it.
func findProject(dir, home string) string {
	home = discover.RealPath(home)
	for at := dir; ; at = filepath.Dir(at) {
		if at != dir && discover.RealPath(at) == home {
			return dir
		}
		for _, mark := range []string{".git", ".hg", ".jj"} {
			if _, err := os.Lstat(filepath.Join(at, mark)); err == nil {
				return at
			}
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// userDirectory returns the directory a variable names if it may hold the
// user's decisions: it is absolute, the user's own and not inside the project.
// Otherwise a checked-out repository could bring its own approvals.
func userDirectory(named, fallback, project string) (string, error) {
	if named == "" || !filepath.IsAbs(named) {
		return fallback, nil
	}
	if discover.Inside(discover.RealPath(named), project) && !discover.Inside(discover.RealPath(fallback), project) {
		return fallback, nil
	}
	for at := named; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("configuration directory %s: %w", named, err)
		}
		if !ownedByUser(info) {
			return fallback, nil
		}
		return named, nil
	}
}

// checkState refuses a directory for decisions and secrets in which others may
// have put theirs. It is not closed silently: what lies in it is to be looked at.
func checkState(dir string) error {
	err := ownAlone(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errorf(KindConfigInvalid, "%s, with your approvals and the gateway's token, is not used: %v.", dir, err).
		hint("If all that is in it is yours, close it: chmod 700 %s", dir)
}
