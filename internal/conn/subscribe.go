package conn

import (
	"context"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Subscribe asks for the updates of a resource, which arrive at the Handler.
// The subscription outlives the connection: it is made again whenever the
// server is connected anew. As long as there is one the server is never idle.
func (s *Server) Subscribe(ctx context.Context, uri string) error {
	l, err := s.acquire(ctx, false)
	if err != nil {
		return s.unreachable(err)
	}
	defer s.release(l)
	if err := s.direct(ctx, "resources/subscribe", func(ctx context.Context) error { return l.client.Subscribe(ctx, uri) }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribed[uri] = true
	return nil
}

// Unsubscribe is the opposite of Subscribe.
func (s *Server) Unsubscribe(ctx context.Context, uri string) error {
	s.mu.Lock()
	delete(s.subscribed, uri)
	l := s.state.link
	if l == nil {
		s.mu.Unlock()
		return nil
	}
	l.users++
	s.mu.Unlock()
	defer s.release(l)
	return s.direct(ctx, "resources/unsubscribe", func(ctx context.Context) error { return l.client.Unsubscribe(ctx, uri) })
}

// setLevel asks for log messages from that level on, now if the server is
// connected, and on every later connection. The manager's lock is held.
func (s *Server) setLevel(level string) {
	s.mu.Lock()
	s.logLevel = level
	l := s.state.link
	if l == nil || !l.hasLog() {
		s.mu.Unlock()
		return
	}
	l.users++
	s.mu.Unlock()
	s.manager.wg.Go(func() {
		defer s.release(l)
		err := s.direct(s.ctx, "logging/setLevel", func(ctx context.Context) error { return l.client.SetLevel(ctx, level) })
		if err != nil {
			s.log.Warn("setting the log level", "error", err)
		}
	})
}

// hasLog reports whether the server says that it sends log messages. In the
// modern era each request asks for them, which needs no capability.
func (l *link) hasLog() bool {
	opening := l.client.Opening()
	return opening.Era == wire.Modern || opening.Has("logging")
}

// direct makes a request with a method of the client, which has no limit of its
// own.
func (s *Server) direct(ctx context.Context, method string, ask func(context.Context) error) error {
	limited, stop := context.WithTimeoutCause(ctx, callSilence, &wire.TimeoutError{Method: method, After: callSilence})
	defer stop()
	err := ask(limited)
	if err == nil || ctx.Err() != nil {
		return err
	}
	f := classify(err)
	if f.kind == KindServer {
		return err
	}
	return &CallError{Server: s.name, Method: method, Kind: f.kind, RetrySafe: true, Err: f.err}
}

// restore brings a new connection into the state that the last one was in.
func (s *Server) restore(ctx context.Context, l *link) {
	s.mu.Lock()
	level := s.logLevel
	var uris []string
	for uri := range s.subscribed {
		uris = append(uris, uri)
	}
	s.mu.Unlock()
	if level != "" && l.hasLog() {
		if err := s.direct(ctx, "logging/setLevel", func(ctx context.Context) error { return l.client.SetLevel(ctx, level) }); err != nil {
			s.log.Warn("setting the log level again", "error", err)
		}
	}
	for _, uri := range uris {
		if err := s.direct(ctx, "resources/subscribe", func(ctx context.Context) error { return l.client.Subscribe(ctx, uri) }); err != nil {
			s.log.Warn("subscribing again", "error", err)
		}
	}
}
