// Package conn owns the connections to MCP servers: it starts them, restarts
// them when they die, stops them when they are idle, and remembers what they
// offer. A Manager keeps the configured servers connected, and a Server is one of
// them as a session reaches it; both are safe for concurrent use. Sessions that
// declare the same to a server share its connection, and so do Managers that
// stand beside each other. The package knows nothing about names of tools or
// permissions, and of sessions only what they declare.
//
//	Manager    keeps the servers as they are wanted       manager.go, plan.go
//	Server     one of them, for one who calls it          server.go
//	upstream   who shares which connection                pool.go
//	line       one connection that is made again          line.go, attend.go, subscribe.go
//	state      what is known of it, changed in one place  state.go
//	retry      when it is dialled again                   backoff.go
//	dial       from an entry to a live connection         dial.go, launch.go, redact.go, stdio.go, http.go
//	Call       the road of every request                  call.go, failure.go
//	Catalog    what it offers, now and as it was          catalog.go, refresh.go, shelf.go, cache.go
package conn

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/proc"
	"github.com/patchbay-mcp/patchbay/internal/secret"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Options say what a Manager works with. The zero value works.
type Options struct {
	Logger   *slog.Logger     // nil discards
	Environ  []string         // of the host, as NAME=value; children inherit a part of it, or all
	Vars     config.Vars      // what placeholders stand for; its WorkspaceRoot is where children run
	Resolver *secret.Resolver // nil means one made of Environ
	Guard    *proc.Guard      // ends the children if this process is killed, and is closed with the last Manager; nil means nobody does
	CacheDir string           // of catalogs; empty means none are kept
	Info     json.RawMessage  // the implementation object sent to servers; nil means wire's

	// Capabilities are those of profiles without a key, and of the host; nil means
	// none.
	Capabilities json.RawMessage

	Owner any // of the Manager, for its Handler

	// HTTPClient makes the HTTP requests; nil means a transport of our own, with
	// the proxies of Environ.
	HTTPClient http.RoundTripper

	// Changed is told that some status or catalog has changed. It must return
	// at once. nil means nobody is told.
	Changed func()

	// Handler returns what answers the requests and notifications that a server
	// sends of its own accord. nil refuses and ignores them.
	Handler func(*Shared) wire.Handler
}

// Profile is what a session declares to servers, and which one it is. Sessions
// with equal keys share a connection, as far as their server can be shared. The
// zero Profile is the host itself: for it any connection will do, and whichever
// stands for the server is used.
type Profile struct {
	Key          string          // of what is declared, and of whose session it is; empty means Options.Capabilities
	Capabilities json.RawMessage // where there is a key; nil means none
	Kind         string          // of what is declared alone: sessions of one kind are offered the same; empty means Options.Capabilities

	// Legacy has servers of both eras be spoken to in the legacy one. It makes no
	// difference for those that have only one.
	Legacy bool

	// Roots tells apart sessions with different roots. It makes no difference for
	// servers that never ask for roots.
	Roots string

	// Any says that whichever connection stands for the server will do. If there is
	// none it is made as the profile says.
	Any bool

	Askable bool   // servers may ask its user something
	Brief   bool   // it is of a client that has no session in the protocol, and may be gone already
	Session string // unlike that of any other session of any Manager; empty only for the host
}

// kind is the name of what servers offer to sessions with that profile.
func (p Profile) kind() string {
	if p.Legacy {
		return p.Kind + " legacy"
	}
	return p.Kind
}

// shared is what sessions with that profile have in common.
func (p Profile) shared() Profile {
	p.Session = ""
	return p
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

	Inputs map[string]config.Answer // to what the entry asks a person for

	Workspace     string // that placeholders stand for; empty means Vars.WorkspaceRoot
	Dir           string // where a child runs whose entry does not say so; empty means Vars.WorkspaceRoot
	CatalogKey    string // a hash of the launch spec, under which the catalog is kept; empty means it is not
	AllowCommands bool   // commands of the entry that obtain values may run
	InheritAll    bool   // a child gets the whole environment of the host, not the basic part alone

	// Check, if not nil, says why a program must not be started: file is what the
	// command means to the child. It is asked right before, and what it returns
	// right after, when the child is there; an error then ends it.
	Check func(file string) (again func() error, err error)

	// Local, if not nil, is the server: it serves newline-delimited JSON-RPC on
	// rw until ctx or the stream ends.
	Local func(ctx context.Context, rw io.ReadWriteCloser) error

	// Alias says that it is another name for a server, whose connections it has if
	// the Manager has one that is connected the same way.
	Alias bool

	Unshared bool          // each session has a connection of its own
	Lazy     bool          // connect on the first call
	List     bool          // if it is Lazy: connect once before, if nobody knows what it offers
	IdleStop time.Duration // stop it when nobody has called for that long; 0 means never
}

// off reports whether the server is kept off.
func (t Target) off() bool {
	return t.State == config.Disabled || t.State == config.NeedsApproval || t.State == config.Failed
}

// Manager keeps servers connected as Apply says. Managers that stand beside each
// other share the connections of the servers that they would connect the same
// way, whatever they call them.
type Manager struct {
	opts     Options
	resolver *secret.Resolver
	owned    *secret.Resolver // to be closed by us, or nil
	pool     *pool
	ownKey   string // of profiles without one

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	// Guarded by pool.mu.
	closed bool
	seats  map[string]*seat
	holds  map[holdKey]hold
	held   map[string][]holdKey // of those, by session
	groups map[groupKey]hold    // of those, by what decides who shares a connection
	ending []*line              // perhaps not yet gone, which Close waits for

	subscribed map[subscription]Profile
	levels     map[logLevel]string
}

// hold is an open session, or several that are one to servers.
type hold struct {
	count   int
	profile Profile
}

// holdKey tells apart those that may need different connections.
type holdKey struct {
	profile, roots, session string
	legacy                  bool
}

func (p Profile) holdKey() holdKey { return holdKey{p.Key, p.Roots, p.Session, p.Legacy} }

// groupKey is what sessions have in common that share a connection, as far as
// their server can be shared: a gateway has thousands, of a few kinds.
type groupKey struct {
	profile, roots         string
	legacy, askable, brief bool
	ownRoots               bool // which nobody else can have
}

func (p Profile) groupKey() groupKey {
	g := groupKey{profile: p.Key, roots: p.Roots, legacy: p.Legacy, askable: p.Askable, brief: p.Brief}
	if p.Roots != "" && p.Roots == p.Session {
		g.roots, g.ownRoots = "", true
	}
	return g
}

// NewManager returns a Manager without servers. Close it.
func NewManager(o Options) *Manager { return newManagerIn(newPool(o), o) }

// Beside returns a Manager that shares connections with m. Logger, Guard,
// CacheDir, HTTPClient and Handler are those of m. It fails if m is closed.
func (m *Manager) Beside(o Options) (*Manager, error) {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.closed {
		return nil, errors.New("the manager is closed")
	}
	return newManagerIn(p, o), nil
}

// Guard returns what ends children if this process is killed, for others than
// servers; nil if there is none.
func (m *Manager) Guard() *proc.Guard { return m.pool.guard }

func newManagerIn(p *pool, o Options) *Manager {
	m := &Manager{
		opts: o, pool: p, resolver: o.Resolver, ownKey: "own " + string(o.Capabilities),
		seats: map[string]*seat{}, holds: map[holdKey]hold{}, held: map[string][]holdKey{}, groups: map[groupKey]hold{},
		subscribed: map[subscription]Profile{}, levels: map[logLevel]string{},
	}
	if m.resolver == nil {
		env := environment(o.Environ)
		m.owned = secret.New(secret.Options{Lookup: env.lookup, Dir: o.Vars.WorkspaceRoot, Env: o.Environ})
		m.resolver = m.owned
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	p.managers[m] = true
	return m
}

// Apply makes the servers those of want, and returns at once: what has to be
// started or stopped is so in the background. Servers whose ConnectHash stays
// the same keep their connection, also under another name. Those that are reached
// differently are started anew; calls under way come to their end where they are.
// Applying the same twice changes nothing.
func (m *Manager) Apply(want map[string]Target) {
	m.pool.mu.Lock()
	defer m.pool.unlock()
	if m.closed {
		return
	}
	have := make(map[string]Target, len(m.seats))
	for name, s := range m.seats {
		have[name] = s.target
	}
	acts := plan(want, have)
	names := slices.Sorted(maps.Keys(acts))
	slices.SortStableFunc(names, func(a, b string) int { // what is another's name comes after it
		switch {
		case want[a].Alias == want[b].Alias:
			return 0
		case want[b].Alias:
			return -1
		}
		return 1
	})
	before, again := map[string]*line{}, map[string]bool{}
	var left []*seat
	for _, name := range names {
		if act := acts[name]; act == stop || act == restart {
			s := m.seats[name]
			before[name] = s.up.standing
			s.leave()
			left = append(left, s)
		}
		if act := acts[name]; act == start || act == restart {
			again[want[name].ConnectHash] = true
		}
	}
	// What is wanted again, under another name, must not end before it is.
	sweep := func(wanted bool) {
		for _, s := range left {
			if (s.up.key.owner == nil && again[s.up.key.hash]) != wanted {
				continue
			}
			edited := acts[s.name] == restart && !want[s.name].off() && !s.target.off()
			s.up.sweep(m, false, edited, s)
		}
	}
	sweep(false)
	for _, name := range names {
		switch acts[name] {
		case keep:
			s := m.seats[name]
			s.target = want[name]
			s.up.adopt()
			s.up.prune(true)
			continue
		case start, restart:
			m.join(name, want[name], before[name])
		}
		m.pool.news[m] = true
	}
	sweep(true)
}

// Renew has what commands of entries print obtained anew by whoever is connected
// next, and connects what has failed or wants credentials once more. Connections
// that stand keep what they have.
func (m *Manager) Renew() {
	m.pool.mu.Lock()
	defer m.pool.unlock()
	for _, s := range m.seats {
		for _, l := range s.up.lines {
			if l.renew() {
				m.pool.news[m] = true
			}
		}
	}
}

// Server returns the server of that name, as it is reached with a profile.
func (m *Manager) Server(name string, p Profile) (*Server, bool) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	s, ok := m.seats[name]
	if !ok {
		return &Server{manager: m, name: name, profile: p}, false
	}
	return &Server{m, name, p, s.target.Entry.Server.Timeout}, true
}

// Hold says that a session with that profile is open. A connection is kept for
// it until it is released.
func (m *Manager) Hold(p Profile) {
	m.pool.mu.Lock()
	defer m.pool.unlock()
	if m.hold(p) {
		for _, s := range m.seats {
			s.up.prefer(m.declared(p))
		}
	}
}

// hold reports whether no session was like that before.
func (m *Manager) hold(p Profile) (first bool) {
	p = m.declared(p)
	key, group := p.holdKey(), p.groupKey()
	h, g := m.holds[key], m.groups[group]
	m.holds[key] = hold{h.count + 1, p}
	if h.count > 0 {
		return false
	}
	m.held[p.Session] = append(m.held[p.Session], key)
	shared := p.shared()
	shared.Roots = group.roots
	m.groups[group] = hold{g.count + 1, shared}
	return g.count == 0
}

// letGo reports whether no session is like that any more.
func (m *Manager) letGo(p Profile) (last bool) {
	p = m.declared(p)
	key, group := p.holdKey(), p.groupKey()
	h := m.holds[key]
	if h.count--; h.count > 0 {
		m.holds[key] = h
		return false
	}
	delete(m.holds, key)
	if m.held[p.Session] = slices.DeleteFunc(m.held[p.Session], func(k holdKey) bool { return k == key }); len(m.held[p.Session]) == 0 {
		delete(m.held, p.Session)
	}
	g := m.groups[group]
	if g.count--; g.count > 0 {
		m.groups[group] = g
	} else {
		delete(m.groups, group)
	}
	return true
}

// Notify sends a notification to all servers that are connected with a profile.
func (m *Manager) Notify(ctx context.Context, p Profile, method string, params json.RawMessage) {
	m.pool.mu.Lock()
	var to []*line
	for _, s := range m.seats {
		if l := s.up.lines[s.up.keyOf(m.declared(p))]; l != nil {
			to = append(to, l)
		}
	}
	m.pool.mu.Unlock()
	notifyAll(ctx, to, method, params)
}

// Release says that the session is closed. Connections that it had for itself
// end, and those that only sessions like it have used, unless they stand for
// their server: such a one stays until it is replaced.
func (m *Manager) Release(p Profile) {
	m.pool.mu.Lock()
	defer m.pool.unlock()
	if !m.letGo(p) {
		return
	}
	p = m.declared(p)
	m.handOn(p)
	if !m.declares(p.Key) {
		maps.DeleteFunc(m.levels, func(of logLevel, _ string) bool { return of.profile == p.Key })
	}
	for _, s := range m.seats {
		s.up.prune(true)
	}
}

// declares reports whether there are sessions with profiles of that key.
func (m *Manager) declares(key string) bool {
	for of := range m.groups {
		if of.profile == key {
			return true
		}
	}
	return false
}

// Move is Release for a session that has another profile now, which is held. A
// connection that only this session used, and that would be another in the roots
// alone, stays with it: call tell to have its server told that they have changed.
func (m *Manager) Move(was, is Profile) (tell func(context.Context)) {
	kept := m.move(m.declared(was), m.declared(is))
	return func(ctx context.Context) { notifyAll(ctx, kept, "notifications/roots/list_changed", nil) }
}

func notifyAll(ctx context.Context, lines []*line, method string, params json.RawMessage) {
	for _, l := range lines {
		if err := l.notify(ctx, method, params); err != nil {
			l.log.Info("notification", "method", method, "error", err)
		}
	}
}

func (m *Manager) move(was, is Profile) (kept []*line) {
	m.pool.mu.Lock()
	defer m.pool.unlock()
	last := m.letGo(was)
	if last {
		m.handOn(was)
	}
	for _, s := range m.seats {
		if l := s.up.hand(was, is); l != nil {
			kept = append(kept, l)
		}
		if last {
			s.up.prune(true)
		}
	}
	return kept
}

// AsksForRoots reports whether a server is known to ask its clients for roots.
func (m *Manager) AsksForRoots(name string) bool {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	s := m.seats[name]
	return s != nil && s.up.asksRoots
}

// declared is a profile with a key, and capabilities that go with it.
func (m *Manager) declared(p Profile) Profile {
	if p.Key == "" {
		p.Key, p.Capabilities = m.ownKey, m.opts.Capabilities
	}
	return p
}

// line returns the line for a profile, which may have to take the place of
// another for that, and whether other Managers use it.
func (m *Manager) line(name string, p Profile) (l *line, beside bool, err error) {
	m.pool.mu.Lock()
	defer m.pool.unlock()
	s := m.seats[name]
	if s == nil && m.closed {
		return nil, false, &failure{kind: KindDenied, err: errClosed}
	}
	if s == nil {
		return nil, false, &failure{kind: KindDenied, err: errRetired}
	}
	beside = len(s.up.managers()) > 1
	if p.Session == "" || s.target.off() {
		return s.up.standing, beside, nil
	}
	p = m.declared(p)
	if m.holds[p.holdKey()].count == 0 {
		return nil, false, &failure{kind: KindDenied, err: ErrReleased}
	}
	if p.Any && !s.up.unshared() && s.up.standing.live() {
		return s.up.standing, beside, nil
	}
	l, err = s.up.lineFor(s.up.keyOf(p), p)
	return l, beside, err
}

// dropAdditional ends the connections of a server that do not stand for it, until
// they are needed.
func (m *Manager) dropAdditional(name string) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	s := m.seats[name]
	if s == nil {
		return
	}
	for _, l := range s.up.lines {
		if l != s.up.standing {
			l.rest()
		}
	}
}

// present returns the line of a profile or the one that stands for the server,
// and why the server is not shared if it turned out that it cannot be. The line
// is nil if the server is not there.
func (m *Manager) present(name string, p Profile) (l *line, split string) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	s := m.seats[name]
	if s == nil {
		return nil, ""
	}
	return s.present(p), m.pool.split[s.up.key]
}

// Close ends all connections that no other Manager uses, and returns when every
// child of them is gone.
func (m *Manager) Close() error {
	p := m.pool
	p.mu.Lock()
	if !m.closed {
		m.closed = true
		delete(p.managers, m)
		for _, s := range m.seats {
			s.leave()
			s.up.sweep(m, true, false, s)
			if s.up.key.owner != nil {
				delete(p.split, s.up.key)
			}
		}
	}
	ending, last := m.ending, len(p.managers) == 0
	p.unlock()
	m.stop()
	for _, l := range ending {
		l.stop() // calls that were let go on have had their time
		<-l.done
	}
	if m.owned != nil {
		m.owned.Close()
	}
	if last {
		return p.end()
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
