package conn

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

// Known is how a server stood at an earlier time.
type Known struct {
	State  config.State // Connected, NeedsAuth or Failed
	Reason string
	At     time.Time
}

// shelf is where a server keeps what is known of it without asking, and what of
// that outlives this process.
type shelf struct {
	kind string // of the sessions that it is offered to

	mu      sync.Mutex
	keys    []string // Target.CatalogKey of all that share the server
	looked  bool     // for what was saved earlier
	catalog *Catalog // nil if there is none
	foreign bool     // it was offered to sessions of another kind, and may not be what this one gets
	other   *Catalog // such a one, which is better than none; nil if there is none
	whole   *Catalog // the last one whose lists could all be read, which is what is saved
	last    *Known   // nil if it is not known
	known   knowledge
	saved   map[string]saved // what is in the files, by key

	saving sync.Mutex // held while that is being replaced
}

// knowledge is what of a server decides who can share a connection to it.
type knowledge struct {
	AsksRoots bool // for the roots of its clients
}

// file is the key under which something of the shelf is saved.
func (h *shelf) file(key string) string {
	if h.kind == "" || key == "" {
		return key
	}
	return key + " " + h.kind
}

// isKnown reports whether the catalog is what sessions of its kind were offered,
// now or at an earlier time.
func (s *line) isKnown() bool {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	s.look()
	return s.shelf.catalog != nil && !s.shelf.foreign
}

// recallKnowledge takes note of what earlier connections have shown of the
// server.
func (s *line) recallKnowledge() {
	s.shelf.mu.Lock()
	s.look()
	known := s.shelf.known
	s.shelf.mu.Unlock()
	s.up.pool.mu.Lock()
	news := known.AsksRoots && !s.up.asksRoots
	s.up.pool.mu.Unlock()
	if news {
		s.up.learn(func() { s.up.asksRoots = true })
	}
}

// note takes note of something about the server.
func (h *shelf) note(change func(*knowledge)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.known)
}

// catalog is Server.Catalog.
func (s *line) catalog() *Catalog {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	s.look()
	return s.shelf.catalog
}

// lastKnown returns how the server stood when it was last tried.
func (s *line) lastKnown() *Known {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	s.look()
	return s.shelf.last
}

// look finds what was saved earlier, once; s.shelf.mu is held.
func (s *line) look() {
	h := &s.shelf
	if h.looked {
		return
	}
	h.looked = true
	h.saved = map[string]saved{}
	for _, key := range h.keys {
		file := s.pool.cache.load(h.file(key))
		h.saved[key] = file
		if h.catalog == nil && h.last == nil {
			h.catalog, h.whole, h.last = file.Catalog, file.Catalog, file.Last
		}
		h.known.AsksRoots = h.known.AsksRoots || file.AsksRoots
		s.pool.eras.offer(key, file.Dialect)
	}
	if h.catalog == nil && h.other != nil {
		h.catalog, h.foreign = h.other, true
	}
}

// inherit is for a line in the place of another. What the server offered counts
// until it says otherwise.
func (h *shelf) inherit(old *shelf) {
	old.mu.Lock()
	defer old.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	catalog := old.catalog
	if catalog != nil && !catalog.Cached {
		earlier := *catalog
		earlier.Cached = true
		catalog = &earlier
	}
	h.known = old.known
	if h.kind != old.kind {
		h.other = catalog // unless its own is found
		return
	}
	h.looked, h.catalog, h.foreign, h.other = old.looked, catalog, old.foreign, old.other
	h.whole, h.last, h.saved = old.whole, old.last, maps.Clone(old.saved)
}

// sharesKey reports whether two are about the same server.
func (h *shelf) sharesKey(other *shelf) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.keys, func(key string) bool { return slices.Contains(other.keys, key) })
}

// rename is for a server that stays the same under other keys.
func (h *shelf) rename(keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys = keys
	h.looked = h.looked && h.catalog != nil
}

// replace puts a new catalog, made of those lists, in the place of old, and
// reports whether it offers anything else. It does nothing if old is not there
// any more.
func (h *shelf) replace(old, next *Catalog, lists []fetched) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.catalog != old {
		return false
	}
	h.catalog, h.foreign = next, false
	if !slices.ContainsFunc(lists, func(f fetched) bool { return f.err != nil }) {
		h.whole = next
	}
	return old == nil || old.Cached || !next.sameLists(old)
}

// stood takes note of how the server stands, if it has come to an end of some
// kind.
func (h *shelf) stood(st Status) {
	switch st.State {
	case config.Connected, config.NeedsAuth, config.Failed:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.last = &Known{State: st.State, Reason: st.Reason, At: st.Since}
	}
}

// maxKinds is for how many kinds of sessions the catalog of a server is saved.
const maxKinds = 16

// save writes down what is on the shelf, unless that would change nothing. Of all
// lines for one kind of sessions only the one counts that stands for its server,
// or the first.
func (s *line) save() {
	h := &s.shelf
	if !s.up.saves(s) {
		return
	}
	h.saving.Lock()
	defer h.saving.Unlock()
	h.mu.Lock()
	s.look()
	var news []saved
	for _, key := range h.keys {
		now := saved{Key: h.file(key), Catalog: h.whole, Last: h.last, AsksRoots: h.known.AsksRoots}
		now.Dialect, _ = s.pool.eras.Load(h.keys[0])
		if now.differs(h.saved[key]) {
			news = append(news, now)
		}
		h.saved[key] = now
	}
	h.mu.Unlock()
	for _, now := range news {
		s.pool.cache.save(now)
	}
}

// saves reports whether it is for a line to save what the server offers to its
// kind of sessions.
func (up *upstream) saves(l *line) bool {
	up.pool.mu.Lock()
	defer up.pool.mu.Unlock()
	if l == up.standing {
		return true
	}
	kind := l.shelf.kind
	for _, other := range up.lines {
		if other != l && other.shelf.kind == kind && (other == up.standing || other.opened.Before(l.opened)) {
			return false
		}
	}
	if up.kinds == nil {
		up.kinds = map[string]bool{}
	}
	if !up.kinds[kind] && len(up.kinds) >= maxKinds {
		return false
	}
	up.kinds[kind] = true
	return true
}
