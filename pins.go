package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const maxPins = 64 << 20

// pinned compares a server's tools with the definitions that were seen first,
// remembers new ones, and returns the names of those that may not be called.
func (h *Host) pinned(st ServerStatus, c *conn.Catalog) (changed []string) {
	mode := policy.Mode(st.entry)
	if mode == config.PinOff || c.Cached {
		return nil
	}
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	report := h.pins.Check(st.hash, c.Tools)
	if len(report.New) > 0 {
		err := h.updatePins(h.life, func(p *policy.Pins) { p.Learn(st.hash, c.Tools, h.opts.Now().UTC()) })
		if err != nil {
			h.opts.Logger.Warn("pins not saved", "server", st.Name, "error", err)
		}
	}
	if len(report.Changed) > 0 {
		h.opts.Logger.Warn("tool definitions changed", "server", st.Name, "tools", report.Changed)
	}
	if mode != config.PinStrict {
		return nil
	}
	return report.Changed
}

// ToolChange is a tool whose definition is not the one that was accepted.
type ToolChange struct {
	Tool string `json:"tool"`
	Diff string `json:"diff"` // safe to print
}

// ToolChanges returns how the tools of a server differ from what was accepted.
func (h *Host) ToolChanges(ctx context.Context, name string) ([]ToolChange, error) {
	st, catalog, err := h.pinnedServer(ctx, name)
	if err != nil {
		return nil, err
	}
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	changes := []ToolChange{}
	for _, tool := range h.pins.Check(st.hash, catalog.Tools).Changed {
		for _, def := range catalog.Tools {
			if n, _ := wire.StringMember(def, "name"); n == tool {
				changes = append(changes, ToolChange{Tool: tool, Diff: h.pins.Diff(st.hash, def)})
			}
		}
	}
	return changes, nil
}

// AcceptTools accepts the definitions of a server's tools as they are now.
func (h *Host) AcceptTools(ctx context.Context, name string) error {
	st, catalog, err := h.pinnedServer(ctx, name)
	if err != nil {
		return err
	}
	h.pinsMu.Lock()
	err = h.updatePins(ctx, func(p *policy.Pins) { p.Accept(st.hash, catalog.Tools, h.opts.Now().UTC()) })
	h.pinsMu.Unlock()
	h.news.announce()
	return err
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
