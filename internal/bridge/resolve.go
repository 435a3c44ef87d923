package bridge

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// UnknownError says that no tool has a name. The suggestions are for people and
// models to choose from; nothing acts on them.
type UnknownError struct {
	Name        string   `json:"name"`
	Hidden      Ref      `json:"-"`                     // the tool that it would mean, but for those it is hidden from
	Suggestions []string `json:"suggestions,omitempty"` // the most similar first
}

func (e *UnknownError) Error() string {
	text := "unknown tool " + shown(e.Name)
	if len(e.Suggestions) == 0 {
		return text
	}
	return text + "; did you mean " + list(e.Suggestions) + "?"
}

// AmbiguousError says that a name may mean several tools.
type AmbiguousError struct {
	Name string `json:"name"`
	Refs []Ref  `json:"refs"` // in order of server and tool

	Silent []string `json:"silent,omitempty"` // servers that may have one of that name, and do not say
}

func (e *AmbiguousError) Error() string {
	refs := make([]string, len(e.Refs))
	for i, r := range e.Refs {
		refs[i] = r.String()
	}
	if len(refs) < 2 {
		text := "tool name " + shown(e.Name) + " may mean " + list(refs)
		if len(e.Silent) > 0 {
			return text + ", or a tool of " + list(e.Silent) + ", which is not there"
		}
		return text + ", or one that is not offered"
	}
	return "tool name " + shown(e.Name) + " is ambiguous: it may mean " + list(refs)
}

// Resolve returns the tool that a name means: one of the names given here, or
// else any other rendering of a pair, server/tool, server.tool, or the name the
// entry asked for, if that means exactly one tool: no other fits, and no silent
// server may have one, but for those with less right to the name.
// The error is an *UnknownError or an *AmbiguousError.
func (s *Names) Resolve(name string) (Ref, error) {
	if i, ok := s.byName[name]; ok {
		if s.hides(i) {
			return Ref{}, &UnknownError{Name: name, Hidden: s.tools[i].Ref}
		}
		return s.tools[i].Ref, nil
	}
	found := s.aliases().find(s, name)
	if len(found) == 0 {
		return Ref{}, &UnknownError{Name: name, Suggestions: s.Suggest(name, nil)}
	}
	i, silent := s.first(name, found)
	switch {
	case i == none:
		return Ref{}, s.ambiguous(name, found, silent)
	case s.hides(i):
		return Ref{}, &UnknownError{Name: name, Hidden: s.tools[i].Ref}
	}
	return s.tools[i].Ref, nil
}

func (s *Names) hides(i int) bool { return s.hidden != nil && s.hidden[i] }

// first returns the one of the tools that a name may mean that has more right to it
// than all others and than the silent servers that may have one; none if there is
// none. It also returns those servers.
func (s *Names) first(name string, found []int) (first int, silent []string) {
	var others []claim
	for _, other := range s.silent {
		if fit, ok := begins(name, other.Server); ok && !slices.ContainsFunc(found, func(i int) bool { return s.tools[i].Server == other.Server }) {
			silent = append(silent, other.Server)
			others = append(others, claim{fit: fit, own: !other.Project})
		}
	}
	for _, i := range found {
		others = append(others, s.alias(name, i))
	}
	for _, i := range found {
		mine, before := s.alias(name, i), 0
		for _, other := range others {
			if mine.over(other) {
				before++
			}
		}
		if before == len(others)-1 { // all but itself
			return i, silent
		}
	}
	return none, silent
}

// alias is the right of a tool to a name that is another way to write it.
func (s *Names) alias(name string, i int) claim {
	t := s.tools[i]
	c := claim{fit: altered, own: !t.Project}
	plain := []string{"mcp__" + t.Server + "__" + t.Tool, t.Server + "__" + t.Tool, t.Server + "/" + t.Tool, t.Server + "." + t.Tool}
	if slices.Contains(plain, name) || strings.HasSuffix(name, "_"+hash(t.Ref, 0)) { // which means it alone
		c.fit = exact
	}
	return c
}

// ambiguous says what a name may mean, of what is not hidden.
func (s *Names) ambiguous(name string, found []int, silent []string) error {
	e := &AmbiguousError{Name: name, Silent: silent}
	for _, i := range found {
		if !s.hides(i) {
			e.Refs = append(e.Refs, s.tools[i].Ref)
		}
	}
	if len(e.Refs) == 0 {
		return &UnknownError{Name: name, Hidden: s.tools[found[0]].Ref}
	}
	return e
}

// aliases are the other ways to write the tools of a set: positions in order.
type aliases struct {
	byText map[string][]int
	byHash map[string][]int
}

func (s *Names) makeAliases() aliases {
	a := aliases{byText: make(map[string][]int, 7*len(s.tools)), byHash: make(map[string][]int, len(s.tools))}
	for i, t := range s.tools {
		forms := append(Renderings(t.Ref), t.Name)
		slices.Sort(forms)
		for _, form := range slices.Compact(forms) {
			if form != "" {
				a.byText[form] = append(a.byText[form], i)
			}
		}
		h := hash(t.Ref, 0)
		a.byHash[h] = append(a.byHash[h], i)
	}
	return a
}

// find returns the tools that an alias may mean. A name that ends in the hash
// of a pair is that of the pair in any style and cut to any length, so that
// names outlive a change of either setting.
func (a aliases) find(s *Names, name string) []int {
	found := slices.Clone(a.byText[name])
	cut := len(name) - hashLength - 1
	if cut < 0 || name[cut] != '_' {
		return found
	}
	for _, i := range a.byHash[name[cut+1:]] {
		t := s.tools[i]
		fits := strings.HasPrefix(t.Name, name[:cut])
		for _, style := range styles {
			fits = fits || strings.HasPrefix(Render(style, t.Ref), name[:cut])
		}
		if fits {
			found = append(found, i)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Bounds of suggestions: of the name that is looked for, of what is offered.
const (
	maxSuggestFor  = 256
	maxSuggestions = 3
)

// Suggest returns what a name may have been meant to be, written the way it was
// written: of the tools of some servers, of all if of is nil.
func (s *Names) Suggest(name string, of func(server string) bool) []string {
	if name == "" || len(name) > maxSuggestFor {
		return nil
	}
	type suggestion struct {
		text     string
		distance int
	}
	var near []suggestion
	for i, t := range s.tools {
		if s.hides(i) || of != nil && !of(t.Server) {
			continue
		}
		best := suggestion{distance: min(3, 1+len(name)/4) + 1}
		try := func(form, text string) {
			if d := Distance(name, form, best.distance); d < best.distance {
				best = suggestion{text, d}
			}
		}
		try(s.names[i], s.names[i])
		for _, form := range Renderings(t.Ref) {
			try(form, form)
		}
		try(t.Tool, s.names[i])
		if best.text != "" {
			near = append(near, best)
		}
	}
	slices.SortStableFunc(near, func(a, b suggestion) int { return cmp.Compare(a.distance, b.distance) })
	var texts []string
	for _, n := range near {
		if !slices.Contains(texts, n.text) && len(texts) < maxSuggestions {
			texts = append(texts, n.text)
		}
	}
	return texts
}

// Distance is the number of typing errors between two words whatever their
// case, or any number of at least limit.
func Distance(a, b string, limit int) int {
	if max(len(a), len(b))-min(len(a), len(b)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		// Cells further than limit from the diagonal count at least limit, so
		// they need not be computed.
		from, to := max(0, i-limit+1), min(len(b), i+limit)
		diagonal := row[from]
		if row[from] = limit; from == 0 {
			row[0] = i + 1
		}
		least := row[from]
		for j := from; j < to; j++ {
			change := diagonal
			if lower(a[i]) != lower(b[j]) {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
			least = min(least, row[j+1])
		}
		if least >= limit {
			return limit
		}
	}
	return row[len(b)]
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// maxShown bounds a name inside a sentence, maxListed the names in one.
const (
	maxShown  = 128
	maxListed = 5
)

// shown quotes a foreign name for a sentence.
func shown(name string) string {
	if head := name[:runeOffset(name, maxShown)]; head != name {
		name = head + "…"
	}
	return strconv.Quote(name)
}

// list renders alternatives for a sentence.
func list(names []string) string {
	var parts []string
	for _, n := range names[:min(len(names), maxListed)] {
		parts = append(parts, shown(n))
	}
	if more := len(names) - maxListed; more > 0 {
		parts = append(parts, fmt.Sprintf("%d others", more))
	}
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " or " + parts[last]
}
