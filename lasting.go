package patchbay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// lasting is what a session has asked of servers that lasts: it is asked for
// again when a server is connected anew. Sessions that share a connection share
// what it can do only once, so a server is asked for what any of them wants and
// each hears of what it wants itself.
type lasting struct {
	subscribed map[resourceRef]bool
	level      map[string]int // of log messages, by server; "" is any
}

type resourceRef struct{ server, uri string }

// letGoPatience is how long servers may take to hear that a session has ended, or
// uses other connections.
const letGoPatience = 5 * time.Second

// keep asks a server for something that lasts, in the way of its own era.
func (s *Session) keep(ctx context.Context, server, method string, params []byte) error {
	uri, _ := wire.StringMember(params, "uri")
	switch method {
	case "resources/subscribe":
		return s.subscribe(ctx, server, uri)
	case "resources/unsubscribe":
		return s.Unsubscribe(ctx, server, uri)
	default:
		level, _ := wire.StringMember(params, "level")
		return s.SetLogLevel(ctx, server, level)
	}
}

// Subscribe asks for the updates of a resource, of which Client.ResourceUpdated
// is told until Unsubscribe or Close.
func (s *Session) Subscribe(ctx context.Context, server, uri string) error {
	return s.subscribe(s.host.own(ctx), server, uri)
}

func (s *Session) subscribe(ctx context.Context, server, uri string) error {
	s.askRoots(ctx, server)
	sv, err := s.reach(server, s.profile())
	if err != nil {
		return err
	}
	ctx, stop := bound(ctx, sv, "resources/subscribe")
	defer stop()
	if err := sv.Subscribe(ctx, uri); err != nil {
		return callError(sv.Name(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lasting.subscribed == nil {
		s.lasting.subscribed = map[resourceRef]bool{}
	}
	s.lasting.subscribed[resourceRef{sv.Name(), uri}] = true
	return nil
}

// Unsubscribe is the opposite of Subscribe.
func (s *Session) Unsubscribe(ctx context.Context, server, uri string) error {
	sv, err := s.reach(server, s.profile())
	if err != nil {
		return err
	}
	ref := resourceRef{sv.Name(), uri}
	s.mu.Lock()
	delete(s.lasting.subscribed, ref)
	s.mu.Unlock()
	for _, other := range s.sharing() {
		if other.profile().Session == s.profile().Session && other.isSubscribed(ref) {
			return nil
		}
	}
	return callError(sv.Name(), sv.Unsubscribe(ctx, uri))
}

func (s *Session) isSubscribed(ref resourceRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lasting.subscribed[ref]
}

// wantsUpdates reports whether an update of a resource is for the session.
func (s *Session) wantsUpdates(server, uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref := range s.lasting.subscribed {
		if ref.server == server && wire.Covers(ref.uri, uri) {
			return true
		}
	}
	return false
}

// sharing are the sessions of the host that declare the same, s among them.
func (s *Session) sharing() []*Session {
	return slices.DeleteFunc(s.host.openSessions(), func(other *Session) bool { return other.profile().Key != s.profile().Key })
}

// SetLogLevel asks for the log messages of one server, or of all if server is
// empty, from a level on. The server gets the most verbose level that any of the
// sessions on its connection asks for, now or when it is connected.
func (s *Session) SetLogLevel(ctx context.Context, server, level string) error {
	rank := slices.Index(wire.LogLevels(), level)
	if rank < 0 {
		return errorf(KindConfigInvalid, "No log level %q: it must be one of %v.", level, wire.LogLevels())
	}
	if server != "" {
		sv, err := s.reach(server, s.profile())
		if err != nil {
			return err
		}
		server = sv.Name()
	}
	s.mu.Lock()
	if s.lasting.level == nil {
		s.lasting.level = map[string]int{}
	}
	last, said := s.lasting.level[server]
	s.lasting.level[server] = rank
	s.mu.Unlock()
	if !said || last != rank {
		s.applyLogLevel(ctx, server)
	}
	return nil
}

// applyLogLevel tells the connections of s what its sessions ask for.
func (s *Session) applyLogLevel(ctx context.Context, server string) {
	least := len(wire.LogLevels())
	for _, other := range s.sharing() {
		if rank, ok := other.logLevel(server); ok {
			least = min(least, rank)
		}
	}
	if least < len(wire.LogLevels()) {
		s.host.manager.SetLevel(ctx, s.profile(), server, wire.LogLevels()[least])
	}
}

// logLevel is the level from which on the session wants the log messages of a
// server, if it has said.
func (s *Session) logLevel(server string) (rank int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank, ok = s.lasting.level[server]; !ok {
		rank, ok = s.lasting.level[""]
	}
	return rank, ok
}

// asksForLog reports whether the session has asked for the log messages of a
// server.
func (s *Session) asksForLog(server string) bool {
	_, said := s.logLevel(server)
	return said
}

// wantsLog reports whether a log message is for the session.
func (s *Session) wantsLog(server string, params []byte) bool {
	level, _ := wire.StringMember(params, "level")
	takes, _ := s.TakesLog(server, level)
	return takes
}

// TakesLog reports whether a log message of that level about a server is for the
// session, and whether it has asked for any.
func (s *Session) TakesLog(server, level string) (takes, asked bool) {
	wanted, said := s.logLevel(server)
	return !said || slices.Index(wire.LogLevels(), level) >= wanted, said
}

// askAgain asks for what lasts on connections that the session did not use
// before.
func (s *Session) askAgain(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, letGoPatience)
	defer stop()
	s.mu.Lock()
	levels, subscribed := slices.Collect(maps.Keys(s.lasting.level)), slices.Collect(maps.Keys(s.lasting.subscribed))
	s.mu.Unlock()
	for _, server := range levels {
		s.applyLogLevel(ctx, server)
	}
	for _, ref := range subscribed {
		sv, err := s.reach(ref.server, s.profile())
		if err == nil {
			err = sv.Subscribe(ctx, ref.uri)
		}
		if err != nil {
			s.host.opts.Logger.Info("not subscribed again", "session", s.opts.Name, "server", ref.server, "error", err)
		}
	}
}

// letGo takes back what the session has asked for, unless another one that
// shares its connections wants it too.
func (s *Session) letGo() {
	s.mu.Lock()
	subscribed, levels := s.lasting.subscribed, s.lasting.level
	s.lasting = lasting{}
	s.mu.Unlock()
	if len(subscribed)+len(levels) == 0 {
		return
	}
	h := s.host
	h.sessionsMu.Lock()
	defer h.sessionsMu.Unlock()
	if h.closed {
		return
	}
	h.followers.Go(func() {
		ctx, stop := context.WithTimeout(h.life, letGoPatience)
		defer stop()
		for server := range levels {
			s.applyLogLevel(ctx, server)
		}
		for ref := range subscribed {
			_ = s.Unsubscribe(ctx, ref.server, ref.uri) // a server that does not hear it is told of nobody
		}
	})
}
