// Package bridge turns what servers offer into what models are given: names of
// tools, definitions and results as text, and back from a name to the tool it
// means. Its main type is Names. Everything is a pure function of its
// arguments and safe for concurrent use. It decides nothing about permission,
// calls nothing, and leaves the servers' own bytes to those who pass them on.
package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/config"
)

// Naming is how names are made.
type Naming struct {
	Style     config.NamingStyle // empty means claude
	MaxLength int                // of a name, at least 32; 0 means 64
	LastWins  bool               // in the xcsh style: of tools with one name only the last is offered
}

const (
	defaultMaxLength = 64 // the longest name that every model API takes
	leastMaxLength   = 32 // shorter ones would be hashes more than names
)

// Exposed is a tool to be named.
type Exposed struct {
	Ref
	Name    string // what its entry wants it to be called; empty means the rendering
	Project bool   // its server is of a project, and not the user's own
}

// Silent is a server whose tools are not known, or not there at the moment. What
// may be the name of one of its tools is not given to another server's.
type Silent struct {
	Server  string
	Project bool // as in Exposed
}

// Names are the names of a set of tools: unique, of letters, digits, _ and -,
// and within the limit. They do not change and may be used by many goroutines.
type Names struct {
	tools   []Exposed // in order of server and tool
	names   []string  // of tools, by position
	byName  map[string]int
	byRef   map[Ref]int
	silent  []Silent
	hidden  []bool         // of tools, by position; nil if none is
	aliases func() aliases // made when first needed: most sessions only use their own names
}

// NewNames names tools; the order in which they are given does not matter. Where
// several may have the same name, it belongs to the one that comes first in every
// respect: a name that is written as the pair itself is before one in which
// characters were replaced, and that before one that an entry asks for; the
// user's own servers are before those of a project; and before, the names as they
// were until now, which may be nil, tells who had it. If none comes first in all
// of these nobody has it. All others get a name with a hash of their pair, so that
// a name never passes from one server to another. The warnings tell of each such
// collision.
func NewNames(tools []Exposed, silent []Silent, n Naming, before *Names) (*Names, []Collision) {
	tools = slices.Clone(tools)
	slices.SortFunc(tools, func(a, b Exposed) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Name, b.Name))
	})
	tools = slices.CompactFunc(tools, func(a, b Exposed) bool { return a.Ref == b.Ref })

	a := assignment{
		naming: n, max: defaultMaxLength, tools: tools, silent: silent, before: before,
		names: make([]string, len(tools)), claims: make(map[string][]int, len(tools)), owner: make(map[string]int, len(tools)),
	}
	if n.MaxLength > 0 {
		a.max = max(n.MaxLength, leastMaxLength)
	}
	a.run()
	return a.result(), a.collisions
}

// Collision is something that is wrong with the names of tools.
type Collision struct {
	Servers []string // whose tools it is about, each once
	Text    string
}

// assignment is the state of naming a set of tools.
type assignment struct {
	naming     Naming
	max        int
	tools      []Exposed
	silent     []Silent
	bySpelling map[string][]Silent // the same; nil until it is needed
	before     *Names
	names      []string         // by position in tools; empty: not offered
	claims     map[string][]int // the tools that may have a name
	owner      map[string]int   // the position of the tool that has a name; none if nobody may have it
	collisions []Collision
}

const none = -1

func (a *assignment) run() {
	order := make([]string, 0, len(a.tools)) // of names, so that what is said about them does not depend on chance
	for i, t := range a.tools {
		name := t.Name
		if name == "" || !a.accepts(t) {
			name = a.plain(t.Ref)
		}
		if a.claims[name] == nil {
			order = append(order, name)
		}
		a.claims[name] = append(a.claims[name], i)
	}
	var late []string
	for _, name := range order {
		if !a.give(name) {
			late = append(late, name)
		}
	}
	// Only when every plain name has its owner do the others choose: a name
	// with a hash must not take what is another's by right.
	for _, name := range late {
		a.settle(name)
	}
}

// accepts reports whether a tool can be called what its entry asks for.
func (a *assignment) accepts(t Exposed) bool {
	if len(t.Name) <= a.max && strings.IndexFunc(t.Name, func(c rune) bool { return !isNameByte(c) }) < 0 {
		return true
	}
	a.report([]string{t.Server}, "tool %s: the name %s is not of 1 to %d letters, digits, _ or -, so it is not used", shown(t.String()), shown(t.Name), a.max)
	return false
}

// plain returns the name a tool has when no other tool wants it.
func (a *assignment) plain(r Ref) string {
	name := Render(a.naming.Style, r)
	if len(name) > a.max {
		return withHash(name, hash(r, 0), a.max)
	}
	return name
}

// give gives a name to the one tool that may have it, and reports whether there
// is no other that wants it.
func (a *assignment) give(name string) bool {
	tools := a.claims[name]
	if a.naming.LastWins && a.naming.Style == config.NamingXcsh {
		tools = a.lastWins(name, tools)
	}
	for _, i := range tools {
		a.names[i] = name
	}
	var others []claim
	for _, s := range a.silentOnes(name) {
		if !slices.ContainsFunc(tools, func(i int) bool { return a.tools[i].Server == s.Server }) {
			others = append(others, a.silentClaim(s, name))
		}
	}
	if len(tools) == 1 && len(others) == 0 {
		a.owner[name] = tools[0]
		return true
	}
	a.owner[name] = none
	for _, i := range tools {
		first := true
		for _, j := range tools {
			first = first && (i == j || a.claim(i, name).over(a.claim(j, name)))
		}
		for _, other := range others {
			first = first && a.claim(i, name).over(other)
		}
		if first {
			a.owner[name] = i
			return len(tools) == 1
		}
	}
	return false
}

// lastWins drops all tools but one of those that are called so by themselves: the
// last, but none of a project's if there is one of the user's own.
func (a *assignment) lastWins(name string, tools []int) []int {
	last := none
	var rest []int // which entries want to be called so
	for _, i := range tools {
		switch {
		case a.tools[i].Name == name:
			rest = append(rest, i)
		case last == none || a.tools[last].Project || !a.tools[i].Project:
			last = i
		}
	}
	for _, i := range tools {
		if i != last && a.tools[i].Name != name {
			a.report([]string{a.tools[i].Server, a.tools[last].Server}, "tools %s and %s are both called %s: only the second is offered", shown(a.tools[i].String()), shown(a.tools[last].String()), name)
		}
	}
	if last == none {
		return rest
	}
	return append(rest, last)
}

// claim is how good a tool's right to a name is, in each respect.
type claim struct {
	fit  fit
	own  bool // the user's
	held bool // until now
}

// fit is how a name comes from what it means.
type fit int

const (
	asked   fit = iota // the entry wants it
	altered            // characters were replaced, or left out
	exact              // it is written as the pair is
)

// over reports whether a right comes before another: in some respect, and after
// it in none.
func (c claim) over(other claim) bool {
	return c.fit >= other.fit && (c.own || !other.own) && (c.held || !other.held) && c != other
}

func (a *assignment) claim(i int, name string) claim {
	t := a.tools[i]
	c := claim{fit: altered, own: !t.Project, held: a.before != nil && a.before.Of(t.Ref) == name}
	switch name {
	case joined(a.naming.Style, t.Ref):
		c.fit = exact
	case t.Name:
		c.fit = asked
	}
	return c
}

// silentOnes returns the silent servers that may have a tool of a name. Only in the
// styles that keep names as they are and set them apart does a name tell.
func (a *assignment) silentOnes(name string) (ones []Silent) {
	if len(a.silent) == 0 || a.naming.Style == config.NamingXcsh || a.naming.Style == config.NamingOMP {
		return nil
	}
	if a.bySpelling == nil {
		a.bySpelling = make(map[string][]Silent, len(a.silent))
		for _, s := range a.silent {
			spelling := safe(s.Server)
			a.bySpelling[spelling] = append(a.bySpelling[spelling], s)
		}
	}
	if a.naming.Style != config.NamingPlain {
		name = strings.TrimPrefix(name, "mcp__")
	}
	for i := 1; i < len(name)-2; i++ {
		if name[i:i+2] == "__" {
			ones = append(ones, a.bySpelling[name[:i]]...)
		}
	}
	return ones
}

// silentClaim is the right of a silent server to a name that one of its tools may
// have.
func (a *assignment) silentClaim(s Silent, name string) claim {
	c := claim{fit: altered, own: !s.Project}
	if s.Server == safe(s.Server) {
		c.fit = exact
	}
	if a.before != nil {
		i, had := a.before.byName[name]
		c.held = had && a.before.tools[i].Server == s.Server
	}
	return c
}

// settle gives the tools whose name is another's, or nobody's, one that is free.
func (a *assignment) settle(base string) {
	holder := a.owner[base]
	var servers, texts []string
	var said []Collision
	for _, i := range a.claims[base] {
		if i == holder || a.names[i] == "" {
			continue
		}
		r := a.tools[i].Ref
		name := withHash(base, hash(r, 0), a.max)
		for n := 1; ; n++ {
			if _, taken := a.owner[name]; !taken {
				break
			}
			name = withHash(base, hash(r, n), a.max)
		}
		a.owner[name], a.names[i] = i, name
		servers, texts = append(servers, r.Server), append(texts, shown(r.String())+" as "+name)
		if holder != none {
			said = append(said, collision([]string{a.tools[holder].Server, r.Server}, "tools %s and %s would both be called %s: the second is offered as %s", shown(a.tools[holder].String()), shown(r.String()), base, name))
		}
	}
	switch {
	case holder != none:
		a.collisions = append(a.collisions, said...)
	case len(texts) > 1:
		a.report(servers, "several tools would be called %s, so none is: offered are %s", base, strings.Join(texts[:min(len(texts), maxListed)], ", "))
	default:
		a.report(servers, "%s may be the name of a tool of another server, so %s is offered", base, texts[0])
	}
}

func (a *assignment) report(servers []string, format string, args ...any) {
	a.collisions = append(a.collisions, collision(servers, format, args...))
}

func collision(servers []string, format string, args ...any) Collision {
	servers = slices.Clone(servers)
	slices.Sort(servers)
	return Collision{slices.Compact(servers), fmt.Sprintf(format, args...)}
}

func (a *assignment) result() *Names {
	s := &Names{byName: a.owner, byRef: make(map[Ref]int, len(a.tools)), silent: a.silent}
	maps.DeleteFunc(s.byName, func(_ string, i int) bool { return i == none })
	for i, t := range a.tools {
		if a.names[i] == "" {
			continue
		}
		s.byName[a.names[i]], s.byRef[t.Ref] = len(s.tools), len(s.tools)
		s.tools, s.names = append(s.tools, t), append(s.names, a.names[i])
	}
	s.aliases = sync.OnceValue(s.makeAliases)
	return s
}

// Hide returns the names as they are for one from whom some of the tools are
// hidden: no name means one of these, and none of theirs means another.
func (s *Names) Hide(hidden func(Ref) bool) *Names {
	rest := *s
	rest.hidden = make([]bool, len(s.tools))
	for i, t := range s.tools {
		rest.hidden[i] = hidden(t.Ref)
	}
	return &rest
}

// hashLength is the number of characters of a hash in a name.
const hashLength = 8

// hash returns what tells a tool from all others in a name. The attempt is for
// pairs that somebody has made to have the same hash.
func hash(r Ref, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d", len(r.Server), r.Server, r.Tool, attempt))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:hashLength*5/8]))
}

// withHash appends a hash to a name, cutting the name where both would be too
// long.
func withHash(name, hash string, limit int) string {
	return name[:min(len(name), limit-len(hash)-1)] + "_" + hash
}

// Of returns the name of a tool, or nothing for one that is not offered.
func (s *Names) Of(r Ref) string {
	if i, ok := s.byRef[r]; ok {
		return s.names[i]
	}
	return ""
}
