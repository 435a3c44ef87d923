package patchbay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Prompt is one prompt of a server.
type Prompt struct {
	Server     string          `json:"server"`
	Name       string          `json:"name"`
	FullName   string          `json:"fullName"`   // among those of all servers, in the session's naming style
	Definition json.RawMessage `json:"definition"` // as the server defines it, byte for byte
}

// ListPrompts returns the prompts of one server, which is connected if need be,
// or of all if server is empty, as far as they are known.
func (s *Session) ListPrompts(ctx context.Context, server string) ([]Prompt, error) {
	if server != "" {
		sv, err := s.withCapability(ctx, server, "prompts")
		if err != nil {
			return []Prompt{}, err
		}
		server = sv.Name()
	}
	set := s.toolset()
	prompts, _ := set.prompts()
	if server == "" {
		return slices.Clone(prompts), nil
	}
	of := []Prompt{}
	for _, p := range prompts {
		if p.Server == server {
			of = append(of, p)
		}
	}
	return of, nil
}

// FindPrompt returns the prompt that a name means: its full name, or any other
// rendering that means exactly one.
func (s *Session) FindPrompt(name string) (Prompt, error) {
	prompts, names := s.toolset().prompts()
	ref, err := names.Resolve(name)
	if unknown, ok := errors.AsType[*bridge.UnknownError](err); ok {
		near := unknown.Suggestions
		if named := s.named(name); len(named) > 0 { // as with tools
			near = names.Suggest(name, func(server string) bool { return slices.Contains(named, server) })
		}
		e := errorf(KindNotFound, "No prompt %q.", name)
		if len(near) > 0 {
			return Prompt{}, e.hint("Did you mean %q?", near[0])
		}
		return Prompt{}, e
	}
	if err != nil {
		return Prompt{}, errorf(KindNotFound, "No prompt %q: %v", name, err)
	}
	for _, p := range prompts {
		if p.Server == ref.Server && p.Name == ref.Tool {
			return p, nil
		}
	}
	return Prompt{}, errorf(KindNotFound, "No prompt %q.", name)
}

// namePrompts lists the prompts of a set, sorted by server and name, named like
// tools. before are the names until now, nil if there were none.
func (set *toolSet) namePrompts(silent []bridge.Silent, naming bridge.Naming, before *bridge.Names) ([]Prompt, *bridge.Names) {
	prompts, asked, silent := []Prompt{}, []bridge.Exposed{}, slices.Clip(silent)
	for i, st := range set.inputs.servers {
		c := set.inputs.catalogs[i]
		if c == nil {
			continue
		}
		if set.denied[st.Name] != nil { // its names are nobody else's all the same
			silent = append(silent, bridge.Silent{Server: st.Name, Project: st.Origin.Project != ""})
			continue
		}
		for _, raw := range c.Prompts {
			name, _ := wire.StringMember(raw, "name")
			prompts = append(prompts, Prompt{Server: st.Name, Name: name, Definition: raw})
			asked = append(asked, bridge.Exposed{Ref: bridge.Ref{Server: st.Name, Tool: name}, Project: st.Origin.Project != ""})
		}
	}
	slices.SortStableFunc(prompts, func(a, b Prompt) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Name, b.Name))
	})
	naming.LastWins = false
	names, _ := bridge.NewNames(asked, silent, naming, before)
	for i, p := range prompts {
		prompts[i].FullName = names.Of(bridge.Ref{Server: p.Server, Tool: p.Name})
	}
	return prompts, names
}

// GetPrompt returns a prompt filled in with arguments, as the server renders
// it.
func (s *Session) GetPrompt(ctx context.Context, server, name string, arguments map[string]string) (json.RawMessage, error) {
	if arguments == nil {
		arguments = map[string]string{}
	}
	params, err := json.Marshal(map[string]any{"name": name, "arguments": arguments})
	if err != nil {
		return nil, err
	}
	sv, err := s.withCapability(ctx, server, "prompts")
	if err != nil {
		return nil, err
	}
	raw, err := s.send(s.host.own(ctx), server, wire.Call{Method: "prompts/get", Params: params})
	if _, answered := errors.AsType[*RPCError](err); answered && sv.Catalog() != nil {
		err = unknownPrompt(server, name, sv.Catalog().Prompts, err)
	}
	return raw, err
}

// unknownPrompt says that a server has no such prompt, if that is so: servers
// have no code of their own for it.
func unknownPrompt(server, name string, prompts []json.RawMessage, err error) error {
	var names []string
	for _, p := range prompts {
		known, _ := wire.StringMember(p, "name")
		names = append(names, known)
	}
	if slices.Contains(names, name) {
		return err
	}
	unknown := errorf(KindNotFound, "Server %q has no prompt %q.", server, name)
	if n := nearest(name, names); n != "" {
		return unknown.hint("Did you mean %q?", n)
	}
	return unknown.hint("`patchbay prompts %s` lists those it has.", server)
}

// Complete asks a server to complete an argument; params and result are those
// of completion/complete.
func (s *Session) Complete(ctx context.Context, server string, params json.RawMessage) (json.RawMessage, error) {
	return s.send(s.host.own(ctx), server, wire.Call{Method: "completion/complete", Params: params})
}
