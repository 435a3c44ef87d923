package patchbay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A server asks for roots when it likes, often long before a call, and keeps
// them. So a server that asks for them is shared only among sessions whose roots
// are the same. Most servers never ask: for those they make no difference, and no
// client is asked for roots before some server wants to know.

// rootsPatience is how long a client may take to say what its roots are.
const rootsPatience = 5 * time.Second

// profile is the kind of connection that the session uses.
func (s *Session) profile() conn.Profile { return *s.kind.Load() }

// declared is the kind of connection that the session needs: one whose server was
// told what the session's user and the host can answer. Sessions that declare the
// same share one, unless they are different people's.
func (s *Session) declared(answers elicitModes, id string) conn.Profile {
	c := s.opts.Client
	capabilities := c.capabilities(answers)
	p := conn.Profile{Session: id, Any: c == nil && s.opts.AnyConnection}
	if c != nil {
		p.Legacy, p.Brief = c.PreferLegacy, c.AskedInCalls
		p.Askable = c.Elicit != nil || c.Sample != nil || c.Roots != nil
		p.Roots = s.rootsKey(id)
	}
	if counts := whatCounts(capabilities); counts != whatCounts(json.RawMessage(s.host.declares)) {
		sum := sha256.Sum256([]byte(counts))
		p.Kind = hex.EncodeToString(sum[:8])
		p.Key, p.Capabilities = p.Kind, capabilities
	}
	if s.opts.Identity != "" {
		p.Key, p.Capabilities = p.Key+" of "+s.opts.Identity, capabilities
	}
	return p
}

// whatCounts is of the capabilities of a client what servers can act on, in one
// form, so that equal ones are recognised however they are written.
func whatCounts(capabilities json.RawMessage) string {
	var declared map[string]any
	if json.Unmarshal(capabilities, &declared) != nil {
		return "{}"
	}
	maps.DeleteFunc(declared, func(name string, value any) bool {
		return value == nil || !slices.Contains([]string{"elicitation", "sampling", "roots", "tasks", "extensions", "experimental"}, name)
	})
	canonical, _ := json.Marshal(declared) // what was JSON is so again; sorted
	return string(canonical)
}

// rootsKey tells apart sessions with different roots. Those that can be asked for
// only within calls are not known to be anybody else's.
func (s *Session) rootsKey(id string) string {
	c := s.opts.Client
	if c == nil || c.Roots == nil {
		return ""
	}
	if c.AskedInCalls {
		return id
	}
	roots := s.knownRoots()
	if roots == nil {
		return ""
	}
	sum := sha256.Sum256(roots)
	return hex.EncodeToString(sum[:8])
}

// hasRoots reports whether the roots of the session can be asked for at any time.
func (s *Session) hasRoots() bool {
	c := s.opts.Client
	return c != nil && c.Roots != nil && !c.AskedInCalls
}

// tellsOfRoots reports whether the session's user tells when its roots change.
func (s *Session) tellsOfRoots() bool {
	c := s.opts.Client
	if c.Capabilities == nil {
		return true // as we declare for it
	}
	tells, _ := wire.Member(c.Capabilities, "roots", "listChanged")
	return string(tells) == "true"
}

// askRoots asks for the roots of the session before its first request to a server
// that is known to ask for them: they decide which connection the request takes.
func (s *Session) askRoots(ctx context.Context, server string) {
	if s.rooted.Load() || !s.hasRoots() || !s.host.manager.AsksForRoots(server) {
		return
	}
	s.rooting.Lock()
	defer s.rooting.Unlock()
	if s.rooted.Load() {
		return
	}
	if _, err := s.readRoots(ctx); err != nil {
		s.host.opts.Logger.Info("roots", "session", s.opts.Name, "error", err)
		s.setRoots(ctx, json.RawMessage(`{"roots":[]}`)) // as good as none
	}
}

// readRoots asks for the roots of the session, and has it use the connections of
// those who have the same.
func (s *Session) readRoots(ctx context.Context) (json.RawMessage, error) {
	limited, stop := context.WithTimeout(ctx, rootsPatience)
	defer stop()
	roots, err := s.host.ask(limited, "roots/list", func() (json.RawMessage, error) { return s.opts.Client.Roots(limited) })
	if err == nil {
		s.setRoots(ctx, roots)
	}
	return roots, err
}

func (s *Session) setRoots(ctx context.Context, roots json.RawMessage) {
	s.mu.Lock()
	same := bytes.Equal(s.roots, roots)
	s.roots = roots
	s.mu.Unlock()
	s.rooted.Store(true)
	if !same && s.rehouse(ctx) {
		s.askAgain(ctx)
	}
}

// answerRoots answers a server that asks for the roots. What the session's user
// said before counts only if it would have told of a change.
func (s *Session) answerRoots(ctx context.Context) (json.RawMessage, error) {
	if !s.hasRoots() {
		return s.opts.Client.Roots(ctx)
	}
	if roots := s.knownRoots(); roots != nil && s.tellsOfRoots() {
		return roots, nil
	}
	s.rooting.Lock()
	defer s.rooting.Unlock()
	if roots := s.knownRoots(); roots != nil && s.tellsOfRoots() {
		return roots, nil
	}
	return s.readRoots(ctx)
}

// rehouse has the session use the connections of those that declare the same, and
// reports whether these may be others.
func (s *Session) rehouse(ctx context.Context) bool {
	h := s.host
	h.sessionsMu.Lock()
	was := s.profile()
	is := s.declared(*h.answers.Load(), was.Session)
	if !h.sessions[s] || is.Key == was.Key && is.Roots == was.Roots {
		h.sessionsMu.Unlock()
		return false
	}
	h.manager.Hold(is)
	s.kind.Store(&is)
	told := h.manager.Move(was, is)
	h.sessionsMu.Unlock()
	h.news.announce()                             // other connections may offer something else
	if was.Roots != "" && is.Roots != was.Roots { // else nobody was told of any
		told(ctx)
	}
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
		if string(c.capabilities(*was)) == string(c.capabilities(now)) || !s.rehouse(h.life) {
			continue
		}
		h.sessionsMu.Lock()
		if !h.closed {
			h.followers.Go(func() { s.askAgain(h.life) })
		}
		h.sessionsMu.Unlock()
	}
}

// RootsChanged says that the roots are others now. Servers that only this session
// uses are told; one that others use too, and that has asked for roots, is
// connected anew, apart from them.
func (s *Session) RootsChanged(ctx context.Context) {
	if !s.hasRoots() {
		return
	}
	s.rooting.Lock()
	defer s.rooting.Unlock()
	if !s.rooted.Load() { // no server has asked yet
		s.host.manager.Notify(ctx, s.profile(), methodRootsChanged, nil)
		return
	}
	was := s.profile().Roots
	if _, err := s.readRoots(ctx); err != nil {
		s.host.opts.Logger.Info("roots", "session", s.opts.Name, "error", err)
	}
	if s.profile().Roots == was {
		s.host.manager.Notify(ctx, s.profile(), methodRootsChanged, nil)
	}
}

const methodRootsChanged = "notifications/roots/list_changed"

// knownRoots is what the client said its roots are, nil if it was not asked.
func (s *Session) knownRoots() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roots
}
