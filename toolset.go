package patchbay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// toolSet is everything a session offers at one moment. All that can be decided
// about a tool before it is called is decided here: a call only looks it up.
type toolSet struct {
	inputs toolInputs

	tools    []offered          // ours first, then by server and name
	hidden   []offered          // which no list has
	names    *bridge.Names      // of tools
	byRef    map[bridge.Ref]int // of tools
	denied   map[string]*Rule   // by server, the rule that denies all of it
	idle     []Rule             // which fit nothing there is
	remote   bool               // a server is reached over HTTP
	warnings []string

	// Made when they are first asked for.
	prompts func() ([]Prompt, *bridge.Names)
	uris    func() *uris
}

// offered is a tool with what is known of calls of it.
type offered struct {
	Tool
	decision Decision
	strict   bool         // it may be called only as it was accepted
	ruled    *policy.Tool // as rules may be about it
}

// toolInputs is all that a tool set is made of, besides the session's own
// options: while it stays the same, so does the set.
type toolInputs struct {
	reading  *reading
	pins     uint64          // generation
	servers  []*ServerStatus // that may be used
	catalogs []*conn.Catalog // of those; nil where none is known
	off      []*ServerStatus // of the user's own servers those that may not be used
}

func (in toolInputs) same(other toolInputs) bool {
	return in.reading == other.reading && in.pins == other.pins &&
		slices.Equal(in.servers, other.servers) && slices.Equal(in.catalogs, other.catalogs)
}

func (s *Session) toolInputs() toolInputs { return s.host.toolInputs(s.profile(), s.selects) }

// toolInputs is what a tool set of those servers is made of that are selected.
func (h *Host) toolInputs(p conn.Profile, selects func(r *reading, server string) bool) toolInputs {
	in := toolInputs{reading: h.reading.Load(), pins: h.pinsSeq.Load()}
	for i := range in.reading.servers {
		st := &in.reading.servers[i]
		if !st.InForce || !selects(in.reading, st.Name) {
			continue
		}
		if !st.usable() {
			if st.Origin.Project == "" && st.Skip == "" {
				in.off = append(in.off, st)
			}
			continue
		}
		if sv, ok := h.manager.Server(st.Name, p); ok {
			in.servers, in.catalogs = append(in.servers, st), append(in.catalogs, sv.Catalog())
		}
	}
	return in
}

// has reports whether a server is there for the session.
func (s *Session) has(server string) bool { return s.selects(s.host.reading.Load(), server) }

func (s *Session) selects(r *reading, server string) bool {
	p := s.selection(r)
	return p.Servers == nil && !isAlias(server) || slices.Contains(p.Servers, server)
}

// selection is what of all servers and tools is there for the session. A profile
// that the settings do not have any more selects nothing.
func (s *Session) selection(r *reading) config.Profile {
	if s.opts.Profile == "" {
		return config.Profile{Servers: s.opts.Servers, Tools: s.opts.Tools}
	}
	p, ok := r.settings.Gateway.Profiles[s.opts.Profile]
	if !ok {
		return config.Profile{Servers: []string{}, Tools: []string{}}
	}
	return p
}

// toolset returns what the session offers now.
func (s *Session) toolset() *toolSet {
	v, news := s.view, &s.host.news
	if v.upTo.Load() == news.number()+1 { // before the set, which is stored first
		return v.set.Load()
	}
	v.building.Lock()
	defer v.building.Unlock()
	now, set := news.number(), v.set.Load() // in this order: what changes now is taken in or noticed next time
	if v.upTo.Load() == now+1 {
		return set
	}
	if in := s.toolInputs(); set == nil || !set.inputs.same(in) {
		last := set
		set = s.sharedTools(in)
		for _, w := range set.warnings {
			if last == nil || !slices.Contains(last.warnings, w) {
				s.host.opts.Logger.Warn("tools", "session", s.opts.Name, "warning", w)
			}
		}
		v.set.Store(set)
	}
	v.upTo.Store(now + 1)
	return set
}

// sharedTools returns the tool set of a session that selects the same of the same,
// or makes it: with many servers one takes most of the memory of a session.
func (s *Session) sharedTools(in toolInputs) *toolSet {
	sets := &s.host.toolSets
	sets.mu.Lock()
	defer sets.mu.Unlock() // also while it is made, so that sessions that open together make one
	for _, live := range sets.live[s.view.selects] {
		if set := live.Value(); set != nil && set.inputs.same(in) {
			return set
		}
	}
	var before *toolSet
	for _, live := range sets.live[s.view.selects] {
		before = cmp.Or(live.Value(), before) // the last
	}
	set := s.buildTools(in, before)
	for key, all := range sets.live { // those of sessions that are gone go
		all = slices.DeleteFunc(all, func(p weak.Pointer[toolSet]) bool { return p.Value() == nil })
		if sets.live[key] = all; len(all) == 0 {
			delete(sets.live, key)
		}
	}
	if sets.live == nil {
		sets.live = map[string][]weak.Pointer[toolSet]{}
	}
	sets.live[s.view.selects] = append(sets.live[s.view.selects], weak.Make(set))
	return set
}

// toolSets are those that sessions use, by what the sessions select.
type toolSets struct {
	mu   sync.Mutex
	live map[string][]weak.Pointer[toolSet]
}

// readAhead reads the catalogs that came since the tool set was made, so that the
// next one takes less time.
func (s *Session) readAhead() {
	in := s.toolInputs()
	for i, st := range in.servers {
		if catalog := in.catalogs[i]; catalog != nil {
			s.host.knownTools(in.reading, st, catalog, s.profile())
		}
	}
}

// buildTools decides what the session offers: of all tools those that nothing
// hides, each with its name and what happens to a call of it. before is what such
// sessions offered until now, nil if there were none: names stay with who has them.
func (s *Session) buildTools(in toolInputs, before *toolSet) *toolSet {
	naming, silent := s.naming(in.reading), in.silent()
	toolsBefore, promptsBefore := before.allNames() // now: a set must not keep the one before it
	all, asked := s.allTools(in)
	names, collisions := bridge.NewNames(asked, silent, naming, toolsBefore)
	for i := range all {
		t := &all[i]
		t.Name = names.Of(t.ref())
		for _, name := range []string{t.Name, asked[i].Name} { // what a person has seen, a rule may say
			if name != "" {
				t.ruled = t.ruled.Also(name)
			}
		}
	}

	set := &toolSet{inputs: in, byRef: make(map[bridge.Ref]int, len(all))}
	set.remote = slices.ContainsFunc(in.servers, func(st *ServerStatus) bool { return st.Transport == config.HTTP || st.Transport == config.SSE })
	set.prompts = sync.OnceValues(func() ([]Prompt, *bridge.Names) { return set.namePrompts(silent, naming, promptsBefore) })
	set.uris = sync.OnceValue(set.routeURIs)
	s.applyRules(set, all)
	if len(set.hidden) > 0 {
		// What is hidden keeps its name, so that no other tool is called by it.
		// But where of several tools only one is offered, that one has to be there.
		if naming.LastWins {
			asked = slices.DeleteFunc(asked, func(e bridge.Exposed) bool { return set.hides(e.Ref) })
			names, collisions = bridge.NewNames(asked, silent, naming, toolsBefore)
			for i := range set.tools {
				set.tools[i].Name = names.Of(set.tools[i].ref())
			}
		}
		names = names.Hide(set.hides)
	}
	set.names = names
	for _, c := range collisions {
		set.warnings = append(set.warnings, c.Text)
	}
	set.tools = slices.DeleteFunc(set.tools, func(t offered) bool {
		if t.Name != "" {
			return false
		}
		t.decision = Decision{Effect: Deny, Reason: "another tool has the same name, and the settings say that the last one wins"}
		set.hidden = append(set.hidden, t)
		return true
	})
	for i := range set.tools {
		set.byRef[set.tools[i].ref()] = i
	}
	return set
}

// allTools returns every tool that is known, sorted by server and name, and how
// each is to be called.
func (s *Session) allTools(in toolInputs) (all []offered, asked []bridge.Exposed) {
	resources := false
	for i, st := range in.servers {
		catalog := in.catalogs[i]
		if catalog == nil {
			continue
		}
		_, ok := wire.Member(catalog.Capabilities, "resources")
		resources = resources || ok
		known := s.host.knownTools(in.reading, st, catalog, s.profile())
		strict := policy.Mode(st.entry) == config.PinStrict
		for i, t := range known.tools {
			all = append(all, offered{Tool: t, ruled: known.ruled[i], strict: strict})
		}
	}
	slices.SortStableFunc(all, func(a, b offered) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Tool.Tool, b.Tool.Tool))
	})
	if resources && !s.opts.Prefixed { // agents have resources themselves
		all = append(resourceTools(), all...)
	}
	asked = make([]bridge.Exposed, len(all))
	for i, t := range all {
		asked[i] = in.reading.exposed(t.ref())
	}
	return all, asked
}

// exposed is a tool as it is to be named.
func (r *reading) exposed(ref bridge.Ref) bridge.Exposed {
	at, ok := r.inForce[ref.Server]
	if !ok {
		return bridge.Exposed{Ref: ref, Name: ref.Tool} // ours
	}
	st := &r.servers[at]
	return bridge.Exposed{Ref: ref, Name: toolRule(st.Server, ref.Tool).ExposedName, Project: st.Origin.Project != ""}
}

// toolRule is what an entry says about one of its tools.
func toolRule(s config.Server, tool string) config.ToolRule {
	for _, r := range s.Tools {
		if r.Name == tool {
			return r
		}
	}
	return config.ToolRule{}
}

// applyRules sorts all tools into those that the session offers and those that
// are hidden, and decides about calls of them.
func (s *Session) applyRules(set *toolSet, all []offered) {
	r := set.inputs.reading
	var servers []string
	for _, st := range set.inputs.servers {
		servers = append(servers, st.ruled())
	}
	known := make([]*policy.Tool, len(all))
	for i := range all {
		known[i] = all[i].ruled
	}
	settled := policy.Settle([]*policy.Rules{r.rules, policy.NewRules(s.view.rules, false)}, servers, known)
	for _, rule := range settled.Ambiguous {
		set.warnings = append(set.warnings, fmt.Sprintf("the rule %s in %s could mean several servers and is not applied", rule.Pattern, rule.Source))
	}
	set.denied, set.idle = map[string]*Rule{}, settled.Idle
	for _, st := range set.inputs.servers {
		if rule := settled.Denied[st.ruled()]; rule != nil {
			set.denied[st.Name] = rule
		}
	}
	shown := append(slices.Clip(r.shown), policy.Shown{Patterns: s.selection(r).Tools})
	for i, t := range all {
		var entry config.Entry // ours have none
		if at, ok := r.inForce[t.Server]; ok {
			entry = r.servers[at].entry
		}
		why, hidden := policy.Hidden(t.ruled, settled.About[i], entry.Server, shown...)
		t.decision = s.decide(&t, settled.About[i], entry, r.settings.Permissions.Default)
		if !hidden {
			set.tools = append(set.tools, t)
			continue
		}
		if t.decision.Effect != Deny {
			t.decision = Decision{Effect: Deny, Reason: why}
		}
		set.hidden = append(set.hidden, t)
	}
}

// idleRules are the problems of rules of the settings that are about nothing.
type idleRules struct {
	mu       sync.Mutex
	inputs   toolInputs // of problems
	problems []config.Problem
}

// idle names the rules of the settings that fit no tool and no server, most likely
// because they are misspelt: a rule that denies and does nothing is worse than
// none. What is about a server that is off, or whose tools are not known yet, may
// fit them.
func (h *Host) idle() []config.Problem {
	r := h.reading.Load()
	if r.rules.Len() == 0 {
		return nil
	}
	all := &Session{host: h, view: &view{}} // which has everything, and no rules of its own
	all.kind.Store(&conn.Profile{})
	in := all.toolInputs()
	h.idleRules.mu.Lock()
	defer h.idleRules.mu.Unlock()
	if h.idleRules.inputs.reading != nil && h.idleRules.inputs.same(in) {
		return h.idleRules.problems
	}
	var problems []config.Problem
	for _, rule := range all.buildTools(in, nil).idle {
		if slices.ContainsFunc(r.snap.Servers, func(st ServerStatus) bool { return !st.usable() && rule.Names(st.Name) }) {
			continue
		}
		problems = append(problems, config.Problem{
			Severity: config.SeverityWarning, File: rule.Source, Pointer: "/permissions/" + string(rule.Effect),
			Message: fmt.Sprintf("the rule %q fits no server and no tool that is there", config.Escape(rule.Pattern)),
		})
	}
	h.idleRules.inputs, h.idleRules.problems = in, problems
	return problems
}

// decide says what happens to a call of a tool.
func (s *Session) decide(t *offered, about []*Rule, entry config.Entry, standard config.PermissionDefault) Decision {
	v := policy.Decide(t.ruled, about, entry)
	switch {
	case v.Effect != policy.Passthrough:
		return Decision{v.Effect, v.Rule, v.Reason}
	case t.Server == "" && standard == "":
		return Decision{Allow, nil, "no rule is about it, and it only reads what servers offer"}
	case t.Server == "":
		return Decision{Effect(standard), nil, v.Reason + ", and permissions.default in the settings says so"}
	}
	own := s.opts.Default
	switch settings := Effect(standard); {
	case own == "" && settings == "":
		return Decision{Ask, nil, v.Reason}
	case own == "" || stricter(settings, own):
		return Decision{settings, nil, v.Reason + ", and permissions.default in the settings says so"}
	default:
		return Decision{own, nil, v.Reason + "; then " + whatHappens[own]}
	}
}

// whatHappens says what a session does with a call that no rule is about.
var whatHappens = map[Effect]string{Allow: "the caller decides", Ask: "you are asked", Deny: "it is denied"}

// stricter reports whether an effect lets less through than another.
func stricter(a, b Effect) bool {
	order := []Effect{Allow, Ask, Deny}
	return slices.Index(order, a) > slices.Index(order, b)
}

// hides reports whether a tool is one of the hidden.
func (set *toolSet) hides(r bridge.Ref) bool {
	_, found := slices.BinarySearchFunc(set.hidden, r, func(t offered, r bridge.Ref) int {
		return cmp.Or(strings.Compare(t.Server, r.Server), strings.Compare(t.Tool.Tool, r.Tool))
	})
	return found
}

// Find returns the tool that a name means: the session's own name for it, or any
// other rendering that means exactly one tool.
func (s *Session) Find(name string) (Tool, error) {
	t, err := s.toolset().find(name)
	if err != nil {
		return Tool{}, err
	}
	return t.Tool, nil
}

// FindOwn returns the tool of a server by the server's own name for it.
func (s *Session) FindOwn(server, tool string) (Tool, error) {
	set := s.toolset()
	i, ok := set.byRef[bridge.Ref{Server: server, Tool: tool}]
	if !ok {
		return Tool{}, errorf(KindToolNotFound, "Server %q has no tool %q here.", server, tool)
	}
	return set.tools[i].Tool, nil
}

// find is Session.Find.
func (set *toolSet) find(name string) (*offered, error) {
	if alias, ok := resourceAliases[name]; ok {
		name = alias
	}
	ref, err := set.names.Resolve(name)
	if err != nil {
		e := errorf(KindToolNotFound, "%v", err)
		e.cause = err
		return nil, e
	}
	return &set.tools[set.byRef[ref]], nil
}

// findHidden finds a tool that no list has.
func (set *toolSet) findHidden(name string) (*offered, bool) {
	i := slices.IndexFunc(set.hidden, func(t offered) bool { return t.Name == name || slices.Contains(t.ruled.Names(), name) })
	if i < 0 {
		return nil, false
	}
	return &set.hidden[i], true
}

// differs reports which lists another set has otherwise.
func (set *toolSet) differs(other *toolSet) Lists {
	sameTool := func(a, b offered) bool {
		return a.Name == b.Name && a.Changed == b.Changed && bytes.Equal(a.Definition, b.Definition)
	}
	same := func(list func(*conn.Catalog) []json.RawMessage) bool {
		return slices.EqualFunc(set.items(list), other.items(list), func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	}
	return Lists{
		Tools: !slices.EqualFunc(set.tools, other.tools, sameTool),
		Resources: !same(func(c *conn.Catalog) []json.RawMessage { return c.Resources }) ||
			!same(func(c *conn.Catalog) []json.RawMessage { return c.ResourceTemplates }),
		Prompts: !same(func(c *conn.Catalog) []json.RawMessage { return c.Prompts }),
	}
}

// items is a list of all servers, each of which is named before its own.
func (set *toolSet) items(list func(*conn.Catalog) []json.RawMessage) []json.RawMessage {
	var all []json.RawMessage
	for i, st := range set.inputs.servers {
		if c := set.inputs.catalogs[i]; c != nil && set.denied[st.Name] == nil && len(list(c)) > 0 {
			all = append(append(all, json.RawMessage(st.Name)), list(c)...)
		}
	}
	return all
}

// knownTools is what a catalog says of a server's tools, in the form that every
// session needs.
type knownTools struct {
	reading *reading
	catalog *conn.Catalog
	pins    uint64 // generation

	pinned PinStatus
	tools  []Tool
	ruled  []*policy.Tool // the same, by every rendering of their names
	byName map[string]int
}

// maxKnown is how many catalogs are kept as they were read.
const maxKnown = 1000

// knownKey is a connection of a server.
type knownKey struct{ server, profile string }

// knownTools reads a catalog, and compares it with the pins, unless that was done
// already.
func (h *Host) knownTools(r *reading, st *ServerStatus, c *conn.Catalog, p conn.Profile) *knownTools {
	key, pins := knownKey{st.Name, p.Key}, h.pinsSeq.Load()
	h.knownMu.Lock()
	known := h.known[key]
	h.knownMu.Unlock()
	if known != nil && known.reading == r && known.catalog == c && known.pins == pins {
		return known
	}
	known = &knownTools{reading: r, catalog: c, pins: pins, byName: make(map[string]int, len(c.Tools))}
	known.pinned = h.pinned(st, c)
	held := map[string]bool{}
	if known.pinned.Mode == config.PinStrict {
		for _, name := range slices.Concat(known.pinned.Changed, known.pinned.New) {
			held[name] = true
		}
	}
	for _, def := range c.Tools {
		name, _ := wire.StringMember(def, "name")
		t := Tool{Server: st.Name, Tool: name, Definition: def, Cached: c.Cached, Changed: held[name], provider: st.Origin.Provider, alwaysLoad: toolRule(st.Server, name).AlwaysLoad}
		known.byName[name] = len(known.tools)
		known.tools, known.ruled = append(known.tools, t), append(known.ruled, policy.NewTool(st.ruled(), name, bridge.Renderings(bridge.Ref{Server: st.ruled(), Tool: name})))
	}
	h.knownMu.Lock()
	defer h.knownMu.Unlock()
	maps.DeleteFunc(h.known, func(_ knownKey, k *knownTools) bool { return k.reading != r }) // of servers that may be gone
	if len(h.known) >= maxKnown {
		clear(h.known) // many are of sessions that are gone
	}
	h.known[key] = known
	return known
}
