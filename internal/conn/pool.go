package conn

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/internal/proc"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// pool is what Managers that stand beside each other have in common: the
// connections, and what all connections need.
type pool struct {
	log     *slog.Logger
	guard   *proc.Guard
	http    http.RoundTripper
	ownHTTP *wire.ProxyTransport // to be closed by us, or nil
	handler func(*Shared) wire.Handler
	eras    eraCache
	cache   *cache
	seq     atomic.Uint64
	running sync.WaitGroup // one for each line that has not ended
	end     func() error   // of the pool itself, after the last Manager; once

	// mu guards what follows and all that changes of Managers and upstreams. It
	// may be held when line.mu is taken, not the other way round.
	mu        sync.Mutex
	managers  map[*Manager]bool // that are open
	upstreams map[upstreamKey]*upstream
	split     map[upstreamKey]string // those that turned out not to be fit for sharing, and why
	solo      map[string]int         // lines that a session has for itself, by session
	news      map[*Manager]bool      // that are to be told of a change
}

func newPool(o Options) *pool {
	p := &pool{
		log: o.Logger, guard: o.Guard, http: o.HTTPClient, handler: o.Handler,
		managers:  map[*Manager]bool{},
		upstreams: map[upstreamKey]*upstream{},
		split:     map[upstreamKey]string{},
		solo:      map[string]int{},
		news:      map[*Manager]bool{},
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.http == nil {
		p.ownHTTP = wire.NewProxyTransport(environment(o.Environ).get)
		p.http = p.ownHTTP
	}
	p.cache = newCache(o.CacheDir, p.log)
	p.end = sync.OnceValue(func() error {
		p.running.Wait()
		if p.ownHTTP != nil {
			p.ownHTTP.CloseIdleConnections()
		}
		return p.guard.Close()
	})
	return p
}

// unlock releases mu and tells those of a change who are to be told.
func (p *pool) unlock() {
	var told []*Manager
	if len(p.news) > 0 {
		told = slices.Collect(maps.Keys(p.news))
		clear(p.news)
	}
	p.mu.Unlock()
	for _, m := range told {
		m.changed()
	}
}

// upstreamKey tells apart what is connected differently.
type upstreamKey struct {
	hash string // Target.ConnectHash
	nth  int    // of the servers of one Manager that have the same

	// owner and name are of a server that nobody can share: one in this process,
	// or one that is kept off.
	owner *Manager
	name  string
}

// upstream is one server with all connections to it, for all Managers that want
// it. One of its lines stands for the server: what it offers and how it is doing
// is what that line says. Others are there for sessions that declare something
// else, or share with nobody. Everything in it is guarded by pool.mu.
type upstream struct {
	pool     *pool
	key      upstreamKey
	seats    []*seat // in the order of their coming; empty when it is of no use any more
	lines    map[lineKey]*line
	standing *line
	ending   []*line // retired, and perhaps not yet gone
}

// seat is a Manager's claim to an upstream.
type seat struct {
	manager *Manager
	name    string // of the server, as the Manager has it
	target  Target
	up      *upstream
}

// lineKey tells the lines of an upstream apart.
type lineKey struct {
	profile string // what is declared to the server
	session string // that has it for itself; empty if sessions share it
}

// join finds the upstream for a target, or makes it, and takes a seat. before is
// the line that stood for the server until now, nil if there was none.
func (m *Manager) join(name string, t Target, before *line) {
	p := m.pool
	s := &seat{manager: m, name: name, target: t}
	m.seats[name] = s
	key := upstreamKey{hash: t.ConnectHash}
	if t.Local != nil || t.off() || t.ConnectHash == "" {
		key.owner, key.name = m, name
	}
	for p.upstreams[key] != nil && p.upstreams[key].has(m) {
		key.nth++
	}
	up := p.upstreams[key]
	if up != nil {
		s.up, up.seats = up, append(up.seats, s)
		up.adopt()
		return
	}
	up = &upstream{pool: p, key: key, lines: map[lineKey]*line{}, seats: []*seat{s}}
	s.up, p.upstreams[key] = up, up
	up.standing = up.open(up.favourite(), before)
	up.begin(up.standing)
}

func (up *upstream) has(m *Manager) bool {
	return slices.ContainsFunc(up.seats, func(s *seat) bool { return s.manager == m })
}

// leave gives up a seat. An upstream without any is retired by sweep.
func (s *seat) leave() {
	delete(s.manager.seats, s.name)
	s.up.seats = slices.DeleteFunc(s.up.seats, func(other *seat) bool { return other == s })
}

// sweep draws the consequences of a seat that was given up by a Manager: what
// nobody needs any more ends. If the Manager is being closed that is at once.
func (up *upstream) sweep(m *Manager, closing bool) {
	if len(up.seats) > 0 {
		up.adopt()
		if ended := up.prune(!closing); closing {
			m.ending = append(m.ending, ended...)
		}
		return
	}
	delete(up.pool.upstreams, up.key)
	m.ending = slices.DeleteFunc(m.ending, (*line).gone)
	for _, l := range up.lines {
		up.close(l, errRetired, false)
		m.ending = append(m.ending, l)
	}
	for _, l := range up.ending {
		l.stop() // it has had its time
		m.ending = append(m.ending, l)
	}
}

// lead is the seat whose Manager dials: the first that may do what it takes.
func (up *upstream) lead() *seat {
	for _, s := range up.seats {
		if s.target.AllowCommands {
			return s
		}
	}
	return up.seats[0]
}

// target is that of the lead, but for what all have a say in.
func (up *upstream) target() Target {
	t := up.lead().target
	for _, s := range up.seats {
		t.Lazy, t.List = t.Lazy && s.target.Lazy, t.List || s.target.List
		if t.IdleStop > 0 && (s.target.IdleStop <= 0 || s.target.IdleStop > t.IdleStop) {
			t.IdleStop = s.target.IdleStop
		}
	}
	return t
}

// catalogKeys are those under which the seats keep what is known of the server.
func (up *upstream) catalogKeys() []string {
	keys := []string{up.lead().target.CatalogKey}
	for _, s := range up.seats {
		if !slices.Contains(keys, s.target.CatalogKey) {
			keys = append(keys, s.target.CatalogKey)
		}
	}
	return slices.DeleteFunc(keys, func(key string) bool { return key == "" })
}

// adopt tells the lines what is new about the targets.
func (up *upstream) adopt() {
	owner, target, keys := up.lead().manager, up.target(), up.catalogKeys()
	for _, l := range up.lines {
		l.adopt(owner, target, keys)
	}
}

// present is the line of a profile, and if it has none the one that stands for
// the server.
func (s *seat) present(p Profile) *line {
	if p.Session != "" {
		if l := s.up.lines[s.up.keyFor(s.manager, p)]; l != nil {
			return l
		}
	}
	return s.up.standing
}

// unshared reports whether each session has a line of its own.
func (up *upstream) unshared() bool {
	return up.pool.split[up.key] != "" || slices.ContainsFunc(up.seats, func(s *seat) bool { return s.target.Unshared })
}

// keyFor returns the key of the line that a profile gets.
func (up *upstream) keyFor(m *Manager, p Profile) lineKey {
	return up.keyOf(m.declared(p))
}

// keyOf is keyFor a profile with a key.
func (up *upstream) keyOf(p Profile) lineKey {
	if up.unshared() {
		return lineKey{p.Key, p.Session}
	}
	return lineKey{profile: p.Key}
}

// held reports whether a session that is open is entitled to a line.
func (up *upstream) held(l *line) bool {
	if (l.key.session == "") == up.unshared() {
		return false
	}
	return slices.ContainsFunc(up.seats, func(s *seat) bool { return s.manager.holds[l.key].count > 0 })
}

// holds reports whether sessions that are open declare what a profile does.
func (up *upstream) holds(p Profile) bool {
	return slices.ContainsFunc(up.seats, func(s *seat) bool { return s.manager.holds[lineKey{profile: p.Key}].count > 0 })
}

// favourite is the profile that most sessions have, the host's own if there are
// none: a server that is connected for nobody in particular had best be
// connected for those who will call it.
func (up *upstream) favourite() Profile {
	best := up.lead().manager.declared(Profile{})
	if up.unshared() {
		return best
	}
	most, bestKey := 0, ""
	for _, s := range up.seats {
		for key, h := range s.manager.holds {
			if key.session == "" && cmp.Or(cmp.Compare(h.count, most), cmp.Compare(bestKey, key.profile)) > 0 {
				most, bestKey, best = h.count, key.profile, h.profile.shared()
			}
		}
	}
	return best
}

// open adds a line, in the place of an earlier one that stood for the server if
// there was one. It is to be begun.
func (up *upstream) open(p Profile, before *line) *line {
	l := newLine(up, p, before)
	up.lines[l.key] = l
	if p.Session != "" {
		up.pool.solo[p.Session]++
	}
	return l
}

// begin starts a line that was opened.
func (up *upstream) begin(l *line) {
	l.logLevel = up.level(l)
	for _, uri := range up.subscriptions(l) {
		l.subscribed[uri] = true
	}
	up.pool.running.Go(l.run)
}

// lineFor returns the line for a session: the one that declares what it does, if
// there is one. Otherwise it takes the place of the one that stands for the
// server, unless other sessions need that.
func (up *upstream) lineFor(key lineKey, p Profile) *line {
	l := up.lines[key]
	if l == up.standing {
		return l
	}
	p.Session = key.session
	if !up.held(up.standing) {
		up.takeOver(l, p, true)
		return up.standing
	}
	if l == nil {
		l = up.open(p, nil)
		l.shelf.inherit(&up.standing.shelf)
		l.extra, l.dormant, l.unlisted = true, true, false
		up.begin(l)
	}
	return l
}

// takeOver has a line stand for the server in the place of the present one. If
// it is nil it is made. The calls of the present one come to their end, if that
// is to be done gently.
func (up *upstream) takeOver(l *line, p Profile, gently bool) {
	for _, s := range up.seats {
		up.pool.news[s.manager] = true
	}
	old := up.standing
	up.dismiss(old, gently)
	up.standing = l
	if l != nil {
		l.stand(old)
		return
	}
	up.standing = up.open(p, old)
	up.standing.dormant = up.standing.dormant || old.key.session != "" // what it offers is known
	up.begin(up.standing)
}

// dismiss retires a line that has no place any more.
func (up *upstream) dismiss(l *line, gently bool) {
	up.close(l, errTakenOver, gently)
	up.ending = append(slices.DeleteFunc(up.ending, (*line).gone), l)
}

// close takes a line out and retires it.
func (up *upstream) close(l *line, why error, gently bool) {
	delete(up.lines, l.key)
	if session := l.key.session; session != "" {
		if up.pool.solo[session]--; up.pool.solo[session] == 0 {
			delete(up.pool.solo, session)
		}
	}
	l.retire(why, gently)
}

// prefer has a server that was never connected, or is not at the moment, be
// connected for sessions of which the first has just been opened.
func (up *upstream) prefer(key lineKey, p Profile) {
	if key == up.standing.key || up.unshared() || up.held(up.standing) || !up.standing.resting() {
		return
	}
	up.takeOver(up.lines[key], p.shared(), true)
}

// prune ends the lines that no session needs. One stays, for the host's own use:
// one that is needed anyway, or the one that is there. One that belonged to a
// session alone does not outlive it. The lines that ended are returned.
func (up *upstream) prune(gently bool) (ended []*line) {
	if old := up.standing; !up.held(old) {
		for _, l := range up.lines {
			if l != old && up.held(l) && l.live() {
				up.takeOver(l, Profile{}, gently)
				break
			}
		}
		p := up.favourite()
		if up.standing == old && (old.key.session != "" || old.key.profile != p.Key && up.holds(p) && old.resting()) {
			up.takeOver(up.lines[lineKey{profile: p.Key}], p, gently)
		}
		if up.standing != old {
			ended = append(ended, old)
		}
	}
	for _, l := range up.lines {
		if l != up.standing && !up.held(l) {
			up.dismiss(l, gently)
			ended = append(ended, l)
		}
	}
	return ended
}

// changed tells all Managers that something about the server has changed.
func (up *upstream) changed() {
	up.pool.mu.Lock()
	managers := make([]*Manager, 0, 4)
	for _, s := range up.seats {
		managers = append(managers, s.manager)
	}
	up.pool.mu.Unlock()
	for _, m := range managers {
		m.changed()
	}
}

// Shared is a connection as the Handler knows it that answers its server.
type Shared struct{ line *line }

// Party is one that shares a connection.
type Party struct {
	Owner  any    // Options.Owner of the Manager
	Server string // the server, as the Manager calls it
}

// Parties are those that share the connection now.
func (s *Shared) Parties() []Party {
	up := s.line.up
	up.pool.mu.Lock()
	defer up.pool.mu.Unlock()
	var all []Party
	for _, seat := range up.seats {
		all = append(all, Party{seat.manager.opts.Owner, seat.name})
	}
	return all
}

// Log is for what happens on the connection.
func (s *Shared) Log() *slog.Logger { return s.line.log }

// Serves reports whether a session with that profile, of one of the parties,
// uses the connection.
func (s *Shared) Serves(owner any, p Profile) bool {
	up := s.line.up
	up.pool.mu.Lock()
	defer up.pool.mu.Unlock()
	return slices.ContainsFunc(up.seats, func(seat *seat) bool {
		return seat.manager.opts.Owner == owner && up.keyFor(seat.manager, p) == s.line.key
	})
}

// Split has each session have a connection of its own from now on, as long as
// this process lives: the server cannot be shared.
func (s *Shared) Split(why string) {
	up := s.line.up
	p := up.pool
	p.mu.Lock()
	defer p.unlock()
	if p.split[up.key] != "" || len(up.seats) == 0 {
		return
	}
	s.line.log.Warn("the server is not shared any more", "reason", why)
	p.split[up.key] = why
	up.prune(true)
	for _, seat := range up.seats {
		p.news[seat.manager] = true // of the warning
	}
}
