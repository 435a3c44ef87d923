package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// An endpoint is what clients find under one path. It is the Handler of its
// wire.Server.
type endpoint struct {
	gateway *Gateway
	single  string // the one server that is passed through as it is; empty if there are several
	profile string // the selection of the settings that is served; empty if it is all

	server    *wire.Server
	described atomic.Pointer[wire.Description] // as a client was last told
	modern    clients
}

// newEndpoint makes the endpoint of a name, if there is one.
func (g *Gateway) newEndpoint(name string) (*endpoint, error) {
	ep := &endpoint{gateway: g}
	if profile, ok := strings.CutPrefix(name, "@"); ok {
		if err := g.hasProfile(profile); err != nil {
			return nil, err
		}
		ep.profile = profile
	} else if name != "" {
		st, err := g.host.Server(name)
		if err != nil {
			return nil, errUnknown{err}
		}
		ep.single = st.Name
	}
	ep.modern.ep = ep
	var err error
	ep.server, err = wire.NewServer(wire.ServerOptions{
		Info:         g.info(),
		Capabilities: json.RawMessage(capabilities),
		Describe:     ep.describe,
		Handler:      ep,
		Opened:       ep.opened,
		Closed:       ep.closed,
		Listen:       ep.listen,
		ParamHeaders: ep.paramHeaders,
		ComeBack:     ep.mayComeBack,
		MaxByOne:     1024, // as many agents may share a token
		Logger:       g.log,
	})
	return ep, err
}

// hasProfile says why there is no such profile, if there is none.
func (g *Gateway) hasProfile(name string) error {
	profiles := g.host.Settings().Gateway.Profiles
	if _, ok := profiles[name]; ok {
		return nil
	}
	text := fmt.Sprintf("No profile %q.", name)
	if len(profiles) > 0 {
		text += " There are: " + strings.Join(slices.Sorted(maps.Keys(profiles)), ", ") + "."
	}
	return errUnknown{&patchbay.Error{Kind: patchbay.KindNotFound, Message: text}}
}

// capabilities of an endpoint of several servers: whatever they have, a client
// can use.
const capabilities = `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"logging":{},` +
	`"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"extensions":{"` + tasksExtension + `":{}}}`

func (g *Gateway) info() json.RawMessage {
	info, _ := json.Marshal(map[string]string{"name": "patchbay", "title": "Patchbay", "version": g.opts.Version}) // strings always marshal
	return info
}

// describe tells a client what is here: of one server what that says of itself,
// of several what they want a model to know.
func (ep *endpoint) describe(ctx context.Context, sess *wire.Session) (*wire.Description, error) {
	c, done, err := ep.client(sess)
	if err != nil {
		return nil, err
	}
	defer done()
	var d *wire.Description
	if ep.single == "" {
		d, err = wire.NewDescription(ep.gateway.info(), json.RawMessage(capabilities), c.instructions())
	} else {
		d, err = c.describeSingle(ctx)
	}
	if err != nil {
		return nil, err
	}
	ep.described.Store(d)
	return d, nil
}

// describeSingle presents the one server, as it presents itself to clients like
// this one.
func (c *client) describeSingle(ctx context.Context) (*wire.Description, error) {
	info, capabilities, err := c.session.Describe(ctx, c.ep.single)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "%s", patchbay.ErrorText(err))
	}
	if info == nil { // a modern server need not say
		info, _ = json.Marshal(map[string]string{"name": c.ep.single, "version": ""}) // strings always marshal
	}
	instructions := ""
	for _, is := range c.session.Instructions() {
		instructions = is.Text // it has no other server
	}
	return wire.NewDescription(info, capabilities, instructions)
}

// servers are those of an endpoint of several, nil if it has all there are. A
// profile that has gone has none.
func (ep *endpoint) servers() []string {
	p, ok := ep.gateway.host.Settings().Gateway.Profiles[ep.profile]
	if !ok && ep.profile != "" {
		return []string{}
	}
	return p.Servers
}

const maxInstructions = 32 << 10 // of all servers together, in bytes

// instructions are those of all servers that the client is offered anything of,
// each under its name.
func (c *client) instructions() string {
	var all strings.Builder
	for _, is := range c.session.Instructions() {
		if all.Len()+len(is.Text) > maxInstructions {
			continue
		}
		if all.Len() > 0 {
			all.WriteString("\n\n")
		}
		fmt.Fprintf(&all, "# %s\n\n%s", is.Server, strings.TrimSpace(is.Text))
	}
	return all.String()
}

// paramHeaders says which arguments of a tool are repeated in headers.
func (ep *endpoint) paramHeaders(sess *wire.Session, tool string) wire.ParamHeaders {
	c, done, err := ep.client(sess)
	if err != nil {
		return nil
	}
	defer done()
	t, err := c.find(tool)
	if err != nil || !bytes.Contains(t.Definition, []byte("x-mcp-header")) {
		return nil
	}
	schema, _ := wire.Member(t.Definition, "inputSchema")
	headers, err := wire.ParseParamHeaders(schema)
	if err != nil {
		return nil
	}
	return headers
}
