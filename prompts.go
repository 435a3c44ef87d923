package patchbay

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Prompt is one prompt of a server.
type Prompt struct {
	Server     string          `json:"server"`
	Name       string          `json:"name"`
	Definition json.RawMessage `json:"definition"` // as the server defines it, byte for byte
}

// ListPrompts returns the prompts of one server, which is connected if need be,
// or of all connected ones if server is empty.
func (s *Session) ListPrompts(ctx context.Context, server string) ([]Prompt, error) {
	out := []Prompt{}
	catalogs, err := s.catalogs(ctx, server, "prompts")
	for name, c := range catalogs {
		for _, raw := range c.Prompts {
			prompt, _ := wire.StringMember(raw, "name")
			out = append(out, Prompt{Server: name, Name: prompt, Definition: raw})
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
	return s.send(ctx, server, wire.Call{Method: "prompts/get", Params: params})
}

// Complete asks a server to complete an argument; params and result are those
// of completion/complete.
func (s *Session) Complete(ctx context.Context, server string, params json.RawMessage) (json.RawMessage, error) {
	return s.send(ctx, server, wire.Call{Method: "completion/complete", Params: params})
}
