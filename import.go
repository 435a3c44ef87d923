package patchbay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// Provider is a product whose configuration Patchbay knows how to find.
type Provider = discover.Provider

// Providers returns every product Patchbay knows, in order of priority.
func Providers() []Provider { return discover.Providers() }

// ImportRequest asks for a product's servers to be copied into a file of
// Patchbay's own.
type ImportRequest struct {
	Provider string       `json:"provider"`
	Names    []string     `json:"names,omitempty"` // nil means all
	Scope    config.Scope `json:"scope,omitempty"` // empty means user
	DryRun   bool         `json:"dryRun,omitempty"`
}

// Import copies the servers of a product. What is already there is left alone,
// and what cannot be used is reported, not copied.
func (h *Host) Import(ctx context.Context, r ImportRequest) ([]Change, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Scope == "" {
		r.Scope = config.ScopeUser
	}
	path, opts, err := h.fileOf(r.Scope)
	if err != nil {
		return nil, err
	}
	chosen, err := h.importable(r)
	if err != nil {
		return nil, err
	}
	var changes []Change
	copyInto := func(old []byte) ([]byte, error) {
		changes = nil // the file may have to be read again
		existing, err := serversIn(path, old)
		if err != nil {
			return nil, err
		}
		have := map[string]bool{}
		for _, m := range existing {
			have[m.Name] = true
		}
		out := old
		for _, st := range chosen {
			c := Change{Action: "imported", Name: st.Name, Scope: r.Scope, File: path, DryRun: r.DryRun}
			switch {
			case st.Skip != "":
				c.Action, c.Note = "unchanged", st.Skip
			case st.State == config.Failed:
				c.Action, c.Note = "unchanged", st.Reason
			case st.State == config.NeedsApproval:
				c.Action, c.Note = "unchanged", fmt.Sprintf("needs approval first: patchbay approve %s", st.Name)
			case have[st.Name]:
				c.Action, c.Note = "unchanged", "already there"
			default:
				server, note, err := translate(st)
				if err != nil {
					return nil, err
				}
				c.Note = note
				if out, err = config.SetMember(out, config.PointerTo("/mcpServers", st.Name), server); err != nil {
					return nil, err
				}
				have[st.Name] = true
			}
			changes = append(changes, c)
		}
		return out, nil
	}
	if r.DryRun {
		data, err := atomicfile.Read(path, config.MaxFileSize)
		if err != nil {
			data = nil
		}
		_, err = copyInto(data)
		return changes, err
	}
	if _, err := atomicfile.Update(ctx, path, opts, copyInto); err != nil {
		return nil, err
	}
	return changes, h.reload(ctx)
}

// translate renders an entry in the native form, its placeholders rewritten to
// ours, so that it means the same in our file as in its own.
func translate(st ServerStatus) (json.RawMessage, string, error) {
	s, lost := config.Translate(st.Server, st.entry.Dialect)
	s.Type = s.Transport() // a written entry says what it is
	note := ""
	if len(lost) > 0 {
		note = "check by hand: " + joinNames(lost)
	}
	raw := config.EncodeServer(s)
	if _, err := checkServer(st.Name, raw); err != nil {
		return nil, "", fmt.Errorf("%s: %w", st.Name, err)
	}
	return raw, note, nil
}

// importable returns the declarations of a provider that a request means.
func (h *Host) importable(r ImportRequest) ([]ServerStatus, error) {
	known := false
	var ids []string
	for _, p := range Providers() {
		known = known || p.ID == r.Provider
		ids = append(ids, p.ID)
	}
	if !known {
		err := errorf(KindNotFound, "No product named %q.", r.Provider)
		if n := nearest(r.Provider, ids); n != "" {
			return nil, err.hint("Did you mean %q?", n)
		}
		return nil, err.hint("Known: %s", joinNames(ids))
	}
	theirs := slices.DeleteFunc(slices.Clone(h.snap.Servers), func(st ServerStatus) bool { return st.Origin.Provider != r.Provider })
	for _, name := range r.Names {
		if !slices.ContainsFunc(theirs, func(st ServerStatus) bool { return st.called(name) }) {
			return nil, errorf(KindNotFound, "Server %q not found in the configuration of %s.", name, r.Provider)
		}
	}
	chosen := slices.DeleteFunc(theirs, func(st ServerStatus) bool {
		return r.Names != nil && !slices.ContainsFunc(r.Names, st.called)
	})
	if len(chosen) == 0 {
		return nil, errorf(KindNotFound, "%s has no servers configured here.", r.Provider)
	}
	return chosen, nil
}
