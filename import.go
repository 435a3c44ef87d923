package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// Provider is a product whose configuration Patchbay knows how to find.
type Provider = discover.Provider

// Providers returns every product Patchbay knows, in order of priority.
func Providers() []Provider { return discover.Providers() }

// unknownProduct is the error for a product that nobody knows, nil if there is one
// of that id.
func unknownProduct(id string) error {
	var ids []string
	for _, p := range Providers() {
		if p.ID == id {
			return nil
		}
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	err := errorf(KindNotFound, "No product named %q.", id)
	if n := nearest(id, ids); n != "" {
		return err.hint("Did you mean %q?", n)
	}
	return err.hint("Known: %s", joinNames(ids))
}

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
	ctx, end := h.change(ctx)
	defer end()
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
		existing, err := serversIn(path, old)
		if err != nil {
			return nil, err
		}
		changes = nil // the file may have to be read again
		out := old
		for _, st := range chosen {
			c := Change{Action: "imported", Name: st.Name, Scope: r.Scope, File: path, DryRun: r.DryRun}
			server, note, err := importOf(st, existing)
			if c.Note = note; err != nil {
				c.Action, c.Note = "unchanged", err.Error()
				changes = append(changes, c)
				continue
			}
			if out, err = setOwn(out, config.PointerTo("/mcpServers", st.Name), server); err != nil {
				return nil, err
			}
			existing = append(existing, config.Member{Name: st.Name})
			changes = append(changes, c)
		}
		return out, nil
	}
	if r.DryRun {
		data, err := atomicfile.Read(path, config.MaxFileSize)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		_, err = copyInto(data)
		return changes, err
	}
	if _, err := atomicfile.Update(ctx, path, opts, copyInto); err != nil {
		return nil, err
	}
	if err := h.reload(ctx); err != nil || r.Scope != config.ScopeProject {
		return changes, err
	}
	var names []string
	for i := range changes {
		if c := &changes[i]; c.Action == "imported" {
			names = append(names, c.Name)
			c.Note = strings.TrimPrefix(c.Note+"; "+approvedNote, "; ")
		}
	}
	return changes, h.approveAdded(ctx, path, names...)
}

// importOf renders a declaration for a file with these servers, with a note on
// what to look at. The error says why it is not copied. What a project declares
// becomes the user's own by being copied, so it must be approved first.
func importOf(st ServerStatus, existing []config.Member) (server json.RawMessage, note string, err error) {
	switch taken := takenBy(existing, st.Name); {
	case st.Skip != "":
		return nil, "", errors.New(st.Skip)
	case st.State == config.Failed:
		return nil, "", errors.New(st.Reason)
	case st.entry.Forbidden:
		return nil, "", errors.New(st.entry.Off)
	case st.Origin.Project != "" && !st.approved:
		return nil, "", fmt.Errorf("needs approval first: patchbay approve %s", st.Name)
	case taken == st.Name:
		return nil, "", errors.New("already there")
	case taken != "":
		return nil, "", fmt.Errorf("already there as %q", taken)
	}
	return translate(st)
}

// translate renders an entry in the native form, its placeholders rewritten to
// ours, so that it means the same in our file as in its own.
func translate(st ServerStatus) (server json.RawMessage, note string, err error) {
	s, lost := config.Translate(st.Server, st.entry.Dialect)
	s.Type = s.Transport()   // a written entry says what it is
	if !st.entry.Enabled() { // a list beside it may have switched it off
		s.Enabled = new(false)
	}
	if st.Origin.Project != "" { // which may restrict its tools, but not allow them
		s.Tools = slices.Clone(s.Tools)
		for i := range s.Tools {
			if s.Tools[i].PermissionPolicy == config.AlwaysAllow {
				s.Tools[i].PermissionPolicy = ""
			}
		}
	}
	for _, command := range config.Executes(s, config.DialectPatchbay) {
		if !slices.Contains(st.entry.Executes, command) {
			return nil, "", errors.New(`a value that begins with "!" is text there and would be a command here; add the server by hand`)
		}
	}
	if len(lost) > 0 {
		note = "check by hand: " + joinNames(lost)
	}
	server = config.EncodeServer(s)
	_, err = checkServer(st.Name, server)
	return server, note, err
}

// importable returns the declarations of a provider that a request means.
func (h *Host) importable(r ImportRequest) ([]ServerStatus, error) {
	r.Provider = productID(r.Provider)
	if err := unknownProduct(r.Provider); err != nil {
		return nil, err
	}
	theirs := slices.DeleteFunc(slices.Clone(h.reading.Load().snap.Servers), func(st ServerStatus) bool { return st.Origin.Provider != r.Provider })
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
