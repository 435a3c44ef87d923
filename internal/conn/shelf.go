package conn

import (
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
	key     string   // Target.CatalogKey
	looked  bool     // for what was saved earlier
	catalog *Catalog // nil if there is none
	whole   *Catalog // the last one whose lists could all be read, which is what is saved
	last    *Known   // nil if it is not known
	saved   saved    // what is in the file

	saving sync.Mutex // held while that is being replaced
}

// Catalog returns what the server offers, as far as it is known without asking:
// now, or at an earlier time; nil if nothing is known. It does not wait for the
// server.
func (s *Server) Catalog() *Catalog {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	s.look()
	return s.shelf.catalog
}

// lastKnown returns how the server stood when it was last tried.
func (s *Server) lastKnown() *Known {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	s.look()
	return s.shelf.last
}

// look finds what was saved earlier, once; s.shelf.mu is held.
func (s *Server) look() {
	h := &s.shelf
	if h.looked {
		return
	}
	h.looked = true
	file := s.manager.cache.load(h.key)
	h.catalog, h.whole, h.last, h.saved = file.Catalog, file.Catalog, file.Last, file
	s.manager.eras.offer(h.key, file.Dialect)
}

// relabel is for a server that begins anew, perhaps as another one. What it
// offered counts until it says otherwise, unless it is another one.
func (h *shelf) relabel(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case key == "" || key != h.key:
		h.key, h.looked, h.catalog, h.whole, h.last, h.saved = key, false, nil, nil, nil, saved{}
	case h.catalog != nil && !h.catalog.Cached:
		earlier := *h.catalog
		earlier.Cached = true
		h.catalog = &earlier
	}
}

// rename is for a server that stays the same under another key.
func (h *shelf) rename(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.key = key
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
	return old == nil || old.Cached || !next.SameLists(old)
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
// the host's own connection counts: to other clients a server may offer
// something else.
func (s *Server) save() {
	if s.profile.Key != "" {
		return
	}
	h := &s.shelf
	h.saving.Lock()
	defer h.saving.Unlock()
	h.mu.Lock()
	s.look()
	now := saved{Key: h.key, Catalog: h.whole, Last: h.last}
	now.Dialect, _ = s.manager.eras.Load(now.Key)
	news := now.Key != "" && now.differs(h.saved)
	h.saved = now
	h.mu.Unlock()
	if news {
		s.manager.cache.save(now)
	}
}
