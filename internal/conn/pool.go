package conn

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/proc"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// pool is what Managers that stand beside each other have in common: the
// connections, and what all connections need.
type pool struct {
	log     *slog.Logger
	guard   *proc.Guard
	http    http.RoundTripper // for all; nil means one for each set of proxies
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
	news      map[*Manager]bool      // that are to be told of a change

	proxies map[string]*wire.ProxyTransport // by what environments say of proxies

	most      int         // processes; 0 means defaultProcesses
	idleCheck *time.Timer // ends processes that nobody uses; nil if none is pending
	starts    starts
}

func newPool(o Options) *pool {
	p := &pool{
		log: o.Logger, guard: o.Guard, http: o.HTTPClient, handler: o.Handler,
		managers:  map[*Manager]bool{},
		upstreams: map[upstreamKey]*upstream{},
		split:     map[upstreamKey]string{},
		news:      map[*Manager]bool{},
		proxies:   map[string]*wire.ProxyTransport{},
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.cache = newCache(o.CacheDir, p.log)
	p.end = sync.OnceValue(func() error {
		p.running.Wait()
		for _, t := range p.proxies {
			t.CloseIdleConnections()
		}
		p.mu.Lock()
		if p.idleCheck != nil {
			p.idleCheck.Stop()
		}
		p.mu.Unlock()
		return p.guard.Close()
	})
	return p
}

// httpFor returns what makes the HTTP requests of a host with that environment.
func (p *pool) httpFor(environ []string) http.RoundTripper {
	if p.http != nil {
		return p.http
	}
	settings := append(proc.ProxyEnv(environ), "REQUEST_METHOD="+environment(environ).get("REQUEST_METHOD"))
	key := strings.Join(settings, "\x00")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proxies[key] == nil {
		p.proxies[key] = wire.NewProxyTransport(environment(settings).get)
	}
	return p.proxies[key]
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
	former   *seat   // the last, if calls of it may still be under way

	// What is known of the server that decides who can share a connection.
	asksRoots bool             // it asks its clients for their roots
	oneEra    bool             // it serves only one
	kinds     map[string]bool  // of sessions for which its catalog is saved
	warned    []config.Problem // of the entry that were logged
	solo      map[string]bool  // brief sessions that have a line of their own, of all that should have one
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
	legacy  bool   // the legacy era is preferred
	roots   string // of the sessions that use it
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
	for !t.Alias && p.upstreams[key] != nil && p.upstreams[key].has(m) {
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

// has reports whether a Manager has the server, by a name that is no alias.
func (up *upstream) has(m *Manager) bool {
	return slices.ContainsFunc(up.seats, func(s *seat) bool { return s.manager == m && !s.target.Alias })
}

// managers are those that have the server, under whatever names.
func (up *upstream) managers() []*Manager {
	all := make([]*Manager, 0, 4)
	for _, s := range up.seats {
		if !slices.Contains(all, s.manager) {
			all = append(all, s.manager)
		}
	}
	return all
}

// leave gives up a seat. An upstream without any is retired by sweep.
func (s *seat) leave() {
	delete(s.manager.seats, s.name)
	s.up.seats = slices.DeleteFunc(s.up.seats, func(other *seat) bool { return other == s })
}

// sweep draws the consequences of a seat that was given up by a Manager: what
// nobody needs any more ends. If the Manager is being closed that is at once. Where
// the server is reached differently from now on, calls under way come to their end,
// and what it asks in them is for whoever had the seat.
func (up *upstream) sweep(m *Manager, closing, edited bool, s *seat) {
	if len(up.seats) > 0 {
		up.adopt()
		if ended := up.prune(!closing); closing {
			m.ending = append(m.ending, ended...)
		}
		return
	}
	delete(up.pool.upstreams, up.key)
	m.ending = slices.DeleteFunc(m.ending, (*line).gone)
	why := errRetired
	if edited {
		why, up.former = errEdited, cmp.Or(up.former, s) // not one that is another name of it
	}
	if closing {
		why = errClosed
	}
	for _, l := range up.lines {
		up.close(l, why, edited)
		m.ending = append(m.ending, l)
	}
	for _, l := range up.ending {
		if !edited {
			l.stop() // it has had its time
		}
		m.ending = append(m.ending, l)
	}
}

// parties are the seats of those whose calls may be under way.
func (up *upstream) parties() []*seat {
	if len(up.seats) == 0 && up.former != nil {
		return []*seat{up.former}
	}
	return up.seats
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
		if l := s.up.lines[s.up.keyOf(s.manager.declared(p))]; l != nil {
			return l
		}
	}
	return s.up.standing
}

// unshared reports whether each session is wanted to have a line of its own.
func (up *upstream) unshared() bool {
	return slices.ContainsFunc(up.seats, func(s *seat) bool { return s.target.Unshared })
}

// apart reports whether a session with that profile has a line of its own. If the
// server turned out not to be fit for sharing that is because nobody can tell
// whom it asks, so it concerns only those who can be asked, and of those that
// come and go only so many.
func (up *upstream) apart(p Profile) bool {
	return up.unshared() || up.askedApart(p) && (!p.Brief || up.solo[p.Session])
}

// askedApart reports whether a session should have a line of its own because it
// can be asked something.
func (up *upstream) askedApart(p Profile) bool { return p.Askable && up.pool.split[up.key] != "" }

// keyOf returns the key of the line that a profile with a key gets.
func (up *upstream) keyOf(p Profile) lineKey {
	key := lineKey{profile: p.Key, legacy: p.Legacy && !up.oneEra}
	if up.asksRoots {
		key.roots = p.Roots
	}
	if up.apart(p) {
		key.session = p.Session
	}
	return key
}

// sessions returns how many open sessions use the line of a key.
func (up *upstream) sessions(key lineKey) (n int) {
	for _, m := range up.managers() {
		for _, id := range []string{key.session, key.roots} { // where either is of one session
			for _, k := range m.held[id] {
				if id != "" && up.keyOf(m.holds[k].profile) == key {
					return n + 1
				}
			}
		}
		for of, g := range m.groups {
			if up.sharesIn(of, g) && up.keyOf(g.profile) == key {
				n += up.sharing(m, of, g)
			}
		}
	}
	return n
}

// sharesIn reports whether sessions of a group share lines at all.
func (up *upstream) sharesIn(of groupKey, g hold) bool {
	return !up.apart(g.profile) && !(of.ownRoots && up.asksRoots)
}

// sharing is how many sessions of a group share a line: all but those that have
// one of their own.
func (up *upstream) sharing(m *Manager, of groupKey, g hold) int {
	n := g.count
	for id := range up.solo {
		for _, k := range m.held[id] {
			if m.holds[k].profile.groupKey() == of {
				n--
			}
		}
	}
	return n
}

// held reports whether a session that is open is entitled to a line.
func (up *upstream) held(l *line) bool {
	return up.sessions(l.key) > 0
}

// learn takes note of something about the server that decides who can share a
// connection, and has the lines be those of whom they are for now.
func (up *upstream) learn(note func()) {
	up.pool.mu.Lock()
	defer up.pool.unlock()
	if len(up.seats) == 0 {
		return
	}
	note()
	was := up.lines
	up.lines = map[lineKey]*line{}
	place := func(l *line) {
		p := l.profile
		p.Session = l.key.session
		key := up.keyOf(p)
		key.session = l.key.session
		if up.lines[key] != nil { // it has become the same as another
			up.dismiss(l, true)
			return
		}
		l.key = key
		up.lines[key] = l
	}
	place(up.standing)
	for _, l := range was {
		if l != up.standing {
			place(l)
		}
	}
	up.prune(true)
	for _, s := range up.seats {
		up.pool.news[s.manager] = true
	}
}

// hand has a line go with the only session that uses it, whose profile has
// changed in the roots. It returns nil if there is no such line.
func (up *upstream) hand(was, is Profile) *line {
	from, to := up.keyOf(was), up.keyOf(is)
	l := up.lines[from]
	if l == nil || from.profile != to.profile || from.legacy != to.legacy {
		return nil
	}
	if from == to {
		return l
	}
	if up.sessions(from) > 0 || up.lines[to] != nil {
		return nil
	}
	delete(up.lines, from)
	l.key, l.profile.Roots = to, is.Roots
	up.lines[to] = l
	return l
}

// favourite is the profile that most sessions have, the host's own if there are
// none: a server that is connected for nobody in particular had best be
// connected for those who will call it.
func (up *upstream) favourite() Profile {
	best := up.lead().manager.declared(Profile{})
	if up.unshared() {
		return best
	}
	sessions := map[lineKey]hold{}
	for _, m := range up.managers() {
		for of, g := range m.groups {
			if n := up.sharing(m, of, g); n > 0 && up.sharesIn(of, g) {
				key := up.keyOf(g.profile)
				sessions[key] = hold{sessions[key].count + n, g.profile}
			}
		}
	}
	most, bestKey := 0, lineKey{}
	for key, h := range sessions {
		if cmp.Or(cmp.Compare(h.count, most), bestKey.compare(key)) > 0 {
			most, bestKey, best = h.count, key, h.profile
		}
	}
	return best
}

// compare gives keys an order, so that what is decided does not depend on that of
// a map.
func (k lineKey) compare(other lineKey) int {
	era := func(legacy bool) int {
		if legacy {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(k.profile, other.profile), cmp.Compare(era(k.legacy), era(other.legacy)), cmp.Compare(k.roots, other.roots))
}

// open adds a line, in the place of an earlier one that stood for the server if
// there was one. It is to be begun.
func (up *upstream) open(p Profile, before *line) *line {
	l := newLine(up, p, before)
	up.lines[l.key] = l
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

// What one server is connected how often, for sessions that cannot share a
// connection.
const (
	maxBrief = 8   // for clients without a session, of which anybody can make up any number
	maxLines = 256 // in all
)

// lineFor returns the line for a session: the one that declares what it does, if
// there is one. Otherwise it takes the place of the one that stands for the
// server, unless other sessions need that.
func (up *upstream) lineFor(key lineKey, p Profile) (*line, error) {
	if p.Brief && !up.unshared() && up.askedApart(p) && !up.solo[p.Session] && up.roomForOne() {
		if up.solo == nil {
			up.solo = map[string]bool{}
		}
		up.solo[p.Session] = true
		key = up.keyOf(p)
	}
	if l := up.lines[key]; l != nil {
		return l, nil
	}
	p.Session = key.session
	if !up.held(up.standing) {
		up.takeOver(nil, p, true)
		return up.standing, nil
	}
	if err := up.makeRoom(p); err != nil {
		return nil, err
	}
	l := up.open(p, nil)
	l.shelf.inherit(&up.standing.shelf)
	l.extra = true
	up.begin(l)
	return l, nil
}

// makeRoom ends what nobody uses, if there are too many lines for another one.
func (up *upstream) makeRoom(p Profile) error {
	if p.Brief && p.Session == "" && !up.room(func(l *line) bool { return l.profile.Brief && l.key.session == "" }, maxBrief) ||
		!up.room(func(*line) bool { return true }, maxLines) {
		return &failure{kind: KindServer, err: errCrowded}
	}
	return nil
}

// roomForOne reports whether another session that comes and goes may have a line
// of its own. Those that may not share one, on which nobody can tell whom the
// server asks.
func (up *upstream) roomForOne() bool {
	return up.room(func(l *line) bool { return up.solo[l.key.session] }, maxBrief)
}

// room reports whether there are fewer lines of some kind than most, if need be
// after it has ended the oldest of those that nobody uses and any client can have
// again.
func (up *upstream) room(of func(*line) bool, most int) bool {
	var all []*line
	for _, l := range up.lines {
		if of(l) {
			all = append(all, l)
		}
	}
	if len(all) < most {
		return true
	}
	slices.SortFunc(all, func(a, b *line) int { return a.opened.Compare(b.opened) })
	for _, l := range all {
		if l != up.standing && l.profile.Brief && l.unused() {
			up.dismiss(l, true)
			return true
		}
	}
	return false
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

// review has a line that was just connected stand for the server, if no session
// uses the one that does.
func (up *upstream) review() {
	up.pool.mu.Lock()
	defer up.pool.unlock()
	if len(up.seats) > 0 && !up.held(up.standing) {
		up.prune(true)
	}
}

// dismiss retires a line that has no place any more.
func (up *upstream) dismiss(l *line, gently bool) {
	up.close(l, errTakenOver, gently)
	up.ending = append(slices.DeleteFunc(up.ending, (*line).gone), l)
}

// close takes a line out and retires it.
func (up *upstream) close(l *line, why error, gently bool) {
	if up.lines[l.key] == l {
		delete(up.lines, l.key)
		delete(up.solo, l.key.session)
	}
	l.retire(why, gently)
}

// prefer has a server that was never connected, or is not at the moment, be
// connected for sessions of which the first has just been opened.
func (up *upstream) prefer(p Profile) {
	key := up.keyOf(p)
	if key == up.standing.key || up.apart(p) || !up.standing.resting() || up.held(up.standing) {
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
		key := up.keyOf(p)
		if up.standing == old && (old.key.session != "" || old.key != key && old.resting() && up.sessions(key) > 0) {
			up.takeOver(up.lines[key], p, gently)
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
	managers := up.managers()
	up.pool.mu.Unlock()
	for _, m := range managers {
		m.changed()
	}
}
