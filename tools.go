package patchbay

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
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
func (s *Session) Tools() []Tool {
	set := s.toolset()
	tools := make([]Tool, len(set.tools))
	for i := range set.tools {
		tools[i] = set.tools[i].Tool
	}
	return tools
}

// Load waits until every server is connected or cannot be, and returns the
// tools and, by server, what went wrong: all that a program without a user
// interface needs.
func (s *Session) Load(ctx context.Context) ([]Tool, map[string]error) {
	failed := map[string]error{}
	var mu sync.Mutex // guards failed
	var wg sync.WaitGroup
	for _, st := range s.host.Servers() {
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
