package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	maxPins = 64 << 20

	// pinPause is how long new tools wait to be saved together.
	pinPause = time.Second

	// pinPatience is how long saving them may take: another process may be
	// writing too.
	pinPatience = 2 * time.Second

	pinsHint = "Move the file away; tools are then remembered anew."
)

// PinStatus is what of a server is not as it was accepted or first seen.
type PinStatus struct {
	Mode         config.Pin `json:"mode"`                   // strict: held back until accepted; warn: passed on
	Changed      []string   `json:"changed,omitempty"`      // tools
	New          []string   `json:"new,omitempty"`          // tools; of strict servers only
	Instructions bool       `json:"instructions,omitempty"` // its instructions are others
}

func (p PinStatus) any() bool { return len(p.Changed)+len(p.New) > 0 || p.Instructions }

// Held returns how many tools are held back.
func (p *PinStatus) Held() int {
	if p == nil || p.Mode != config.PinStrict {
		return 0
	}
	return len(p.Changed) + len(p.New)
}

// maxNamed is how many tools of each kind a sentence about pins names.
const maxNamed = 5

// String says it in words that are safe to print.
func (p PinStatus) String() string {
	var parts []string
	for _, part := range []struct {
		names []string
		what  string
	}{{p.Changed, "changed"}, {p.New, "new"}} {
		if len(part.names) == 0 {
			continue
		}
		var names []string
		for _, name := range part.names[:min(len(part.names), maxNamed)] {
			names = append(names, config.Escape(strings.ToValidUTF8(name[:min(len(name), 64)], "")))
		}
		if len(part.names) > maxNamed {
			names = append(names, fmt.Sprintf("%d more", len(part.names)-maxNamed))
		}
		parts = append(parts, fmt.Sprintf("%d %s tool(s): %s", len(part.names), part.what, strings.Join(names, ", ")))
	}
	if p.Instructions {
		parts = append(parts, "changed instructions")
	}
	does := "held back until you accept it"
	if p.Mode == config.PinWarn {
		does = "not as you accepted it, but passed on"
	}
	return does + ": " + strings.Join(parts, "; ")
}

// pinned compares what a server offers with what was seen first or accepted,
// remembers what is new, and returns what differs.
func (h *Host) pinned(st *ServerStatus, c *conn.Catalog) PinStatus {
	is := PinStatus{Mode: policy.Mode(st.entry)}
	if is.Mode == config.PinOff {
		return is
	}
	offered := definitions(c)
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	report := h.pins.Check(st.hash, offered)
	is.Changed, is.Instructions = report.Changed, report.Instructions
	strict := is.Mode == config.PinStrict
	switch {
	case h.pinsDamaged: // nobody knows what was accepted
		is.Changed, is.Instructions = append(is.Changed, report.New...), c.Instructions != ""
	case strict && !report.First:
		is.New = report.New
	}
	fresh := len(report.New) > 0 && (report.First || !strict)
	if (fresh || report.Untold) && !c.Cached && !h.pinsDamaged {
		if fresh && !report.First {
			h.opts.Logger.Warn("new tools", "server", st.Name, "tools", report.New)
		}
		h.learnPins(learned{st.Name, st.hash, strict, offered, h.opts.Now().UTC()})
	}
	if is.any() {
		h.tellPins(st.Name, is.String())
	}
	return is
}

// tellPins logs what of a server is not as it was accepted, once; pinsMu is held.
func (h *Host) tellPins(server, what string) {
	told := toldPins{server, what}
	if h.pinsTold[told] {
		return
	}
	if h.pinsTold == nil || len(h.pinsTold) >= maxKnown {
		h.pinsTold = map[toldPins]bool{}
	}
	h.pinsTold[told] = true
	h.opts.Logger.Warn("definitions changed", "server", server, "what", what, "accept", "patchbay approve --tools "+server)
}

// toldPins is what was logged of a server's pins.
type toldPins struct{ server, what string }

// definitions is what of a catalog is pinned.
func definitions(c *conn.Catalog) policy.Definitions {
	return policy.ReadDefinitions(c.Tools).WithInstructions(c.Instructions)
}

// holds reports whether a tool of a server is defined as it was accepted.
func (h *Host) holds(hash string, tool json.RawMessage) bool {
	h.pinsMu.Lock()
	pins, damaged := h.pins, h.pinsDamaged
	h.pinsMu.Unlock()
	return !damaged && pins.Holds(hash, tool)
}

// catalogs are what a server offers over its connections: over the one that
// stands for it first, then to sessions that have one of their own.
func (h *Host) catalogs(name string, kinds []conn.Profile) []seenCatalog {
	var all []seenCatalog
	for _, p := range append([]conn.Profile{{}}, kinds...) {
		sv, ok := h.manager.Server(name, p)
		if !ok {
			return nil
		}
		c := sv.Catalog()
		if c != nil && !slices.ContainsFunc(all, func(seen seenCatalog) bool { return seen.catalog == c }) {
			all = append(all, seenCatalog{p, c})
		}
	}
	return all
}

// seenCatalog is a catalog and the profile of a session that is offered it.
type seenCatalog struct {
	profile conn.Profile
	catalog *conn.Catalog
}

// kinds are the profiles of the open sessions, each once.
func (h *Host) kinds() []conn.Profile {
	var all []conn.Profile
	seen := map[string]bool{}
	for _, s := range h.openSessions() {
		if p := s.profile(); !seen[p.Key] {
			seen[p.Key] = true
			all = append(all, p)
		}
	}
	return all
}

// addPins adds what of a server is not as it was accepted, over any of its
// connections.
func (h *Host) addPins(r *reading, st *ServerStatus, kinds []conn.Profile) {
	all := PinStatus{Mode: policy.Mode(st.entry)}
	if at, ok := r.inForce[st.Name]; all.Mode == config.PinOff || !ok || !r.servers[at].usable() {
		return
	}
	for _, seen := range h.catalogs(st.Name, kinds) {
		is := h.knownTools(r, st, seen.catalog, seen.profile).pinned
		all.Changed, all.New = union(all.Changed, is.Changed), union(all.New, is.New)
		all.Instructions = all.Instructions || is.Instructions
	}
	if !all.any() {
		return
	}
	st.Pins = &all
	st.Problems = append(slices.Clip(st.Problems), config.Problem{
		Severity: config.SeverityWarning, File: st.Origin.File, Line: st.Origin.Line, Pointer: st.Origin.Pointer,
		Message: all.String(), Hint: fmt.Sprintf("Run `patchbay approve --tools %s` to see the difference and accept it.", st.Name),
	})
}

func union(a, b []string) []string {
	all := append(slices.Clip(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// A learned is what is remembered of a server and not yet saved.
type learned struct {
	server, hash string
	strict       bool // later tools have to be accepted
	offered      policy.Definitions
	seen         time.Time
}

func (l learned) addTo(p *policy.Pins) {
	if l.strict {
		p.LearnFirst(l.hash, l.offered, l.seen)
		return
	}
	p.Learn(l.hash, l.offered, l.seen)
}

// maxUnsaved bounds what waits to be saved, for when that does not succeed.
const maxUnsaved = 10_000

// learnPins remembers what is new of a server; pinsMu is held. It is saved soon,
// together with what is learned until then: when a host starts for the first time
// all its servers are new.
func (h *Host) learnPins(l learned) {
	l.addTo(&h.pins)
	if len(h.pinsUnsaved) < maxUnsaved {
		h.pinsUnsaved = append(h.pinsUnsaved, l)
	}
	if h.pinsTimer == nil {
		h.pinsTimer = time.AfterFunc(pinPause, h.savePins)
	}
}

// savePins saves what was learned. What cannot be saved is tried again with the
// next, and holds as long as the host lives.
func (h *Host) savePins() {
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	if h.pinsTimer != nil {
		h.pinsTimer.Stop()
		h.pinsTimer = nil
	}
	if len(h.pinsUnsaved) == 0 {
		return
	}
	known := h.pins
	ctx, stop := context.WithTimeout(context.Background(), pinPatience)
	defer stop()
	if err := h.updatePins(ctx, func(*policy.Pins) {}); err != nil {
		if h.pinsUnwritable == nil || h.pinsUnwritable.Error() != err.Error() {
			h.opts.Logger.Warn("pins not saved", "file", h.places().pinsFile(), "error", err)
		}
		h.pinsUnwritable = err
		return
	}
	h.pinsUnwritable = nil
	if !reflect.DeepEqual(known, h.pins) { // somebody else was faster
		h.pinsSeq.Add(1)
		h.news.announce()
	}
}

// ToolChange is a tool, or the instructions of a server, that is not as it was
// accepted.
type ToolChange struct {
	Tool         string `json:"tool,omitempty"`
	Instructions bool   `json:"instructions,omitempty"` // it is the instructions, not a tool
	New          bool   `json:"new,omitempty"`          // the server did not have it
	Digest       string `json:"digest"`                 // of what it is now
	Diff         string `json:"diff"`                   // safe to print

	// Members are what of the definition of a known tool differs, as JSON pointers:
	// the first of them.
	Members []string `json:"members,omitempty"`

	// Ignore are members, as JSON pointers, that are not to count from now on, for
	// AcceptTools: some servers define a tool otherwise at every start.
	Ignore []string `json:"ignore,omitempty"`
}

// ToolChanges returns how what a server offers differs from what was accepted.
func (h *Host) ToolChanges(ctx context.Context, name string) ([]ToolChange, error) {
	st, offer, err := h.pinnedServer(ctx, name)
	if err != nil {
		return nil, err
	}
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	if h.pinsDamaged {
		return nil, errorf(KindConfigInvalid, "What was accepted cannot be read: %s is damaged.", h.places().pinsFile()).hint(pinsHint)
	}
	return h.toolChanges(st, offer), nil
}

// toolChanges is ToolChanges for what a server offers; pinsMu is held.
func (h *Host) toolChanges(st ServerStatus, offer *conn.Catalog) []ToolChange {
	changes := []ToolChange{}
	report := h.pins.Check(st.hash, definitions(offer))
	if report.First {
		report.New = nil
	}
	for _, def := range offer.Tools {
		tool, _ := wire.StringMember(def, "name")
		if fresh := slices.Contains(report.New, tool); fresh || slices.Contains(report.Changed, tool) {
			changes = append(changes, ToolChange{Tool: tool, New: fresh, Digest: policy.Digest(def), Diff: h.pins.Diff(st.hash, def), Members: h.pins.Differing(st.hash, def)})
		}
	}
	if report.Instructions {
		text := offer.Instructions
		changes = append(changes, ToolChange{Instructions: true, Digest: policy.DigestInstructions(text), Diff: h.pins.DiffInstructions(st.hash, text)})
	}
	return changes
}

// AcceptTools accepts the changes of a server that were shown, and ignores what
// their Ignore says. If anything changed otherwise meanwhile, nothing is accepted.
func (h *Host) AcceptTools(ctx context.Context, name string, shown []ToolChange) (Change, error) {
	st, offer, err := h.pinnedServer(ctx, name)
	if err != nil {
		return Change{}, err
	}
	if err := h.acceptTools(ctx, st, offer, shown); err != nil {
		return Change{}, err
	}
	h.news.announce()
	return Change{
		Action: "accepted", Name: st.Name, Scope: st.Origin.Scope, File: h.places().pinsFile(),
		Note: acceptedNote(shown),
	}, nil
}

// acceptedNote says what was accepted.
func acceptedNote(shown []ToolChange) string {
	changed, fresh, instructions := 0, 0, ""
	for _, ch := range shown {
		switch {
		case ch.Instructions:
			instructions = "its instructions"
		case ch.New:
			fresh++
		default:
			changed++
		}
	}
	var parts []string
	if changed > 0 {
		parts = append(parts, fmt.Sprintf("%d changed tool(s)", changed))
	}
	if fresh > 0 {
		parts = append(parts, fmt.Sprintf("%d new tool(s)", fresh))
	}
	if instructions != "" {
		parts = append(parts, instructions)
	}
	return strings.Join(parts, ", ")
}

func (h *Host) acceptTools(ctx context.Context, st ServerStatus, offer *conn.Catalog, shown []ToolChange) error {
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	same := slices.EqualFunc(h.toolChanges(st, offer), shown, func(a, b ToolChange) bool {
		return a.Tool == b.Tool && a.Instructions == b.Instructions && a.Digest == b.Digest
	})
	if !same {
		return errorf(KindDenied, "The tools of %q changed since they were shown; nothing was accepted.", st.Name).
			hint("Run patchbay approve --tools %s again.", st.Name)
	}
	ignored := map[string][]string{}
	for _, ch := range shown {
		for _, pointer := range ch.Ignore {
			if err := checkIgnored(offer, ch, pointer); err != nil {
				return err
			}
			ignored[ch.Tool] = append(ignored[ch.Tool], pointer)
		}
	}
	defer h.pinsSeq.Add(1)
	maps.DeleteFunc(h.pinsTold, func(told toldPins, _ bool) bool { return told.server == st.Name })
	return h.updatePins(ctx, func(p *policy.Pins) { p.Accept(st.hash, definitions(offer), ignored, h.opts.Now().UTC()) })
}

// checkIgnored says why a member of a tool that changed cannot be ignored.
func checkIgnored(offer *conn.Catalog, ch ToolChange, pointer string) error {
	err := errors.New("it is no tool")
	for _, def := range offer.Tools {
		if tool, _ := wire.StringMember(def, "name"); tool == ch.Tool && !ch.Instructions {
			err = policy.CheckIgnored(def, pointer)
		}
	}
	if err != nil {
		return errorf(KindConfigInvalid, "Of %s nothing can be ignored: %v.", config.Escape(ch.Tool), err)
	}
	return nil
}

// pinnedServer connects a server and returns what it offers to anybody: of a tool
// that it defines in two ways, the one that is not as it was accepted.
func (h *Host) pinnedServer(ctx context.Context, name string) (ServerStatus, *conn.Catalog, error) {
	if _, _, err := h.connect(ctx, name); err != nil {
		return ServerStatus{}, nil, err
	}
	st, err := h.Server(name)
	if err != nil {
		return st, nil, err
	}
	all := h.catalogs(st.Name, h.kinds())
	if len(all) == 0 {
		return st, nil, errorf(KindTransport, "Server %q has not listed its tools.", st.Name)
	}
	offer := &conn.Catalog{Instructions: all[0].catalog.Instructions}
	at := map[string]int{}
	for _, seen := range all {
		for _, def := range seen.catalog.Tools {
			tool, _ := wire.StringMember(def, "name")
			if i, ok := at[tool]; !ok {
				at[tool] = len(offer.Tools)
				offer.Tools = append(offer.Tools, def)
			} else if h.holds(st.hash, offer.Tools[i]) {
				offer.Tools[i] = def
			}
		}
		if is := seen.catalog.Instructions; is != "" && h.knownTools(h.reading.Load(), &st, seen.catalog, seen.profile).pinned.Instructions {
			offer.Instructions = is
		}
	}
	return st, offer, nil
}

// updatePins changes the pins on disk and in memory; pinsMu is held.
func (h *Host) updatePins(ctx context.Context, change func(*policy.Pins)) error {
	var pins policy.Pins
	_, err := atomicfile.Update(ctx, h.places().pinsFile(), h.ownFile(), func(old []byte) ([]byte, error) {
		pins = policy.Pins{}
		if len(old) > 0 {
			if err := pins.UnmarshalJSON(old); err != nil {
				return nil, errorf(KindConfigInvalid, "%s is damaged: %v", h.places().pinsFile(), err)
			}
		}
		for _, l := range h.pinsUnsaved {
			l.addTo(&pins)
		}
		change(&pins)
		return json.Marshal(pins)
	})
	if err == nil {
		h.pins, h.pinsUnsaved = pins, nil
	}
	return err
}

// readPins reads the pins; others may have been accepted meanwhile. If they cannot
// be read, what is pinned counts as changed, and the problem says so.
func (h *Host) readPins() (problems []config.Problem) {
	h.savePins()
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	wasDamaged := h.pinsDamaged
	data, err := atomicfile.Read(h.places().pinsFile(), maxPins)
	pins := policy.Pins{}
	if err == nil {
		err = pins.UnmarshalJSON(data) // json.Unmarshal would read it twice
	}
	h.pinsDamaged = err != nil && !errors.Is(err, fs.ErrNotExist)
	if h.pinsDamaged {
		problems = []config.Problem{{
			Severity: config.SeverityError, File: h.places().pinsFile(),
			Message: "no pin can be read, so pinned tools count as changed: " + err.Error(), Hint: pinsHint,
		}}
		pins = h.pins
	}
	for _, l := range h.pinsUnsaved { // which holds, whatever becomes of the file
		l.addTo(&pins)
	}
	if h.pinsUnwritable != nil {
		problems = append(problems, config.Problem{
			Severity: config.SeverityWarning, File: h.places().pinsFile(),
			Message: "pins cannot be saved, so the next process will not know what tools were first: " + h.pinsUnwritable.Error(),
		})
	}
	if h.pinsDamaged != wasDamaged || !reflect.DeepEqual(pins, h.pins) {
		h.pinsSeq.Add(1)
		h.pins = pins
		h.news.announce()
	}
	return problems
}
