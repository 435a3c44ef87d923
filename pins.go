package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
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

// changedTools compares a server's tools with the definitions that were seen
// first, remembers new ones, and returns the names of those that may not be
// called.
func (h *Host) changedTools(st *ServerStatus, c *conn.Catalog) []string {
	mode := policy.Mode(st.entry)
	if mode == config.PinOff {
		return nil
	}
	tools := policy.ReadDefinitions(c.Tools)
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	report := h.pins.Check(st.hash, tools)
	if h.pinsDamaged { // nobody knows what was accepted
		report.Changed = append(report.Changed, report.New...)
	} else if len(report.New) > 0 && !c.Cached {
		h.learnPins(st, tools)
	}
	if len(report.Changed) > 0 {
		h.opts.Logger.Warn("tool definitions changed", "server", st.Name, "tools", report.Changed)
	}
	if mode != config.PinStrict {
		return nil
	}
	return report.Changed
}

// A learned is what is remembered of a server and not yet saved.
type learned struct {
	server, hash string
	tools        policy.Definitions
	seen         time.Time
}

func (l learned) addTo(p *policy.Pins) { p.Learn(l.hash, l.tools, l.seen) }

// learnPins remembers the tools of a server that are new; pinsMu is held. They
// are saved soon, together with what is learned until then: when a host starts
// for the first time all its servers are new.
func (h *Host) learnPins(st *ServerStatus, tools policy.Definitions) {
	l := learned{st.Name, st.hash, tools, h.opts.Now().UTC()}
	l.addTo(&h.pins)
	h.pinsUnsaved = append(h.pinsUnsaved, l)
	if len(h.pinsUnsaved) == 1 {
		time.AfterFunc(pinPause, h.savePins)
	}
}

// savePins saves what was learned.
func (h *Host) savePins() {
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	if len(h.pinsUnsaved) == 0 {
		return
	}
	known := h.pins
	ctx, stop := context.WithTimeout(context.Background(), pinPatience)
	defer stop()
	if err := h.updatePins(ctx, func(*policy.Pins) {}); err != nil {
		h.pins = known // for as long as the host lives
		for _, l := range h.pinsUnsaved {
			h.opts.Logger.Warn("pins not saved", "server", l.server, "error", err)
		}
		h.pinsUnsaved = nil
		return
	}
	if !reflect.DeepEqual(known, h.pins) { // somebody else was faster
		h.pinsSeq.Add(1)
		h.news.announce()
	}
}

// ToolChange is a tool whose definition is not the one that was accepted.
type ToolChange struct {
	Tool   string `json:"tool"`
	Digest string `json:"digest"` // of the definition as it is now
	Diff   string `json:"diff"`   // safe to print
}

// ToolChanges returns how the tools of a server differ from what was accepted.
func (h *Host) ToolChanges(ctx context.Context, name string) ([]ToolChange, error) {
	st, catalog, err := h.pinnedServer(ctx, name)
	if err != nil {
		return nil, err
	}
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	if h.pinsDamaged {
		return nil, errorf(KindConfigInvalid, "What was accepted cannot be read: %s is damaged.", h.places.pinsFile()).hint(pinsHint)
	}
	return h.toolChanges(st, catalog), nil
}

// toolChanges is ToolChanges for a catalog; pinsMu is held.
func (h *Host) toolChanges(st ServerStatus, catalog *conn.Catalog) []ToolChange {
	changes := []ToolChange{}
	changed := h.pins.Check(st.hash, policy.ReadDefinitions(catalog.Tools)).Changed
	for _, def := range catalog.Tools {
		if tool, _ := wire.StringMember(def, "name"); slices.Contains(changed, tool) {
			changes = append(changes, ToolChange{Tool: tool, Digest: policy.Digest(def), Diff: h.pins.Diff(st.hash, def)})
		}
	}
	return changes
}

// AcceptTools accepts the changes of a server's tools that were shown. If any
// tool changed otherwise meanwhile, nothing is accepted.
func (h *Host) AcceptTools(ctx context.Context, name string, shown []ToolChange) (Change, error) {
	st, catalog, err := h.pinnedServer(ctx, name)
	if err != nil {
		return Change{}, err
	}
	if err := h.acceptTools(ctx, st, catalog, shown); err != nil {
		return Change{}, err
	}
	h.news.announce()
	return Change{
		Action: "accepted", Name: st.Name, Scope: st.Origin.Scope, File: h.places.pinsFile(),
		Note: fmt.Sprintf("%d changed tool(s)", len(shown)),
	}, nil
}

func (h *Host) acceptTools(ctx context.Context, st ServerStatus, catalog *conn.Catalog, shown []ToolChange) error {
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	same := slices.EqualFunc(h.toolChanges(st, catalog), shown, func(a, b ToolChange) bool { return a.Tool == b.Tool && a.Digest == b.Digest })
	if !same {
		return errorf(KindDenied, "The tools of %q changed since they were shown; nothing was accepted.", st.Name).
			hint("Run patchbay approve --tools %s again.", st.Name)
	}
	defer h.pinsSeq.Add(1)
	return h.updatePins(ctx, func(p *policy.Pins) { p.Accept(st.hash, policy.ReadDefinitions(catalog.Tools), h.opts.Now().UTC()) })
}

func (h *Host) pinnedServer(ctx context.Context, name string) (ServerStatus, *conn.Catalog, error) {
	sv, _, err := h.connect(ctx, name)
	if err != nil {
		return ServerStatus{}, nil, err
	}
	st, err := h.Server(name)
	if err == nil && sv.Catalog() == nil {
		err = errorf(KindTransport, "Server %q has not listed its tools.", st.Name)
	}
	return st, sv.Catalog(), err
}

// updatePins changes the pins on disk and in memory; pinsMu is held.
func (h *Host) updatePins(ctx context.Context, change func(*policy.Pins)) error {
	_, err := atomicfile.Update(ctx, h.places.pinsFile(), h.ownFile(), func(old []byte) ([]byte, error) {
		pins := policy.Pins{}
		if len(old) > 0 {
			if err := pins.UnmarshalJSON(old); err != nil {
				return nil, errorf(KindConfigInvalid, "%s is damaged: %v", h.places.pinsFile(), err)
			}
		}
		for _, l := range h.pinsUnsaved {
			l.addTo(&pins)
		}
		change(&pins)
		h.pins = pins
		return json.Marshal(pins)
	})
	if err == nil {
		h.pinsUnsaved = nil
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
	data, err := atomicfile.Read(h.places.pinsFile(), maxPins)
	pins := policy.Pins{}
	if err == nil {
		err = pins.UnmarshalJSON(data) // json.Unmarshal would read it twice
	}
	h.pinsDamaged = err != nil && !errors.Is(err, fs.ErrNotExist)
	if h.pinsDamaged {
		problems = []config.Problem{{
			Severity: config.SeverityError, File: h.places.pinsFile(),
			Message: "no pin can be read, so pinned tools count as changed: " + err.Error(), Hint: pinsHint,
		}}
		pins = h.pins
	}
	if h.pinsDamaged != wasDamaged || !reflect.DeepEqual(pins, h.pins) {
		h.pinsSeq.Add(1)
		h.pins = pins
		h.news.announce()
	}
	return problems
}
