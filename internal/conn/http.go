package conn

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// dialHTTP connects over Streamable HTTP or HTTP+SSE.
func (s *line) dialHTTP(ctx context.Context, m *Manager, t Target, l *link) error {
	begun := time.Now()
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
	l.headers = &headers{
		server: server, renewable: len(config.Executes(t.Entry.Server, t.Entry.Dialect)) > 0, renewing: make(chan struct{}, 1),
		run: func(ctx context.Context, refused *issue) (config.Server, error) {
			s.mu.Lock()
			owner := s.owner // of now: the connection may outlive the Manager that made it
			s.mu.Unlock()
			server := server
			if refused != nil {
				owner.resolver.Forget(t.Entry, refused.at)
				var err error
				if server, err = s.resolve(ctx, owner, t); err != nil {
					return server, err
				}
			}
			return owner.resolver.RunHeadersHelper(ctx, s.name, server)
		},
	}
	if err := l.headers.obtain(ctx, nil); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &failure{kind: KindAuth, err: err}
	}
	s.took(l, StepResolved)
	f := s.connectHTTP(ctx, m, t, l)
	// What a command printed for an earlier connection may have ceased to be good.
	if f != nil && f.needsAuth && m.resolver.Forget(t.Entry, begun) && s.renewHeaders(ctx, l, l.headers.issued()) {
		f = s.connectHTTP(ctx, m, t, l)
	}
	if f == nil {
		return nil
	}
	s.recallMissing(f)
	return f
}

// connectHTTP performs the handshake with the headers there are.
func (s *line) connectHTTP(ctx context.Context, m *Manager, t Target, l *link) *failure {
	server := l.headers.server
	err := s.connect(ctx, m, t, l, wire.HTTP(server.URL, &wire.HTTPClientOptions{
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
	return f
}

// headers are what every HTTP request to a server carries.
type headers struct {
	server    config.Server
	renewable bool // commands print some of them

	// run returns the server with what the headersHelper prints; if headers were
	// refused, with what other commands print now, too.
	run      func(ctx context.Context, refused *issue) (config.Server, error)
	renewing chan struct{} // held while run runs

	mu  sync.Mutex
	now *issue
}

// issue is what the headers are from one time on.
type issue struct {
	header http.Header
	at     time.Time
}

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

// obtain runs what prints headers, and sets them anew.
func (h *headers) obtain(ctx context.Context, refused *issue) error {
	server, err := h.run(ctx, refused)
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
	h.now = &issue{now, time.Now()}
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

// renewHeaders runs the commands that print headers which were refused, and reports
// whether there are other ones now: with the same nobody tries again. Of those who
// come at the same time one does it for all.
func (s *line) renewHeaders(ctx context.Context, l *link, refused *issue) bool {
	h := l.headers
	if h == nil || !h.renewable {
		return false
	}
	select {
	case h.renewing <- struct{}{}:
		defer func() { <-h.renewing }()
	case <-ctx.Done():
		return false
	}
	if h.issued() == refused {
		if err := h.obtain(ctx, refused); err != nil {
			s.log.Warn("renewing headers", "error", err)
			return false
		}
	}
	return !maps.EqualFunc(h.issued().header, refused.header, slices.Equal)
}
