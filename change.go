package patchbay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/policy"
)

// nativeProvider is the provider id of Patchbay's own files.
const nativeProvider = "patchbay"

// Change says what an operation did to which file.
type Change struct {
	Action string       `json:"action"` // added, replaced, removed, renamed, enabled, disabled, shared, not shared, imported, approved, rejected, accepted, answered, unchanged
	Name   string       `json:"name"`
	Scope  config.Scope `json:"scope,omitempty"`
	File   string       `json:"file,omitempty"` // the file that was changed, or would be
	Note   string       `json:"note,omitempty"`
	DryRun bool         `json:"dryRun,omitempty"`
}

// AddRequest asks for a new server in one of Patchbay's own files.
type AddRequest struct {
	Name  string       `json:"name"`
	Scope config.Scope `json:"scope"` // local, project or user; empty means local

	// Server is the entry in the form of mcp.json, secrets in clear.
	Server json.RawMessage `json:"server"`

	Replace bool `json:"replace,omitempty"` // overwrite an entry of that name in the file
}

// Add writes a new server into the file of its scope. An entry added to the
// project's file is approved at once: the person who adds it has seen it.
func (h *Host) Add(ctx context.Context, r AddRequest) (Change, error) {
	ctx, end := h.change(ctx)
	defer end()
	if err := config.CheckName(r.Name); err != nil {
		return Change{}, errorf(KindConfigInvalid, "%v", err)
	}
	if r.Scope == "" {
		r.Scope = config.ScopeLocal
	}
	path, opts, err := h.fileOf(r.Scope)
	if err != nil {
		return Change{}, err
	}
	if _, err := checkServer(r.Name, r.Server); err != nil {
		return Change{}, err
	}
	if st, ok := h.nearlyCalled(r.Name); ok {
		return Change{}, errorf(KindConfigInvalid, "Server %q exists already as %q in %s; names that differ only in case are not told apart by every product", r.Name, st.Name, st.Origin.File)
	}
	change := Change{Action: "added", Name: r.Name, Scope: r.Scope, File: path}
	_, err = atomicfile.Update(ctx, path, opts, func(old []byte) ([]byte, error) {
		existing, err := serversIn(path, old)
		if err != nil {
			return nil, err
		}
		switch taken := takenBy(existing, r.Name); {
		case taken == r.Name && r.Replace:
			change.Action = "replaced"
		case taken == r.Name:
			return nil, errorf(KindConfigInvalid, "Server %q already exists in %s", r.Name, path).
				hint("Remove it first, or use --replace.")
		case taken != "":
			return nil, errorf(KindConfigInvalid, "Server %q already exists in %s as %q; names that differ only in case are not told apart by every product", r.Name, path, taken)
		}
		return setOwn(old, config.PointerTo("/mcpServers", r.Name), r.Server)
	})
	if err != nil {
		return Change{}, err
	}
	if err := h.reload(ctx); err != nil {
		return Change{}, err
	}
	if r.Scope == config.ScopeProject {
		if err := h.approveAdded(ctx, path, r.Name); err != nil {
			return change, err
		}
		change.Note = approvedNote
	}
	if st, ok := h.declared(path, r.Name); ok {
		notes := []string{change.Note}
		if st.State == config.Failed {
			notes = append(notes, st.Reason) // a variable is not set, for example
		}
		for _, p := range st.Problems {
			if p.Severity == config.SeverityWarning { // such as members that nobody reads
				notes = append(notes, p.Message)
			}
		}
		change.Note = strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
	}
	return change, nil
}

// declared returns the declaration of a name in a file.
func (h *Host) declared(path, name string) (ServerStatus, bool) {
	all := h.reading.Load().snap.Servers
	i := slices.IndexFunc(all, func(st ServerStatus) bool { return st.Name == name && st.Origin.File == path })
	if i < 0 {
		return ServerStatus{}, false
	}
	return all[i], true
}

// takenBy returns the name among a file's servers that a new one would collide
// with, if there is one.
func takenBy(servers []config.Member, name string) string {
	i := slices.IndexFunc(servers, func(m config.Member) bool { return m.Name == name })
	if i < 0 {
		i = slices.IndexFunc(servers, func(m config.Member) bool { return strings.EqualFold(m.Name, name) })
	}
	if i < 0 {
		return ""
	}
	return servers[i].Name
}

// nearlyCalled finds a server whose name differs from a new one only in case.
// What a project declares without having been approved keeps no name from
// anybody, and where the very name exists too there is nothing new.
func (h *Host) nearlyCalled(name string) (ServerStatus, bool) {
	all := h.reading.Load().snap.Servers
	if slices.ContainsFunc(all, func(st ServerStatus) bool { return st.Name == name }) {
		return ServerStatus{}, false
	}
	i := slices.IndexFunc(all, func(st ServerStatus) bool {
		return st.InForce && strings.EqualFold(st.Name, name) && (st.Origin.Project == "" || st.approved)
	})
	if i < 0 {
		return ServerStatus{}, false
	}
	return all[i], true
}

// approvedNote is said of an entry that was written into the project's file.
const approvedNote = "approved for you; others who use this project are asked"

// approveAdded approves the entries that were just written to a project file.
func (h *Host) approveAdded(ctx context.Context, path string, names ...string) error {
	var added []subject
	for _, name := range names {
		if st, ok := h.declared(path, name); ok && st.Origin.Project != "" {
			added = append(added, st.subject())
		}
	}
	return h.record(ctx, policy.Approve, added...)
}

// checkServer decodes and validates an entry that is to be written.
func checkServer(name string, raw json.RawMessage) (config.Server, error) {
	node, err := config.ParseJSON(raw)
	if err != nil {
		return config.Server{}, errorf(KindConfigInvalid, "Invalid server config: %v", err)
	}
	if node.Kind != config.Object {
		return config.Server{}, errorf(KindConfigInvalid, "Invalid server config: expected an object with \"command\" or \"url\", found %s", node.Kind)
	}
	f := config.NewFields(node, "", "")
	s := config.DecodeServer(f)
	s.Extra = f.Rest()
	for _, p := range config.Validate(name, s, config.Strict) {
		if p.Severity == config.SeverityError { // what it warns of is said when the file is read
			*f.Problems = append(*f.Problems, f.Locate(p))
		}
	}
	var bad []config.Problem
	for _, p := range *f.Problems {
		if p.Severity == config.SeverityError || p.Severity == config.SeverityWarning {
			p.Message = strings.Replace(p.Message, ", ignoring:", ":", 1) // which readers do
			bad = append(bad, p)
		}
	}
	if len(bad) > 0 {
		invalid := &config.InvalidError{Problems: bad}
		e := &Error{Kind: KindConfigInvalid, Message: invalid.Error(), Problems: bad}
		if s.Type == "" && s.Command == "" && s.URL != "" {
			e.Hint = `For a server at a URL add "type": "http", or "sse".`
		}
		return s, e
	}
	return s, nil
}

// fileOf returns the file of a scope and the rules for writing it.
func (h *Host) fileOf(scope config.Scope) (string, atomicfile.Options, error) {
	switch scope {
	case config.ScopeUser:
		return h.places().userFile(), atomicfile.Options{Mode: 0o600, FollowSymlink: true, LockDir: h.places().lockDir()}, nil
	case config.ScopeLocal:
		return h.places().localFile(), h.ownFile(), nil
	case config.ScopeProject:
		return h.places().projectFile(), atomicfile.Options{Mode: 0o644, Within: h.places().project, LockDir: h.places().lockDir()}, nil
	}
	return "", atomicfile.Options{}, errorf(KindConfigInvalid, "Invalid scope %q: expected local, user or project", scope)
}

// serversIn returns the servers a native file declares.
func serversIn(path string, data []byte) ([]config.Member, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	node, err := config.ParseJSON(data)
	if syntax, ok := errors.AsType[*config.SyntaxError](err); ok {
		p := config.Problem{Severity: config.SeverityError, File: path, Line: syntax.Line, Column: syntax.Column, Message: syntax.Message}
		return nil, &Error{Kind: KindConfigInvalid, Message: p.String(), Hint: "Nothing was changed. Correct the file first.", Problems: []config.Problem{p}}
	}
	servers, _ := node.Get("mcpServers")
	return servers.Members, err
}

// RemoveRequest names a server to remove.
type RemoveRequest struct {
	Name  string       `json:"name"`
	Scope config.Scope `json:"scope,omitempty"` // empty: wherever Patchbay's own files have it, if in one only
	From  string       `json:"from,omitempty"`  // id of another product whose JSON file is to be edited
}

// Remove deletes a server from the file that declares it. Files of other
// products are edited only if the request names the product.
func (h *Host) Remove(ctx context.Context, r RemoveRequest) (Change, error) {
	ctx, end := h.change(ctx)
	defer end()
	st, err := h.written(r, byHand{
		notJSON:   fmt.Sprintf("Remove the entry there by hand, or run `patchbay disable %s`.", r.Name),
		sameScope: "Remove it from one of the files by hand.",
		elsewhere: fmt.Sprintf("`patchbay disable %s` switches it off here; `patchbay remove %s --from PRODUCT` edits that file.", r.Name, r.Name),
	})
	if err != nil {
		return Change{}, err
	}
	opts, err := h.fileOptions(st.Origin)
	if err != nil {
		return Change{}, err
	}
	changed, err := atomicfile.Update(ctx, st.Origin.File, opts, func(old []byte) ([]byte, error) {
		return config.RemoveMember(old, st.Origin.Pointer)
	})
	if err != nil {
		return Change{}, err
	}
	if !changed {
		return Change{}, errorf(KindNotFound, "Server %q not found in %s", r.Name, st.Origin.File)
	}
	return Change{Action: "removed", Name: st.Name, Scope: st.Origin.Scope, File: st.Origin.File}, h.reload(ctx)
}

// fileOptions returns the rules for writing the file of an entry.
func (h *Host) fileOptions(o config.Origin) (opts atomicfile.Options, err error) {
	switch {
	case o.Provider == nativeProvider:
		_, opts, err = h.fileOf(o.Scope)
		return opts, err
	case o.Project != "":
		return atomicfile.Options{Within: h.places().project, LockDir: h.places().lockDir()}, nil
	}
	return atomicfile.Options{Mode: 0o600, FollowSymlink: true, LockDir: h.places().lockDir()}, nil
}

// byHand is what a person can do where a declaration is not edited.
type byHand struct {
	notJSON   string
	sameScope string // it is in several files of one scope
	elsewhere string // it is in a file of another product, PRODUCT
}

// written finds the one declaration that is to be edited.
func (h *Host) written(r RemoveRequest, instead byHand) (ServerStatus, error) {
	provider := cmp.Or(productID(r.From), nativeProvider)
	if err := unknownProduct(provider); err != nil {
		return ServerStatus{}, err
	}
	var found []ServerStatus
	var elsewhere *ServerStatus
	all := h.reading.Load().snap.Servers
	for i, st := range all {
		switch {
		case !st.called(r.Name):
		case st.Origin.Provider != provider:
			elsewhere = &all[i]
		case r.Scope == "" || r.Scope == st.Origin.Scope:
			found = append(found, st)
		}
	}
	switch {
	case len(found) == 1 && !editable(found[0].Origin.File):
		return ServerStatus{}, errorf(KindConfigInvalid, "%s is not JSON; Patchbay does not edit it.", found[0].Origin.File).
			hint("%s", instead.notJSON)
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var places []string
		sameScope := true
		for _, st := range found {
			places = append(places, fmt.Sprintf("%s (%s)", st.Origin.Scope, st.Origin.File))
			sameScope = sameScope && st.Origin.Scope == found[0].Origin.Scope
		}
		err := errorf(KindConfigInvalid, "Server %q exists in several places: %s", r.Name, strings.Join(places, ", "))
		if sameScope {
			return ServerStatus{}, err.hint("%s", instead.sameScope)
		}
		return ServerStatus{}, err.hint("Say which with --scope.")
	case r.Scope != "":
		return ServerStatus{}, errorf(KindNotFound, "Server %q not found in %s config.", r.Name, r.Scope)
	case elsewhere != nil:
		o := elsewhere.Origin
		return ServerStatus{}, errorf(KindNotFound, "Server %q comes from %s (%s:%d), not from Patchbay's own files.", r.Name, o.Product, o.File, o.Line).
			hint("%s", strings.ReplaceAll(instead.elsewhere, "PRODUCT", o.Provider))
	}
	_, err := h.reading.Load().find(r.Name)
	if err == nil {
		err = errorf(KindNotFound, "Server %q not found.", r.Name)
	}
	return ServerStatus{}, err
}

// editable reports whether a file is of a format that is edited in place.
func editable(path string) bool {
	lower := strings.ToLower(path)
	return strings.HasSuffix(lower, ".json") || strings.HasSuffix(lower, ".jsonc")
}

// SetEnabled switches a server on or off. In the user's own entries the switch
// is the entry's `enabled` member; for entries of a project or of another
// product it is kept as an override in the user's own files, so that nobody
// else's file changes.
// A name server.tool means one of its tools, which a rule of the user's settings
// then denies, or denies no more.
func (h *Host) SetEnabled(ctx context.Context, name string, on bool) (Change, error) {
	ctx, end := h.change(ctx)
	defer end()
	st, err := h.reading.Load().find(name)
	if err != nil {
		if server, tool, ok := h.toolOf(name); ok {
			return h.setToolEnabled(ctx, server, tool, on)
		}
		return Change{}, err
	}
	if st.Skip != "" {
		return Change{}, errorf(KindConfigInvalid, "Server %q cannot be switched: %s", st.Name, st.Skip)
	}
	if st.Origin.Scope == config.ScopeManaged {
		return Change{}, errorf(KindDenied, "Server %q is managed by the administrator (%s).", st.Name, st.Origin.File)
	}
	if st.entry.Forbidden && on {
		return Change{}, errorf(KindDenied, "Server %q is forbidden by the administrator: %s", st.Name, st.entry.Off)
	}
	scope, other := config.ScopeUser, config.ScopeLocal
	if st.Origin.Scope != config.ScopeUser {
		scope, other = other, scope // what belongs to one project is switched for one project
	}
	change := Change{Action: "disabled", Name: st.Name, Scope: scope}
	overrides := "enabledServers" // of the other file, if it says the opposite
	if on {
		change.Action, overrides = "enabled", "disabledServers"
	}
	path, changed, err := h.editScope(ctx, scope, func(path string, old []byte) ([]byte, error) {
		own := st.Origin.Provider == nativeProvider && st.Origin.File == path
		return switchServer(old, *st, on, own)
	})
	if err != nil {
		return Change{}, err
	}
	change.File = path
	otherPath, otherChanged, err := h.editScope(ctx, other, func(_ string, old []byte) ([]byte, error) {
		return setListed(old, overrides, st.Name, false)
	})
	switch {
	case err != nil:
		return change, err
	case changed && otherChanged:
		change.Note = fmt.Sprintf("also taken off %s in %s", overrides, otherPath)
	case otherChanged:
		change.Scope, change.File = other, otherPath
	case !changed:
		change.Action, change.Note = "unchanged", fmt.Sprintf("already %s", change.Action)
	}
	if err := h.reload(ctx); err != nil {
		return change, err
	}
	after, err := h.reading.Load().find(name)
	switch {
	case err != nil || !on:
	case after.State == config.NeedsApproval:
		change.Note = fmt.Sprintf("it still needs approval: patchbay approve %s", after.Name)
	case after.State == config.Disabled:
		change.Note = "it is still off: " + after.Reason
	}
	return change, nil
}

// toolOf splits server.tool, where the server is one that is there.
func (h *Host) toolOf(name string) (server ServerStatus, tool string, ok bool) {
	for _, st := range h.Servers() {
		rest, is := strings.CutPrefix(name, st.Name+".")
		if is && rest != "" && st.InForce && len(st.Name) > len(server.Name) {
			server, tool, ok = st, rest, true
		}
	}
	return server, tool, ok
}

// setToolEnabled switches a tool on or off for every agent, with a rule of the
// user's settings that denies it.
func (h *Host) setToolEnabled(ctx context.Context, st ServerStatus, tool string, on bool) (Change, error) {
	var names []string
	for _, t := range st.Tools {
		names = append(names, t.Name)
	}
	if st.Counts != nil && !on && !slices.Contains(names, tool) {
		err := errorf(KindToolNotFound, "Server %q has no tool named %q.", st.Name, tool)
		if n := nearest(tool, names); n != "" {
			return Change{}, err.hint("Did you mean %s.%s?", st.Name, n)
		}
		return Change{}, err.hint("Its tools: patchbay tools %s", st.Name)
	}
	_, opts, err := h.fileOf(config.ScopeUser)
	if err != nil {
		return Change{}, err
	}
	change := Change{Action: "disabled", Name: st.Name + "." + tool, Scope: config.ScopeUser, File: h.places().userSettings()}
	if on {
		change.Action = "enabled"
	}
	changed, err := atomicfile.Update(ctx, change.File, opts, func(old []byte) ([]byte, error) {
		return setDenied(old, "mcp__"+st.Name+"__"+tool, !on)
	})
	switch {
	case err != nil:
		return Change{}, err
	case !changed && on:
		change.Action, change.Note = "unchanged", "no rule of your settings is about this tool alone; patchbay why "+change.Name+" tells what decides"
	case !changed:
		change.Action, change.Note = "unchanged", "already disabled"
	}
	return change, h.reload(ctx)
}

// setDenied edits settings so that they have a rule that denies, or have it not.
func setDenied(src []byte, rule string, denied bool) ([]byte, error) {
	var permissions config.Node
	if len(bytes.TrimSpace(src)) > 0 {
		node, err := config.ParseJSON(src)
		if err != nil {
			return nil, errorf(KindConfigInvalid, "The settings cannot be read: %v", err)
		}
		permissions, _ = node.Get("permissions")
	}
	deny, _ := permissions.Get("deny")
	rules := []json.RawMessage{}
	has := false
	for _, it := range deny.Items {
		if it.Kind == config.String && it.Text == rule {
			has = true
			continue
		}
		rules = append(rules, it.JSON())
	}
	if has == denied {
		return src, nil
	}
	if denied {
		text, err := json.Marshal(rule)
		if err != nil {
			return nil, err
		}
		rules = append(rules, text)
	}
	value, err := json.Marshal(rules)
	if err != nil {
		return nil, err
	}
	return config.SetMember(src, "/permissions/deny", value)
}

// SetShared has all directories have one process of a server of the user's own,
// or each its own again. That is kept in the user's own file, whatever file the
// entry comes from.
func (h *Host) SetShared(ctx context.Context, name string, on bool) (Change, error) {
	ctx, end := h.change(ctx)
	defer end()
	st, err := h.reading.Load().find(name)
	if err != nil {
		return Change{}, err
	}
	switch {
	case st.Skip != "":
		return Change{}, errorf(KindConfigInvalid, "Server %q cannot be shared: %s", st.Name, st.Skip)
	case st.Origin.Project != "":
		return Change{}, errorf(KindConfigInvalid, "Server %q is of a project (%s), and runs there.", st.Name, st.Origin.File)
	case st.Transport != config.Stdio:
		return Change{}, errorf(KindConfigInvalid, "Server %q is no program: it has no directory, and is shared anyway.", st.Name)
	case st.Server.Shared == config.SharedNever:
		return Change{}, errorf(KindConfigInvalid, "Server %q has \"shared\": false in its entry (%s).", st.Name, st.Origin.File)
	}
	change := Change{Action: "shared", Name: st.Name, Scope: config.ScopeUser}
	if !on {
		change.Action = "not shared"
	}
	path, changed, err := h.editScope(ctx, config.ScopeUser, func(_ string, old []byte) ([]byte, error) {
		return setListed(old, "sharedServers", st.Name, on)
	})
	if err != nil {
		return Change{}, err
	}
	change.File = path
	if !changed {
		change.Action, change.Note = "unchanged", fmt.Sprintf("already %s", change.Action)
	}
	if err := h.reload(ctx); err != nil {
		return change, err
	}
	if after, err := h.reading.Load().find(name); err == nil && !on && after.Server.Shared == config.SharedUser {
		change.Note = fmt.Sprintf("its entry says \"shared\": \"user\" (%s)", after.Origin.File)
	}
	return change, nil
}

// editScope edits the native file of a scope, unless the file is damaged.
func (h *Host) editScope(ctx context.Context, scope config.Scope, edit func(path string, old []byte) ([]byte, error)) (path string, changed bool, err error) {
	path, opts, err := h.fileOf(scope)
	if err != nil {
		return "", false, err
	}
	changed, err = atomicfile.Update(ctx, path, opts, func(old []byte) ([]byte, error) {
		if _, err := serversIn(path, old); err != nil {
			return nil, err
		}
		return edit(path, old)
	})
	return path, changed, err
}

// switchServer edits a native file so that the server is on or off: in its own
// entry if the file has it, else in the lists of overrides.
func switchServer(src []byte, st ServerStatus, on, own bool) ([]byte, error) {
	out, err := setListed(src, "disabledServers", st.Name, !on && !own)
	if err != nil {
		return nil, err
	}
	if out, err = setListed(out, "enabledServers", st.Name, on && !own && !st.entry.Enabled()); err != nil {
		return nil, err
	}
	pointer := st.Origin.Pointer + "/enabled"
	switch {
	case own && on && st.Server.Enabled != nil:
		return config.RemoveMember(out, pointer)
	case own && !on:
		return config.SetMember(out, pointer, json.RawMessage("false"))
	}
	return out, nil
}

// setListed puts a name on a list of names at the top of the file, or takes it
// off, and leaves the file alone if nothing changes.
func setListed(src []byte, list, name string, listed bool) ([]byte, error) {
	var names []string
	if len(bytes.TrimSpace(src)) > 0 {
		node, err := config.ParseJSON(src)
		if err != nil {
			return nil, err
		}
		current, _ := node.Get(list)
		for _, it := range current.Items {
			names = append(names, it.Text)
		}
	}
	if slices.Contains(names, name) == listed {
		return src, nil
	}
	if listed {
		names = append(names, name)
	} else {
		names = slices.DeleteFunc(names, func(n string) bool { return n == name })
	}
	if len(names) == 0 {
		return config.RemoveMember(src, "/"+list)
	}
	value, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	return setOwn(src, "/"+list, value)
}

// setOwn sets a member of a native file. A new file says which schema it
// follows, so that editors help with the rest.
func setOwn(src []byte, pointer string, value json.RawMessage) ([]byte, error) {
	if len(bytes.TrimSpace(src)) == 0 {
		var err error
		if src, err = config.SetMember(src, "/$schema", json.RawMessage(`"`+config.ServersSchemaURL+`"`)); err != nil {
			return nil, err
		}
	}
	out, err := config.SetMember(src, pointer, value)
	if err == nil && len(out) > config.MaxFileSize {
		err = errorf(KindConfigInvalid, "The file would be larger than %d MiB, and is not read then.", config.MaxFileSize>>20)
	}
	return out, err
}
