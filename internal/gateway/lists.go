package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// maxPage is how many bytes of a list go into one answer. Clients exist that
// never ask for a second page, so it is as large as messages may well be.
const maxPage = 8 << 20

// item is one entry of a list, with the name by which the client knows it.
type item struct {
	server     string
	name       string
	definition json.RawMessage
}

// list answers with the entries of all servers: those that are known now, in an
// order that does not depend on who was first.
func (c *client) list(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := c.awaitLists(ctx); err != nil {
		return nil, err
	}
	var (
		items       []item
		member, key string
		err         error
	)
	switch method {
	case "tools/list":
		member, key = "tools", "name"
		items = c.toolItems()
	case "prompts/list":
		member, key = "prompts", "name"
		items, err = c.promptItems(ctx)
	case "resources/list":
		member, key = "resources", "uri"
		items, err = c.resourceItems(ctx)
	default:
		member, key = "resourceTemplates", "uriTemplate"
		items, err = c.templateItems(ctx)
	}
	if err != nil {
		return nil, refusal(err)
	}
	cursor, _ := wire.StringMember(params, "cursor")
	return page(items, member, key, cursor)
}

// awaitLists gives servers of which nothing is known yet the time to say what they
// have: many clients list once and never again.
func (c *client) awaitLists(ctx context.Context) error {
	return c.session.AwaitLists(ctx, c.ep.gateway.host.Settings().Gateway.ListPatience())
}

func (c *client) toolItems() []item {
	var items []item
	for _, t := range c.session.Tools() {
		items = append(items, item{t.Server, t.Name, t.Definition})
	}
	return items
}

func (c *client) promptItems(ctx context.Context) ([]item, error) {
	prompts, err := c.session.ListPrompts(ctx, "")
	items := make([]item, len(prompts))
	for i, p := range prompts {
		items[i] = item{p.Server, p.FullName, p.Definition}
	}
	return items, err
}

func (c *client) resourceItems(ctx context.Context) ([]item, error) {
	resources, err := c.session.ListResources(ctx, "")
	items := make([]item, len(resources))
	for i, r := range resources {
		items[i] = item{r.Server, c.session.FullURI(r.Server, r.URI), r.Definition}
	}
	return items, err
}

func (c *client) templateItems(ctx context.Context) ([]item, error) {
	templates, err := c.session.ListResourceTemplates(ctx, "")
	items := make([]item, len(templates))
	for i, t := range templates {
		items[i] = item{t.Server, c.session.FullURI(t.Server, t.URITemplate), t.Definition}
	}
	return items, err
}

// page renders the part of a list after the entry that cursor names.
func page(items []item, member, key, cursor string) (json.RawMessage, error) {
	start := 0
	if cursor != "" {
		for start < len(items) && cursorOf(items[start]) != cursor {
			start++
		}
		if start == len(items) {
			return nil, wire.Errorf(wire.CodeInvalidParams, "the cursor is not valid any more: begin the list anew")
		}
		start++
	}
	size := 0
	for _, it := range items[start:] {
		size += len(it.definition) + len(it.name) + 2
	}
	out := make([]byte, 0, min(size, maxPage)+len(member)+64)
	out = append(append(append(out, `{"`...), member...), `":[`...)
	for i, it := range items[start:] {
		named, err := wire.SetMember(it.definition, wire.AppendString(nil, it.name), key)
		if err != nil {
			return nil, err
		}
		if i > 0 && len(out)+len(named) > maxPage {
			out = append(out, `],"nextCursor":`...)
			return append(wire.AppendString(out, cursorOf(items[start+i-1])), '}'), nil
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, named...)
	}
	return append(out, "]}"...), nil
}

// cursorOf names an entry, of whichever server.
func cursorOf(it item) string { return it.server + "/" + it.name }

// tellUnaccepted tells a client that lists tools what of them is not as it was
// accepted, once, if it takes log messages: otherwise tools would be missing and
// nobody would know why.
func (c *client) tellUnaccepted(ctx context.Context, r *wire.Request) {
	all := c.session.Unaccepted()
	said := make([]string, 0, len(all))
	for _, server := range slices.Sorted(maps.Keys(all)) {
		if c.takesLog(r, server) {
			said = append(said, fmt.Sprintf("%s: %s. Run: patchbay approve --tools %s", server, all[server], server))
		}
	}
	text := strings.Join(said, "\n")
	c.mu.Lock()
	news := text != c.unaccepted
	c.unaccepted = text
	c.mu.Unlock()
	if text == "" || !news {
		return
	}
	params := wire.AppendString([]byte(`{"level":"warning","logger":"patchbay","data":`), text)
	_ = c.tell(ctx, "notifications/message", append(params, '}')) // one that is gone needs no list either
}

// takesLog reports whether a client takes warnings about a server: of the modern
// era one that asks for them, of the legacy one also one that has not said, of a
// server that is said to log.
func (c *client) takesLog(r *wire.Request, server string) bool {
	takes, asked := c.session.TakesLog(server, "warning")
	if r.Session.Era == wire.Modern {
		return takes && asked
	}
	if c.ep.single != "" {
		st, err := c.ep.gateway.host.Server(server)
		if _, logs := wire.Member(st.Capabilities, "logging"); err != nil || !logs {
			return false
		}
	}
	return takes
}
