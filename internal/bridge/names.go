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
	Name string // what its entry wants it to be called; empty means the rendering
}

// Names are the names of a set of tools: unique, of letters, digits, _ and -,
// and within the limit. They do not change and may be used by many goroutines.
type Names struct {
	tools   []Exposed // in order of server and tool
	names   []string  // of tools, by position
	byName  map[string]int
	byRef   map[Ref]int
	aliases func() aliases // made when first needed: most sessions only use their own names
}

// NewNames names tools; the order in which they are given does not matter. Of
// tools that would have the same name the first by server and tool has it, the
// others get one with a hash of their pair; a name that an entry asks for never
// displaces a tool's own. The warnings tell of each such collision.
func NewNames(tools []Exposed, n Naming) (*Names, []string) {
	tools = slices.Clone(tools)
	slices.SortFunc(tools, func(a, b Exposed) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Name, b.Name))
	})
	tools = slices.CompactFunc(tools, func(a, b Exposed) bool { return a.Ref == b.Ref })

	a := assignment{naming: n, max: defaultMaxLength, tools: tools, names: make([]string, len(tools)), owner: make(map[string]int, len(tools))}
	if n.MaxLength > 0 {
		a.max = max(n.MaxLength, leastMaxLength)
	}
	a.run()
	return a.result(), a.warnings
}

// assignment is the state of naming a set of tools.
type assignment struct {
	naming   Naming
	max      int
	tools    []Exposed
	names    []string       // by position in tools; empty: not offered
	owner    map[string]int // the position of the tool that has a name
	late     []int          // tools whose name was taken
	warnings []string
}

func (a *assignment) run() {
	var asked []int
	for i, t := range a.tools {
		if t.Name != "" && a.accepts(t) {
			asked = append(asked, i)
			continue
		}
		a.claim(i, a.plain(t.Ref), a.naming.LastWins && a.naming.Style == config.NamingXcsh)
	}
	for _, i := range asked {
		a.claim(i, a.tools[i].Name, false)
	}
	// Only when every plain name has its owner do the others choose: a name
	// with a hash must not take what is another's by right.
	for _, i := range a.late {
		a.settle(i)
	}
}

// accepts reports whether a tool can be called what its entry asks for.
func (a *assignment) accepts(t Exposed) bool {
	if len(t.Name) <= a.max && strings.IndexFunc(t.Name, func(c rune) bool { return !isNameByte(c) }) < 0 {
		return true
	}
	a.warn("tool %s: the name %s is not of 1 to %d letters, digits, _ or -, so it is not used", shown(t.String()), shown(t.Name), a.max)
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

func (a *assignment) claim(i int, name string, lastWins bool) {
	holder, taken := a.owner[name]
	switch {
	case !taken:
	case lastWins:
		a.names[holder] = ""
		a.warn("tools %s and %s are both called %s: only the last one is offered", shown(a.tools[holder].String()), shown(a.tools[i].String()), name)
	default:
		a.names[i] = name
		a.late = append(a.late, i)
		return
	}
	a.owner[name], a.names[i] = i, name
}

// settle gives a tool whose name is taken one that is not.
func (a *assignment) settle(i int) {
	base, r := a.names[i], a.tools[i].Ref
	name := withHash(base, hash(r, 0), a.max)
	for n := 1; ; n++ {
		if _, taken := a.owner[name]; !taken {
			break
		}
		name = withHash(base, hash(r, n), a.max)
	}
	a.warn("tools %s and %s are both called %s: the second is offered as %s", shown(a.tools[a.owner[base]].String()), shown(r.String()), base, name)
	a.owner[name], a.names[i] = i, name
}

func (a *assignment) warn(format string, args ...any) {
	a.warnings = append(a.warnings, fmt.Sprintf(format, args...))
}

func (a *assignment) result() *Names {
	s := &Names{byName: a.owner, byRef: make(map[Ref]int, len(a.tools))}
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
