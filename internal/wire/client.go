package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ClientOptions describe a client. The zero value works.
type ClientOptions struct {
	Info         json.RawMessage // the implementation object; nil means one that says patchbay
	Capabilities json.RawMessage // of the client, in the form of both eras; nil means none

	// Handler answers the server: its requests in the legacy era, what it asks
	// for in an input_required result in the modern one, and all notifications
	// that belong to no call of ours. nil refuses and ignores.
	Handler Handler

	// Changed is told that a list of the server may have changed: it said so,
	// or the connection over which it would have said so was interrupted. It
	// must not block. In the modern era nobody listens if it is nil.
	Changed func(List)

	// ProtocolVersion, if not empty, is the one revision to speak. Otherwise
	// the era is found out, and then the newest revision of both is spoken.
	ProtocolVersion string

	// PreferLegacy has a server of both eras be spoken to in the legacy one, as a
	// user who speaks that one needs it. It does not count where ProtocolVersion
	// is set.
	PreferLegacy bool

	// Eras remembers how servers want to be spoken to, under EraKey. nil
	// forgets.
	Eras   EraCache
	EraKey string

	Timeout      time.Duration // of the handshake and of the typed methods; 0 means 30 s
	ProbeTimeout time.Duration // after which silence in one era means that the other is tried; 0 means 3 s

	Logger *slog.Logger // nil discards
}

// List names one of the lists of a server.
type List string

const (
	Tools     List = "tools"
	Resources List = "resources" // and their templates
	Prompts   List = "prompts"
)

// Client is MCP's client side on a Link, in whichever era the server speaks. It
// is a Link itself: the raw road, on which params and results stay as they are,
// except for what the era demands in _meta. On top of that are typed methods
// for what every client needs; their results are raw as well.
type Client struct {
	options ClientOptions
	link    Link
	opening atomic.Pointer[Opening]
	meta    atomic.Pointer[requestMeta]

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu         sync.Mutex
	mirrored   map[string]ParamHeaders // of the tools that have any, by name
	logLevel   string
	subscribed map[string]bool // resources, by URI
	lists      *subscription   // modern: to changes of lists
	updates    *subscription   // modern: to the subscribed resources

	subscribing chan struct{} // held while updates is being replaced
}

var _ Link = (*Client)(nil)

// Opening is what a server said of itself.
type Opening struct {
	Era          Era
	Version      string          // the revision being spoken
	ServerInfo   json.RawMessage // nil if it did not say
	Capabilities json.RawMessage
	Instructions string
	Raw          json.RawMessage // the result of initialize or server/discover
}

// Has reports whether the server has declared the capability at path and not
// set it to false.
func (o *Opening) Has(path ...string) bool {
	value, ok := Member(o.Capabilities, path...)
	return ok && string(value) != "false" && !isNull(value)
}

func newClient(options *ClientOptions) (*Client, error) {
	c := &Client{
		mirrored:    make(map[string]ParamHeaders),
		subscribed:  make(map[string]bool),
		subscribing: make(chan struct{}, 1),
	}
	if options != nil {
		c.options = *options
	}
	o := &c.options
	if o.Info == nil {
		o.Info = json.RawMessage(`{"name":"patchbay","version":"0"}`)
	}
	if o.Capabilities == nil {
		o.Capabilities = json.RawMessage(`{}`)
	}
	for name, raw := range map[string]json.RawMessage{"info": o.Info, "capabilities": o.Capabilities} {
		if err := Valid(raw, Limits{}); err != nil || !IsObject(raw) {
			return nil, fmt.Errorf("client options: %s: not a JSON object", name)
		}
	}
	if o.ProtocolVersion != "" && EraOf(o.ProtocolVersion) == 0 {
		return nil, fmt.Errorf("client options: unknown protocol version %q", o.ProtocolVersion)
	}
	if o.Handler == nil {
		o.Handler = refuser{}
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.ProbeTimeout == 0 {
		o.ProbeTimeout = 3 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c.meta.Store(newRequestMeta(o.Info, o.Capabilities, ""))
	c.opening.Store(&Opening{})
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Opening returns what the server said of itself. It can change only when an
// HTTP session has to be opened again.
func (c *Client) Opening() *Opening { return c.opening.Load() }

func (c *Client) modern() bool { return c.opening.Load().Era == Modern }

// Call implements Link.
func (c *Client) Call(ctx context.Context, call Call) (json.RawMessage, error) {
	if !c.modern() {
		call.Params = withoutModernMeta(call.Params)
		return c.link.Call(ctx, call)
	}
	if !MayAskBack(call.Method) || call.KeepInputRequired {
		return c.callModern(ctx, call)
	}
	return c.callWithInput(ctx, call)
}

// callModern sends one request of the modern era.
func (c *Client) callModern(ctx context.Context, call Call) (json.RawMessage, error) {
	given := call.Header
	if _, overHTTP := c.link.(*HTTPClient); overHTTP && call.Repeats == nil {
		call.Repeats = new(Repeats)
	}
	if err := c.addMeta(&call); err != nil {
		return nil, fmt.Errorf("params of %s: %w", call.Method, err)
	}
	call.Header = c.mirrorArguments(ctx, call)
	result, err := c.link.Call(ctx, call)
	if err == nil && call.Method == "tools/list" {
		c.learnMirrored(result)
	}
	if e, ok := errors.AsType[*HTTPError](err); ok && e.RPC != nil && e.RPC.Code == CodeHeaderMismatch && call.Method == "tools/call" {
		// The tool may have other annotations than those we know.
		if _, listErr := c.ListTools(ctx); listErr != nil {
			return nil, err
		}
		was := call.Header
		call.Header = given
		call.Header = c.mirrorArguments(ctx, call)
		if maps.EqualFunc(was, call.Header, slices.Equal) || !call.Repeats.Again(SignHeaders) {
			return nil, err
		}
		return c.link.Call(ctx, call)
	}
	return result, err
}

// addMeta gives a call what every modern request has. Where there is no _meta yet
// a Peer can do that, together with a progress token.
func (c *Client) addMeta(call *Call) (err error) {
	own := c.meta.Load()
	meta, has := Member(call.Params, "_meta")
	if _, ok := c.link.(*Peer); ok && !has && (isNull(call.Params) || IsObject(call.Params)) {
		call.meta = own
		return nil
	}
	call.Params, err = own.addTo(call.Params, meta)
	return err
}

// mirrorArguments returns the headers of a tool call, with those that repeat
// its arguments and those that are to be passed on.
func (c *Client) mirrorArguments(ctx context.Context, call Call) http.Header {
	if call.Method != "tools/call" {
		return call.Header
	}
	foreign, _ := ctx.Value(paramHeadersKey{}).(http.Header)
	c.mu.Lock()
	none := len(c.mirrored) == 0
	c.mu.Unlock()
	var params ParamHeaders
	if !none {
		name, _ := StringMember(call.Params, "name")
		c.mu.Lock()
		params = c.mirrored[name]
		c.mu.Unlock()
	}
	if params == nil && foreign == nil {
		return call.Header
	}
	header := make(http.Header, len(call.Header)+len(params)+len(foreign))
	maps.Copy(header, call.Header)
	maps.Copy(header, foreign)
	for _, known := range params {
		delete(header, known.header)
	}
	arguments, _ := Member(call.Params, "arguments")
	params.Set(header, arguments)
	return header
}

// learnMirrored notes which arguments of the listed tools belong into headers.
func (c *Client) learnMirrored(result json.RawMessage) {
	tools, _ := Member(result, "tools")
	for tool := range Elements(tools) {
		name, _ := StringMember(tool, "name")
		schema, _ := Member(tool, "inputSchema")
		params, err := ParseParamHeaders(schema)
		c.mu.Lock()
		if err != nil || len(params) == 0 {
			delete(c.mirrored, name)
		} else {
			c.mirrored[name] = params
		}
		c.mu.Unlock()
	}
}

// Notify implements Link.
func (c *Client) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return c.link.Notify(ctx, method, params)
}

// Done implements Link.
func (c *Client) Done() <-chan struct{} { return c.link.Done() }

// Err implements Link.
func (c *Client) Err() error { return c.link.Err() }

// Close implements Link.
func (c *Client) Close() error {
	c.stop()
	err := c.link.Close()
	c.wg.Wait()
	return err
}

// requestMeta is what every modern request carries in _meta.
type requestMeta struct {
	whole    json.RawMessage // for params that have no _meta
	version  json.RawMessage
	optional []metaMember // those that the params may have already
}

type metaMember struct {
	name  string
	value json.RawMessage
}

func newRequestMeta(info, capabilities json.RawMessage, logLevel string) *requestMeta {
	m := &requestMeta{
		version:  AppendString(nil, Version20260728),
		optional: []metaMember{{MetaClientInfo, info}, {MetaClientCapabilities, capabilities}},
	}
	if logLevel != "" {
		m.optional = append(m.optional, metaMember{MetaLogLevel, AppendString(nil, logLevel)})
	}
	m.whole = append(m.whole, `{"`+MetaProtocolVersion+`":`...)
	m.whole = append(m.whole, m.version...)
	for _, o := range m.optional {
		m.whole = append(m.whole, `,"`+o.name+`":`...)
		m.whole = append(m.whole, o.value...)
	}
	m.whole = append(m.whole, '}')
	return m
}

// addTo returns params with our members in their _meta, which is meta now. The
// version is always ours, because we are who speaks it; what the caller says of
// the client stays.
func (m *requestMeta) addTo(params, meta json.RawMessage) (json.RawMessage, error) {
	if isNull(meta) {
		return SetMember(params, m.whole, "_meta")
	}
	merged := []byte(meta)
	var err error
	if version, _ := Member(meta, MetaProtocolVersion); string(version) != string(m.version) {
		merged, err = SetMember(merged, m.version, MetaProtocolVersion)
	}
	for _, o := range m.optional {
		if _, has := Member(merged, o.name); !has && err == nil {
			merged, err = SetMember(merged, o.value, o.name)
		}
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("_meta: %w", err)
	case string(merged) == string(meta): // as a client of the same revision sends it
		return params, nil
	}
	return SetMember(params, merged, "_meta")
}

// withoutModernMeta takes what modern requests say of themselves out of params
// that are passed on to a legacy server.
func withoutModernMeta(params json.RawMessage) json.RawMessage {
	meta, _ := Member(params, "_meta")
	if _, modern := Member(meta, MetaProtocolVersion); !modern {
		return params
	}
	for _, name := range []string{MetaProtocolVersion, MetaClientCapabilities, MetaClientInfo, MetaLogLevel} {
		meta = DeleteMember(meta, name)
	}
	if c := newCursor(meta); !c.next() {
		return DeleteMember(params, "_meta")
	}
	params, _ = SetMember(params, meta, "_meta") // it has one
	return params
}

// clientHandler is the Handler of the link below a Client.
type clientHandler struct{ client *Client }

func (h clientHandler) HandleRequest(ctx context.Context, r *Request) (json.RawMessage, error) {
	if r.Method == "ping" {
		return json.RawMessage(`{}`), nil
	}
	if h.client.modern() {
		return nil, MethodNotFound(r.Method) // a modern server asks in its results
	}
	r.Link = h.client
	result, err := h.client.options.Handler.HandleRequest(ctx, r)
	return result, legacyRefusal(r.Method, err)
}

// legacyRefusal is the error of a client that cannot do what a server asks, in
// the words of the legacy era.
func legacyRefusal(method string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != CodeMissingClientCapability {
		return err
	}
	if method == "elicitation/create" { // a mode that was not declared
		return &Error{Code: CodeInvalidParams, Message: e.Message}
	}
	return &Error{Code: CodeMethodNotFound, Message: e.Message}
}

func (h clientHandler) HandleNotification(ctx context.Context, n *Notification) {
	c := h.client
	if n.Method == methodAcknowledged && c.acknowledged(n) {
		return
	}
	n.Link = c
	c.options.Handler.HandleNotification(ctx, n)
}

// hear implements hearer: who has an answer has heard of the changes before it.
func (h clientHandler) hear(method string) {
	switch method {
	case "notifications/tools/list_changed":
		h.client.changed(Tools)
	case "notifications/resources/list_changed":
		h.client.changed(Resources)
	case "notifications/prompts/list_changed":
		h.client.changed(Prompts)
	}
}

func (c *Client) changed(lists ...List) {
	if c.options.Changed == nil {
		return
	}
	for _, l := range lists {
		c.options.Changed(l)
	}
}

// announced returns the lists whose changes the server promises to announce.
func (o *Opening) announced() []List {
	var lists []List
	for _, l := range []List{Tools, Resources, Prompts} {
		if o.Has(string(l), "listChanged") {
			lists = append(lists, l)
		}
	}
	return lists
}
