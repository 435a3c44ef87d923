package patchbay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/policy"
)

// RenameRequest asks for another name of a server.
type RenameRequest struct {
	RemoveRequest        // which one
	NewName       string `json:"newName"`
}

// Rename changes the name of a server in the file that declares it, and nothing
// else there. Files of other products are edited only if the request names the
// product. What was decided about the server follows it: approval, pins, and
// whether it is switched off or shared. Rules of the settings do not; the note
// names them.
func (h *Host) Rename(ctx context.Context, r RenameRequest) (Change, error) {
	ctx, end := h.change(ctx)
	defer end()
	if err := h.reload(ctx); err != nil { // the approval is of what the file says now
		return Change{}, err
	}
	st, err := h.written(r.RemoveRequest, byHand{
		notJSON:   "Rename the entry there by hand.",
		sameScope: "Rename it in one of the files by hand.",
		elsewhere: fmt.Sprintf("`patchbay rename %s %s --from PRODUCT` edits that file.", r.Name, r.NewName),
	})
	if err != nil {
		return Change{}, err
	}
	if err := h.nameFor(st, r.NewName); err != nil {
		return Change{}, err
	}
	opts, err := h.fileOptions(st.Origin)
	if err != nil {
		return Change{}, err
	}
	// What holds for the old name holds for the new one before that is there: the
	// server must not be on, or off, for a moment.
	if err := h.follow(ctx, st, r.NewName); err != nil {
		return Change{}, err
	}
	if err := h.relist(ctx, st.Name, r.NewName, true); err != nil {
		return Change{}, err
	}
	changed, err := atomicfile.Update(ctx, st.Origin.File, opts, func(old []byte) ([]byte, error) {
		return config.RenameMember(old, st.Origin.Pointer, r.NewName)
	})
	if err != nil {
		return Change{}, err
	}
	if !changed {
		return Change{}, errorf(KindNotFound, "Server %q not found in %s", r.Name, st.Origin.File)
	}
	if err := h.relist(ctx, st.Name, r.NewName, false); err != nil {
		return Change{}, err
	}
	change := Change{Action: "renamed", Name: r.NewName, Scope: st.Origin.Scope, File: st.Origin.File, Note: "it was " + st.Name}
	if rules := h.rulesAbout(st.Name); len(rules) > 0 {
		change.Note += fmt.Sprintf("; %s of %s still say %s", strings.Join(rules, ", "), h.places().userSettings(), st.Name)
	}
	return change, h.reload(ctx)
}

// nameFor says why a server cannot have a name.
func (h *Host) nameFor(st ServerStatus, name string) error {
	if err := config.CheckName(name); err != nil {
		return errorf(KindConfigInvalid, "%v", err)
	}
	if name == st.Name {
		return errorf(KindConfigInvalid, "Server %q is called so already.", name)
	}
	for _, other := range h.reading.Load().snap.Servers {
		if other.Name == name || strings.EqualFold(other.Name, name) && originKey(other.entry) != originKey(st.entry) {
			return errorf(KindConfigInvalid, "Server %q exists already as %q in %s; names that differ only in case are not told apart by every product", name, other.Name, other.Origin.File).
				hint("Choose another name.")
		}
	}
	return nil
}

// follow has what was decided about a server hold under another name, too: for
// that definition, whatever the file says when it has the name.
func (h *Host) follow(ctx context.Context, st ServerStatus, name string) error {
	renamed := st.launch
	renamed.Name = name
	hash := policy.ApprovalHash(renamed)
	err := h.updateApprovals(ctx, func(a *policy.Approvals) bool {
		decision, ok := a.Get(st.hash)
		if ok {
			decision.Name = name
			a.Set(hash, decision)
		}
		return ok
	})
	if err != nil {
		return err
	}
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	return h.updatePins(ctx, func(p *policy.Pins) { p.Copy(st.hash, hash) })
}

// relist puts a new name on the lists of the user's files that have the old one,
// or takes that off.
func (h *Host) relist(ctx context.Context, was, is string, before bool) error {
	for _, scope := range []config.Scope{config.ScopeUser, config.ScopeLocal} {
		_, _, err := h.editScope(ctx, scope, func(_ string, old []byte) ([]byte, error) {
			var err error
			for _, list := range []string{"disabledServers", "enabledServers", "sharedServers"} {
				if on, lookErr := listed(old, list, was); lookErr != nil || !on {
					continue
				}
				if before {
					old, err = setListed(old, list, is, true)
				} else {
					old, err = setListed(old, list, was, false)
				}
				if err != nil {
					return nil, err
				}
			}
			return old, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// listed reports whether a name is on a list at the top of a native file.
func listed(src []byte, list, name string) (bool, error) {
	node, err := config.ParseJSON(src)
	if err != nil {
		return false, err
	}
	names, _ := node.Get(list)
	return slices.ContainsFunc(names.Items, func(n config.Node) bool { return n.Kind == config.String && n.Text == name }), nil
}

// rulesAbout are the rules of the user's settings, and the profiles, that name a
// server.
func (h *Host) rulesAbout(server string) (about []string) {
	settings := h.reading.Load().settings
	for _, rules := range [][]string{settings.Permissions.Deny, settings.Permissions.Ask, settings.Permissions.Allow} {
		for _, rule := range rules {
			if name, ok := strings.CutPrefix(rule, "mcp__"); ok && (name == server || strings.HasPrefix(name, server+"__")) {
				about = append(about, rule)
			}
		}
	}
	for name, profile := range settings.Gateway.Profiles {
		if slices.Contains(profile.Servers, server) {
			about = append(about, "the profile "+name)
		}
	}
	slices.Sort(about)
	return about
}
