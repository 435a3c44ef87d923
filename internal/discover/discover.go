// Package discover finds the MCP servers that other products have configured on
// this machine. Scan looks in every place of one table of providers and turns
// what it finds into config entries and problems.
//
// It only reads. It starts no program, contacts nobody, expands no placeholder
// and writes no file, so it is safe to run in a directory nobody trusts yet; it
// records where each file lies, and others decide what that means. A file that
// is missing is no event; one that cannot be read is a problem of that file
// alone. Scan keeps no state, but for what a Memory and a Cache in its Env are told,
// and may be called from several goroutines.
//
//	providers.go  who keeps servers where: the table
//	places.go     a line of the table → paths on this machine
//	open.go       a path → a file, without being held up
//	content.go    a file → what it says, once for all scans
//	parse.go      bytes → config.Node, for JSON, TOML and YAML
//	doc.go        config.Node → entries: names, repeated keys, paths
//	claudeplugins.go  whose files are named by a file: plugins of Claude Code
//	verdict.go    decisions outside the entry: lists of disabled servers
//	self.go       entries that are Patchbay itself
//	install.go    how to write such an entry, for every product: pure, on bytes
//	block.go      the same for TOML and YAML, between marks
//	adopt.go      Patchbay in the place of a product's own servers, and back: pure, on bytes
//	lines.go      where an entry is in TOML and YAML
//	memory.go     what broken files said before
//	survey.go     has anything changed since the last scan?
//
// and one file per family of formats.
package discover

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
)

// Env is the machine as Scan sees it. Paths are data: the places of any
// operating system can be computed on any other.
type Env struct {
	OS      string // "linux", "darwin" or "windows"
	Home    string // the user's home directory
	Dir     string // the working directory
	Project string // the root of the project: Dir or an ancestor of it; empty means Dir

	// Getenv reads variables that move a product's files, such as CODEX_HOME.
	// Nil means none is set.
	Getenv func(string) string

	// Root is put before system-wide paths such as /etc; empty means the real
	// ones.
	Root string

	ConfigDir string // ours: the user's file is mcp.json in it
	StateDir  string // ours: see LocalFile

	Files  []string // named by the user for this run, trusted like their own
	Strict bool     // read nothing but Files

	Executable string   // the running program, to recognise ourselves
	Endpoints  []string // URLs we serve, besides the default address
	Disabled   []string // ids of providers to leave out

	// Adopted are the entries of other products' files in whose place Patchbay
	// stands: they are read as they were.
	Adopted []Adopted

	Memory *Memory // of earlier scans; nil means none
	Cache  *Cache  // of what the Memories of several scans hold; nil means none
}

// What became of a file.
const (
	Read       = "read"
	Unreadable = "unreadable" // exists, but its bytes could not be had
	Invalid    = "invalid"    // not in the format its place demands
	Reported   = "reported"   // known to hold servers, in a form that is not read
)

// File is one file that exists at a place some product uses.
type File struct {
	Path     string           `json:"path"`
	Provider string           `json:"provider"`
	Product  string           `json:"product"`
	Scope    config.Scope     `json:"scope"`
	Status   string           `json:"status"`
	Entries  int              `json:"entries"`
	Problems []config.Problem `json:"problems,omitempty"` // of the file; each entry has its own
}

// Result is what a scan found, in the order of the table of providers, and
// within a provider's place from the working directory outwards.
type Result struct {
	Entries  []config.Entry   `json:"entries"`
	Files    []File           `json:"files"`
	Problems []config.Problem `json:"problems,omitempty"` // of all files, and of the scan itself

	// Overrides the user wrote in our own files: names that are off, and names
	// that are on although their source says otherwise.
	DisabledServers []string `json:"disabledServers,omitempty"`
	EnabledServers  []string `json:"enabledServers,omitempty"`

	// SharedServers are names of servers of which all directories have one process.
	SharedServers []string `json:"sharedServers,omitempty"`
}

// LocalFile is where the servers of this user for this project alone are kept,
// given the project's real path: it is one project however one got there.
func LocalFile(stateDir, project string) string {
	sum := sha256.Sum256([]byte(project))
	return filepath.Join(stateDir, "projects", hex.EncodeToString(sum[:])[:32], "mcp.json")
}

// Scan reads every place where servers may be configured. It ends early, with a
// problem that says so, when ctx does.
func Scan(ctx context.Context, env Env) Result { return newScan(env).run(ctx) }

func (s *scan) run(ctx context.Context) Result {
	found := s.candidates()
	// A file may be reachable from several places, a project's among them when
	// somebody works in their home directory. The user's own place claims it.
	slices.SortStableFunc(found, func(a, b candidate) int {
		switch {
		case a.inProject == b.inProject:
			return 0
		case b.inProject:
			return -1
		default:
			return 1
		}
	})
	s.env.Memory.begin()
	for _, c := range found {
		if err := context.Cause(ctx); err != nil {
			s.result.Problems = append(s.result.Problems, config.Problem{Severity: config.SeverityError, Message: "the scan was interrupted: " + err.Error()})
			return s.finish()
		}
		s.visit(c)
	}
	s.env.Memory.end()
	return s.finish()
}

// scan is one run of Scan.
type scan struct {
	env         Env
	dirs        []string // from Dir up to Project
	realProject string
	homeInside  bool              // the home directory is the project, or lies in it
	realDirs    map[string]string // directories with their links followed
	patterns    []string          // directories in which files are looked for by a pattern
	executable  os.FileInfo
	endpoints   []endpoint

	entriesLeft, bytesLeft int // that may still be read

	seen     []os.FileInfo // files already read, whatever their path
	docs     []*doc
	verdicts []verdict
	result   Result
}

func newScan(env Env) *scan {
	if env.Getenv == nil {
		env.Getenv = func(string) string { return "" }
	}
	if env.Project == "" {
		env.Project = env.Dir
	}
	if env.Dir == "" {
		env.Dir = env.Project
	}
	s := &scan{env: env, dirs: ancestors(env.Dir, env.Project), realDirs: map[string]string{}, entriesLeft: maxEntries, bytesLeft: maxBytes}
	if env.Project != "" {
		s.realProject = RealPath(env.Project)
		s.homeInside = env.Home != "" && Inside(RealPath(env.Home), s.realProject)
	}
	if env.Executable != "" {
		s.executable, _ = os.Stat(env.Executable) // without it, names still tell
	}
	s.endpoints = parseEndpoints(env.Endpoints)
	return s
}

// visit reads one candidate, if it exists and was not read before.
func (s *scan) visit(c candidate) {
	info, linked, err := lookUp(c.path)
	switch {
	case info != nil:
	case err == nil && c.required:
		err = errAbsent
	case err == nil:
		return
	case errors.Is(err, fs.ErrPermission) && !c.required && !s.env.Memory.has(c.path):
		s.closedDirectory(c.path, err)
		return
	}
	d := s.newDoc(c)
	if err == nil {
		if slices.ContainsFunc(s.seen, func(seen os.FileInfo) bool { return os.SameFile(seen, info) }) {
			return
		}
		s.seen = append(s.seen, info)
	}
	s.docs = append(s.docs, d)
	var now *content
	form := c.place.form()
	if err == nil && c.place.Note == "" && parts[form] == nil && info.Size() <= form.maxSize() && info.Size() > int64(s.bytesLeft) {
		err = fmt.Errorf("more than %d MiB in all files; the rest is not read", maxBytes>>20)
	}
	if err == nil && c.place.Note == "" {
		if now, err = s.env.Cache.read(c.path, form, info); err == nil {
			s.bytesLeft -= now.size
		}
	}
	switch {
	case err != nil:
		d.status = Unreadable
		severity := config.SeverityWarning
		if c.required {
			severity = config.SeverityError
		}
		d.problems = append(d.problems, config.Problem{Severity: severity, File: d.path, Message: err.Error()})
	case c.place.Note != "":
		d.status = Reported
		d.problems = append(d.problems, config.Problem{Severity: config.SeverityNote, File: d.path, Message: "not read: " + c.place.Note})
	default:
		d.status = Read
		d.origin.Project = s.ownerProject(c, linked)
		d.read(now)
		d.exposed(now)
	}
	switch unknown := d.status == Unreadable || d.status == Invalid; {
	case c.place.exclusive:
		d.exclude("Claude Code has no servers but those of the administrator's file, and this one is not")
	case unknown && c.place.Scope == config.ScopeManaged && !s.env.Memory.has(d.path): // it may forbid anything
		d.exclude("the administrator's settings cannot be read")
	}
	s.env.Memory.note(d, now)
}

// closedDirectory reports the directory that keeps a file from being looked for,
// once.
func (s *scan) closedDirectory(file string, err error) {
	dir := filepath.Dir(file)
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
	}
	p := config.Problem{Severity: config.SeverityWarning, File: dir, Message: err.Error() + ": no file in it can be found"}
	if !slices.Contains(s.result.Problems, p) {
		s.result.Problems = append(s.result.Problems, p)
	}
}

// ownerProject returns the project whose tree decides about a file, or nothing
// for a file of the user's own. Where the file lies counts, not what its product
// calls the scope; and a path inside the project counts even where it is a link
// that leads out of it.
func (s *scan) ownerProject(c candidate, linked bool) string {
	switch {
	case s.realProject == "" || c.required || c.place.Scope == config.ScopeManaged:
		return ""
	case c.inProject:
		return s.env.Project
	case !Inside(s.realFile(c.path, linked), s.realProject):
		return ""
	case c.fromHome && s.homeInside:
		return ""
	default:
		return s.env.Project
	}
}

// realFile follows the links on the way to a file, and the file itself if it is
// one. Many files share their directories, which are followed once.
func (s *scan) realFile(file string, linked bool) string {
	if linked {
		return RealPath(file)
	}
	dir, name := filepath.Split(file)
	real, ok := s.realDirs[dir]
	if !ok {
		real = RealPath(dir)
		s.realDirs[dir] = real
	}
	return filepath.Join(real, name)
}

// finish applies the verdicts and puts everything in its final order.
func (s *scan) finish() Result {
	slices.SortStableFunc(s.docs, func(a, b *doc) int { return cmp.Compare(a.order, b.order) })
	r := &s.result
	r.Files = []File{}
	r.Entries = []config.Entry{}
	var problems []config.Problem
	for _, d := range s.docs {
		r.Files = append(r.Files, File{
			Path: d.path, Provider: d.origin.Provider, Product: d.origin.Product, Scope: d.origin.Scope,
			Status: d.status, Entries: len(d.entries), Problems: d.problems,
		})
		problems = append(problems, d.problems...)
		r.Entries = append(r.Entries, d.entries...)
	}
	r.Problems = append(problems, r.Problems...)
	for i := range r.Entries {
		applyVerdicts(&r.Entries[i], s.verdicts)
	}
	return *r
}
