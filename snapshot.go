package patchbay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/discover"
	"github.com/patchbay-mcp/patchbay/internal/policy"
)

// Snapshot is everything a host knows at one moment. It does not change once
// made.
type Snapshot struct {
	Seq      uint64           `json:"seq"`                // grows with every change
	Dir      string           `json:"dir"`                // the working directory
	Project  string           `json:"project"`            // the project around it
	Servers  []ServerStatus   `json:"servers"`            // sorted by name, then by precedence
	Files    []SourceFile     `json:"files"`              // every file that was found
	Hooks    *HooksStatus     `json:"hooks,omitempty"`    // of the project, if it has any
	Problems []config.Problem `json:"problems,omitempty"` // of files as a whole
}

// SourceFile is one configuration file that was found, and what became of it.
type SourceFile = discover.File

// SkipItself is ServerStatus.Skip of an entry that is Patchbay itself.
const SkipItself = discover.SkipItself

// ServerStatus is one declaration of a server and where it stands.
type ServerStatus struct {
	Name   string       `json:"name"`
	Title  string       `json:"title,omitempty"` // the name as its file spells it, where that differs
	State  config.State `json:"state"`
	Reason string       `json:"reason,omitempty"`
	Kind   Kind         `json:"kind,omitempty"` // of what went wrong, if it has failed or needs authentication

	InForce    bool           `json:"inForce"`              // this declaration stands for the name
	ShadowedBy *config.Origin `json:"shadowedBy,omitempty"` // the declaration that comes before it
	Why        string         `json:"why,omitempty"`        // the rule by which it does
	Forbidden  bool           `json:"forbidden,omitempty"`  // by an administrator, which nobody else lifts; Reason says where
	SameAs     []string       `json:"sameAs,omitempty"`     // other servers that are the same connection
	Skip       string         `json:"skip,omitempty"`       // why it can never be connected from here

	Transport config.Transport `json:"transport"`
	Target    string           `json:"target"` // command line or URL, masked
	Origin    config.Origin    `json:"origin"`
	Adopted   string           `json:"adopted,omitempty"` // the endpoint by which its product uses it through Patchbay
	Config    json.RawMessage  `json:"config"`            // the entry, masked unless secrets were asked for

	ServerInfo   json.RawMessage `json:"serverInfo,omitempty"`   // as the server introduced itself
	Capabilities json.RawMessage `json:"capabilities,omitempty"` // that the server declares
	Instructions string          `json:"instructions,omitempty"` // what the server wants a model to know
	Protocol     string          `json:"protocol,omitempty"`     // the revision being spoken
	Counts       *Counts         `json:"counts,omitempty"`       // what it offers, once that is known
	Tools        []ToolInfo      `json:"tools,omitempty"`        // of those the tools, in the server's order; not to be changed
	Cached       bool            `json:"cached,omitempty"`       // known from an earlier connection
	Unlisted     []Unlisted      `json:"unlisted,omitempty"`     // what of it could not be read
	Pins         *PinStatus      `json:"pins,omitempty"`         // what of it is not as it was accepted; nil if all is
	NextRetry    *time.Time      `json:"nextRetry,omitempty"`
	StrayOutput  string          `json:"strayOutput,omitempty"` // the first text it printed on its standard output, where only messages belong
	Challenge    *Challenge      `json:"challenge,omitempty"`   // what a server wants that needs authentication
	Restarts     int             `json:"restarts,omitempty"`
	Steps        []Step          `json:"steps,omitempty"` // of the last attempt to connect, as far as it came
	Last         *LastState      `json:"last,omitempty"`  // how it was found the last time, if not tried since

	Variables []string         `json:"variables,omitempty"` // host variables it refers to
	Unset     []string         `json:"unset,omitempty"`     // those it needs that are not set
	Inputs    []InputStatus    `json:"inputs,omitempty"`    // what its user is asked for
	Executes  []string         `json:"executes,omitempty"`  // commands that would run to obtain a value, masked
	Problems  []config.Problem `json:"problems,omitempty"`

	// NotPassed are the variables of the host's environment that the program of a
	// server that could not be connected does not get.
	NotPassed []string `json:"notPassed,omitempty"`

	// Server is the entry as configured, secrets and all, for programs that
	// embed the host.
	Server config.Server `json:"-"`

	entry    config.Entry
	launch   policy.Launch // what an approval covers
	hash     string        // of the launch
	approved bool          // it needs an approval and has one
	plain    string        // what rules and hooks call it, where that is not its name
}

// isAlias reports whether a name is that of an adopted server as its product has
// it, <product>/<name>. It means that declaration whatever else is called so, and
// nobody has it who does not ask for it.
func isAlias(name string) bool { return strings.Contains(name, "/") }

// ruled is the name by which rules and hooks know a server.
func (s *ServerStatus) ruled() string { return cmp.Or(s.plain, s.Name) }

// usable reports whether a declaration may be connected, as far as the files
// decide that.
func (s *ServerStatus) usable() bool {
	return s.InForce && s.Skip == "" && s.entry.Valid() && s.State != config.Disabled && s.State != config.NeedsApproval
}

// Challenge is how a server asked for authentication (WWW-Authenticate).
type Challenge struct {
	Scheme string            `json:"scheme"` // in lower case, such as bearer
	Params map[string]string `json:"params,omitempty"`
}

// called reports whether a person who says name means this declaration.
func (s ServerStatus) called(name string) bool {
	return name != "" && (s.Name == name || s.Title == name)
}

// reading is what all configuration said when it was last read. It does not
// change once made.
type reading struct {
	snap     Snapshot       // without connections, which are added when it is looked at
	servers  []ServerStatus // those of snap, and the aliases of adopted ones
	settings config.Settings
	rules    *policy.Rules // of the settings
	shown    []policy.Shown
	inForce  map[string]int // the declaration that stands for a name, by its place in servers

	goodSettings map[string]goodSettings
}

func newReading(snap Snapshot, aliases []ServerStatus, s settings) *reading {
	r := &reading{snap: snap, servers: slices.Concat(snap.Servers, aliases), settings: s.user, rules: policy.NewRules(s.rules, true), shown: s.shown, inForce: map[string]int{}, goodSettings: s.good}
	for i, st := range r.servers {
		if st.InForce {
			r.inForce[st.Name] = i
		}
	}
	return r
}

// find returns the declaration that stands for a name, or for the name as its
// file spells it.
func (r *reading) find(name string) (*ServerStatus, error) {
	if i, ok := r.inForce[name]; ok {
		return &r.servers[i], nil
	}
	st, err := r.snap.find(name)
	return &st, err
}

// Servers returns every declaration of every server, shadowed ones included,
// sorted by name and then by precedence.
func (h *Host) Servers() []ServerStatus { return h.Snapshot().Servers }

// Snapshot returns what the host knows now: what the files say, and where the
// connections are.
func (h *Host) Snapshot() Snapshot {
	seq := h.news.number() // first: the snapshot may know more than that, but not less
	r, kinds := h.reading.Load(), h.kinds()
	snap := r.snap
	snap.Seq, snap.Servers = seq, slices.Clone(snap.Servers)
	for i := range snap.Servers {
		h.addConnection(r, &snap.Servers[i], kinds)
	}
	h.addCollisions(snap.Servers)
	snap.Problems = append(slices.Clip(snap.Problems), h.idle()...)
	return snap
}

// addConnection adds what the connections of a declaration know, if it has any.
func (h *Host) addConnection(r *reading, st *ServerStatus, kinds []conn.Profile) {
	if !st.InForce || st.Skip != "" {
		return
	}
	if sv, ok := h.manager.Server(st.Name, conn.Profile{}); ok {
		catalog := sv.Catalog()
		st.overlay(sv.Status(), catalog)
		st.NotPassed = h.notPassed(st)
		if catalog != nil {
			st.Tools = h.toolInfos(st.Name, catalog)
		}
		h.addPins(r, st, kinds)
	}
}

// Server returns the declaration that stands for a name, or for the name as its
// file spells it.
func (h *Host) Server(name string) (ServerStatus, error) {
	r := h.reading.Load()
	found, err := r.find(name)
	st := *found
	h.addConnection(r, &st, h.kinds())
	return st, err
}

func (s Snapshot) find(name string) (ServerStatus, error) {
	if name == "" {
		return ServerStatus{}, errorf(KindNotFound, "Server name required.")
	}
	for _, means := range []func(*ServerStatus) bool{
		func(st *ServerStatus) bool { return st.InForce && st.Name == name },
		func(st *ServerStatus) bool { return st.InForce && st.Title == name },
		func(st *ServerStatus) bool { return st.called(name) }, // recognised but never connected
	} {
		for i := range s.Servers {
			if means(&s.Servers[i]) {
				return s.Servers[i], nil
			}
		}
	}
	var names []string
	for i := range s.Servers {
		if s.Servers[i].InForce {
			names = append(names, s.Servers[i].Name)
		}
	}
	err := errorf(KindNotFound, "No MCP server named %q.", name)
	switch {
	case len(names) == 0:
		return ServerStatus{}, err.hint("No servers are configured; `patchbay add` adds one.")
	case nearest(name, names) != "":
		return ServerStatus{}, err.hint("Did you mean %q? `patchbay list` shows all %d.", nearest(name, names), len(names))
	case len(names) > 12:
		return ServerStatus{}, err.hint("`patchbay list` shows the %d that are configured.", len(names))
	}
	return ServerStatus{}, err.hint("Configured: %s", joinNames(names))
}

// Reload reads all configuration again. If a file that was good before cannot
// be read now, what it said goes on and the snapshot has the problem;
// FailOnInvalid makes that an error. What commands of entries print is obtained
// anew for the next connection, and servers that have failed or want credentials
// are tried again.
func (h *Host) Reload(ctx context.Context) error {
	err := h.readAgain(ctx)
	if err == nil {
		h.manager.Renew()
	}
	return err
}

// readAgain reads all configuration again because it may have changed.
func (h *Host) readAgain(ctx context.Context) error {
	ctx, end := h.change(ctx)
	defer end()
	return h.reload(ctx)
}

func (h *Host) reload(ctx context.Context) error {
	if now, moved := h.locate(); moved {
		h.located.Store(&now)
	}
	settings := h.readSettings()
	scan := h.scanEnv()
	scan.Disabled = settings.user.Discovery.DisabledProviders
	var damaged []config.Problem
	scan.Adopted, damaged = h.readAdopted()
	scan.Endpoints = append([]string{settings.user.Gateway.Endpoint()}, h.served...)
	var pins sync.WaitGroup
	pins.Go(func() { damaged = append(damaged, h.readPins()...) }) // there may be many
	found := discover.Scan(ctx, scan)
	pins.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	approvals, unread := h.readApprovals()
	problems := slices.Concat(settings.problems, h.notServed(settings.user.Gateway), unread, damaged)
	hooks := h.projectHooks(settings.project.Hooks, approvals)
	problems = append(problems, h.unsafeHooks(settings.user.Hooks)...)
	if hooks != nil && !hooks.Run() {
		problems = append(problems, hooks.problem())
	}
	var candidates []config.Candidate
	var aliases []ServerStatus
	entries := slices.Concat(found.Entries, h.inProcessEntries(), h.appliedEntries())
	for i := range entries { // those of the scan, which nobody else has
		if e := &entries[i]; e.Origin.Project == "" && e.Server.Shared != config.SharedNever && slices.Contains(found.SharedServers, e.Name) {
			e.Server.Shared = config.SharedUser
		}
	}
	launches := h.launches(entries)
	for _, e := range entries {
		c := config.Candidate{Entry: e}
		c.State, c.Reason, c.Untrusted = stand(e, launches[originKey(e)].hash, approvals, found)
		switch {
		case c.State == config.Pending && !h.allowed(e):
			c.State, c.Reason = config.Disabled, notAllowed
		case c.State == config.Pending && e.Dialect.UnsetIsError():
			h.tryExpansion(&c)
		}
		candidates = append(candidates, c)
		if e.Adopted != "" {
			alias := h.status(config.Merged{Candidate: c, InForce: true}, launches[originKey(e)])
			alias.plain, alias.Name, alias.Title, alias.entry.Name = e.Name, e.Adopted, "", e.Adopted
			aliases = append(aliases, alias)
		}
	}
	snap := Snapshot{
		Dir: h.opts.Dir, Project: h.places().project,
		Files: append(settings.files, found.Files...), Hooks: hooks, Problems: append(problems, found.Problems...),
	}
	merged := config.Merge(candidates)
	snap.Servers = make([]ServerStatus, 0, len(merged))
	for _, m := range merged {
		snap.Servers = append(snap.Servers, h.status(m, launches[originKey(m.Entry)]))
	}
	reportLikeNames(snap.Servers)
	reportOpenSecrets(snap.Servers)
	if h.opts.FailOnInvalid {
		if bad := snap.errors(); len(bad) > 0 {
			return &Error{Kind: KindConfigInvalid, Message: fmt.Sprintf("%d configuration problem(s)", len(bad)), Problems: bad}
		}
	}
	last, now := h.reading.Load(), newReading(snap, aliases, settings)
	changed := last == nil || !reflect.DeepEqual(last, now)
	if changed {
		h.reading.Store(now)
		h.forgetInfos(now)
		h.hooked.Store(h.commandHooks(settings, hooks).hooks().around(h.opts.Hooks))
		h.redeclare(h.elicitModes(h.hooked.Load()))
		h.reportProblems(last, now)
	}
	h.manager.Limit(conn.Limits{Processes: settings.user.Limits.Processes, Starts: settings.user.Limits.Starts})
	h.manager.Apply(h.targets(now.servers))
	if changed { // or every session would look for what is new in vain
		h.news.announce()
	}
	return nil
}

// notAllowed is why a server is off that Options.AllowedServerNames leaves out.
const notAllowed = "not among the allowed servers"

// allowed reports whether the host may use a server at all. Servers in the
// program's own process always may be.
func (h *Host) allowed(e config.Entry) bool {
	return h.opts.AllowedServerNames == nil || e.Origin.Provider == inProcessProvider || slices.Contains(h.opts.AllowedServerNames, e.Name)
}

// stand decides where an entry stands before any connection.
func stand(e config.Entry, hash string, approvals policy.Approvals, found discover.Result) (state config.State, reason string, untrusted bool) {
	trust, why := policy.Trust(e, hash, approvals)
	untrusted = e.Origin.Project != "" && trust != config.Pending
	switch {
	case !e.Valid():
		return config.Failed, firstError(e.Problems), untrusted
	case e.Forbidden:
		return config.Disabled, e.Off, untrusted
	case slices.Contains(found.DisabledServers, e.Name):
		return config.Disabled, "disabled by you", untrusted
	case trust == config.Disabled:
		return trust, why, untrusted
	case !e.Enabled() && !slices.Contains(found.EnabledServers, e.Name):
		if e.Off != "" {
			return config.Disabled, e.Off, untrusted
		}
		return config.Disabled, "disabled in its file", untrusted
	default:
		return trust, why, untrusted
	}
}

// tryExpansion fails an entry that may be used but whose variables are not set.
// Nothing is kept of the values, and no command runs for one.
func (h *Host) tryExpansion(c *config.Candidate) {
	e := &c.Entry
	_, problems := config.Expand(e.Server, e.Dialect, h.vars())
	for _, p := range problems {
		p.File, p.Line, p.Pointer = e.Origin.File, e.Origin.Line, e.Origin.Pointer+p.Pointer
		e.Problems = append(e.Problems, p)
	}
	if !e.Valid() {
		c.State, c.Reason = config.Failed, firstError(e.Problems)
	}
}

func firstError(problems []config.Problem) string {
	for _, p := range problems {
		if p.Severity == config.SeverityError {
			return p.Message
		}
	}
	return ""
}

func (h *Host) status(m config.Merged, l hashedLaunch) ServerStatus {
	e := m.Entry
	s := ServerStatus{
		Name: e.Name, Title: e.Title, State: m.State, Reason: m.Reason,
		InForce: m.InForce, ShadowedBy: m.ShadowedBy, Why: m.Why, SameAs: m.SameAs, Skip: e.Skip,
		Transport: e.Server.Transport(), Target: e.Server.Target(), Origin: e.Origin, Adopted: e.Adopted,
		Config: config.MarshalMasked(e.Server), Problems: e.Problems,
		Server: e.Server, entry: e, launch: l.Launch, hash: l.hash, approved: e.Origin.Project != "" && !m.Untrusted,
	}
	if s.State == config.Failed {
		s.Kind = KindConfigInvalid
	}
	for _, command := range e.Executes {
		s.Executes = append(s.Executes, config.MaskText(command))
	}
	s.Variables = config.References(e.Server, e.Dialect)
	s.Unset = config.Unset(e.Server, e.Dialect, h.vars())
	h.needInput(&s)
	if e.Forbidden && s.Skip == "" {
		s.Forbidden, s.Reason = true, e.Off
		s.Problems = append(slices.Clip(s.Problems), config.Problem{
			Severity: config.SeverityNote, File: e.Origin.File, Line: e.Origin.Line, Pointer: e.Origin.Pointer,
			Message: fmt.Sprintf("%q is forbidden by the administrator: %s", e.Name, e.Off),
		})
	}
	return s
}

// WithSecrets returns the snapshot with every configuration in clear.
func (s Snapshot) WithSecrets() Snapshot {
	s.Servers = slices.Clone(s.Servers)
	for i := range s.Servers {
		s.Servers[i].Config = config.EncodeServer(s.Servers[i].Server)
	}
	return s
}

// errors collects the problems that make something unusable.
func (s Snapshot) errors() []config.Problem {
	var bad []config.Problem
	add := func(problems []config.Problem) {
		for _, p := range problems {
			if p.Severity == config.SeverityError {
				bad = append(bad, p)
			}
		}
	}
	add(s.Problems)
	for _, st := range s.Servers {
		add(st.Problems)
	}
	return bad
}

// vars is what placeholders in the host's entries stand for.
func (h *Host) vars() config.Vars {
	return config.Vars{Lookup: h.opts.lookup, WorkspaceRoot: h.places().project, Home: h.opts.Home, OS: runtime.GOOS}
}

// secretHeader matches headers and parts of a query that are secrets by their name.
var secretHeader = regexp.MustCompile(`(?i)token|secret|passw|pwd|key|auth|credential|cookie|session`)

// reportOpenSecrets warns of credentials that go to another machine without TLS.
func reportOpenSecrets(servers []ServerStatus) {
	for i := range servers {
		st := &servers[i]
		u, err := url.Parse(st.Server.URL)
		if !st.InForce || st.Skip != "" || err != nil || !strings.EqualFold(u.Scheme, "http") {
			continue
		}
		host := strings.ToLower(u.Hostname())
		if host == "" || config.IsLoopback(host) || strings.HasSuffix(host, ".localhost") || !hasSecret(st.Server, u) {
			continue
		}
		st.Problems = append(slices.Clip(st.Problems), config.Problem{
			Severity: config.SeverityWarning, File: st.Origin.File, Line: st.Origin.Line, Pointer: st.Origin.Pointer,
			Message: fmt.Sprintf("credentials go to %q over plain http: everybody in between can read them", u.Host),
			Hint:    "Use https.",
		})
	}
}

// hasSecret reports whether requests to a server carry credentials.
func hasSecret(s config.Server, u *url.URL) bool {
	for name := range s.Headers {
		if secretHeader.MatchString(name) {
			return true
		}
	}
	for name := range u.Query() {
		if secretHeader.MatchString(name) {
			return true
		}
	}
	return u.User != nil || s.HeadersHelper != "" || s.Auth != nil && s.Auth.Mode != config.AuthNone
}
