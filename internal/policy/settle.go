package policy

import (
	"slices"
	"strings"
)

// Rules are rules in the form in which they are held against tools.
type Rules struct {
	rules  []Rule
	folded []Rule // the same in lower case
	keep   bool   // tools remember what they found
}

// NewRules prepares rules. With keep a tool remembers which of them fit it, until
// it is held against others with keep: the settings' rules are held against the
// tools of a catalog once, however many sessions there are.
func NewRules(rules []Rule, keep bool) *Rules {
	s := &Rules{rules: rules, folded: slices.Clone(rules), keep: keep}
	for i := range s.folded {
		s.folded[i].Pattern = strings.ToLower(s.folded[i].Pattern)
	}
	return s
}

// Len is how many rules there are.
func (s *Rules) Len() int { return len(s.rules) }

// fit is a rule that fits a tool, by its place among the rules: as it is written,
// or without regard to case.
type fit struct {
	rule  int
	exact bool
}

type knownFits struct {
	rules *Rules
	fits  []fit
}

// fits returns the rules that fit a tool.
func (t *Tool) fits(s *Rules) []fit {
	if known := t.known.Load(); known != nil && known.rules == s {
		return known.fits
	}
	var fits []fit
	if t.base != nil {
		fits = t.withAlso(s)
	} else {
		for i, r := range s.rules {
			folded := s.folded[i].matches(t.folded)
			if exact := (folded || !t.plain) && r.matches(t); exact || folded {
				fits = append(fits, fit{i, exact})
			}
		}
	}
	if s.keep {
		t.known.Store(&knownFits{s, fits})
	}
	return fits
}

// withAlso adds to the rules that fit the tool as it was those that fit the name
// it got since.
func (t *Tool) withAlso(s *Rules) []fit {
	fits := slices.Clone(t.base.fits(s))
	name, lower := newTool("", t.tool, []string{t.also}), newTool("", t.tool, []string{strings.ToLower(t.also)})
	for i, r := range s.rules {
		at := slices.IndexFunc(fits, func(f fit) bool { return f.rule == i })
		switch {
		case at >= 0 && fits[at].exact:
		case r.matches(name) && at >= 0:
			fits[at].exact = true
		case at >= 0:
		case r.matches(name):
			fits = append(fits, fit{i, true})
		case s.folded[i].matches(lower):
			fits = append(fits, fit{i, false})
		}
	}
	slices.SortFunc(fits, func(a, b fit) int { return a.rule - b.rule })
	return fits
}

// Settled is which rules are about which tools.
type Settled struct {
	About     [][]*Rule        // by tool
	Denied    map[string]*Rule // by server, the first rule that denies all of it
	Ambiguous []Rule           // which allow, but could mean several servers: they are not applied
	Idle      []Rule           // which fit no tool and no server, although the tools of the servers they name are known
}

// Settle holds rules against all tools there are; servers are all names of
// servers. A rule is about what it spells as it is called, or as mcp__server__tool
// writes that. Case does not matter as long as one server is meant: with servers
// "git" and "Git" a rule about one of them is not about the other.
//
// A rule that allows but could mean one server or another, because a name contains
// what separates names, or because names are written alike, is not applied: a
// wrong guess would let one server's tools use the trust another one has. A rule
// that restricts then means all of them.
func Settle(sets []*Rules, servers []string, tools []*Tool) *Settled {
	out := &Settled{About: make([][]*Rule, len(tools)), Denied: map[string]*Rule{}}
	exact, lower, listed := make([][]string, len(servers)), make([][]string, len(servers)), map[string]bool{}
	for i, s := range servers {
		exact[i], lower[i] = written(s), written(strings.ToLower(s))
	}
	for _, t := range tools {
		listed[t.server] = true
	}
	for _, set := range sets {
		meant := make([]meaning, len(set.rules))
		for i := range set.rules {
			for j, s := range servers {
				if set.rules[i].names(exact[j]) {
					meant[i].add(s, true)
				} else if set.folded[i].names(lower[j]) {
					meant[i].add(s, false)
				}
			}
		}
		fitting := make([]bool, len(set.rules))
		for _, t := range tools {
			for _, f := range t.fits(set) {
				fitting[f.rule] = true
				meant[f.rule].add(t.server, f.exact)
				meant[f.rule].tool = meant[f.rule].tool || f.exact
			}
		}
		for i := range set.rules {
			r, m := &set.rules[i], &meant[i]
			if m.ambiguous = r.Effect == Allow && m.several(); m.ambiguous {
				out.Ambiguous = append(out.Ambiguous, *r)
			}
			m.all = r.Effect != Allow && r.anyServer()
			for j, s := range servers {
				covers := slices.ContainsFunc(exact[j], r.coversWritten) || m.counts(r, s, false) && slices.ContainsFunc(lower[j], set.folded[i].coversWritten)
				fitting[i] = fitting[i] || covers
				if covers && r.Effect == Deny && out.Denied[s] == nil {
					out.Denied[s] = r
				}
			}
			unlisted := func(s string) bool { return !listed[s] }
			if !fitting[i] && !slices.ContainsFunc(m.exact, unlisted) && !slices.ContainsFunc(m.folded, unlisted) {
				out.Idle = append(out.Idle, *r)
			}
		}
		for i, t := range tools {
			for _, f := range t.fits(set) {
				if r := &set.rules[f.rule]; meant[f.rule].counts(r, t.server, f.exact) {
					out.About[i] = append(out.About[i], r)
				}
			}
		}
	}
	return out
}

// meaning is which servers a rule could be about.
type meaning struct {
	exact, folded []string // as it is written, and only without regard to case
	tool          bool     // it fits a tool as it is written
	all           bool     // it names no server in particular
	ambiguous     bool
}

func (m *meaning) add(server string, exact bool) {
	list := &m.folded
	if exact {
		list = &m.exact
	}
	if !slices.Contains(*list, server) {
		*list = append(*list, server)
	}
}

// several reports whether a rule could mean more than one server.
func (m *meaning) several() bool {
	if len(m.exact) > 0 {
		return len(m.exact) > 1
	}
	return len(m.folded) > 1
}

// counts reports whether a rule that fits something of a server is about it.
func (m *meaning) counts(r *Rule, server string, exact bool) bool {
	switch {
	case m.ambiguous:
		return false
	case exact || len(m.exact) == 0 || m.all:
		return true
	default: // it means that server; what it allows is no tool beside the one it spells
		return slices.Contains(m.exact, server) && (r.Effect != Allow || !m.tool)
	}
}
