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
	mu      sync.Mutex
	keys    []string         // Target.CatalogKey of all that share the server
	looked  bool             // for what was saved earlier
	catalog *Catalog         // nil if there is none
	whole   *Catalog         // the last one whose lists could all be read, which is what is saved
	last    *Known           // nil if it is not known
	saved   map[string]saved // what is in the files, by key

	saving sync.Mutex // held while that is being replaced
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
		file := s.pool.cache.load(key)
		h.saved[key] = file
		if h.catalog == nil && h.last == nil {
			h.catalog, h.whole, h.last = file.Catalog, file.Catalog, file.Last
		}
		s.pool.eras.offer(key, file.Dialect)
	}
}

// inherit is for a line in the place of another. What the server offered counts
// until it says otherwise.
func (h *shelf) inherit(old *shelf) {
	old.mu.Lock()
	defer old.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked, h.catalog, h.whole, h.last, h.saved = old.looked, old.catalog, old.whole, old.last, maps.Clone(old.saved)
	if h.catalog != nil && !h.catalog.Cached {
		earlier := *h.catalog
		earlier.Cached = true
		h.catalog = &earlier
	}
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
	h.catalog = next
	if !slices.ContainsFunc(lists, func(f fetched) bool { return f.err != nil }) {
		h.whole = next
	}
	return old == nil || old.Cached || !next.sameLists(old)
}

// note takes note of how the server stands, if it has come to an end of some
// kind.
func (h *shelf) note(st Status) {
	switch st.State {
	case config.Connected, config.NeedsAuth, config.Failed:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.last = &Known{State: st.State, Reason: st.Reason, At: st.Since}
	}
}

// save writes down what is on the shelf, unless that would change nothing. Only
// the line that stands for its server counts: to other clients it may offer
// something else.
func (s *line) save() {
	s.mu.Lock()
	extra := s.extra
	s.mu.Unlock()
	if extra {
		return
	}
	h := &s.shelf
	h.saving.Lock()
	defer h.saving.Unlock()
	h.mu.Lock()
	s.look()
	var news []saved
	for _, key := range h.keys {
		now := saved{Key: key, Catalog: h.whole, Last: h.last}
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
