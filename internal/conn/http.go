package conn

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// dialHTTP connects over Streamable HTTP or HTTP+SSE.
func (s *line) dialHTTP(ctx context.Context, m *Manager, t Target, l *link) error {
	server, err := s.resolve(ctx, m, t)
	if err != nil {
		return err
	}
	if u, err := url.Parse(server.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &failure{kind: KindConfig, permanent: true, err: errors.New("its URL is no absolute http or https URL")} // which may hold a secret
	}
	if server.HeadersHelper != "" && !t.AllowCommands {
		return commandsForbidden("headersHelper")
	}
	l.headers = &headers{server: server, renewing: make(chan struct{}, 1), run: func(ctx context.Context) (config.Server, error) {
		s.mu.Lock()
		resolver := s.owner.resolver // of now: the connection may outlive the Manager that made it
		s.mu.Unlock()
		return resolver.RunHeadersHelper(ctx, s.name, server)
	}}
	if err := l.headers.obtain(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &failure{kind: KindAuth, err: err}
	}
	s.took(l, StepResolved)
	err = s.connect(ctx, m, t, l, wire.HTTP(server.URL, &wire.HTTPClientOptions{
		Transport:   s.pool.httpFor(m.opts.Environ),
		Header:      l.headers.current,
		SSEFallback: server.Type != config.HTTP,
		Logger:      s.log,
	}))
	if err == nil {
		return nil
	}
	f := classify(err)
	f.err = l.redactor().cleanError(f.err) // the server may have answered with what it was sent
	s.recallMissing(f)
	return f
}

// headers are what every HTTP request to a server carries.
type headers struct {
	server config.Server
	run    func(context.Context) (config.Server, error) // the headersHelper

	renewing chan struct{} // held while run runs

	mu  sync.Mutex
	now *issue
}

// issue is what the headers are from one time on.
type issue struct{ header http.Header }

// current implements wire.HTTPClientOptions.Header.
func (h *headers) current(context.Context) (http.Header, error) {
	return h.issued().header, nil
}

// issued returns the headers of now; nil if there can be none.
func (h *headers) issued() *issue {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// obtain runs the helper, if there is one, and sets the headers anew.
func (h *headers) obtain(ctx context.Context) error {
	server, err := h.run(ctx)
	if err != nil {
		return err
	}
	now := make(http.Header, len(server.Headers)+1)
	for name, value := range server.Headers {
		now.Set(name, value.Reveal())
	}
	if name, value, ok := apiKey(server.Auth); ok {
		now.Set(name, value)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = &issue{now}
	return nil
}

// apiKey returns the header that carries the key of an entry.
func apiKey(a *config.Auth) (name, value string, ok bool) {
	if a == nil || a.Key.IsZero() || a.Mode != config.AuthAPIKey && (a.Mode != "" || a.Type != "apikey") {
		return "", "", false
	}
	name = a.HeaderName
	if name == "" {
		name = "Authorization"
	}
	return name, a.ValuePrefix + a.Key.Reveal(), true
}

// renewHeaders runs the helper for headers that were refused, and reports whether
// there are other ones now. Of those who come at the same time one does it for all.
func (s *line) renewHeaders(ctx context.Context, l *link, refused *issue) bool {
	h := l.headers
	if h == nil || h.server.HeadersHelper == "" {
		return false
	}
	select {
	case h.renewing <- struct{}{}:
		defer func() { <-h.renewing }()
	case <-ctx.Done():
		return false
	}
	if h.issued() == refused {
		if err := h.obtain(ctx); err != nil {
			s.log.Warn("renewing headers", "error", err)
			return false
		}
	}
	return !maps.EqualFunc(h.issued().header, refused.header, slices.Equal)
}
