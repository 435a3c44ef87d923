package patchbay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// joinNames renders a short list of names for a sentence.
func joinNames(names []string) string {
	seen := map[string]bool{}
	var unique []string
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			unique = append(unique, n)
		}
	}
	return strings.Join(unique, ", ")
}

// nearest returns the candidate that is at most two typing errors away from a
// word, and one in three letters, or nothing. It is for suggestions only: a
// guess is never acted on.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", 3
	for _, c := range candidates {
		if d := bridge.Distance(word, c, bestDistance); d < bestDistance && 3*d <= len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// prefixedLength is how long a name may be before which an agent puts its prefix:
// with that it is as long as every model API takes.
const prefixedLength = 64 - len("mcp__"+discover.SelfName+"__")

// naming is how the session's tools and prompts are named.
func (s *Session) naming(r *reading) bridge.Naming {
	if s.opts.Prefixed {
		return prefixedNaming(r.settings)
	}
	return s.host.ownNaming(r.settings)
}

// ownNaming is how names are made for those who add nothing to them.
func (h *Host) ownNaming(s config.Settings) bridge.Naming {
	n := cmp.Or(h.opts.Naming, s.Naming)
	return bridge.Naming{Style: n.Style, MaxLength: n.MaxLength, LastWins: n.Collision == config.CollisionLastWins}
}

// prefixedNaming is how they are made for those who put a prefix before them.
func prefixedNaming(s config.Settings) bridge.Naming {
	n := s.Gateway.Naming
	return bridge.Naming{
		Style: cmp.Or(n.Style, config.NamingPlain), MaxLength: cmp.Or(n.MaxLength, prefixedLength),
		LastWins: n.Collision == config.CollisionLastWins,
	}
}

// silent are the servers of which it is not known what they have: nobody has
// listed them yet, or they are switched off. Those of a project that may not be
// used do not count: a file that nobody approved must not change a name.
func (in toolInputs) silent() (servers []bridge.Silent) {
	for i, st := range in.servers {
		if in.catalogs[i] == nil {
			servers = append(servers, bridge.Silent{Server: st.Name, Project: st.Origin.Project != ""})
		}
	}
	for _, st := range in.off {
		servers = append(servers, bridge.Silent{Server: st.Name})
	}
	return servers
}

// allNames are the names of the tools and of the prompts; nil of no set.
func (set *toolSet) allNames() (tools, prompts *bridge.Names) {
	if set == nil {
		return nil, nil
	}
	_, prompts = set.prompts()
	return set.names, prompts
}

// collisions is what is wrong with the names of the tools there are.
type collisions struct {
	inputs toolInputs // that they were found in
	found  []bridge.Collision
}

// addCollisions adds what is wrong with the names of tools to the servers that
// have them: to one of those that it is about, so that it is said once.
func (h *Host) addCollisions(servers []ServerStatus) {
	for _, c := range h.collisions() {
		last := c.Servers[len(c.Servers)-1]
		for i := range servers {
			if st := &servers[i]; st.Name == last && st.InForce {
				st.Problems = append(slices.Clip(st.Problems), config.Problem{
					Severity: config.SeverityWarning, File: st.Origin.File, Line: st.Origin.Line, Message: c.Text,
				})
			}
		}
	}
}

// collisions finds what is wrong with the names of all tools, for those who see
// all servers, once for the same tools.
func (h *Host) collisions() []bridge.Collision {
	in := h.toolInputs(conn.Profile{}, func(_ *reading, server string) bool { return !isAlias(server) })
	h.knownMu.Lock()
	known := h.clashes
	h.knownMu.Unlock()
	if known.inputs.reading != nil && known.inputs.same(in) {
		return known.found
	}
	var tools []bridge.Exposed
	for i, st := range in.servers {
		if in.catalogs[i] == nil {
			continue
		}
		for _, t := range h.toolInfos(st.Name, in.catalogs[i]) {
			tools = append(tools, in.reading.exposed(bridge.Ref{Server: st.Name, Tool: t.Name}))
		}
	}
	own, prefixed := h.ownNaming(in.reading.settings), prefixedNaming(in.reading.settings)
	_, found := bridge.NewNames(tools, in.silent(), own, nil)
	keeps := []config.NamingStyle{"", config.NamingClaude, config.NamingPlain} // in which the same names collide
	if own.Style != prefixed.Style && !(slices.Contains(keeps, own.Style) && slices.Contains(keeps, prefixed.Style)) {
		_, more := bridge.NewNames(tools, in.silent(), prefixed, nil)
		found = append(found, more...)
	}
	found = summed(found)
	h.knownMu.Lock()
	defer h.knownMu.Unlock()
	h.clashes = collisions{in, found}
	return found
}

// summed tells of all collisions between the same servers as of one: there may be
// as many as there are tools.
func summed(all []bridge.Collision) (sums []bridge.Collision) {
	more := map[string]int{} // by the servers
	for _, c := range all {
		key := fmt.Sprintf("%q", c.Servers)
		if more[key]++; more[key] == 1 {
			sums = append(sums, c)
		}
	}
	for i, c := range sums {
		if n := more[fmt.Sprintf("%q", c.Servers)] - 1; n > 0 {
			sums[i].Text += fmt.Sprintf(" (and %d more of the same servers)", n)
		}
	}
	return sums
}

// reportLikeNames warns of servers whose names differ only in case: people, models
// and rules take one for the other.
func reportLikeNames(servers []ServerStatus) {
	first := map[string]*ServerStatus{}
	for i := range servers {
		st := &servers[i]
		if !st.InForce || st.Skip != "" {
			continue
		}
		folded := strings.ToLower(strings.ToUpper(st.Name))
		other := first[folded]
		if other == nil {
			first[folded] = st
			continue
		}
		if st.Origin.Project == "" && other.Origin.Project != "" {
			st, other = other, st // a project's gives way
		}
		st.Problems = append(slices.Clip(st.Problems), config.Problem{
			Severity: config.SeverityWarning, File: st.Origin.File, Line: st.Origin.Line, Pointer: st.Origin.Pointer,
			Message: fmt.Sprintf("the name %q differs from that of the server %q only in case", st.Name, other.Name),
			Hint:    "Rename one of them.",
		})
	}
}
