package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Candidate is an entry with where it stands before any connection: the result
// of validation and trust.
type Candidate struct {
	Entry  Entry
	State  State  // Failed, NeedsApproval, Disabled or Pending
	Reason string // why it is not Pending

	// Untrusted is set when the entry's file lies in a project and no approval
	// covers the entry.
	Untrusted bool
}

// claims reports whether the candidate may keep others from its name. An entry
// that cannot be used, or that a project switched off without having been
// approved, may not: a cloned repository must not be able to take away a
// server that works.
func (c Candidate) claims() bool {
	switch c.State {
	case Failed, NeedsApproval:
		return false
	case Disabled:
		return !c.Untrusted
	default:
		return true
	}
}

// Merged is a candidate with the outcome for its name.
type Merged struct {
	Candidate

	// InForce marks the one candidate that stands for its name.
	InForce bool

	// ShadowedBy is the origin of the candidate in force when that one takes
	// precedence over this one, and Why says by which rule.
	ShadowedBy *Origin
	Why        string

	// SameAs names other servers in force that reach the same thing, the first
	// few of them.
	SameAs []string
}

// Merge decides which of all the candidates stands for each name. Nothing is
// merged field by field: one declaration wins, by the provider's priority,
// then the scope, then the order given. The result is sorted by name, and
// within a name by precedence.
func Merge(candidates []Candidate) []Merged {
	all := make([]Merged, 0, len(candidates))
	for _, c := range candidates {
		all = append(all, Merged{Candidate: c})
	}
	slices.SortStableFunc(all, func(a, b Merged) int {
		return cmp.Or(strings.Compare(a.Entry.Name, b.Entry.Name), precedence(a.Entry.Origin, b.Entry.Origin))
	})
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && all[end].Entry.Name == all[start].Entry.Name {
			end++
		}
		mergeName(all[start:end])
		start = end
	}
	markSame(all)
	return all
}

// precedence orders two origins of one name, the stronger first.
func precedence(a, b Origin) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Provider, b.Provider), cmp.Compare(a.Scope.rank(), b.Scope.rank()))
}

// mergeName decides among the candidates of one name, the strongest first.
func mergeName(same []Merged) {
	winner := slices.IndexFunc(same, func(m Merged) bool { return m.Entry.Skip == "" && m.claims() })
	if winner < 0 {
		winner = slices.IndexFunc(same, func(m Merged) bool { return m.Entry.Skip == "" })
	}
	if winner < 0 {
		return
	}
	same[winner].InForce = true
	by := same[winner].Entry.Origin
	for i := range same {
		// What stands before the winner lost nothing by precedence: its own
		// state says why it is not in force.
		if m := &same[i]; i > winner && m.Entry.Skip == "" {
			m.ShadowedBy = &by
			m.Why = why(by, m.Entry.Origin)
		}
	}
}

func why(winner, loser Origin) string {
	switch {
	case winner.Priority != loser.Priority:
		return fmt.Sprintf("%s (priority %d) comes before %s (%d)", winner.Product, winner.Priority, loser.Product, loser.Priority)
	case winner.Provider != loser.Provider:
		return fmt.Sprintf("%s comes before %s by name, at the same priority %d", winner.Product, loser.Product, winner.Priority)
	case winner.Scope != loser.Scope:
		return fmt.Sprintf("%s scope comes before %s scope", winner.Scope, loser.Scope)
	default:
		return fmt.Sprintf("%s is read before %s", winner.File, loser.File)
	}
}

// maxSameAs is how many other names are told. Nobody reads more, and a hostile
// project could declare one server many thousand times.
const maxSameAs = 8

// markSame finds servers in force that are one connection under several names.
func markSame(all []Merged) {
	names := map[string][]string{}
	usable := func(m Merged) bool { return m.InForce && m.State != Failed }
	for _, m := range all {
		if usable(m) {
			key := m.Entry.Server.connectionKey()
			names[key] = append(names[key], m.Entry.Name)
		}
	}
	for i := range all {
		m := &all[i]
		if !usable(*m) {
			continue
		}
		for _, other := range names[m.Entry.Server.connectionKey()] {
			if len(m.SameAs) == maxSameAs {
				break
			}
			if other != m.Entry.Name {
				m.SameAs = append(m.SameAs, other)
			}
		}
	}
}
