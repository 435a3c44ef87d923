package patchbay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/discover"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/secret"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// targets is what the connections should be, given where each server stands.
func (h *Host) targets(servers []ServerStatus) map[string]conn.Target {
	want := map[string]conn.Target{}
	env, denied := h.newSurroundings(), h.denied(servers)
	for _, st := range servers {
		if !st.InForce || st.Skip != "" {
			continue
		}
		t := conn.Target{
			Entry: st.entry, State: st.State, Reason: st.Reason,
			CatalogKey: st.hash, AllowCommands: h.mayRunCommands(st), Workspace: h.places().project, Dir: h.workingDir(st.entry),
			Lazy: h.opts.Lazy || st.Server.Lazy || denied[st.Name] != nil, List: !h.opts.Lazy && denied[st.Name] == nil, Unshared: st.Server.Shared == config.SharedNever,
			InheritAll: h.inheritsAll(st.entry),
		}
		if isAlias(st.Name) { // which its product asks for, and nobody else
			t.Alias, t.Lazy, t.List = true, true, false
		}
		if st.Server.IdleStop != nil {
			t.IdleStop = time.Duration(*st.Server.IdleStop) * time.Millisecond
		}
		if local, ok := h.opts.InProcess[st.Name]; ok && st.Origin.Provider == inProcessProvider {
			if sdk, ok := local.(*sdkServer); ok {
				sdk.log.Store(h.opts.Logger)
			}
			t.Local = local.Serve
		}
		if st.Origin.Project != "" && st.Transport == config.Stdio {
			t.Check = func(file string) (func() error, error) { return h.checkLaunch(st, file) }
		}
		if t.State == config.Pending {
			// Only what may be used is expanded: before that no variable of the
			// host may be looked at.
			t.Inputs, _ = h.opts.Inputs.of(st.entry)
			c := h.connection(st, env)
			t.ConnectHash = policy.ConnectHash(h.common.key, st.entry.Dialect, c.Expanded, c.Around)
		}
		want[st.Name] = t
	}
	return want
}

// denied are the servers of which the settings deny everything, so that no session
// can use them: they are not started unless a person asks for that.
func (h *Host) denied(servers []ServerStatus) map[string]*Rule {
	var names []string
	for _, st := range servers {
		if st.InForce {
			names = append(names, st.Name)
		}
	}
	return policy.Settle([]*policy.Rules{h.reading.Load().rules}, names, nil).Denied
}

// connection is what decides how a server that may be used is connected.
func (h *Host) connection(st ServerStatus, env *surroundings) policy.Connection {
	answers, _ := h.opts.Inputs.of(st.entry)
	expanded, _ := config.Expand(st.Server, st.entry.Dialect, h.vars().Answered(answers))
	if expanded.Transport() == config.Stdio && !filepath.IsAbs(expanded.Cwd) {
		expanded.Cwd = filepath.Join(h.workingDir(st.entry), expanded.Cwd)
	}
	return policy.Connection{Written: st.Server, Expanded: expanded, Around: env.of(st.entry, expanded, h.inheritsAll(st.entry))}
}

// workingDir is where an entry's program runs unless the entry says otherwise. A
// program of the user's own for every project runs in the directory that the host
// works in, as it would as a child of its product, or, if all directories are to
// have one, in the home directory. What is for this host or its project alone runs
// at the project's root.
func (h *Host) workingDir(e config.Entry) string {
	everywhere := e.Origin.Scope == config.ScopeUser || e.Origin.Scope == config.ScopeManaged
	switch {
	case e.Origin.Project == "" && e.Server.Shared == config.SharedUser:
		return h.opts.Home
	case everywhere && e.Origin.Project == "" && e.Origin.File != "" && !slices.Contains(h.opts.Files, e.Origin.File):
		if filepath.Dir(h.opts.Dir) == h.opts.Dir { // the root, where desktops start programs
			return h.opts.Home
		}
		return h.opts.Dir
	}
	return h.places().project
}

// inheritsAll reports whether an entry's program gets the whole environment: if
// it does in its product, and the entry is the user's own.
func (h *Host) inheritsAll(e config.Entry) bool {
	return e.Origin.Project == "" && discover.InheritsAll(e.Origin.Provider) &&
		h.reading.Load().settings.Discovery.InheritEnv != config.InheritBasic
}

// mayRunCommands reports whether `!command` values of an entry may run: those
// of a project once it is approved, those of a user's file if nobody else can
// write to it.
func (h *Host) mayRunCommands(st ServerStatus) bool {
	switch {
	case st.Origin.Project != "":
		return st.approved
	case st.Origin.File == "":
		return true // the program's own
	}
	info, err := os.Stat(st.Origin.File)
	return err == nil && secret.CheckOwner(info) == nil
}

// The provider ids of the embedding program's own servers, in its process and
// outside.
const (
	inProcessProvider = "inprocess"
	programProvider   = "program"
)

// inProcessEntries declares the servers of the embedding program. They come
// before any file: the program knows what it brings.
func (h *Host) inProcessEntries() []config.Entry {
	servers := map[string]config.Server{}
	for name := range h.opts.InProcess {
		servers[name] = config.Server{Type: config.InProcess}
	}
	return programEntries(servers, config.Entry{Origin: config.Origin{Provider: inProcessProvider, Product: "This program", Priority: 120, Scope: config.ScopeUser}})
}

// Apply sets the servers that the program itself adds to those of the files, in
// place of those it set before. A server that stays as it was keeps its
// connection. One that is invalid is there as failed, with its problems, and does
// not harm the others; with FailOnInvalid it is an error, and none is set.
func (h *Host) Apply(ctx context.Context, servers map[string]config.Server) error {
	ctx, end := h.change(ctx)
	defer end()
	before := h.applied
	h.applied = maps.Clone(servers)
	err := h.reload(ctx)
	if err != nil {
		h.applied = before
	}
	return err
}

// SetServed sets the URLs that Options.Served was for, in place of those.
func (h *Host) SetServed(ctx context.Context, urls []string) error {
	ctx, end := h.change(ctx)
	defer end()
	h.served = slices.Clone(urls)
	return h.reload(ctx)
}

// appliedEntries declares what Apply was given.
func (h *Host) appliedEntries() []config.Entry {
	return programEntries(h.applied, config.Entry{
		Dialect: config.DialectPatchbay,
		Origin:  config.Origin{Provider: programProvider, Product: "This program", Priority: 115, Scope: config.ScopeUser},
	})
}

// programEntries makes entries like one of servers that the program names, with
// all that is wrong with each.
func programEntries(servers map[string]config.Server, like config.Entry) []config.Entry {
	titles := slices.Sorted(maps.Keys(servers))
	names := discover.Identifiers(titles) // under which what has a bad name can be shown
	var entries []config.Entry
	for _, title := range titles {
		e := like
		e.Name, e.Server = names[title], servers[title]
		if e.Name != title {
			e.Title = title
		}
		if err := config.CheckName(title); err != nil {
			e.Problems = append(e.Problems, config.Problem{Severity: config.SeverityError, Message: err.Error()})
		}
		e.Problems = append(e.Problems, config.Validate(title, e.Server, config.Lenient)...)
		entries = append(entries, e)
	}
	return entries
}

// connected returns the connection that stands for a server, for use by a
// session with the given profile.
func (h *Host) connected(name string, p conn.Profile) (*conn.Server, error) {
	st, err := h.reading.Load().find(name)
	if err != nil {
		return nil, err
	}
	if h.life.Err() != nil {
		return nil, errorf(KindDenied, "The host is closed.")
	}
	if err := st.refusal(); err != nil {
		return nil, err
	}
	sv, ok := h.manager.Server(st.Name, p)
	if !ok {
		return nil, errorf(KindNotFound, "Server %q is not there any more.", st.Name)
	}
	return sv, nil
}

// refusal says why nobody can use a declaration, as far as that is known without a
// connection; nil if it may be used.
func (st *ServerStatus) refusal() error {
	switch {
	case st.Skip != "":
		return errorf(KindDenied, "Server %q cannot be connected: %s", st.Name, st.Skip)
	case st.State == config.Disabled && st.Reason == notAllowed:
		return errorf(KindDenied, "Server %q is %s.", st.Name, notAllowed)
	case st.Forbidden:
		return errorf(KindDenied, "Server %q is forbidden by the administrator: %s.", st.Name, st.Reason)
	case st.State == config.Disabled:
		return errorf(KindDenied, "Server %q is disabled. Run patchbay enable %s first.", st.Name, st.Name)
	case st.State == config.NeedsApproval:
		return errorf(KindDenied, "Server %q needs approval. Run patchbay approve %s first.", st.Name, st.Name)
	case !st.entry.Valid():
		return &Error{Kind: KindConfigInvalid, Message: fmt.Sprintf("Server %q is invalid: %s", st.Name, st.invalidity()), Problems: st.Problems}
	case st.NeedsInput():
		return inputError(st)
	}
	return nil
}

// invalidity is why a declaration is invalid, for a sentence that names it already.
func (st *ServerStatus) invalidity() string {
	return strings.TrimPrefix(st.Reason, fmt.Sprintf("Server %q: ", cmp.Or(st.Title, st.Name)))
}

// Reconnect drops a server's connection and makes a new one, and waits for it.
func (h *Host) Reconnect(ctx context.Context, name string) error {
	sv, err := h.connected(name, conn.Profile{})
	if err != nil {
		return err
	}
	return connectError(name, sv.Reconnect(ctx))
}

// Connect makes sure that a server is connected, and waits for it.
func (h *Host) Connect(ctx context.Context, name string) error {
	_, _, err := h.connect(ctx, name)
	return err
}

// connect returns the connection of a server once it is made and the server has
// listed what it offers, and what the server said of itself.
func (h *Host) connect(ctx context.Context, name string) (*conn.Server, *wire.Opening, error) {
	sv, err := h.connected(name, conn.Profile{})
	if err != nil {
		return nil, nil, err
	}
	client, err := sv.Client(ctx)
	if err == nil {
		err = sv.Wait(ctx)
	}
	if err != nil {
		return nil, nil, connectError(name, err)
	}
	return sv, client.Opening(), nil
}

// Wait waits until each of the servers, all if none is named, is connected or
// cannot be: failed, needs-auth, needs-approval or disabled.
func (h *Host) Wait(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		for _, st := range h.reading.Load().snap.Servers {
			if st.InForce && st.Skip == "" {
				names = append(names, st.Name)
			}
		}
	}
	for _, name := range names {
		st, err := h.reading.Load().find(name)
		if err != nil {
			return err
		}
		if sv, ok := h.manager.Server(st.Name, conn.Profile{}); ok {
			_ = sv.Wait(ctx) // how it settled is for the snapshot to say
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Logs returns the last of what a server's process wrote to its standard error.
func (h *Host) Logs(name string) (string, error) {
	st, err := h.Server(name)
	if err != nil {
		return "", err
	}
	if sv, ok := h.manager.Server(st.Name, conn.Profile{}); ok {
		return sv.Logs(), nil
	}
	return "", nil
}

// connectError is the error of a connection that could not be made.
func connectError(name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	kind, hint := KindTransport, ""
	if e, ok := errors.AsType[*conn.CallError](err); ok {
		kind = Kind(e.Kind)
		err = e.Err
	}
	switch answer, _ := errors.AsType[*wire.HTTPError](err); {
	case answer != nil && answer.Status == http.StatusForbidden:
		kind = KindAuthUnavailable // no challenge to answer, but other credentials may do
	case kind == KindServer:
		kind = KindTransport // whatever it answered, there is no connection
	}
	_, proxy := errors.AsType[*wire.ProxyError](err)
	_, limited := errors.AsType[*conn.ConnectTimeout](err)
	switch {
	case proxy:
		hint = "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the environment."
	case errors.Is(err, fs.ErrNotExist):
		hint = "Check that the command or URL is correct."
	case errors.Is(err, fs.ErrPermission):
		hint = "Check that the command may be executed."
	case limited:
		hint = "The server may be slow or unresponsive. Try increasing the timeout: \"connectTimeout\" of its entry, in milliseconds."
	case kind == KindTimeout:
		hint = "The server may be slow or unresponsive."
	case kind == KindAuthUnavailable:
		hint = "Check your authentication credentials."
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = "Check that the server is running and that its address is right."
	}
	return &Error{Kind: kind, Message: fmt.Sprintf("Failed to connect to %q: %v", name, err), Hint: hint, RetrySafe: true, cause: err}
}

// unreachable is the error of a call for which there was no connection.
func unreachable(server string, err error) error {
	err = connectError(server, err)
	if e, ok := errors.AsType[*Error](err); ok && e.Hint == "" {
		return e.hint("It is safe to try again.")
	}
	return err
}

// overlay adds what its connection knows to a declaration.
func (st *ServerStatus) overlay(c conn.Status, catalog *conn.Catalog) {
	st.State, st.Reason = c.State, c.Reason
	st.Kind = cmp.Or(Kind(c.Kind), st.Kind)
	st.Restarts = c.Restarts
	for _, step := range c.Steps {
		st.Steps = append(st.Steps, Step(step))
	}
	for _, p := range c.Warnings {
		if p.File == "" { // it has no place yet
			p.File, p.Line, p.Pointer = st.Origin.File, st.Origin.Line, st.Origin.Pointer+p.Pointer
		}
		st.Problems = append(slices.Clip(st.Problems), p)
	}
	if c.Last != nil {
		st.Last = &LastState{c.Last.State, c.Last.Reason, c.Last.At}
	}
	if !c.NextRetry.IsZero() {
		st.NextRetry = &c.NextRetry
	}
	if catalog != nil {
		st.ServerInfo, st.Capabilities, st.Instructions = catalog.ServerInfo, catalog.Capabilities, catalog.Instructions
		st.Cached = catalog.Cached
		st.Counts = &Counts{Tools: len(catalog.Tools), Resources: len(catalog.Resources), Templates: len(catalog.ResourceTemplates), Prompts: len(catalog.Prompts)}
		notes := catalog.Notes
		for _, name := range missingTools(st.Server, catalog) {
			notes = append(slices.Clip(notes), fmt.Sprintf("the entry has a rule for the tool %q, which the server does not offer", name))
		}
		for _, u := range catalog.Unread {
			st.Unlisted = append(st.Unlisted, Unlisted{u.Method, Kind(u.Kind), u.Reason})
		}
		for _, n := range notes {
			st.Problems = append(slices.Clip(st.Problems), config.Problem{Severity: config.SeverityWarning, File: st.Origin.File, Line: st.Origin.Line, Message: n})
		}
	}
	st.StrayOutput = c.Stray
	if c.Opening != nil {
		st.Protocol = c.Opening.Version
	}
	if c.Challenge != nil {
		st.Challenge = &Challenge{Scheme: c.Challenge.Scheme, Params: c.Challenge.Params}
	}
}

// Unlisted is a list of a server that could not be read, and why.
type Unlisted struct {
	Method string `json:"method"` // such as tools/list
	Kind   Kind   `json:"kind"`
	Reason string `json:"reason"`
}

// Step is a part of the way to a connection: resolved, started (a process, for
// servers that are one), connected, listed.
type Step struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"` // in nanoseconds
}

// LastState is how a server stood when it was last tried, by an earlier process.
type LastState struct {
	State  config.State `json:"state"` // connected, needs-auth or failed
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at"`
}

// missingTools returns the tools an entry has rules for and its server does not
// offer: most likely they are misspelt.
func missingTools(s config.Server, c *conn.Catalog) []string {
	if len(s.EnabledTools)+len(s.DisabledTools)+len(s.Tools) == 0 {
		return nil
	}
	var names []string
	for _, def := range c.Tools {
		name, _ := wire.StringMember(def, "name")
		names = append(names, name)
	}
	return policy.MissingToolRules(s, names)
}

// Counts is how much a server offers.
type Counts struct {
	Tools     int `json:"tools"`
	Resources int `json:"resources"`
	Templates int `json:"templates"`
	Prompts   int `json:"prompts"`
}

// clientInfo is how Patchbay introduces itself to servers.
func clientInfo(version string) json.RawMessage {
	info, _ := json.Marshal(map[string]string{"name": "patchbay", "title": "Patchbay", "version": version}) // strings always marshal
	return info
}

func (p places) pinsFile() string   { return filepath.Join(p.state, "pins.json") }
func (p places) catalogDir() string { return filepath.Join(p.cache, "catalogs") }
func (p places) resultsDir() string { return filepath.Join(p.cache, "results") }
