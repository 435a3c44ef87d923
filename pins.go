package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const maxPins = 64 << 20

// pinCheck is how the tools of one catalog compare with what was accepted.
type pinCheck struct {
	catalog *conn.Catalog
	changed []string
}

// pinned compares a server's tools with the definitions that were seen first,
// remembers new ones, and returns the names of those that may not be called.
func (h *Host) pinned(st ServerStatus, c *conn.Catalog) (changed []string) {
	mode := policy.Mode(st.entry)
	if mode == config.PinOff {
		return nil
	}
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	check := h.pinChecks[st.hash]
	if check.catalog != c {
		check = pinCheck{c, h.checkPins(st, c)}
		h.pinChecks[st.hash] = check
	}
	if mode != config.PinStrict {
		return nil
	}
	return check.changed
}

// checkPins is pinned for a catalog that was not looked at yet; pinsMu is held.
func (h *Host) checkPins(st ServerStatus, c *conn.Catalog) (changed []string) {
	report := h.pins.Check(st.hash, c.Tools)
	if len(report.New) > 0 && !c.Cached {
		err := h.updatePins(h.life, func(p *policy.Pins) { p.Learn(st.hash, c.Tools, h.opts.Now().UTC()) })
		if err != nil {
			h.opts.Logger.Warn("pins not saved", "server", st.Name, "error", err)
		}
	}
	if len(report.Changed) > 0 {
		h.opts.Logger.Warn("tool definitions changed", "server", st.Name, "tools", report.Changed)
	}
	return report.Changed
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
	return h.toolChanges(st, catalog), nil
}

// toolChanges is ToolChanges for a catalog; pinsMu is held.
func (h *Host) toolChanges(st ServerStatus, catalog *conn.Catalog) []ToolChange {
	changes := []ToolChange{}
	changed := h.pins.Check(st.hash, catalog.Tools).Changed
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
	delete(h.pinChecks, st.hash)
	return h.updatePins(ctx, func(p *policy.Pins) { p.Accept(st.hash, catalog.Tools, h.opts.Now().UTC()) })
}

func (h *Host) pinnedServer(ctx context.Context, name string) (ServerStatus, *conn.Catalog, error) {
	sv, err := h.connect(ctx, name)
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
			if err := json.Unmarshal(old, &pins); err != nil {
				return nil, errorf(KindConfigInvalid, "%s is damaged: %v", h.places.pinsFile(), err)
			}
		}
		change(&pins)
		h.pins = pins
		return json.Marshal(pins)
	})
	return err
}

// readPins reads the pins. If they cannot be read every pinned tool counts as
// new, and the problem says so.
func (h *Host) readPins() []config.Problem {
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	data, err := atomicfile.Read(h.places.pinsFile(), maxPins)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	pins := policy.Pins{}
	if err == nil {
		err = json.Unmarshal(data, &pins)
	}
	if err != nil {
		return []config.Problem{{Severity: config.SeverityError, File: h.places.pinsFile(), Message: "no pin can be read: " + err.Error(), Hint: "Move the file away; tools are then remembered anew."}}
	}
	h.pins = pins
	return nil
}
