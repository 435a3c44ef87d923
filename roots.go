package patchbay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
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

// declared is the kind of connection that the session needs: one whose server was
// told what the session's user and the host can answer, and of its roots, nil if
// they are not known. Sessions that declare the same share one. Roots that can be
// asked for only within calls are not known to be anybody else's, and another
// person's session shares nothing.
func (s *Session) declared(answers elicitModes, id string, roots json.RawMessage) conn.Profile {
	c := s.opts.Client
	capabilities := c.capabilities(answers)
	p := conn.Profile{Session: id}
	if string(capabilities) != s.host.declares {
		sum := sha256.Sum256(capabilities)
		p.Key, p.Capabilities = hex.EncodeToString(sum[:8]), capabilities
	}
	switch {
	case roots != nil:
		sum := sha256.Sum256(append([]byte(p.Key+" of "+s.opts.Identity+" "), roots...))
		p.Key, p.Capabilities = hex.EncodeToString(sum[:8]), capabilities
		return p
	case c != nil && c.Roots != nil && c.AskedInCalls:
		p.Key, p.Capabilities = p.Key+" "+id, capabilities
	}
	if s.opts.Identity != "" {
		p.Key, p.Capabilities = p.Key+" of "+s.opts.Identity, capabilities
	}
	return p
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
		s.readRoots(ctx)
		s.move(ctx)
		s.rooted.Store(true)
	}
}

// readRoots asks for the roots and keeps the answer. One that does not come
// means that there are none.
func (s *Session) readRoots(ctx context.Context) {
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
}

// move has the session use the connections of those that declare the same, and
// asks for what lasts there, too.
func (s *Session) move(ctx context.Context) {
	if s.rehouse() {
		s.askAgain(ctx)
	}
}

// rehouse reports whether the session uses other connections now.
func (s *Session) rehouse() bool {
	h := s.host
	h.sessionsMu.Lock()
	defer h.sessionsMu.Unlock()
	was := s.profile()
	is := s.declared(*h.answers.Load(), was.Session, s.knownRoots())
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

// redeclare takes note of which questions the host can answer now. Servers are told
// when a session next uses them, on another connection: what is under way comes to
// its end.
func (h *Host) redeclare(now elicitModes) {
	h.sessionsMu.Lock()
	was := h.answers.Load()
	if *was == now {
		h.sessionsMu.Unlock()
		return
	}
	h.answers.Store(&now)
	sessions := slices.Collect(maps.Keys(h.sessions))
	h.sessionsMu.Unlock()
	for _, s := range sessions {
		c := s.opts.Client
		if string(c.capabilities(*was)) == string(c.capabilities(now)) || !s.rehouse() {
			continue
		}
		h.sessionsMu.Lock()
		if !h.closed {
			h.followers.Go(func() { s.askAgain(h.life) })
		}
		h.sessionsMu.Unlock()
	}
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
	s.readRoots(ctx)
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
	s.move(ctx)
}

// knownRoots is what the client said its roots are, nil if it was not asked.
func (s *Session) knownRoots() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roots
}
