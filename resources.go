package patchbay

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Resource describes one resource of a server.
type Resource struct {
	URI         string `json:"uri"`
	Name        string `json:"name"`
	MIMEType    string `json:"mimeType,omitempty"`
	Description string `json:"description,omitempty"`
	Server      string `json:"server"`

	Definition json.RawMessage `json:"-"` // as the server defines it, byte for byte
}

// ResourceTemplate describes resources of a server whose URIs have a form.
type ResourceTemplate struct {
	URITemplate string          `json:"uriTemplate"`
	Server      string          `json:"server"`
	Definition  json.RawMessage `json:"definition"` // as the server defines it, byte for byte
}

// ResourceContent is a resource that was read: its text, or the file that its
// bytes were saved to.
type ResourceContent struct {
	URI         string `json:"uri"`
	MIMEType    string `json:"mimeType,omitempty"`
	Text        string `json:"text,omitempty"`
	BlobSavedTo string `json:"blobSavedTo,omitempty"`
}

// ListResources returns the resources of one server, or of all if server is
// empty. A server that is named is connected if need be. The lists come from the
// servers' catalogs, which their own notifications keep fresh; that of one that
// is not connected is its last.
func (s *Session) ListResources(ctx context.Context, server string) ([]Resource, error) {
	out := []Resource{}
	offers, err := s.offers(ctx, server, "resources")
	for _, o := range offers {
		for _, raw := range o.Resources {
			r := Resource{}
			if json.Unmarshal(raw, &r) == nil {
				r.Server, r.Definition = o.server, raw // whatever the resource claims
				out = append(out, r)
			}
		}
	}
	return out, err
}

// ListResourceTemplates returns the templates of one server, or of all if server
// is empty, as ListResources does.
func (s *Session) ListResourceTemplates(ctx context.Context, server string) ([]ResourceTemplate, error) {
	out := []ResourceTemplate{}
	offers, err := s.offers(ctx, server, "resources")
	for _, o := range offers {
		for _, raw := range o.ResourceTemplates {
			template, _ := wire.StringMember(raw, "uriTemplate")
			out = append(out, ResourceTemplate{URITemplate: template, Server: o.server, Definition: raw})
		}
	}
	return out, err
}

// offer is what one server offers.
type offer struct {
	server string
	*conn.Catalog
}

// offers returns what one server offers, which is connected if need be and must
// have the capability, or what all do if none is named, as far as that is known.
func (s *Session) offers(ctx context.Context, server, capability string) ([]offer, error) {
	if server != "" {
		sv, err := s.withCapability(ctx, server, capability)
		if err != nil || sv.Catalog() == nil {
			return nil, err
		}
		return []offer{{sv.Name(), sv.Catalog()}}, nil
	}
	set := s.toolset()
	var all []offer
	for i, st := range set.inputs.servers {
		if c := set.inputs.catalogs[i]; c != nil && set.denied[st.Name] == nil {
			all = append(all, offer{st.Name, c})
		}
	}
	return all, nil
}

// withCapability returns a server's connection, made if need be, if the server
// has a capability.
func (s *Session) withCapability(ctx context.Context, server, capability string) (*conn.Server, error) {
	if _, err := s.reach(server, conn.Profile{}); err != nil {
		return nil, err
	}
	sv, opening, err := s.host.connect(ctx, server)
	if err != nil {
		return nil, err
	}
	if !opening.Has(capability) {
		return nil, errorf(KindServer, "Server %q does not support %s.", server, capability)
	}
	return sv, nil
}

// ReadResource reads a resource. Binary content is saved to a file.
func (s *Session) ReadResource(ctx context.Context, server, uri string) ([]ResourceContent, error) {
	return s.readResource(s.host.own(ctx), server, uri)
}

func (s *Session) readResource(ctx context.Context, server, uri string) ([]ResourceContent, error) {
	if _, err := s.withCapability(ctx, server, "resources"); err != nil {
		return nil, err
	}
	params := append(wire.AppendString([]byte(`{"uri":`), uri), '}')
	raw, err := s.send(ctx, server, wire.Call{Method: "resources/read", Params: params})
	if answer, ok := errors.AsType[*RPCError](err); ok && (answer.Code == wire.CodeResourceNotFound || answer.Code == wire.CodeInvalidParams) {
		return nil, errorf(KindNotFound, "Server %q has no resource %q: %s", server, uri, answer.Message)
	}
	if err != nil {
		return nil, err
	}
	var result struct {
		Contents []struct {
			ResourceContent
			Blob string `json:"blob"`
		} `json:"contents"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, errorf(KindServer, "%s: the content of %s is not what the protocol demands: %v", server, uri, err)
	}
	out := []ResourceContent{}
	for _, c := range result.Contents {
		c.BlobSavedTo = ""
		if c.Blob != "" {
			data, err := base64.StdEncoding.DecodeString(c.Blob)
			if err != nil {
				return nil, errorf(KindServer, "%s: the content of %s is not base64", server, uri)
			}
			if c.BlobSavedTo, err = s.host.save(data, extensionOf(c.MIMEType)); err != nil {
				return nil, err
			}
		}
		out = append(out, c.ResourceContent)
	}
	return out, nil
}

// The tools that let a model reach resources, and the names other hosts have
// for them.
const (
	listResourcesTool = "list_mcp_resources"
	readResourceTool  = "read_mcp_resource"
)

var resourceAliases = map[string]string{"ListMcpResourcesTool": listResourcesTool, "ReadMcpResourceTool": readResourceTool}

func resourceTools() []offered {
	tool := func(name, definition string) offered {
		return offered{Tool: Tool{Tool: name, Definition: json.RawMessage(definition), Deferred: true}, ruled: policy.NewTool("", name, nil)}
	}
	return []offered{
		tool(listResourcesTool, `{"name":"list_mcp_resources","description":"List the resources that MCP servers offer, of all servers or of one.","inputSchema":{"type":"object","properties":{"server":{"type":"string","description":"Name of the server; all servers if left out"}}},"annotations":{"readOnlyHint":true}}`),
		tool(readResourceTool, `{"name":"read_mcp_resource","description":"Read a resource of an MCP server. Binary content is saved to a file whose path is returned.","inputSchema":{"type":"object","properties":{"server":{"type":"string","description":"Name of the server"},"uri":{"type":"string","description":"URI of the resource"}},"required":["server","uri"]},"annotations":{"readOnlyHint":true}}`),
	}
}

// callResourceTool answers the two tools above.
func (s *Session) callResourceTool(ctx context.Context, t Tool, arguments json.RawMessage) (json.RawMessage, error) {
	var args struct{ Server, URI string }
	if err := json.Unmarshal(arguments, &args); err != nil {
		return nil, errorf(KindConfigInvalid, "The arguments of %s do not fit: %v", t.Name, err)
	}
	var value any
	var err error
	if t.Tool == listResourcesTool {
		value, err = s.ListResources(ctx, args.Server)
	} else {
		if args.Server == "" || args.URI == "" {
			return nil, errorf(KindConfigInvalid, "%s needs server and uri.", t.Name)
		}
		var contents []ResourceContent
		contents, err = s.readResource(ctx, args.Server, args.URI)
		value = map[string]any{"contents": contents}
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": string(text)}}})
}

// extensionOf is the end of the name of a file of a type.
func extensionOf(mimeType string) string {
	_, sub, _ := strings.Cut(mimeType, "/")
	sub, _, _ = strings.Cut(sub, ";")
	if slices.Contains([]string{"png", "jpeg", "gif", "webp", "pdf", "zip", "mpeg", "wav", "mp4"}, sub) {
		return "." + sub
	}
	return ".bin"
}
