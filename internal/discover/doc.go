package discover

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Bounds on what one file may hold, far above what anybody writes, so that no
// file can make a scan long.
const (
	maxServers = 2000     // in one map or list
	maxListed  = 1000     // in a list of names or rules
	maxEntries = 5000     // in all files; the user's own come first
	maxBytes   = 64 << 20 // likewise
)

// doc is one file on its way to entries.
type doc struct {
	scan   *scan
	place  *Place
	path   string
	plugin *plugin // that has the file, if one has
	base   string  // relative paths in the file start here
	order  int

	origin  config.Origin // of every entry, but for its line
	dialect config.Dialect
	root    config.Node
	adopted map[string]standIn // by pointer

	status   string
	entries  []config.Entry
	problems []config.Problem
}

// reader turns a parsed file into entries and verdicts.
type reader func(*doc)

// decoder fills an entry from the object that declares it.
type decoder func(d *doc, f *config.Fields, e *config.Entry)

func (s *scan) newDoc(c candidate) *doc {
	return &doc{
		scan: s, place: c.place, path: c.path, base: c.base, plugin: c.plugin, order: c.order, dialect: c.provider.dialect,
		origin: config.Origin{
			Provider: c.provider.ID, Product: c.provider.Product, Priority: c.provider.Priority,
			Scope: c.place.Scope, File: c.path, AlsoReadBy: c.place.AlsoReadBy,
		},
	}
}

// read hands what the file says to the reader of its place.
func (d *doc) read(c *content) {
	if d.place.script != nil {
		d.status = Reported
		d.place.script(d, c.text)
		return
	}
	root, err := c.root, c.wrong
	if err == nil && root.Kind != config.Object {
		err = &config.SyntaxError{Line: root.Line, Column: root.Column, Message: "expected an object at the top, found " + root.Kind.String()}
	}
	if err != nil {
		d.status = Invalid
		p := config.Problem{Severity: config.SeverityError, File: d.path, Message: err.Error()}
		if e, ok := errors.AsType[*config.SyntaxError](err); ok {
			p.Line, p.Column, p.Message = e.Line, e.Column, e.Message
		}
		d.problems = append(d.problems, p)
		return
	}
	d.root = root
	d.standIns()
	d.place.read(d)
	if len(d.problems) > config.MaxProblems {
		d.problems = d.problems[:config.MaxProblems]
	}
}

// report adds a problem of the file.
func (d *doc) report(sev config.Severity, at config.Node, pointer, message, hint string) {
	d.problems = append(d.problems, config.Problem{
		Severity: sev, File: d.path, Line: at.Line, Column: at.Column, Pointer: pointer, Message: message, Hint: hint,
	})
}

// find walks down members of that name to an object. What is there but cannot
// be used is reported; found says whether there is an object.
func (d *doc) find(path ...string) (node config.Node, pointer string, found bool) {
	node = d.root
	for _, name := range path {
		pointer = config.PointerTo(pointer, name)
		if i := slices.IndexFunc(node.Members, func(m config.Member) bool { return m.Repeated && m.Name == name }); i >= 0 {
			d.report(config.SeverityError, node.Members[i].Value, pointer, fmt.Sprintf("duplicate key %q", name), "keep one of them")
			d.status = Invalid
			return config.Node{}, pointer, false
		}
		next, ok := node.Get(name)
		if !ok || next.Kind == config.Null {
			return config.Node{}, pointer, false
		}
		if next.Kind != config.Object {
			d.report(config.SeverityError, next, pointer, fmt.Sprintf("%q must be an object, found %s", name, next.Kind), "")
			d.status = Invalid
			return config.Node{}, pointer, false
		}
		node = next
	}
	return node, pointer, true
}

// serversAt reads a map from name to server, found under the named members.
func serversAt(decode decoder, path ...string) reader {
	return func(d *doc) {
		if node, pointer, ok := d.find(path...); ok {
			d.addAll(node, pointer, decode)
		}
	}
}

// room returns how many of the servers at a place may be read, and says so if
// that is not all.
func (d *doc) room(at config.Node, pointer string, servers int) int {
	n := min(servers, maxServers, d.scan.entriesLeft)
	d.scan.entriesLeft -= n
	switch {
	case n == servers:
	case n == maxServers:
		d.report(config.SeverityError, at, pointer, fmt.Sprintf("more than %d servers; the rest is not read", maxServers), "")
	default:
		d.report(config.SeverityError, at, pointer, fmt.Sprintf("more than %d servers in all files; the rest is not read", maxEntries), "")
	}
	return n
}

// addAll reads a map from name to server.
func (d *doc) addAll(node config.Node, pointer string, decode decoder) {
	node.Members = node.Members[:d.room(node, pointer, len(node.Members))]
	titles := make([]string, 0, len(node.Members))
	repeated := map[string]config.Member{}
	for _, m := range node.Members {
		if m.Repeated {
			repeated[m.Name] = m
		} else {
			titles = append(titles, m.Name)
		}
	}
	names := Identifiers(titles)
	for _, m := range node.Members {
		if m.Repeated {
			continue
		}
		e := d.newEntry(names, m.Name, m.Line, config.PointerTo(pointer, m.Name))
		if again, ok := repeated[m.Name]; ok {
			// Which of them is meant is not ours to guess.
			e.Problems = append(e.Problems, config.Problem{
				Severity: config.SeverityError, File: d.path, Line: again.Line, Pointer: e.Origin.Pointer,
				Message: fmt.Sprintf("duplicate key %q", m.Name), Hint: "keep one of them",
			})
			d.entries = append(d.entries, e)
			continue
		}
		d.add(e, m.Value, decode)
	}
}

// addList reads a list of servers that carry their own name.
func (d *doc) addList(list config.Node, pointer string, decode decoder) {
	list.Items = list.Items[:d.room(list, pointer, len(list.Items))]
	titles := make([]string, len(list.Items))
	for i, it := range list.Items {
		for _, member := range []string{"name", "uses"} { // uses: a reference to something with a name
			if n, ok := it.Get(member); ok && n.Kind == config.String && titles[i] == "" {
				titles[i] = n.Text
			}
		}
	}
	names := Identifiers(titles)
	used := map[string]bool{}
	for i, it := range list.Items {
		e := d.newEntry(names, titles[i], it.Line, config.PointerAt(pointer, i))
		if used[titles[i]] && titles[i] != "" {
			e.Problems = append(e.Problems, problemAt(config.SeverityError, e, it, fmt.Sprintf("the name %q is taken by an earlier element", titles[i])))
		}
		used[titles[i]] = true
		d.add(e, it, decode)
	}
}

func (d *doc) newEntry(names map[string]string, title string, line int, pointer string) config.Entry {
	e := config.Entry{Name: names[title], Origin: d.origin, Dialect: d.dialect}
	e.Origin.Line, e.Origin.Pointer = line, pointer
	if e.Name != title {
		e.Title = title
	}
	if title == "" {
		e.Problems = append(e.Problems, config.Problem{
			Severity: config.SeverityError, File: d.path, Line: line, Pointer: pointer, Message: "Server name cannot be empty",
		})
	}
	if plain := identifier(title); e.Name != plain {
		e.Problems = append(e.Problems, config.Problem{
			Severity: config.SeverityWarning, File: d.path, Line: line, Pointer: pointer,
			Message: fmt.Sprintf("another server of this file is called %q here; this one is %q", plain, e.Name),
		})
	}
	return e
}

// add decodes one server and keeps it, whatever is wrong with it.
func (d *doc) add(e config.Entry, node config.Node, decode decoder) {
	if node.Kind != config.Object {
		e.Problems = append(e.Problems, problemAt(config.SeverityError, e, node, "a server must be an object, found "+node.Kind.String()))
		d.entries = append(d.entries, e)
		return
	}
	f := config.NewFields(node, d.path, e.Origin.Pointer)
	decode(d, f, &e)
	if rest := f.Rest(); len(rest) > 0 {
		if e.Server.Extra == nil {
			e.Server.Extra = rest
		} else {
			maps.Copy(e.Server.Extra, rest)
		}
	}
	d.anchor(&e.Server)
	e.Executes = firstOfEach(append(e.Executes, config.Executes(e.Server, e.Dialect)...), maxListed)
	if e.Skip == "" {
		e.Skip = d.scan.itself(e.Server)
	}
	d.adoption(&e, node)
	if e.Skip == "" {
		checkRules(f, e)
	}
	e.Problems = append(e.Problems, *f.Problems...)
	d.entries = append(d.entries, e)
}

// firstOfEach drops what is empty or was there before, and what exceeds a limit.
func firstOfEach(list []string, limit int) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		drop := s == "" || seen[s] || len(seen) >= limit
		seen[s] = true
		return drop
	})
}

// checkRules adds what breaks the rules of a server, except about members that
// could not be read in the first place.
func checkRules(f *config.Fields, e config.Entry) {
	for _, p := range config.Validate(sourceName(&e), e.Server, config.Lenient) {
		p = f.Locate(p)
		if len(*f.Problems) < config.MaxProblems && !slices.ContainsFunc(*f.Problems, func(q config.Problem) bool { return q.Pointer == p.Pointer }) {
			*f.Problems = append(*f.Problems, p)
		}
	}
}

func problemAt(sev config.Severity, e config.Entry, n config.Node, message string) config.Problem {
	return config.Problem{Severity: sev, File: e.Origin.File, Line: n.Line, Column: n.Column, Pointer: e.Origin.Pointer, Message: message}
}

// anchor makes relative paths absolute, from the directory that owns the file:
// the workspace for a project's file, its own directory for a user's. A command
// counts as a path when it has a separator; of a header helper, which is a line
// for the shell, the first word does. What begins with a placeholder is left to
// its expansion.
func (d *doc) anchor(s *config.Server) {
	s.Cwd = d.absolute(s.Cwd)
	s.EnvFile = d.absolute(s.EnvFile)
	if d.isPath(s.Command) {
		s.Command = d.absolute(s.Command)
	}
	word, _, _ := strings.Cut(s.HeadersHelper, " ")
	if d.isPath(word) && !strings.ContainsAny(word, "'\"\\$`;|&<>()") {
		if abs := d.absolute(word); abs != word {
			s.HeadersHelper = shellWord(abs) + s.HeadersHelper[len(word):]
		}
	}
}

func (d *doc) isPath(command string) bool {
	return strings.Contains(command, "/") || (d.scan.env.OS == "windows" && strings.Contains(command, `\`))
}

func (d *doc) absolute(p string) string {
	switch {
	case p == "" || isAbs(d.scan.env.OS, p) || strings.ContainsAny(p[:1], "${%~"):
		return p
	case strings.ContainsAny(p, "${%"):
		// Cleaning could take a placeholder apart.
		return filepath.Join(d.base, ".") + string(filepath.Separator) + strings.TrimPrefix(p, "./")
	default:
		return filepath.Join(d.base, filepath.FromSlash(p))
	}
}

// shellWord quotes a path for a POSIX shell where it needs it.
func shellWord(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !isNameRune(r) && r != '/' }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '-'
}

// maxName is the longest identifier of a server.
const maxName = 100

// identifier derives a name that is safe everywhere from a product's own.
func identifier(title string) string {
	name := strings.Map(func(r rune) rune {
		if isNameRune(r) {
			return r
		}
		return '_'
	}, title)
	switch {
	case name == "":
		return "_"
	case len(name) > maxName:
		return withDigest(name, title, 8)
	default:
		return name
	}
}

// Identifiers gives each of a file's titles an identifier of its own. Titles
// that are identifiers already keep them; of the others the first to come does.
func Identifiers(titles []string) map[string]string {
	names := make(map[string]string, len(titles))
	taken := make(map[string]bool, len(titles))
	for _, t := range titles {
		if identifier(t) == t {
			names[t], taken[t] = t, true
		}
	}
	for _, t := range titles {
		if _, done := names[t]; done {
			continue
		}
		plain := identifier(t)
		name := plain
		for digits := 6; taken[name]; digits += 2 {
			name = withDigest(plain, t, digits)
		}
		names[t], taken[name] = name, true
	}
	return names
}

// withDigest makes a name unique by a digest of what it was derived from.
func withDigest(name, title string, digits int) string {
	sum := sha256.Sum256([]byte(title))
	suffix := "-" + hex.EncodeToString(sum[:])[:min(digits, 2*len(sum))]
	return name[:min(len(name), maxName-len(suffix))] + suffix
}

var gatewayToken = regexp.MustCompile(config.GatewayTokenPrefix + `[A-Za-z0-9_-]{20}`)

// exposed reports a token of the gateway in a file that others can read.
func (d *doc) exposed(c *content) {
	if runtime.GOOS == "windows" || c.token == 0 || c.info.Mode()&0o044 == 0 {
		return
	}
	d.problems = append(d.problems, config.Problem{
		Severity: config.SeverityWarning, File: d.path, Line: c.token,
		Message: fmt.Sprintf("the token of the gateway is in a file that other users may read (mode %04o)", c.info.Mode().Perm()),
		Hint:    "Make it yours alone (chmod 600), then `patchbay token --rotate`, and install again.",
	})
}
