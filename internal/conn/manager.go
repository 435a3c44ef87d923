// Package conn owns the connections to MCP servers: it starts them, restarts
// them when they die, stops them when they are idle, and remembers what they
// offer. A Manager has one Server for each configured server and each Profile
// it is reached with; both are safe for concurrent use. The package knows
// nothing about sessions, names of tools or permissions.
//
//	Manager    keeps the servers as they are wanted       manager.go, plan.go
//	Server     one server: its goroutine and its life     server.go, attend.go
//	state      what is known of it, changed in one place  state.go
//	retry      when it is dialled again                   backoff.go
//	dial       from an entry to a live connection         dial.go, launch.go, redact.go, stdio.go, http.go
//	Call       the road of every request                  call.go, failure.go
//	Catalog    what it offers, now and as it was          catalog.go, refresh.go, shelf.go, cache.go
package conn

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/proc"
	"github.com/patchbay-mcp/patchbay/internal/secret"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Options say what a Manager works with. The zero value works.
type Options struct {
	Logger   *slog.Logger     // nil discards
	Environ  []string         // of the host, as NAME=value; children get a small part of it
	Vars     config.Vars      // what placeholders stand for; its WorkspaceRoot is where children run
	Resolver *secret.Resolver // nil means one made of Environ
	Guard    *proc.Guard      // ends the children if this process is killed; nil means nobody does
	CacheDir string           // of catalogs; empty means none are kept
	Info     json.RawMessage  // the implementation object sent to servers; nil means wire's

	// Capabilities are those of the zero Profile; nil means none.
	Capabilities json.RawMessage

	// HTTPClient makes the HTTP requests; nil means a transport of our own, with
	// the proxies of Environ.
	HTTPClient http.RoundTripper

	// Changed is told that some status or catalog has changed. It must return
	// at once. nil means nobody is told.
	Changed func()

	// Handler returns what answers the requests and notifications that a server
	// sends of its own accord. nil refuses and ignores them.
	Handler func(server string, profile Profile) wire.Handler
}

// Profile is what a client says it can do. A server that is reached with two
// profiles is connected twice, each time with a process of its own. The zero
// Profile is the host's own; with any other a server is connected on the first
// call, and not for longer than it is used.
type Profile struct {
	Key          string          // equal keys share a connection
	Capabilities json.RawMessage // of the client; nil means none
}

// Target is one server as it is wanted.
type Target struct {
	Entry config.Entry

	// State keeps the server off if it is Disabled, NeedsApproval or Failed;
	// Reason then says why. Anything else means to run it.
	State  config.State
	Reason string

	// ConnectHash is equal for targets that would be connected the same way.
	// A connection is kept as long as it does not change.
	ConnectHash string

	CatalogKey    string // a hash of the launch spec, under which the catalog is kept; empty means it is not
	AllowCommands bool   // commands of the entry that obtain values may run

	// Local, if not nil, is the server: it serves newline-delimited JSON-RPC on
	// rw until ctx or the stream ends.
	Local func(ctx context.Context, rw io.ReadWriteCloser) error

	Lazy     bool          // connect on the first call
	IdleStop time.Duration // stop it when nobody has called for that long; 0 means never
}

// off reports whether the server is kept off.
func (t Target) off() bool {
	return t.State == config.Disabled || t.State == config.NeedsApproval || t.State == config.Failed
}

// Manager keeps servers connected as Apply says.
type Manager struct {
	opts     Options
	log      *slog.Logger
	resolver *secret.Resolver
	owned    *secret.Resolver // to be closed by us, or nil
	http     http.RoundTripper
	eras     eraCache
	cache    *cache
	seq      atomic.Uint64

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // one for each server that has not ended

	mu      sync.Mutex
	closed  bool
	targets map[string]Target
	servers map[serverKey]*Server
	levels  map[serverKey]string // of log messages; an empty name is that of all servers
}

type serverKey struct{ name, profile string }

// NewManager returns a Manager without servers. Close it.
func NewManager(o Options) *Manager {
	m := &Manager{
		opts:     o,
		log:      o.Logger,
		resolver: o.Resolver,
		http:     o.HTTPClient,
		targets:  map[string]Target{},
		servers:  map[serverKey]*Server{},
		levels:   map[serverKey]string{},
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.resolver == nil {
		env := environment(o.Environ)
		m.owned = secret.New(secret.Options{Lookup: env.lookup, Dir: o.Vars.WorkspaceRoot, Env: o.Environ})
		m.resolver = m.owned
	}
	if m.http == nil {
		m.http = wire.NewProxyTransport(environment(o.Environ).get)
	}
	m.cache = newCache(o.CacheDir, m.log)
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Apply makes the servers those of want, and returns at once: what has to be
// started or stopped is so in the background. Servers whose ConnectHash stays
// the same keep their connection. Applying the same twice changes nothing.
func (m *Manager) Apply(want map[string]Target) {
	if m.apply(want) {
		m.changed()
	}
}

func (m *Manager) apply(want map[string]Target) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	for name, act := range plan(want, m.targets) {
		changed = changed || act != keep
		if act == start {
			m.add(name, Profile{}, want[name])
			continue
		}
		for key, s := range m.servers {
			switch {
			case key.name != name:
			case act == stop:
				delete(m.servers, key)
				s.retire()
			case act == restart:
				s.retarget(want[name])
			default:
				s.adopt(want[name])
			}
		}
	}
	m.targets = maps.Clone(want)
	return changed
}

// add starts a server; m.mu is held.
func (m *Manager) add(name string, p Profile, t Target) *Server {
	s := newServer(m, name, p, t)
	s.logLevel = cmp.Or(m.levels[serverKey{name, p.Key}], m.levels[serverKey{"", p.Key}])
	m.servers[serverKey{name, p.Key}] = s
	m.wg.Go(s.run)
	return s
}

// Server returns the server of that name, as it is reached with a profile.
func (m *Manager) Server(name string, p Profile) (*Server, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.targets[name]
	if !ok || m.closed {
		return nil, false
	}
	if s := m.servers[serverKey{name, p.Key}]; s != nil {
		return s, true
	}
	return m.add(name, p, t), true
}

// SetLevel asks a server, or all of them if name is empty, for log messages from
// a level on: now if it is connected with that profile, and whenever it will be.
func (m *Manager) SetLevel(p Profile, name, level string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.levels[serverKey{name, p.Key}] = level
	for key, s := range m.servers {
		if key.profile == p.Key && (key.name == name || name == "") && !m.closed {
			s.setLevel(level)
		}
	}
}

// Notify sends a notification to all servers that are connected with a profile.
func (m *Manager) Notify(ctx context.Context, p Profile, method string, params json.RawMessage) {
	m.mu.Lock()
	var to []*Server
	for key, s := range m.servers {
		if key.profile == p.Key {
			to = append(to, s)
		}
	}
	m.mu.Unlock()
	for _, s := range to {
		if err := s.Notify(ctx, method, params); err != nil {
			s.log.Info("notification", "method", method, "error", err)
		}
	}
}

// Release ends all connections that were made with a profile. Those of the zero
// Profile stay.
func (m *Manager) Release(p Profile) {
	if p.Key == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, s := range m.servers {
		if key.profile == p.Key {
			delete(m.servers, key)
			s.retire()
		}
	}
}

// Close ends all connections and returns when every child is gone.
func (m *Manager) Close() error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		for _, s := range m.servers {
			s.retire()
		}
	}
	m.mu.Unlock()
	m.stop()
	m.wg.Wait()
	if m.owned != nil {
		m.owned.Close()
	}
	if m.opts.HTTPClient == nil {
		m.http.(*wire.ProxyTransport).CloseIdleConnections()
	}
	return nil
}

func (m *Manager) changed() {
	if m.opts.Changed != nil {
		m.opts.Changed()
	}
}

// eraCache remembers in memory how servers want to be spoken to.
type eraCache struct {
	mu   sync.Mutex
	seen map[string]wire.Dialect
}

func (c *eraCache) Load(key string) (wire.Dialect, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.seen[key]
	return d, ok
}

func (c *eraCache) Store(key string, d wire.Dialect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]wire.Dialect{}
	}
	c.seen[key] = d
}

// offer stores a dialect that was remembered elsewhere, unless we know better.
func (c *eraCache) offer(key string, d wire.Dialect) {
	if _, known := c.Load(key); !known && d != "" {
		c.Store(key, d)
	}
}
