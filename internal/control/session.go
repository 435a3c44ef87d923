package control

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay"
)

// handleSession serves what a person does with servers' tools, resources and
// prompts.
func handleSession(mux *http.ServeMux, h *patchbay.Host) {
	u := user{h}
	for pattern, op := range map[string]func(*patchbay.Session, *http.Request) (any, error){
		"GET /v1/tools":     tools,
		"GET /v1/why":       why,
		"GET /v1/resources": resources,
		"POST /v1/read":     readResource,
		"GET /v1/prompts":   prompts,
		"POST /v1/prompt":   prompt,
	} {
		mux.Handle(pattern, serve(h, func(_ *patchbay.Host, r *http.Request) (any, error) {
			s, err := u.session(false)
			if err != nil {
				return nil, err
			}
			defer s.Close()
			return op(s, r)
		}))
	}
	mux.HandleFunc("POST /v1/call", u.callTool)
}

// Tools returns the tools of all servers whose catalogs are known.
func (c *Client) Tools(ctx context.Context) (t []patchbay.Tool, err error) {
	return t, c.call(ctx, "GET", "/v1/tools", nil, &t)
}

func tools(s *patchbay.Session, _ *http.Request) (any, error) {
	all := append(s.Tools(), s.HeldTools()...) // people want to know of those, too
	slices.SortStableFunc(all, func(a, b patchbay.Tool) int { return strings.Compare(a.Server, b.Server) })
	return all, nil
}

// Explanation is what would happen to a call of a tool, and why.
type Explanation struct {
	Tool     patchbay.Tool     `json:"tool"`
	Decision patchbay.Decision `json:"decision"`
}

// Why explains what would happen to a call of a tool.
func (c *Client) Why(ctx context.Context, tool string) (e Explanation, err error) {
	return e, c.call(ctx, "GET", "/v1/why?tool="+url.QueryEscape(tool), nil, &e)
}

func why(s *patchbay.Session, r *http.Request) (any, error) {
	tool, decision, err := s.Why(r.URL.Query().Get("tool"))
	return Explanation{tool, decision}, err
}

// Resources returns the resources of a server, or of all connected ones.
func (c *Client) Resources(ctx context.Context, server string) (res []patchbay.Resource, err error) {
	return res, c.call(ctx, "GET", "/v1/resources?name="+url.QueryEscape(server), nil, &res)
}

func resources(s *patchbay.Session, r *http.Request) (any, error) {
	return s.ListResources(r.Context(), nameOf(r))
}

// readRequest names a resource.
type readRequest struct {
	Server string `json:"server"`
	URI    string `json:"uri"`
}

// ReadResource reads a resource.
func (c *Client) ReadResource(ctx context.Context, server, uri string) (contents []patchbay.ResourceContent, err error) {
	return contents, c.call(ctx, "POST", "/v1/read", readRequest{server, uri}, &contents)
}

func readResource(s *patchbay.Session, r *http.Request) (any, error) {
	req, err := decode[readRequest](r)
	if err != nil {
		return nil, err
	}
	return s.ReadResource(r.Context(), req.Server, req.URI)
}

// Prompts returns the prompts of a server, or of all connected ones.
func (c *Client) Prompts(ctx context.Context, server string) (p []patchbay.Prompt, err error) {
	return p, c.call(ctx, "GET", "/v1/prompts?name="+url.QueryEscape(server), nil, &p)
}

func prompts(s *patchbay.Session, r *http.Request) (any, error) {
	return s.ListPrompts(r.Context(), nameOf(r))
}

// promptRequest asks for a prompt with arguments.
type promptRequest struct {
	Server    string            `json:"server"`
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// Prompt returns a prompt filled in with arguments.
func (c *Client) Prompt(ctx context.Context, server, name string, arguments map[string]string) (p json.RawMessage, err error) {
	return p, c.call(ctx, "POST", "/v1/prompt", promptRequest{server, name, arguments}, &p)
}

func prompt(s *patchbay.Session, r *http.Request) (any, error) {
	req, err := decode[promptRequest](r)
	if err != nil {
		return nil, err
	}
	return s.GetPrompt(r.Context(), req.Server, req.Name, req.Arguments)
}
