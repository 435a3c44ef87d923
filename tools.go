package patchbay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Tool is one tool as a session sees it. Its identity is the pair of Server and
// Tool; Name is how the session's naming style writes that.
type Tool struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Tool   string `json:"tool"`

	// Definition is the tool as its server defines it, byte for byte.
	Definition json.RawMessage `json:"definition"`

	Cached   bool `json:"cached,omitempty"`   // from the catalog of an earlier connection
	Changed  bool `json:"changed,omitempty"`  // pinned otherwise: not callable until accepted
	Deferred bool `json:"deferred,omitempty"` // hosts may leave it out until it is searched for

	names []string // every rendering, for rules
}

// ModelTool is the form of a tool for hosts that feed a model.
type ModelTool = bridge.Model

// ForModel returns the form of the tool for a model: a description of bounded
// length, a schema every provider takes, what its server explicitly says about
// its effects.
func (t Tool) ForModel() ModelTool { return bridge.ModelTool(t.Server, t.Definition) }

func (t Tool) policyTool() policy.Tool {
	return policy.Tool{Server: t.Server, Tool: t.Tool, Names: t.names}
}

// toolSet is everything a session offers at one moment.
type toolSet struct {
	tools    []Tool
	hidden   []hiddenTool
	rules    []Rule // the host's and the session's, without those whose meaning is not clear
	byRef    map[bridge.Ref]int
	byName   map[string]int
	names    *bridge.Names
	warnings []string
}

// hiddenTool is one that no list has.
type hiddenTool struct {
	Tool
	why string
}

// Tools returns the session's tools, sorted by server and name. It does not
// wait: tools of a server that is still connecting come from its last catalog.
func (s *Session) Tools() []Tool { return slices.Clone(s.toolset().tools) }

func (s *Session) toolset() *toolSet {
	seq, _ := s.host.news.latest()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tools == nil || s.toolsAt != seq {
		s.tools, s.toolsAt = s.buildTools(), seq
	}
	return s.tools
}

func (s *Session) buildTools() *toolSet {
	h := s.host
	h.mu.Lock()
	rules := append(slices.Clip(h.rules), s.rules...)
	naming := cmp.Or(h.opts.Naming, h.settings.Naming)
	h.mu.Unlock()
	all, servers, hasResources := h.knownTools()

	set := &toolSet{byRef: map[bridge.Ref]int{}, byName: map[string]int{}}
	var known []policy.Tool
	for _, t := range all {
		known = append(known, t.policyTool())
	}
	var unclear []Rule
	set.rules, unclear = policy.Unambiguous(rules, slices.Collect(maps.Keys(servers)), known)
	for _, r := range unclear {
		set.warnings = append(set.warnings, fmt.Sprintf("the rule %s in %s could mean several servers and is not applied", r.Pattern, r.Source))
	}
	if hasResources {
		all = append(resourceTools(), all...)
	}
	var exposed []bridge.Exposed
	for _, t := range all {
		server := servers[t.Server]
		if why, hidden := policy.Hidden(t.policyTool(), set.rules, server, s.opts.Tools); hidden {
			if t.Server != "" {
				t.Name = bridge.Render(naming.Style, t.ref())
			}
			set.hidden = append(set.hidden, hiddenTool{t, why})
			continue
		}
		set.tools = append(set.tools, t)
		if t.Server != "" {
			exposed = append(exposed, bridge.Exposed{Ref: t.ref(), Name: exposedName(server, t.Tool)})
		}
	}
	var collisions []string
	set.names, collisions = bridge.NewNames(exposed, bridge.Naming{
		Style: naming.Style, MaxLength: naming.MaxLength, LastWins: naming.Collision == config.CollisionLastWins,
	})
	set.warnings = append(set.warnings, collisions...)
	named := set.tools[:0]
	for _, t := range set.tools {
		if t.Server != "" {
			t.Name = set.names.Of(t.ref())
		}
		if t.Name == "" {
			set.hidden = append(set.hidden, hiddenTool{t, "another tool has the same name, and the settings say that the last one wins"})
			continue
		}
		set.byRef[t.ref()], set.byName[t.Name] = len(named), len(named)
		named = append(named, t)
	}
	set.tools = named
	for _, w := range set.warnings {
		h.opts.Logger.Warn("tools", "session", s.opts.Name, "warning", w)
	}
	return set
}

// knownTools returns the tools of every server that may be used, as far as its
// catalog is known, sorted by server and name.
func (h *Host) knownTools() (tools []Tool, servers map[string]config.Server, hasResources bool) {
	servers = map[string]config.Server{}
	for _, st := range h.Servers() {
		if !st.InForce || st.Skip != "" || st.State == config.Disabled || st.State == config.NeedsApproval {
			continue
		}
		sv, ok := h.manager.Server(st.Name, conn.Profile{})
		if !ok {
			continue
		}
		servers[st.Name] = st.Server
		catalog := sv.Catalog()
		if catalog == nil {
			continue
		}
		if _, ok := wire.Member(catalog.Capabilities, "resources"); ok {
			hasResources = true
		}
		changed := h.pinned(st, catalog)
		for _, def := range catalog.Tools {
			name, _ := wire.StringMember(def, "name")
			t := Tool{Server: st.Name, Tool: name, Definition: def, Cached: catalog.Cached, Changed: slices.Contains(changed, name)}
			t.names = renderings(t.ref())
			tools = append(tools, t)
		}
	}
	slices.SortStableFunc(tools, func(a, b Tool) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Tool, b.Tool))
	})
	return tools, servers, hasResources
}

func (t Tool) ref() bridge.Ref { return bridge.Ref{Server: t.Server, Tool: t.Tool} }

// renderings are all the names a rule may have for a tool.
func renderings(ref bridge.Ref) []string {
	names := []string{ref.Server + "/" + ref.Tool, ref.Server + "." + ref.Tool}
	for _, style := range []config.NamingStyle{config.NamingClaude, config.NamingXcsh, config.NamingOMP} {
		names = append(names, bridge.Render(style, ref))
	}
	return names
}

// exposedName is the name an entry gives one of its tools.
func exposedName(s config.Server, tool string) string {
	for _, r := range s.Tools {
		if r.Name == tool {
			return r.ExposedName
		}
	}
	return ""
}

// resolve finds the tool that a name means: the session's own name for it, or
// any other rendering that means exactly one tool.
func (s *Session) resolve(name string) (Tool, error) {
	set := s.toolset()
	if alias, ok := resourceAliases[name]; ok {
		name = alias
	}
	if i, ok := set.byName[name]; ok {
		return set.tools[i], nil
	}
	ref, err := set.names.Resolve(name)
	if err != nil {
		return Tool{}, errorf(KindToolNotFound, "%v", err)
	}
	i, ok := set.byRef[ref]
	if !ok {
		return Tool{}, errorf(KindToolNotFound, "The tool %s is not offered.", ref)
	}
	return set.tools[i], nil
}

// findHidden finds a tool that no list has, and what keeps it out.
func (s *Session) findHidden(name string) (Tool, Decision, bool) {
	for _, t := range s.toolset().hidden {
		if t.Name != name && !slices.Contains(t.names, name) {
			continue
		}
		d := s.decide(t.Tool)
		if d.Effect != Deny {
			d = Decision{Effect: Deny, Reason: t.why}
		}
		return t.Tool, d, true
	}
	return Tool{}, Decision{}, false
}

// Load waits until every server is connected or cannot be, and returns the
// tools and, by server, what went wrong: all that a program without a user
// interface needs.
func (s *Session) Load(ctx context.Context) ([]Tool, map[string]error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed := map[string]error{}
	for _, st := range s.host.configured().Servers {
		if !st.InForce || st.Skip != "" || st.State == config.Disabled {
			continue
		}
		wg.Go(func() {
			if err := s.host.Connect(ctx, st.Name); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[st.Name] = err
			}
		})
	}
	wg.Wait()
	return s.Tools(), failed
}

// Export renders the session's tools as the tool definitions of a model API:
// "anthropic", "openai" or "gemini".
func (s *Session) Export(api string) (json.RawMessage, error) {
	var named []bridge.NamedModel
	for _, t := range s.Tools() {
		if !t.Changed {
			named = append(named, bridge.NamedModel{Name: t.Name, Model: t.ForModel()})
		}
	}
	switch api {
	case "anthropic":
		return bridge.Anthropic(named), nil
	case "openai":
		return bridge.OpenAI(named), nil
	case "gemini":
		return bridge.Gemini(named), nil
	}
	return nil, errorf(KindConfigInvalid, "Unknown model API %q: expected anthropic, openai or gemini", api)
}
