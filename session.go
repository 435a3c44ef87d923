package patchbay

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
)

// SessionOptions says what one user of a host may see and call.
type SessionOptions struct {
	Name string // in logs and for hooks; empty means "session"

	// Identity is whose session it is. Those of different people share no
	// connection. Empty means whoever runs the host.
	Identity string

	PID int // the process of whoever the session is for, which Host.Processes tells; 0 if it is not known

	Servers         []string // names of the servers that are there; nil means all, empty none
	Tools           []string // names or patterns of the tools that are visible; nil means all, empty none
	Profile         string   // a selection of the settings, as they are at any time, in place of Servers and Tools; empty means none
	AllowedTools    []string // pre-approved: called without asking; hides nothing
	DisallowedTools []string // never called, and not shown
	Rules           []Rule   // further rules, with their sources

	// Prefixed says that whoever the session is for puts a prefix of its own before
	// all names, as agents do with those of a server: names are plain then, and
	// short, unless gateway.naming in the settings says otherwise. There are only
	// tools of servers for it, none of the host's own.
	Prefixed bool

	// Default is what happens to a call that no rule is about; empty means that
	// of the settings, and if they say nothing that UI.Confirm is asked.
	Default Effect

	// AnyConnection says that for a session without a Client whichever connection a
	// server has will do, even one that declares what only others can do: for single
	// calls, for which it is not worth starting a process. What a server asks in them
	// is cancelled, or answered by the host.
	AnyConnection bool

	Client *Client // what servers may ask of the session's user; nil means nothing
}

// Effect is what a rule does with a call.
type Effect = policy.Effect

// The effects of rules.
const (
	Allow = policy.Allow
	Ask   = policy.Ask
	Deny  = policy.Deny
)

// Rule is one permission rule with its source.
type Rule = policy.Rule

// Session is one user's view of a host: its tools under one naming scheme,
// called under its rules. Sessions share the host's connections. A Session is
// safe for concurrent use.
type Session struct {
	host *Host
	opts SessionOptions
	kind atomic.Pointer[conn.Profile] // of connection; changed by the roots
	view *view

	rooting sync.Mutex // held while the roots are asked for
	rooted  atomic.Bool

	life context.Context // ends with Close
	stop context.CancelFunc

	mu      sync.Mutex // guards what follows, and the flights themselves
	flights []*flight
	lasting lasting
	roots   json.RawMessage // as the client last said
}

// view is what a session offers, shared with the sessions made of it by For.
type view struct {
	rules    []Rule     // of the session alone; those of the settings are the host's
	selects  string     // all of its options that a tool set is made by, as one text: equal ones share a set
	building sync.Mutex // held while the tool set is made anew
	set      atomic.Pointer[toolSet]
	upTo     atomic.Uint64            // one more than the number of the host's last change that set takes in; 0 if there is no set
	held     atomic.Pointer[heldLive] // of the last list that a server was asked for
}

// NewSession opens a session. Rules that cannot be understood deny what they
// might have been about: the error names them, and the session is not opened.
func (h *Host) NewSession(o SessionOptions) (*Session, error) {
	s := &Session{host: h, opts: o, view: &view{rules: slices.Clone(o.Rules)}}
	if s.opts.Name == "" {
		s.opts.Name = "session"
	}
	for _, r := range o.Rules {
		if err := r.Validate(); err != nil {
			return nil, errorf(KindConfigInvalid, "%s: %v", r.Source, err)
		}
	}
	for _, list := range []struct {
		effect   Effect
		patterns []string
		source   string
	}{{Allow, o.AllowedTools, "allowedTools"}, {Deny, o.DisallowedTools, "disallowedTools"}} {
		for _, pattern := range list.patterns {
			r, err := policy.NewRule(list.effect, pattern, list.source)
			if err != nil {
				return nil, errorf(KindConfigInvalid, "%s: %v", list.source, err)
			}
			s.view.rules = append(s.view.rules, r)
		}
	}
	s.view.selects = fmt.Sprintf("%#v", []any{o.Prefixed, o.Profile, o.Servers, o.Tools, o.Default, s.view.rules}) // which tells nil from empty
	if err := s.open(h.life, rand.Text()); err != nil {
		return nil, err
	}
	return s, nil
}

// For returns a session with the same tools and rules for another client. It
// costs little: a server that speaks to many clients over one session, as HTTP
// gateways do, can have one for each request. It ends with s, or before.
func (s *Session) For(c *Client) (*Session, error) {
	o := s.opts
	o.Client = c
	other := &Session{host: s.host, opts: o, view: s.view}
	if err := other.open(s.life, s.profile().Session); err != nil { // to servers it is the same
		return nil, err
	}
	return other, nil
}

// open makes the session known to its host, and to servers by its id.
func (s *Session) open(life context.Context, id string) error {
	h := s.host
	answers := h.answers.Load()
	p := s.declared(*answers, id)
	h.sessionsMu.Lock()
	defer h.sessionsMu.Unlock()
	if now := h.answers.Load(); now != answers {
		p = s.declared(*now, id)
	}
	s.kind.Store(&p)
	if h.closed {
		return errorf(KindDenied, "The host is closed.")
	}
	h.sessions[s] = true
	h.manager.Hold(s.profile())
	s.life, s.stop = context.WithCancel(life)
	if c := s.opts.Client; c != nil && c.Changed != nil {
		h.followers.Go(s.follow)
	}
	return nil
}

// Close ends the session and the connections that are for no other; one that
// stands for its server stays until sessions that declare something else need
// the server. Calls under way go on.
func (s *Session) Close() {
	s.letGo()
	s.stop()
	h := s.host
	h.sessionsMu.Lock()
	open := h.sessions[s]
	delete(h.sessions, s)
	h.sessionsMu.Unlock()
	if open {
		h.manager.Release(s.profile())
	}
}

// openSessions returns the sessions of the host.
func (h *Host) openSessions() []*Session {
	h.sessionsMu.Lock()
	defer h.sessionsMu.Unlock()
	return slices.Collect(maps.Keys(h.sessions))
}

// tellPause is how long a session's user is left in peace after being told of a
// change. When a host starts every server brings one.
const tellPause = 500 * time.Millisecond

// follow tells the session's user of changes: of the first at once, of many at a
// time as of one.
func (s *Session) follow() {
	next := s.host.news.following()
	last := s.toolset()
	news := false
	var pause <-chan time.Time // nil if there is none
	for {
		select {
		case <-next:
			next = s.host.news.following() // before looking, so that none is missed
			news = true
		case <-pause:
			pause = nil
		case <-s.life.Done():
			return
		}
		if pause != nil {
			s.readAhead()
			continue
		}
		if !news {
			continue
		}
		news = false
		now := s.toolset()
		changed := now.differs(last)
		if changed == (Lists{}) {
			continue
		}
		last = now
		_ = s.host.protect("Client.Changed", func() error {
			s.opts.Client.Changed(changed)
			return nil
		})
		pause = time.After(tellPause)
	}
}

// capabilities returns what a client declares to servers: what it has a
// function for. What the host can answer is answered where the client cannot.
func (c *Client) capabilities(host elicitModes) json.RawMessage {
	if c != nil && c.Capabilities != nil {
		if own := c.elicitModes(); own.or(host) != own {
			return own.or(host).declare(c.Capabilities)
		}
		return c.Capabilities
	}
	declared := map[string]any{}
	if c != nil && c.Sample != nil {
		declared["sampling"] = struct{}{}
	}
	if c != nil && c.Roots != nil {
		declared["roots"] = map[string]any{"listChanged": true}
	}
	raw, _ := json.Marshal(declared) // maps of plain values always marshal
	return c.elicitModes().or(host).declare(raw)
}

// Remote reports whether a server of the session is reached over HTTP. Only such
// a server can want its client to come back: see Client.ComeBack.
func (s *Session) Remote() bool { return s.toolset().remote }

// Decision is whether a call may go ahead, and what decided it.
type Decision struct {
	Effect Effect `json:"effect"`
	Rule   *Rule  `json:"rule,omitempty"` // nil if no rule is about the tool
	Reason string `json:"reason"`
}

// Why explains what would happen to a call of a tool, without calling it. It
// knows of tools that are denied, which to callers are not there at all.
func (s *Session) Why(name string) (Tool, Decision, error) {
	set := s.toolset()
	t, err := set.find(name)
	if err != nil {
		hidden, ok := set.findHidden(name)
		if !ok {
			return Tool{}, Decision{}, s.unknownTool(set, name, err)
		}
		t = hidden
	}
	if t.Changed && t.decision.Effect != Deny {
		return t.Tool, Decision{Effect: Deny, Reason: "tool_changed: its definition is none that was accepted; see patchbay approve --tools " + t.Server}, nil
	}
	return t.Tool, t.decision, nil
}

func toolChanged(t Tool) error {
	return errorf(KindDenied, "tool_changed: the definition of %s is none that was accepted.", t.Name).
		hint("Run patchbay approve --tools %s to see what changed and accept it; with --ignore, a member that changes at every start does not count.", t.Server)
}

func denied(t Tool, d Decision) error {
	err := errorf(KindDenied, "%s is denied: %s", t.Name, d.Reason)
	if d.Rule != nil {
		return err.hint("The rule is %s in %s.", d.Rule.Pattern, d.Rule.Source)
	}
	return err
}

// permissionRules turns the permissions of settings into rules. A project's own
// settings may restrict, never allow. A restriction that cannot be understood
// might be about any tool, so it is about all.
func permissionRules(p config.Permissions, file string, mayAllow bool) (rules []Rule, problems []config.Problem) {
	for _, list := range []struct {
		effect   Effect
		patterns []string
	}{{Deny, p.Deny}, {Ask, p.Ask}, {Allow, p.Allow}} {
		for i, pattern := range list.patterns {
			if list.effect == Allow && !mayAllow {
				continue
			}
			r, err := policy.NewRule(list.effect, pattern, file)
			if err != nil {
				p := config.Problem{Severity: config.SeverityError, Pointer: config.PointerAt("/permissions/"+string(list.effect), i), Message: err.Error()}
				if list.effect == Allow {
					problems = append(problems, p)
					continue
				}
				p.Hint = "Until it is mended it is about every tool."
				problems = append(problems, p)
				r = Rule{Effect: list.effect, Pattern: "*", Source: file}
			}
			rules = append(rules, r)
		}
	}
	return rules, problems
}
