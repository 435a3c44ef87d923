package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// client is one client of an endpoint: its session of the host, and the way back
// to it. A legacy client is one as long as its connection or HTTP session lasts;
// for modern ones see modern.go.
type client struct {
	ep      *endpoint
	session *patchbay.Session
	asked   *patchbay.Client // what a modern one can do within a request; nil if that is nothing

	identity string // whose it is; empty for whoever runs the gateway

	mu      sync.Mutex
	reach   map[*wire.Session][]string // the ways to it outside of requests; of modern ones the resources whose updates it wants
	watched map[string]watched         // resources it has subscribed to, by the URI it knows
	asking  map[string]int             // progress tokens of the questions that it has not answered, and how many have each
	tasks   map[taskRef]bool           // of which it hears

	unaccepted string // what it was last told of definitions that nobody accepted

	deaf atomic.Bool // it did not take what it was told in time
}

// watched is a resource as its server knows it.
type watched struct{ server, uri string }

// requestKey is under which a context has the request that it is the context of.
type requestKey struct{}

// requestOf is the client's request on whose behalf something happens, nil if
// that cannot be told.
func requestOf(ctx context.Context) *wire.Request {
	r, _ := ctx.Value(requestKey{}).(*wire.Request)
	return r
}

// newClient opens a session of the host for a client.
func (ep *endpoint) newClient(sess *wire.Session) (*client, error) {
	c := &client{ep: ep, reach: map[*wire.Session][]string{}, watched: map[string]watched{}}
	able := c.abilities(sess)
	if able.AskedInCalls && (able.Elicit != nil || able.Sample != nil || able.Roots != nil) {
		within := *able
		c.asked = &within
	}
	able.Changed = c.changed
	o := patchbay.SessionOptions{
		Name:    clientName(sess),
		PID:     sess.PID,
		Profile: ep.profile,
		Default: patchbay.Allow, // the client's user decides, unless the settings do
		Client:  able,

		Prefixed: true, // as agents do
	}
	if ep.single != "" {
		o.Servers = []string{ep.single}
	}
	if sess.Principal != tokenPrincipal { // which is the secret of whoever runs this
		o.Identity = sess.Principal
	}
	c.identity = o.Identity
	var err error
	c.session, err = ep.gateway.host.NewSession(o)
	return c, err
}

// clientName is who a client says it is, for logs and the audit.
func clientName(sess *wire.Session) string {
	name, _ := wire.StringMember(sess.ClientInfo, "name")
	if name == "" {
		name = "unknown"
	}
	if version, _ := wire.StringMember(sess.ClientInfo, "version"); version != "" {
		name += " " + version
	}
	name = cut(name, 128) // or it could hide who is behind it
	if sess.Principal != "" {
		name += " (" + cut(sess.Principal, 256) + ")"
	}
	return name
}

// cut is the beginning of a text that a client made up, for what is kept of it.
func cut(text string, most int) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), most)]), "")
}

// abilities is what a client can do for servers. They are told what it declared.
func (c *client) abilities(sess *wire.Session) *patchbay.Client {
	able := &patchbay.Client{
		Capabilities: declared(sess),
		AskedInCalls: sess.Era == wire.Modern,
		OneProgram:   sess.OneProgram(),

		// Requests with one principal that say the same of their client are most
		// likely one program's: to make several at a time is normal.
		LikelyOneProgram: !c.ep.gateway.host.Settings().Gateway.ManyUsers,

		PreferLegacy: sess.Era == wire.Legacy && (sess.Supports("elicitation") || sess.Supports("sampling") || sess.Supports("roots")),
		Progress:     c.progress,
		Log:          c.logged,
		Notified:     c.notified,
		ComeBack:     comeBack,
		ResourceUpdated: func(server, uri string, params json.RawMessage) {
			c.updated(server, uri, params)
		},
	}
	// A client of revision 2025-11-25 that can be sent to a URL knows what to do
	// with the error that asks for it; for others Patchbay does it.
	_, url := wire.Member(able.Capabilities, "elicitation", "url")
	able.HandlesURLErrors = url && sess.Era == wire.Legacy
	if sess.Supports("elicitation") {
		able.Elicit = func(ctx context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
			return c.ask(ctx, "elicitation/create", params)
		}
	}
	if sess.Supports("sampling") {
		able.Sample = func(ctx context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
			return c.ask(ctx, "sampling/createMessage", params)
		}
	}
	if sess.Supports("roots") {
		able.Roots = func(ctx context.Context) (json.RawMessage, error) { return c.ask(ctx, "roots/list", nil) }
	}
	return able
}

// declared are the capabilities of a client in one form, so that equal ones are
// recognised.
func declared(sess *wire.Session) json.RawMessage {
	var compact bytes.Buffer
	if !wire.IsObject(sess.ClientCapabilities) || json.Compact(&compact, sess.ClientCapabilities) != nil {
		return json.RawMessage("{}")
	}
	return compact.Bytes()
}

// ask asks the client: within the request that made a server ask, or, where that
// cannot be told, outside of any, which only legacy clients allow.
func (c *client) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if token, ok := wire.Member(params, "_meta", wire.MetaProgressToken); ok {
		c.asks(string(token), 1)
		defer c.asks(string(token), -1)
	}
	if r := requestOf(ctx); r != nil {
		return r.Ask(ctx, method, params)
	}
	for _, sess := range c.ways() {
		if sess.Era == wire.Legacy {
			return sess.Call(ctx, wire.Call{Method: method, Params: params})
		}
	}
	return nil, wire.Errorf(wire.CodeInternal, "the client can be asked within its requests only")
}

// asks counts the questions that have a progress token.
func (c *client) asks(token string, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking == nil {
		c.asking = map[string]int{}
	}
	if c.asking[token] += more; c.asking[token] == 0 {
		delete(c.asking, token)
	}
}

// reports reports whether progress is that of a question that the client was
// asked: all other tokens are of somebody else's.
func (c *client) reports(progress json.RawMessage) bool {
	token, _ := wire.Member(progress, "progressToken")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asking[string(token)] > 0
}

// ways are the ways to the client outside of requests.
func (c *client) ways() []*wire.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*wire.Session
	for sess := range c.reach {
		all = append(all, sess)
	}
	return all
}

// hearPatience is how long a client may take to make room for what a server
// says. Others that share the connection hear nothing meanwhile, so one that did
// not is waited for no more until it has.
const hearPatience = 100 * time.Millisecond

// passOn tells the client what a server said, if it listens.
func (c *client) passOn(ctx context.Context, method string, params json.RawMessage) {
	patience := hearPatience
	if c.deaf.Load() {
		patience = 0 // it hears what there is room for
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	c.deaf.Store(errors.Is(c.tell(ctx, method, params), context.DeadlineExceeded))
}

// tell tells the client something, with a request of its own where it belongs to
// one. A client that does not hear it has gone, which others notice, or does not
// read.
func (c *client) tell(ctx context.Context, method string, params json.RawMessage) error {
	params = wire.DeleteMember(params, "_meta", wire.MetaSubscriptionID) // which was ours with the server
	if meta, _ := wire.Member(params, "_meta"); string(meta) == "{}" {
		params = wire.DeleteMember(params, "_meta")
	}
	if r := requestOf(ctx); r != nil {
		return r.Link.Notify(ctx, method, params)
	}
	var all error
	for _, sess := range c.ways() {
		all = errors.Join(all, sess.Notify(ctx, method, params))
	}
	return all
}

func (c *client) progress(ctx context.Context, _ string, params json.RawMessage) {
	_ = c.tell(ctx, "notifications/progress", params) // only its own call waits
}

func (c *client) logged(ctx context.Context, _ string, params json.RawMessage) {
	c.passOn(ctx, "notifications/message", params)
}

func (c *client) notified(ctx context.Context, server, method string, params json.RawMessage) {
	switch {
	case acknowledged(ctx, method, params):
	case isTask(method):
		c.taskNotified(ctx, server, method, params)
	default:
		c.passOn(ctx, method, params)
	}
}

// comeBack asks the client of a request what the server asks of us: to come back
// for the answer. One that cannot has it as soon as we do.
func comeBack(ctx context.Context, _ string, after time.Duration) {
	if r := requestOf(ctx); r != nil {
		r.ComeBack(after)
	}
}

// mayComeBack reports whether a client may be asked to come back: whether there
// is a server that may ask for it.
func (ep *endpoint) mayComeBack(sess *wire.Session) bool {
	c, ok := sess.State.(*client)
	return ok && c.session.Remote()
}

// changed tells the client that lists have changed.
func (c *client) changed(lists patchbay.Lists) {
	for _, list := range []struct {
		changed bool
		method  string
	}{
		{lists.Tools, "notifications/tools/list_changed"},
		{lists.Resources, "notifications/resources/list_changed"},
		{lists.Prompts, "notifications/prompts/list_changed"},
	} {
		if list.changed {
			_ = c.tell(context.Background(), list.method, nil) // nobody else waits
		}
	}
}

// updated tells the client that a resource has changed, by the name under which
// it subscribed to it, or to what it is a part of.
func (c *client) updated(server, uri string, params json.RawMessage) {
	c.mu.Lock()
	var known []string
	for as, w := range c.watched {
		if part, ok := strings.CutPrefix(uri, w.uri); ok && w.server == server && wire.Covers(w.uri, uri) {
			known = append(known, as+part)
		}
	}
	c.mu.Unlock()
	for _, as := range known {
		told := params
		if as != uri {
			told, _ = wire.SetMember(params, wire.AppendString(nil, as), "uri") // params have one already
		}
		c.passOn(context.Background(), "notifications/resources/updated", told)
	}
}

// opened makes a legacy session a client.
func (ep *endpoint) opened(sess *wire.Session) {
	if sess.Era == wire.Modern {
		return // each request says who its client is
	}
	c, err := ep.newClient(sess)
	if err != nil {
		ep.gateway.log.Warn("session not opened", "client", clientName(sess), "error", err)
		return
	}
	c.mu.Lock()
	c.reach[sess] = nil
	c.mu.Unlock()
	sess.State = c
}

func (ep *endpoint) closed(sess *wire.Session) {
	if c, ok := sess.State.(*client); ok {
		c.session.Close()
	}
	if sess.Era == wire.Modern {
		ep.modern.left(sess.Owner())
	}
}

// client returns who a session is of. Call done when it is not needed any more.
func (ep *endpoint) client(sess *wire.Session) (c *client, done func(), err error) {
	if c, ok := sess.State.(*client); ok {
		return c, func() {}, nil
	}
	if sess.Era == wire.Legacy {
		return nil, nil, wire.Errorf(wire.CodeInternal, "the session could not be opened")
	}
	return ep.modern.get(sess)
}

// find returns the tool that a name means at this endpoint.
func (c *client) find(name string) (patchbay.Tool, error) {
	if single := c.ep.single; single != "" {
		return c.session.FindOwn(single, name)
	}
	return c.session.Find(name)
}
