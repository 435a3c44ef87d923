package conn

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Shared is a connection as the Handler knows it that answers its server. There is
// one of each.
type Shared struct {
	line *line

	mu        sync.Mutex
	abandoned map[string]time.Time // when sessions gave up calls without an answer
}

// afterlife is how long a server may go on with a call that was given up, and ask
// something in it.
const afterlife = 10 * time.Second

// Abandon takes note that a session has given up a call over the connection.
func (s *Shared) Abandon(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abandoned == nil {
		s.abandoned = map[string]time.Time{}
	}
	maps.DeleteFunc(s.abandoned, func(_ string, at time.Time) bool { return time.Since(at) > afterlife })
	s.abandoned[session] = time.Now()
}

// AbandonedByOthers reports whether another session than that has given up a call
// of late.
func (s *Shared) AbandonedByOthers(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, at := range s.abandoned {
		if other != session && time.Since(at) <= afterlife {
			return true
		}
	}
	return false
}

// Tagged is the Tag of a call that wants to know over which connection it goes.
type Tagged interface{ SentOver(*Shared) }

// Party is one that shares a connection.
type Party struct {
	Owner  any    // Options.Owner of the Manager
	Server string // the server, as the Manager calls it
}

// Parties are those that share the connection now.
func (s *Shared) Parties() []Party {
	up := s.line.up
	up.pool.mu.Lock()
	defer up.pool.mu.Unlock()
	var all []Party
	for _, seat := range up.parties() {
		all = append(all, Party{seat.manager.opts.Owner, seat.name})
	}
	return all
}

// Log is for what happens on the connection.
func (s *Shared) Log() *slog.Logger { return s.line.log }

// Serves reports whether a session with that profile, of one of the parties,
// uses the connection.
func (s *Shared) Serves(owner any, p Profile) bool {
	up := s.line.up
	up.pool.mu.Lock()
	defer up.pool.mu.Unlock()
	return slices.ContainsFunc(up.parties(), func(seat *seat) bool {
		return seat.manager.opts.Owner == owner && up.keyOf(seat.manager.declared(p)) == s.line.key
	})
}

// AsksForRoots takes note that the server asks for roots, and was told those of
// sessions with that profile: from now on those with other roots do not share the
// connection.
func (s *Shared) AsksForRoots(p Profile) {
	up, l := s.line.up, s.line
	up.pool.mu.Lock()
	known := up.asksRoots && l.key.roots == p.Roots
	up.pool.mu.Unlock()
	if known {
		return
	}
	up.learn(func() { up.asksRoots, l.profile.Roots = true, p.Roots })
	l.shelf.note(func(k *knowledge) { k.AsksRoots = true })
}

// Split has each session whose user can be asked something have a connection of
// its own from now on, as long as this process lives: nobody can tell whom the
// server asks.
func (s *Shared) Split(why string) {
	up := s.line.up
	p := up.pool
	p.mu.Lock()
	defer p.unlock()
	if p.split[up.key] != "" || len(up.seats) == 0 {
		return
	}
	s.line.log.Warn("the server is not shared any more", "reason", why)
	p.split[up.key] = why
	up.prune(true)
	for _, seat := range up.seats {
		p.news[seat.manager] = true // of the warning
	}
}
