package discover

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Survey is what a scan would look at, told without reading any of it: two that
// are the same mean that nothing has changed in between, and where to wait for a
// change.
type Survey struct {
	// Dirs are directories that exist and in which a change may be one of the
	// configuration: those of files, and for files that are not there yet the
	// nearest that is.
	Dirs []string

	files    map[string]os.FileInfo // by path; nil for those that are not there
	links    map[string]string      // where links among them lead
	ways     map[string]bool        // files, and what lies between them and Dirs
	patterns map[string]bool        // directories of which any entry may be a file
	taken    time.Time
}

// NewSurvey looks at every place of the table, and at further files of the
// caller's.
func NewSurvey(env Env, further ...string) Survey {
	env.Memory = nil // a scan may be using it
	s := newScan(env)
	v := Survey{files: map[string]os.FileInfo{}, links: map[string]string{}, ways: map[string]bool{}, patterns: map[string]bool{}, taken: time.Now()}
	existing := map[string]bool{} // directories that were looked at
	for _, c := range s.candidates() {
		further = append(further, c.path)
	}
	for _, path := range further {
		info, linked, _ := lookUp(path)
		v.files[path] = info
		v.approach(path, existing)
		if !linked {
			continue
		}
		if target, _ := os.Readlink(path); !Remote(runtime.GOOS, target) {
			v.links[path] = RealPath(path)
			v.approach(v.links[path], existing)
		}
	}
	for _, dir := range s.patterns {
		v.patterns[dir] = true
		v.approach(filepath.Join(dir, "*"), existing)
	}
	for dir := range existing {
		if existing[dir] && v.ways[dir] {
			v.Dirs = append(v.Dirs, dir)
		}
	}
	slices.Sort(v.Dirs)
	return v
}

// approach marks the way to a path from the nearest directory that exists.
func (v *Survey) approach(path string, existing map[string]bool) {
	v.ways[path] = true
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		v.ways[dir] = true
		there, known := existing[dir]
		if !known {
			info, err := os.Stat(dir)
			there = err == nil && info.IsDir()
			existing[dir] = there
		}
		if there || dir == filepath.Dir(dir) {
			return
		}
	}
}

// Concerns reports whether something that happened at a path may have changed
// what a scan finds.
func (v Survey) Concerns(path string) bool {
	return v.ways[path] || v.patterns[filepath.Dir(path)]
}

// settled is how old a change must be for the file's time to tell it from the
// next one: clocks of file systems tick slowly.
const settled = 50 * time.Millisecond

// SamePlaces reports whether an earlier survey looked at the same files.
func (v Survey) SamePlaces(earlier Survey) bool {
	return maps.EqualFunc(v.files, earlier.files, func(_, _ os.FileInfo) bool { return true })
}

// Same reports whether nothing has changed since an earlier survey.
func (v Survey) Same(earlier Survey) bool {
	if len(v.files) != len(earlier.files) || len(v.links) != len(earlier.links) {
		return false
	}
	for path, target := range v.links {
		if earlier.links[path] != target {
			return false
		}
	}
	for path, now := range v.files {
		then, ok := earlier.files[path]
		switch {
		case !ok || (now == nil) != (then == nil):
			return false
		case now == nil:
		case !unchanged(then, now), earlier.taken.Sub(then.ModTime()).Abs() < settled:
			return false
		}
	}
	return true
}

// unchanged reports whether a file is the same as before, as far as the system
// tells.
func unchanged(then, now os.FileInfo) bool {
	return os.SameFile(now, then) && now.Size() == then.Size() && now.Mode() == then.Mode() && now.ModTime().Equal(then.ModTime())
}

// patternDir is the directory in which a path with a pattern is looked for.
func patternDir(dir, rest string) string {
	before, _, _ := strings.Cut(rest, "*")
	return filepath.Join(dir, filepath.FromSlash(before[:strings.LastIndex(before, "/")+1]))
}
