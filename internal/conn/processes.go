package conn

import (
	"cmp"
	"slices"
)

// Process is the child of a server that runs.
type Process struct {
	Server   string // as the Manager calls it
	PID      int
	Sessions int // open ones that use it, of all Managers

	// What it is for: processes that have all of this in common would be one.
	Launch   string // equal for those that are started the same way
	Declared string // what its client declared, and whose it is
	Legacy   bool   // the legacy era is preferred
	Roots    string
	Session  string // that has it for itself; empty if sessions share it
}

// Processes returns the children of the Manager's servers, by server.
func (m *Manager) Processes() (all []Process) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	for name, seat := range m.seats {
		up := seat.up
		for key, l := range up.lines {
			pid, ok := l.pid()
			if !ok {
				continue
			}
			all = append(all, Process{
				Server: name, PID: pid, Sessions: up.sessions(key), Launch: up.key.hash,
				Declared: key.profile, Legacy: key.legacy, Roots: key.roots, Session: key.session,
			})
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.PID, b.PID)) })
	return all
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
