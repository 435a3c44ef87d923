// Package gateway serves the servers of a host to MCP clients: all of them as
// one, one of them as if the client were connected to it, or a selection. It
// speaks both eras of the protocol on both sides, passes bytes on as they are
// and changes only names.
//
//	Gateway    endpoints, over streams and HTTP             gateway.go
//	endpoint   what is behind a path, how it presents itself endpoint.go
//	client     one client and its session of the host       client.go, modern.go
//	answering  which server a request is for                answer.go, tasks.go
//	lists      of all servers, in pages                     lists.go
//	Site       an address on the network, and TLS           listen.go, certificate.go
//	Auth       who may use it over HTTP                     auth.go, oidc.go
//
// Rules, pins, hooks and connections are the host's (package patchbay), sessions
// and framing the wire's.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Options describe a gateway. The zero value works.
type Options struct {
	Version string       // as clients are told
	Logger  *slog.Logger // nil discards

	// Memory is how many bytes it may use over HTTP, about; 0 means
	// config.DefaultMemory. Half of it is for what is kept for clients.
	Memory int64
}

// Gateway serves the servers of one host. It is safe for concurrent use.
type Gateway struct {
	host *patchbay.Host
	opts Options
	log  *slog.Logger

	tasks     taskOwners
	listening sync.WaitGroup // for tasks, at servers

	mu        sync.Mutex // guards what follows
	closed    bool
	endpoints map[string]*endpoint
}

// New returns a gateway in front of a host, which stays the caller's. Shut it
// down before the host is closed.
func New(h *patchbay.Host, o Options) *Gateway {
	g := &Gateway{host: h, opts: o, log: o.Logger, endpoints: map[string]*endpoint{}}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	return g
}

var errClosed = errors.New("the gateway is shut down")

// errUnknown is the error of an endpoint that does not exist.
type errUnknown struct{ error }

func (e errUnknown) Unwrap() error { return e.error }

// endpoint returns the endpoint of a name: empty for everything, a server, or a
// profile with @ before its name. Of a gateway that is shut down it returns those
// there are: they take no more requests, but let those under way end well.
func (g *Gateway) endpoint(name string) (*endpoint, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ep := g.endpoints[name]; ep != nil {
		if ep.profile == "" {
			return ep, nil
		}
		return ep, g.hasProfile(ep.profile) // the settings may have changed
	}
	if g.closed {
		return nil, errClosed
	}
	ep, err := g.newEndpoint(name)
	if err != nil {
		return nil, err
	}
	g.endpoints[name] = ep
	return ep, nil
}

func (g *Gateway) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Check says why there is no such endpoint.
func (g *Gateway) Check(endpoint string) error {
	_, err := g.endpoint(endpoint)
	return err
}

// Serve serves one client over a connection, which it closes in the end. It
// returns when the client has gone or ctx has ended.
func (g *Gateway) Serve(ctx context.Context, conn wire.Conn, endpoint string) error {
	ep, err := g.endpoint(endpoint)
	if err == nil && g.isClosed() {
		err = errClosed
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return ep.server.Serve(ctx, conn)
}

// HTTP returns the handler of /mcp, /mcp/<server> and /mcp/@<profile>. All
// clients of a local gateway are one person's as a rule, so limits that are not
// set are those of many clients.
func (g *Gateway) HTTP(o wire.HTTPOptions) http.Handler {
	o.MaxCalls, o.MaxQueued = cmp.Or(o.MaxCalls, 1024), cmp.Or(o.MaxQueued, 4096)
	o.Budget = wire.NewBudget(cmp.Or(g.opts.Memory, config.DefaultMemory) / 2) // one for all endpoints
	o.MaxSessions, o.MaxOwn = cmp.Or(o.MaxSessions, 4096), cmp.Or(o.MaxOwn, 1024)
	return &front{gateway: g, opts: o, handlers: map[*endpoint]*wire.HTTPHandler{}}
}

// front is the HTTP side of a gateway.
type front struct {
	gateway *Gateway
	opts    wire.HTTPOptions

	mu       sync.RWMutex
	handlers map[*endpoint]*wire.HTTPHandler
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ours := strings.CutPrefix(r.URL.Path, "/mcp")
	name, below := strings.CutPrefix(rest, "/")
	if !ours || !below && rest != "" {
		http.NotFound(w, r)
		return
	}
	h, err := f.handler(name)
	if err != nil {
		status := http.StatusServiceUnavailable
		if _, unknown := errors.AsType[errUnknown](err); unknown {
			status = http.StatusNotFound
		}
		// Which servers there are is for those who may use them.
		f.opts.Admit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, err.Error(), status)
		})).ServeHTTP(w, r)
		return
	}
	h.ServeHTTP(w, r)
}

func (f *front) handler(name string) (*wire.HTTPHandler, error) {
	ep, err := f.gateway.endpoint(name)
	if err != nil {
		return nil, err
	}
	f.mu.RLock()
	h := f.handlers[ep]
	f.mu.RUnlock()
	if h != nil {
		return h, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if h = f.handlers[ep]; h == nil {
		h = wire.NewHTTPHandler(ep.server, f.opts)
		f.handlers[ep] = h
	}
	return h, nil
}

// Shutdown ends the gateway: new requests are refused, those under way may
// finish until ctx ends and are cancelled then. It returns when all has ended.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	endpoints := g.endpoints
	g.mu.Unlock()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all error
	)
	for _, ep := range endpoints {
		wg.Go(func() {
			err := ep.server.Shutdown(ctx)
			ep.modern.close()
			mu.Lock()
			defer mu.Unlock()
			all = errors.Join(all, err)
		})
	}
	wg.Wait()
	g.listening.Wait()
	return all
}
