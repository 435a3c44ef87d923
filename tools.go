package patchbay

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
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
	Changed  bool `json:"changed,omitempty"`  // not as it was accepted, or new: held back until it is accepted
	Deferred bool `json:"deferred,omitempty"` // hosts may leave it out until it is searched for

	alwaysLoad bool   // its entry says so
	provider   string // of the entry of its server
}

// ModelTool is the form of a tool for hosts that feed a model.
type ModelTool = bridge.Model

// ForModel returns the form of the tool for a model: a description of bounded
// length, a schema every provider takes, what its server explicitly says about
// its effects.
func (t Tool) ForModel() ModelTool {
	m := bridge.ModelTool(t.Server, t.Definition)
	m.AlwaysLoad = m.AlwaysLoad || t.alwaysLoad
	return m
}

func (t Tool) ref() bridge.Ref { return bridge.Ref{Server: t.Server, Tool: t.Tool} }

// Tools returns the session's tools, sorted by server and name. It does not
// wait: tools of a server that is still connecting come from its last catalog.
// Tools that are held back until somebody accepts them are in HeldTools.
func (s *Session) Tools() []Tool { return s.tools(false) }

// HeldTools returns the tools that the session would have if they were as they
// were accepted. They cannot be called, and what their server says of them is not
// for models.
func (s *Session) HeldTools() []Tool { return s.tools(true) }

func (s *Session) tools(held bool) []Tool {
	set := s.toolset()
	tools := make([]Tool, 0, len(set.tools))
	for i := range set.tools {
		if set.tools[i].Changed == held {
			tools = append(tools, set.tools[i].Tool)
		}
	}
	return tools
}

// Instructions are what a server wants a model to know.
type Instructions struct {
	Server string `json:"server"`
	Text   string `json:"text"`
}

// Instructions returns those of the servers that the session offers anything of,
// sorted by server. What is held back until somebody accepts it is not among them.
func (s *Session) Instructions() []Instructions {
	set := s.toolset()
	offers := map[string]bool{}
	for i := range set.tools {
		if !set.tools[i].Changed {
			offers[set.tools[i].Server] = true
		}
	}
	var all []Instructions
	for i, st := range set.inputs.servers {
		c := set.inputs.catalogs[i]
		if c == nil || c.Instructions == "" || set.denied[st.Name] != nil {
			continue
		}
		if !offers[st.Name] && len(c.Tools) > 0 && len(c.Prompts)+len(c.Resources)+len(c.ResourceTemplates) == 0 {
			continue // they are about what is not there
		}
		is := s.host.knownTools(set.inputs.reading, st, c, s.profile()).pinned
		if is.Mode == config.PinStrict && is.Instructions {
			continue
		}
		all = append(all, Instructions{st.Name, c.Instructions})
	}
	slices.SortFunc(all, func(a, b Instructions) int { return strings.Compare(a.Server, b.Server) })
	return all
}

// Unaccepted returns what the session's servers offer that is not as it was
// accepted, by server.
func (s *Session) Unaccepted() map[string]PinStatus {
	set := s.toolset()
	all := map[string]PinStatus{}
	for i, st := range set.inputs.servers {
		if c := set.inputs.catalogs[i]; c != nil && set.denied[st.Name] == nil {
			is := s.host.knownTools(set.inputs.reading, st, c, s.profile()).pinned
			if live := s.view.held.Load(); live != nil && live.server == st.Name {
				is.Changed = union(is.Changed, slices.DeleteFunc(slices.Clone(live.tools), func(name string) bool { return slices.Contains(is.New, name) }))
			}
			if is.any() {
				s.host.pinsMu.Lock()
				s.host.tellPins(st.Name, is.String())
				s.host.pinsMu.Unlock()
				all[st.Name] = is
			}
		}
	}
	return all
}

// listed is a server's own tools/list with what the session offers of it: what
// rules hide is not there, nor what is not defined as it was accepted, whatever
// the server defined a moment ago.
func (s *Session) listed(server string, params, list json.RawMessage) (json.RawMessage, error) {
	tools, ok := wire.Member(list, "tools")
	if !ok {
		return list, nil
	}
	set := s.toolset()
	kept, all := []byte{'['}, true
	var held []string
	if _, more := wire.Member(params, "cursor"); more { // of the pages before
		if live := s.view.held.Load(); live != nil && live.server == server {
			held = slices.Clip(live.tools)
		}
	}
	for def := range wire.Elements(tools) {
		name, _ := wire.StringMember(def, "name")
		i, ok := set.byRef[bridge.Ref{Server: server, Tool: name}]
		if ok && !s.host.mayShow(set, &set.tools[i], def) {
			ok, held = false, append(held, name)
		}
		if !ok {
			all = false
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, def...)
	}
	s.view.held.Store(&heldLive{server, held})
	if all {
		return list, nil
	}
	return wire.SetMember(list, append(kept, ']'), "tools")
}

// heldLive is what was held back of a server's own list, which may have changed
// since its catalog was read.
type heldLive struct {
	server string
	tools  []string
}

// mayShow reports whether a definition of a tool may be shown.
func (h *Host) mayShow(set *toolSet, t *offered, def json.RawMessage) bool {
	switch {
	case !t.strict, !t.Changed && bytes.Equal(def, t.Definition):
		return true
	}
	at, ok := set.inputs.reading.inForce[t.Server]
	return ok && h.holds(set.inputs.reading.servers[at].hash, def)
}

// Load waits until every server is connected or cannot be, and returns the
// tools and, by server, what went wrong: all that a program without a user
// interface needs.
func (s *Session) Load(ctx context.Context) ([]Tool, map[string]error) {
	failed := map[string]error{}
	var mu sync.Mutex // guards failed
	var wg sync.WaitGroup
	for _, st := range s.host.Servers() {
		if !st.InForce || st.Skip != "" || st.State == config.Disabled || !s.has(st.Name) {
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
		named = append(named, bridge.NamedModel{Name: t.Name, Model: t.ForModel()})
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
