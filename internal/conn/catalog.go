package conn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Catalog is what a server offers. The items are its own bytes. A Catalog does
// not change once it can be seen.
type Catalog struct {
	Tools             []json.RawMessage
	Resources         []json.RawMessage
	ResourceTemplates []json.RawMessage
	Prompts           []json.RawMessage

	Capabilities json.RawMessage
	ServerInfo   json.RawMessage
	Instructions string

	FetchedAt time.Time
	Cached    bool // it is from an earlier connection

	// Notes say what is missing from it and why.
	Notes []string

	// Unread are the lists of the server that could not be read at all, on this
	// connection.
	Unread []Unread

	notes map[string][]string // the same, by the method of the list
}

// Unread is a list that could not be read, and why.
type Unread struct {
	Method string
	Kind   Kind
	Reason string
}

// with returns the catalog with some of its lists replaced. A list that could
// not be fetched stays as it was, and a note says so.
func (c *Catalog) with(lists []fetched) *Catalog {
	next := *c
	next.notes = maps.Clone(c.notes)
	if next.notes == nil {
		next.notes = map[string][]string{}
	}
	next.Unread = slices.DeleteFunc(slices.Clone(c.Unread), func(u Unread) bool {
		return slices.ContainsFunc(lists, func(f fetched) bool { return f.method == u.Method })
	})
	for _, f := range lists {
		if f.err != nil {
			f.note("%s: %v", f.method, f.err)
			next.Unread = append(next.Unread, Unread{f.method, classify(f.err).kind, shorten(f.err.Error())})
		} else {
			*f.into(&next) = f.items
		}
		next.notes[f.method] = f.notes
	}
	next.Notes = nil
	for _, kind := range listings {
		next.Notes = append(next.Notes, next.notes[kind.method]...)
	}
	next.FetchedAt, next.Cached = time.Now(), false
	return &next
}

// tool returns the definition of a tool, nil if there is none.
func (c *Catalog) tool(name string) json.RawMessage {
	for _, tool := range c.Tools {
		if n, _ := wire.StringMember(tool, "name"); n == name {
			return tool
		}
	}
	return nil
}

// sameLists reports whether two catalogs offer the same.
func (c *Catalog) sameLists(other *Catalog) bool {
	same := func(a, b []json.RawMessage) bool {
		return slices.EqualFunc(a, b, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
	}
	return same(c.Tools, other.Tools) && same(c.Resources, other.Resources) &&
		same(c.ResourceTemplates, other.ResourceTemplates) && same(c.Prompts, other.Prompts) &&
		bytes.Equal(c.Capabilities, other.Capabilities) && bytes.Equal(c.ServerInfo, other.ServerInfo) &&
		c.Instructions == other.Instructions && slices.Equal(c.Notes, other.Notes)
}

// What of a list is read.
const (
	maxTools      = 512
	maxItems      = 10_000 // of the other lists
	maxDefinition = 256 << 10
	maxListBytes  = 8 << 20
	maxPages      = 64
	maxNotes      = 20
)

// listing describes one kind of list.
type listing struct {
	list     wire.List
	method   string
	member   string // of the result
	key      string // the member by which an item is known
	maxItems int
	into     func(*Catalog) *[]json.RawMessage
}

var listings = []listing{
	{wire.Tools, "tools/list", "tools", "name", maxTools, func(c *Catalog) *[]json.RawMessage { return &c.Tools }},
	{wire.Resources, "resources/list", "resources", "uri", maxItems, func(c *Catalog) *[]json.RawMessage { return &c.Resources }},
	{wire.Resources, "resources/templates/list", "resourceTemplates", "uriTemplate", maxItems, func(c *Catalog) *[]json.RawMessage { return &c.ResourceTemplates }},
	{wire.Prompts, "prompts/list", "prompts", "name", maxItems, func(c *Catalog) *[]json.RawMessage { return &c.Prompts }},
}

// fetched is one list of a server.
type fetched struct {
	listing
	items []json.RawMessage
	notes []string
	err   error // nothing could be read
}

// firstCatalog fetches all lists and declares the server connected.
func (s *line) firstCatalog(ctx context.Context, epoch int, l *link) {
	lists := s.fetch(ctx, l, func(wire.List) bool { return true })
	if ctx.Err() != nil || !s.uses(l) {
		return
	}
	old := s.catalog()
	base, opening := &Catalog{}, l.client.Opening()
	if old != nil {
		*base = *old
		for _, kind := range listings {
			if !opening.Has(string(kind.list)) {
				*kind.into(base) = nil
			}
		}
	}
	base.notes, base.Unread = nil, nil
	base.Capabilities, base.ServerInfo, base.Instructions = opening.Capabilities, opening.ServerInfo, opening.Instructions
	next := base.with(lists)
	s.shelf.replace(old, next, lists)
	s.up.changed() // before those who wait for the connection look for what it offers
	s.connected(epoch, l, next.problem())
	s.up.review()
	s.up.changed()
}

// refreshCatalog fetches some lists anew.
func (s *line) refreshCatalog(ctx context.Context, epoch int, l *link, changed map[wire.List]bool) {
	old := s.catalog()
	lists := s.fetch(ctx, l, func(kind wire.List) bool { return changed[kind] })
	if ctx.Err() != nil || !s.uses(l) || len(lists) == 0 || old == nil {
		return
	}
	next := old.with(lists)
	if !s.shelf.replace(old, next, lists) {
		return
	}
	s.connected(epoch, l, next.problem())
	s.up.changed()
	s.save()
}

// problem is what a status says of the catalog; empty if it is whole.
func (c *Catalog) problem() string {
	if len(c.Notes) == 0 {
		return ""
	}
	return c.Notes[0]
}

// uses reports whether calls go over a connection.
func (s *line) uses(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.link == l && l.client.Err() == nil
}

// fetch reads the wanted ones of the lists that the server has, side by side.
func (s *line) fetch(ctx context.Context, l *link, wanted func(wire.List) bool) []fetched {
	opening := l.client.Opening()
	var all []*fetched
	for _, kind := range listings {
		if wanted(kind.list) && opening.Has(string(kind.list)) {
			all = append(all, &fetched{listing: kind})
		}
	}
	var wg sync.WaitGroup
	limit := s.listPatience()
	for _, f := range all {
		wg.Go(func() {
			ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not complete after %v", limit))
			defer stop()
			f.read(ctx, s, l)
		})
	}
	wg.Wait()
	out := make([]fetched, len(all))
	for i, f := range all {
		out[i] = *f
	}
	return out
}

// listPatience is how long the server may take for a list: as long as for a call,
// if its entry knows that it is slow.
func (s *line) listPatience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := ownPatience
	if ms := s.target.Entry.Server.Timeout; ms != nil {
		limit = max(limit, time.Duration(*ms)*time.Millisecond)
	}
	return limit
}

// read reads all pages, as far as they are within bounds.
func (f *fetched) read(ctx context.Context, s *line, l *link) {
	params := json.RawMessage(`{}`)
	cursors, names := map[string]bool{}, map[string]bool{}
	size := 0
	for page := 1; ; page++ {
		result, err := s.ask(ctx, l, wire.Call{Method: f.method, Params: params})
		if err != nil {
			if page > 1 {
				f.note("%s ends early: %v", f.member, err)
				return
			}
			f.err = err
			return
		}
		array, _ := wire.Member(result, f.member)
		if !bytes.HasPrefix(array, []byte("[")) && string(array) != "null" {
			f.note("%s: the answer has no such list", f.method)
			return
		}
		for item := range wire.Elements(array) {
			if size += len(item); size > maxListBytes {
				f.note("more than %d MiB of %s", maxListBytes>>20, f.member)
				return
			}
			if !f.acceptable(item, names, l) {
				continue
			}
			if len(f.items) == f.maxItems {
				f.note("more than %d %s", f.maxItems, f.member)
				return
			}
			f.items = append(f.items, bytes.Clone(item)) // the answer may be far larger
		}
		cursor, more := wire.Member(result, "nextCursor")
		switch {
		case !more || string(cursor) == "null":
			return
		case cursors[string(cursor)]:
			f.note("the list of %s repeats itself", f.member)
			return
		case page == maxPages:
			f.note("more than %d pages of %s", maxPages, f.member)
			return
		}
		cursors[string(cursor)] = true
		params = append(append(json.RawMessage(`{"cursor":`), cursor...), '}')
	}
}

// ask makes a request for our own use on one connection.
func (s *line) ask(ctx context.Context, l *link, c wire.Call) (json.RawMessage, error) {
	headers := l.headers.issued()
	result, err := l.client.Call(ctx, c)
	if err != nil && classify(err).needsAuth && s.renewHeaders(ctx, l, headers) {
		result, err = l.client.Call(ctx, c)
	}
	if err == nil {
		return result, nil
	}
	err = l.redactor().cleanError(err)
	if f := classify(err); f.needsAuth && ctx.Err() == nil {
		s.recallMissing(f)
		s.condemn(l, f)
	}
	return nil, err
}

// acceptable reports whether an item can be offered.
func (f *fetched) acceptable(item json.RawMessage, names map[string]bool, l *link) bool {
	name, ok := wire.StringMember(item, f.key)
	switch {
	case !ok || name == "":
		f.note("%s: an item without %s is left out", f.method, f.key)
	case len(item) > maxDefinition:
		f.note("%s %q is left out: its definition is over %d KiB", f.key, shorten(name), maxDefinition>>10)
	case names[name]:
		f.note("%s %q is there twice; the first counts", f.key, shorten(name))
	default:
		names[name] = true
		return l.acceptsHeaders(f, item)
	}
	return false
}

// acceptsHeaders reports whether the arguments of a tool can be repeated in
// headers the way it says. The modern era demands to leave it out otherwise.
func (l *link) acceptsHeaders(f *fetched, item json.RawMessage) bool {
	if l.headers == nil || f.list != wire.Tools || l.client.Opening().Era != wire.Modern {
		return true
	}
	schema, _ := wire.Member(item, "inputSchema")
	if _, err := wire.ParseParamHeaders(schema); err != nil {
		name, _ := wire.StringMember(item, f.key)
		f.note("tool %q is left out: %v", shorten(name), err)
		return false
	}
	return true
}

func (f *fetched) note(format string, args ...any) {
	if len(f.notes) < maxNotes {
		f.notes = append(f.notes, fmt.Sprintf(format, args...))
	}
}
