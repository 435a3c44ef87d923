package conn

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// What is asked of a server for longer than a call belongs to the Manager, by
// whom it was asked for: it is asked for again on every connection that serves
// the one who asked, and no longer when nobody does.

// subscription is a session's wish to hear of the updates of a resource.
type subscription struct {
	server  string // as the Manager has it
	session string // empty for the host
	uri     string
}

// logLevel is of a server, or of all if it has no name, for a profile.
type logLevel struct{ server, profile string }

// Subscribe asks for the updates of a resource, which arrive at the Handler.
// The subscription outlives the connection: it is made again whenever the
// server is connected anew. As long as there is one the server is never idle.
func (s *Server) Subscribe(ctx context.Context, uri string) error {
	for {
		var used *line
		err := s.on(ctx, func(ctx context.Context, l *line) error {
			used = l
			return l.subscribe(ctx, uri)
		})
		if err != nil || s.manager.subscribe(s, uri, used) {
			return err
		}
	}
}

// subscribe takes note of a subscription that was made on a line. It reports
// false if that line is not the server's any more.
func (m *Manager) subscribe(s *Server, uri string, on *line) bool {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	if seat := m.seats[s.name]; seat != nil && seat.present(s.profile) != on {
		return false
	}
	m.subscribed[subscription{s.name, s.profile.Session, uri}] = s.profile
	on.wants(uri, true)
	return true
}

// Unsubscribe is the opposite of Subscribe.
func (s *Server) Unsubscribe(ctx context.Context, uri string) error {
	l := s.manager.unsubscribe(subscription{s.name, s.profile.Session, uri})
	if l == nil {
		return nil
	}
	return s.explain(l.unsubscribe(ctx, uri))
}

// unsubscribe forgets a subscription, and returns the line on which nobody else
// has it; nil if there is none.
func (m *Manager) unsubscribe(sub subscription) *line {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	p, ok := m.subscribed[sub]
	delete(m.subscribed, sub)
	seat := m.seats[sub.server]
	if !ok || seat == nil {
		return nil
	}
	l := seat.present(p)
	if slices.Contains(seat.up.subscriptions(l), sub.uri) {
		return nil
	}
	l.wants(sub.uri, false)
	return l
}

// handOn has what a session asked for as one profile, which it has no longer,
// count for the other that it has.
func (m *Manager) handOn(was Profile) {
	for sub, p := range m.subscribed {
		if sub.session != was.Session || m.declared(p).holdKey() != was.holdKey() || m.holds[was.holdKey()].count > 0 {
			continue
		}
		for _, key := range m.held[was.Session] {
			m.subscribed[sub] = m.holds[key].profile
		}
	}
}

// subscriptions are the resources that those who use a line want to hear of.
func (up *upstream) subscriptions(l *line) []string {
	uris := map[string]bool{}
	for _, s := range up.seats {
		for sub, p := range s.manager.subscribed {
			serves := l == up.standing
			if sub.session != "" {
				serves = up.keyOf(s.manager.declared(p)) == l.key
			}
			if serves && sub.server == s.name {
				uris[sub.uri] = true
			}
		}
	}
	return slices.Collect(maps.Keys(uris))
}

// SetLevel asks a server, or all of them if name is empty, for log messages from
// a level on: now if it is connected with that profile, and whenever it will be.
// It waits for those that are connected, but only so long.
func (m *Manager) SetLevel(ctx context.Context, p Profile, name, level string) {
	ctx, stop := context.WithTimeout(ctx, levelPatience)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	declared := m.declared(p).Key
	m.levels[logLevel{name, declared}] = level
	for _, s := range m.seats {
		for _, l := range s.up.lines {
			if l.profile.Key == declared && (s.name == name || name == "") {
				level := s.up.level(l)
				wg.Go(func() { l.setLevel(ctx, level) })
			}
		}
	}
}

// levelPatience is how long a server may take to change its log level.
const levelPatience = 2 * time.Second

// level is the most verbose one that is asked for on a line.
func (up *upstream) level(l *line) string {
	all := wire.LogLevels()
	least := len(all)
	for _, s := range up.seats {
		m := s.manager
		asked := cmp.Or(m.levels[logLevel{s.name, l.profile.Key}], m.levels[logLevel{"", l.profile.Key}])
		if rank := slices.Index(all, asked); rank >= 0 {
			least = min(least, rank)
		}
	}
	if least == len(all) {
		return ""
	}
	return all[least]
}

// wants says whether someone wants to hear of a resource.
func (s *line) wants(uri string, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.subscribed[uri] = true
	} else {
		delete(s.subscribed, uri)
	}
}

// subscribe subscribes to a resource on the present connection.
func (s *line) subscribe(ctx context.Context, uri string) error {
	l, err := s.acquire(ctx, false)
	if err != nil {
		return s.unreachable(err)
	}
	defer s.release(l)
	return s.direct(ctx, "resources/subscribe", func(ctx context.Context) error { return l.client.Subscribe(ctx, uri) })
}

// unsubscribe is the opposite, if there is a connection.
func (s *line) unsubscribe(ctx context.Context, uri string) error {
	l := s.present()
	if l == nil {
		return nil
	}
	defer s.release(l)
	return s.direct(ctx, "resources/unsubscribe", func(ctx context.Context) error { return l.client.Unsubscribe(ctx, uri) })
}

// setLevel asks for log messages from that level on, now if the server is
// connected, and on every later connection.
func (s *line) setLevel(ctx context.Context, level string) {
	s.mu.Lock()
	s.logLevel = level
	l := s.state.link
	if l == nil || !l.hasLog() {
		s.mu.Unlock()
		return
	}
	l.users++
	s.mu.Unlock()
	defer s.release(l)
	err := s.bounded(ctx, "logging/setLevel", func(ctx context.Context) error { return l.client.SetLevel(ctx, level) })
	if err != nil && ctx.Err() == nil {
		s.log.Warn("setting the log level", "error", err)
	}
}

// hasLog reports whether the server says that it sends log messages. In the
// modern era each request asks for them, which needs no capability.
func (l *link) hasLog() bool {
	opening := l.client.Opening()
	return opening.Era == wire.Modern || opening.Has("logging")
}

// bounded is direct for what we ask on our own account.
func (s *line) bounded(ctx context.Context, method string, ask func(context.Context) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, ownPatience, &wire.TimeoutError{Method: method, After: ownPatience})
	defer stop()
	return s.direct(ctx, method, ask)
}

// direct makes a request with a method of the client. Like a call it has no limit
// but that of the context.
func (s *line) direct(ctx context.Context, method string, ask func(context.Context) error) error {
	err := ask(ctx)
	if _, limited := errors.AsType[*wire.TimeoutError](err); err == nil || ctx.Err() != nil && !limited {
		return err
	}
	f := classify(err)
	if f.kind == KindServer {
		return err
	}
	return &CallError{Server: s.name, Method: method, Kind: f.kind, RetrySafe: true, Err: f.err}
}

// restore brings a new connection into the state that the last one was in.
func (s *line) restore(ctx context.Context, l *link) {
	s.mu.Lock()
	level, uris := s.logLevel, slices.Collect(maps.Keys(s.subscribed))
	s.mu.Unlock()
	if level != "" && l.hasLog() {
		if err := s.bounded(ctx, "logging/setLevel", func(ctx context.Context) error { return l.client.SetLevel(ctx, level) }); err != nil {
			s.log.Warn("setting the log level again", "error", err)
		}
	}
	for _, uri := range uris {
		if err := s.bounded(ctx, "resources/subscribe", func(ctx context.Context) error { return l.client.Subscribe(ctx, uri) }); err != nil {
			s.log.Warn("subscribing again", "error", err)
		}
	}
}
