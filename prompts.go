package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Prompt is one prompt of a server.
type Prompt struct {
	Server     string          `json:"server"`
	Name       string          `json:"name"`
	Definition json.RawMessage `json:"definition"` // as the server defines it, byte for byte
}

// ListPrompts returns the prompts of one server, which is connected if need be,
// or of all if server is empty, as far as they are known.
func (s *Session) ListPrompts(ctx context.Context, server string) ([]Prompt, error) {
	out := []Prompt{}
	offers, err := s.offers(ctx, server, "prompts")
	for _, o := range offers {
		for _, raw := range o.Prompts {
			prompt, _ := wire.StringMember(raw, "name")
			out = append(out, Prompt{Server: o.server, Name: prompt, Definition: raw})
		}
	}
	return out, err
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
	raw, err := s.send(ctx, server, wire.Call{Method: "prompts/get", Params: params}, nil)
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
	return s.send(ctx, server, wire.Call{Method: "completion/complete", Params: params}, nil)
}
