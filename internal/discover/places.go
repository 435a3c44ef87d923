package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Bounds on what a pattern finds.
const (
	maxNames   = 4096 // looked at in one directory
	maxMatches = 256  // taken for one place
)

// candidate is one path at which a provider's file may lie.
type candidate struct {
	provider *Provider
	place    *Place
	path     string
	base     string // relative paths in the file start here
	order    int    // in the result

	inProject bool    // found by its place in the project
	fromHome  bool    // found by its place in the home directory, moved by no variable
	plugin    *plugin // that has the file, if one has
	required  bool    // named by the user: its absence is an error
}

// candidates lists every path to look at, in the order of the result.
func (s *scan) candidates() []candidate {
	var out []candidate
	add := func(c candidate) {
		c.order = len(out)
		out = append(out, c)
	}
	for _, p := range Providers() {
		disabled := slices.Contains(s.env.Disabled, p.ID) && p.ID != managedProvider // which is not the user's to disable
		if disabled || (s.env.Strict && p.ID != flagProvider) {
			continue
		}
		if p.ID == flagProvider {
			for _, file := range s.env.Files {
				if !filepath.IsAbs(file) {
					file = filepath.Join(s.env.Dir, file)
				}
				add(candidate{provider: &p, place: &p.Places[0], path: file, base: filepath.Dir(file), required: true})
			}
			continue
		}
		for i := range p.Places {
			place := &p.Places[i]
			if place.OS != "" && place.OS != s.env.OS {
				continue
			}
			if place.relative() {
				for _, dir := range s.dirs {
					for _, file := range s.matches(dir, place.Path) {
						add(candidate{provider: &p, place: place, path: file, base: dir, inProject: true})
					}
				}
				continue
			}
			root, rest, fromHome := s.resolve(place.Path)
			if root == "" {
				continue
			}
			for _, file := range s.matches(root, rest) {
				c := candidate{provider: &p, place: place, path: file, base: filepath.Dir(file), fromHome: fromHome}
				if place.Scope == config.ScopeLocal {
					c.base = s.env.Project // kept apart from the project it is for
				}
				add(c)
			}
		}
		if p.ID == claudeProvider {
			for _, c := range s.pluginCandidates(&p) {
				add(c)
			}
		}
	}
	return out
}

// resolve splits a template into the directory it starts from on this machine
// and the rest. An empty root means the place does not exist here.
//
//	~/…                the home directory
//	{config}/…         XDG_CONFIG_HOME, or ~/.config
//	{appdata}/…        where applications keep their data: {config} on Linux,
//	                   ~/Library/Application Support on macOS, APPDATA on Windows
//	${VAR}/…           the directory a variable names; nowhere if unset
//	${VAR:-~/.x}/…     the same with a default
//	{patchbay}/…       our own configuration directory
//	{local}            our own file for this user and project
//	/… or C:/…         system-wide
func (s *scan) resolve(template string) (root, rest string, fromHome bool) {
	env := s.env
	head, rest, _ := strings.Cut(template, "/")
	if name, ok := strings.CutPrefix(head, "${"); ok {
		// The default may hold slashes: ${CODEX_HOME:-~/.codex}/config.toml
		inner, after, _ := strings.Cut(name+"/"+rest, "}")
		variable, fallback, _ := strings.Cut(inner, ":-")
		return s.fromVariable(variable, fallback, strings.TrimPrefix(after, "/"))
	}
	switch {
	case head == "~":
		return env.Home, rest, true
	case head == "{config}":
		return s.fromVariable("XDG_CONFIG_HOME", "~/.config", rest)
	case head == "{appdata}" && env.OS == "windows":
		return s.fromVariable("APPDATA", "~/AppData/Roaming", rest)
	case head == "{appdata}" && env.OS == "darwin":
		return s.under("~/Library/Application Support"), rest, true
	case head == "{appdata}":
		return s.resolve("{config}/" + rest)
	case head == "{patchbay}":
		return env.ConfigDir, rest, env.Home != "" && Inside(env.ConfigDir, env.Home)
	case head == "{local}":
		if env.StateDir == "" || env.Project == "" {
			return "", "", false
		}
		file := LocalFile(env.StateDir, s.realProject)
		return filepath.Dir(file), filepath.Base(file), env.Home != "" && Inside(file, env.Home)
	case head == "" || strings.HasSuffix(head, ":"):
		if env.Root == "" {
			return filepath.FromSlash(head + "/"), rest, false
		}
		return env.Root, rest, false
	default:
		return "", "", false
	}
}

// fromVariable resolves a root that a variable may move. A relative value is
// not taken: it would mean another place in every directory.
func (s *scan) fromVariable(name, fallback, rest string) (string, string, bool) {
	byDefault := s.under(fallback)
	value := s.env.Getenv(name)
	if value == "" {
		return byDefault, rest, true
	}
	if s.env.OS == "windows" {
		value = strings.ReplaceAll(value, `\`, "/")
	}
	if !isAbs(s.env.OS, value) {
		s.ignoredVariable(name)
		return byDefault, rest, true
	}
	value = filepath.Clean(filepath.FromSlash(value))
	return value, rest, value == byDefault
}

func (s *scan) ignoredVariable(name string) {
	message := name + " is not an absolute path and is ignored"
	for _, p := range s.result.Problems {
		if p.Message == message {
			return
		}
	}
	s.result.Problems = append(s.result.Problems, config.Problem{Severity: config.SeverityWarning, Message: message})
}

// under resolves a path written with ~.
func (s *scan) under(p string) string {
	rest, ok := strings.CutPrefix(p, "~")
	if !ok || s.env.Home == "" {
		return ""
	}
	return filepath.Join(s.env.Home, filepath.FromSlash(rest))
}

// matches expands the patterns of a place, and says so when it stops early.
func (s *scan) matches(dir, rest string) []string {
	if strings.Contains(rest, "*") {
		s.patterns = append(s.patterns, patternDir(dir, rest))
	}
	files := expandGlob(dir, rest)
	if len(files) <= maxMatches {
		return files
	}
	s.result.Problems = append(s.result.Problems, config.Problem{
		Severity: config.SeverityWarning, File: filepath.Join(dir, filepath.FromSlash(rest)),
		Message: fmt.Sprintf("more than %d files; the rest is not read", maxMatches),
	})
	return files[:maxMatches]
}

// expandGlob joins dir and a slash-separated path whose segments may be
// patterns. Without one it is a plain join: nothing is looked up.
func expandGlob(dir, rest string) []string {
	before, after, found := strings.Cut(rest, "*")
	if !found {
		return []string{filepath.Join(dir, filepath.FromSlash(rest))}
	}
	fixed, start := path.Split(before)
	end, tail, more := strings.Cut(after, "/")
	dir = filepath.Join(dir, filepath.FromSlash(fixed))
	var out []string
	for _, name := range dirNames(dir) {
		if ok, _ := path.Match(start+"*"+end, name); !ok {
			continue
		}
		if more {
			out = append(out, expandGlob(filepath.Join(dir, name), tail)...)
		} else {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out
}

// dirNames lists a directory in order; none if it cannot be listed.
func dirNames(dir string) []string {
	f, err := os.OpenFile(dir, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		return nil
	}
	names, err := f.Readdirnames(maxNames)
	if err != nil {
		return nil
	}
	slices.Sort(names)
	return names
}

// ancestors lists the directories from dir up to root, both included. If dir
// does not lie in root, they are just the two.
func ancestors(dir, root string) []string {
	if dir == "" {
		return nil
	}
	dir, root = filepath.Clean(dir), filepath.Clean(root)
	if dir == root {
		return []string{dir}
	}
	if !Inside(dir, root) {
		return []string{dir, root}
	}
	out := []string{dir}
	for dir != root {
		dir = filepath.Dir(dir)
		out = append(out, dir)
	}
	return out
}

// Inside reports whether the cleaned path p is dir or lies in it.
func Inside(p, dir string) bool {
	rel, err := filepath.Rel(dir, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// RealPath follows all links, as far as the path exists.
func RealPath(p string) string {
	real, err := filepath.EvalSymlinks(p)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(p) != p {
		return filepath.Join(RealPath(filepath.Dir(p)), filepath.Base(p))
	}
	if err != nil {
		return filepath.Clean(p)
	}
	return real
}

// isAbs reports whether a path is absolute on the named operating system.
func isAbs(goos, p string) bool {
	if goos != "windows" {
		return strings.HasPrefix(p, "/")
	}
	if strings.HasPrefix(p, `\`) || strings.HasPrefix(p, "/") {
		return true
	}
	return len(p) > 2 && p[1] == ':' && (p[2] == '/' || p[2] == '\\')
}

// Remote reports whether merely looking at a path would contact another machine,
// and log in there: a network path of Windows. A file that nobody trusts yet may
// name any.
func Remote(goos, p string) bool {
	return goos == "windows" && strings.HasPrefix(strings.ReplaceAll(p, `\`, "/"), "//")
}
