package patchbay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/conn"
)

// A server asks for roots when it likes, often long before a call, and keeps
// them. So a connection is shared only among sessions whose roots are the same:
// they are asked for before the first request to any server, and answered from
// what was said then.

// rootsPatience is how long a client may take to say what its roots are.
const rootsPatience = 5 * time.Second

// profile is the kind of connection that the session uses.
func (s *Session) profile() conn.Profile { return *s.kind.Load() }

// declare makes p the kind of connection of the session. Roots that can be asked
// for only within calls are not known to be anybody else's, and another person's
// session shares nothing.
func (s *Session) declare(p conn.Profile, session string) {
	p.Session = session
	if c := s.opts.Client; c != nil && c.Roots != nil && c.AskedInCalls {
		p.Key += " " + session
	}
	if s.opts.Identity != "" {
		p.Key += " of " + s.opts.Identity
		p.Capabilities = s.opts.Client.capabilities(s.host.answers)
	}
	s.kind.Store(&p)
}

// hasRoots reports whether the roots of the session are to be asked for.
func (s *Session) hasRoots() bool {
	c := s.opts.Client
	return c != nil && c.Roots != nil && !c.AskedInCalls
}

// askRoots asks for the roots of the session, the first time.
func (s *Session) askRoots(ctx context.Context) {
	if s.rooted.Load() || !s.hasRoots() {
		return
	}
	s.rooting.Lock()
	defer s.rooting.Unlock()
	if !s.rooted.Load() {
		s.move(ctx, s.readRoots(ctx))
		s.rooted.Store(true)
	}
}

// readRoots asks for the roots and keeps the answer. One that does not come
// means that there are none.
func (s *Session) readRoots(ctx context.Context) json.RawMessage {
	ctx, stop := context.WithTimeout(ctx, rootsPatience)
	defer stop()
	roots, err := s.host.ask(ctx, "roots/list", func() (json.RawMessage, error) { return s.opts.Client.Roots(ctx) })
	if err != nil {
		s.host.opts.Logger.Info("roots", "session", s.opts.Name, "error", err)
		roots = json.RawMessage(`{"roots":[]}`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roots = roots
	return roots
}

// move has the session use the connections of those with the same roots, and asks
// for what lasts there, too.
func (s *Session) move(ctx context.Context, roots json.RawMessage) {
	if s.rehouse(roots) {
		s.askAgain(ctx)
	}
}

// rehouse reports whether the session uses other connections now.
func (s *Session) rehouse(roots json.RawMessage) bool {
	h, was := s.host, s.profile()
	sum := sha256.Sum256(append([]byte(s.opts.Client.profile(h.answers).Key+" of "+s.opts.Identity+" "), roots...))
	is := was
	is.Key, is.Capabilities = hex.EncodeToString(sum[:8]), s.opts.Client.capabilities(h.answers)
	h.sessionsMu.Lock()
	defer h.sessionsMu.Unlock()
	h.common.mu.Lock()
	defer h.common.mu.Unlock()
	for h.common.drifted[is.Key] {
		is.Key += "+"
	}
	if !h.sessions[s] || is.Key == was.Key {
		return false
	}
	h.manager.Hold(is)
	s.kind.Store(&is)
	h.manager.Release(was)
	h.news.announce() // other connections may offer something else
	return true
}

// RootsChanged asks for the roots anew. Servers that only this session uses are
// told that they have changed; one that others use too is connected anew, apart
// from them.
func (s *Session) RootsChanged(ctx context.Context) {
	if !s.hasRoots() || !s.rooted.Load() {
		return // whoever needs them will ask
	}
	s.rooting.Lock()
	defer s.rooting.Unlock()
	roots := s.readRoots(ctx)
	h := s.host
	h.common.mu.Lock()
	alone := h.manager.Alone(s.profile())
	if alone {
		maps.DeleteFunc(h.common.drifted, func(key string, _ bool) bool { return !h.manager.Knows(key) })
		h.common.drifted[s.profile().Key] = true // it does not say any more what the roots are
	}
	h.common.mu.Unlock()
	if alone {
		h.manager.Notify(ctx, s.profile(), "notifications/roots/list_changed", nil)
		return
	}
	s.move(ctx, roots)
}

// knownRoots is what the client said its roots are, nil if it was not asked.
func (s *Session) knownRoots() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roots
}
