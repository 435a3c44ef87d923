package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The typed methods of a Client. Their results are the server's own bytes.

// typed makes a call with the timeout of the options.
func (c *Client) typed(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	return c.Call(ctx, Call{Method: method, Params: params, Timeout: c.options.Timeout})
}

// maxPages is how many pages of a list are read.
const maxPages = 64

// Listing is all pages of a list.
type Listing struct {
	Items []json.RawMessage

	// Incomplete says why the list was not read to its end; nil if it was.
	Incomplete error

	// Invalid are the tools that were left out, by name, and why.
	Invalid map[string]error

	// Cache is the most cautious of what the pages said; the zero value if
	// they said nothing.
	Cache CacheHint
}

var (
	errTooManyPages   = fmt.Errorf("the list has more than %d pages", maxPages)
	errRepeatedCursor = errors.New("the list repeats itself")
)

// ListTools returns the tools. Over Streamable HTTP the modern era demands that
// those are left out whose header annotations are invalid.
func (c *Client) ListTools(ctx context.Context) (*Listing, error) {
	l, err := c.list(ctx, "tools/list", "tools")
	if _, overHTTP := c.link.(*HTTPClient); err != nil || !overHTTP || !c.modern() {
		return l, err
	}
	l.Items = slices.DeleteFunc(l.Items, func(tool json.RawMessage) bool {
		schema, _ := Member(tool, "inputSchema")
		_, invalid := ParseParamHeaders(schema)
		if invalid == nil {
			return false
		}
		name, _ := StringMember(tool, "name")
		c.options.Logger.Warn("tool left out", "tool", name, "error", invalid)
		if l.Invalid == nil {
			l.Invalid = make(map[string]error)
		}
		l.Invalid[name] = invalid
		return true
	})
	return l, nil
}

// ListResources returns the resources.
func (c *Client) ListResources(ctx context.Context) (*Listing, error) {
	return c.list(ctx, "resources/list", "resources")
}

// ListResourceTemplates returns the templates of resources.
func (c *Client) ListResourceTemplates(ctx context.Context) (*Listing, error) {
	return c.list(ctx, "resources/templates/list", "resourceTemplates")
}

// ListPrompts returns the prompts.
func (c *Client) ListPrompts(ctx context.Context) (*Listing, error) {
	return c.list(ctx, "prompts/list", "prompts")
}

func (c *Client) list(ctx context.Context, method, member string) (*Listing, error) {
	l := &Listing{}
	params := json.RawMessage(`{}`)
	seen := make(map[string]bool)
	for page := range maxPages {
		result, err := c.typed(ctx, method, params)
		if err != nil {
			return nil, err
		}
		items, ok := Member(result, member)
		if !ok {
			return nil, fmt.Errorf("the answer to %s has no %s", method, member)
		}
		l.Items = slices.AppendSeq(l.Items, Elements(items))
		l.Cache = l.Cache.and(ParseCacheHint(result), page == 0)
		cursor, more := Member(result, "nextCursor")
		if !more || isNull(cursor) {
			return l, nil
		}
		if seen[string(cursor)] {
			l.Incomplete = errRepeatedCursor
			return l, nil
		}
		seen[string(cursor)] = true
		params = append(append(json.RawMessage(`{"cursor":`), cursor...), '}')
	}
	l.Incomplete = errTooManyPages
	return l, nil
}

// ParseCacheHint reads how long and by whom a result may be kept; the zero
// value if it does not say.
func ParseCacheHint(result json.RawMessage) CacheHint {
	var h CacheHint
	if ttl, ok := Member(result, "ttlMs"); ok {
		if n, ok := safeInteger(string(ttl)); ok && n > 0 {
			h.TTLMillis = n
		}
	}
	scope, _ := StringMember(result, "cacheScope")
	h.Public = scope == "public"
	return h
}

// TTL is how long the result may be kept.
func (h CacheHint) TTL() time.Duration {
	const most = 365 * 24 * time.Hour
	return time.Duration(min(h.TTLMillis, most.Milliseconds())) * time.Millisecond
}

// and returns what holds for two results together.
func (h CacheHint) and(other CacheHint, first bool) CacheHint {
	if first {
		return other
	}
	return CacheHint{TTLMillis: min(h.TTLMillis, other.TTLMillis), Public: h.Public && other.Public}
}

// CallTool calls a tool. Arguments are an object, or nil.
func (c *Client) CallTool(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
	return c.typed(ctx, "tools/call", namedParams(name, arguments))
}

// GetPrompt fills in a prompt. Arguments are an object of strings, or nil.
func (c *Client) GetPrompt(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
	return c.typed(ctx, "prompts/get", namedParams(name, arguments))
}

func namedParams(name string, arguments json.RawMessage) json.RawMessage {
	params := AppendString(append(make([]byte, 0, 32+len(name)+len(arguments)), `{"name":`...), name)
	if arguments != nil {
		params = append(append(params, `,"arguments":`...), arguments...)
	}
	return append(params, '}')
}

// ReadResource reads a resource.
func (c *Client) ReadResource(ctx context.Context, uri string) (json.RawMessage, error) {
	return c.typed(ctx, "resources/read", uriParams(uri))
}

// Complete asks for completions. The params are those of completion/complete.
func (c *Client) Complete(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	return c.typed(ctx, "completion/complete", params)
}

// SetLevel asks for log messages from that level on: at once in the legacy era,
// with every request from now on in the modern one.
func (c *Client) SetLevel(ctx context.Context, level string) error {
	if !c.modern() {
		params := append(AppendString([]byte(`{"level":`), level), '}')
		if _, err := c.typed(ctx, "logging/setLevel", params); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logLevel = level
	c.meta.Store(newRequestMeta(c.options.Info, c.options.Capabilities, level))
	return nil
}

// Ping asks for a sign of life. The modern era has no ping, but a request that
// every server answers.
func (c *Client) Ping(ctx context.Context) error {
	method := "ping"
	if c.modern() {
		method = "server/discover"
	}
	_, err := c.typed(ctx, method, nil)
	return err
}

// RootsChanged tells the server that the list of roots has changed. A modern
// server asks for it whenever it needs it.
func (c *Client) RootsChanged(ctx context.Context) error {
	if c.modern() {
		return nil
	}
	return c.Notify(ctx, "notifications/roots/list_changed", nil)
}
