package conn

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Process is the child of a server that runs.
type Process struct {
	Server string // as the Manager calls it
	PID    int
	Users  []string // ids of the Manager's open sessions that use it, sorted

	// What it is for: processes that have all of this in common would be one.
	Launch       string // equal for those that are started the same way
	Declared     string // what its client declared, and whose it is
	Kind         string // what its client declared alone
	Capabilities json.RawMessage
	Legacy       bool // the legacy era is preferred
	Roots        string
	Session      string // that has it for itself; empty if sessions share it
}

// Processes returns the children of the Manager's servers, by server.
func (m *Manager) Processes() (all []Process) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	for name, seat := range m.seats {
		up := seat.up
		if seat.target.Alias && up.has(m) {
			continue // told under its own name
		}
		for key, l := range up.lines {
			pid, ok := l.pid()
			if !ok {
				continue
			}
			all = append(all, Process{
				Server: name, PID: pid, Users: up.users(m, key), Launch: up.key.hash,
				Declared: key.profile, Kind: l.profile.Kind, Capabilities: l.profile.Capabilities,
				Legacy: key.legacy, Roots: key.roots, Session: key.session,
			})
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.PID, b.PID)) })
	return all
}

// users are the open sessions of a Manager that use the line of a key.
func (up *upstream) users(m *Manager, key lineKey) (ids []string) {
	for _, h := range m.holds {
		used := up.keyOf(h.profile)
		if h.profile.Any && !up.unshared() {
			used = up.standing.key
		}
		if used == key {
			ids = append(ids, h.profile.Session)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// pid is the process of the present connection, if it has one.
func (s *line) pid() (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.link == nil || s.state.link.process == nil {
		return 0, false
	}
	return s.state.link.process.child.PID(), true
}
