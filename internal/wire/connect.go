package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Transport is a way to reach a server, for Connect: Stream or HTTP.
type Transport interface {
	// open makes a link to the server. It does not wait for the server.
	open(h Handler) (Link, error)
}

// Stream reaches a server over a conn: stdio, memory, or any other.
func Stream(conn Conn, options *PeerOptions) Transport { return streamTransport{conn, options} }

type streamTransport struct {
	conn    Conn
	options *PeerOptions
}

func (t streamTransport) open(h Handler) (Link, error) {
	var options PeerOptions
	if t.options != nil {
		options = *t.options
	}
	options.AskedIsNotSilent = true
	return NewPeer(t.conn, h, &options), nil
}

// HTTP reaches a server over Streamable HTTP or, if options allow it, the older
// HTTP+SSE. Userinfo in the URL becomes basic authentication.
func HTTP(url string, options *HTTPClientOptions) Transport {
	t := httpTransport{url: url}
	if options != nil {
		t.options = *options
	}
	return t
}

type httpTransport struct {
	url     string
	options HTTPClientOptions
}

func (t httpTransport) open(h Handler) (Link, error) { return newHTTPClient(t.url, h, t.options) }

// Dialect is how a server wants to be spoken to.
type Dialect string

const (
	DialectModern Dialect = "modern" // 2026-07-28
	DialectLegacy Dialect = "legacy" // a handshake, on the transport it was asked on
	DialectSSE    Dialect = "sse"    // a handshake, over HTTP+SSE
)

// EraCache remembers the dialect of servers, so that it is found out once. It
// is only a hint: a wrong one costs time, not the connection.
type EraCache interface {
	Load(key string) (Dialect, bool)
	Store(key string, d Dialect)
}

// Connect opens a link to a server, finds out its era, performs the handshake
// of the legacy one and begins to listen for changes. It owns the transport's
// conn from now on. ctx bounds the connecting only.
func Connect(ctx context.Context, t Transport, options *ClientOptions) (*Client, error) {
	c, err := newClient(options)
	if err != nil {
		return nil, err
	}
	known := c.recall()
	h, isHTTP := t.(httpTransport)
	mayFallBack := isHTTP && h.options.SSEFallback && EraOf(c.options.ProtocolVersion) != Modern
	if mayFallBack && known == DialectSSE {
		if err := c.connectSSE(ctx, h); err == nil || !refused(err) {
			return c.connected(DialectSSE, err)
		}
	}
	if c.link, err = t.open(clientHandler{c}); err != nil {
		return nil, err
	}
	if h, ok := c.link.(*HTTPClient); ok {
		h.reopen = c.reopen
		h.missed = func() { c.changed(c.Opening().announced()...) }
	}
	dialect, err := c.handshake(ctx, known)
	if err == nil || !mayFallBack || !refused(err) {
		return c.connected(dialect, err)
	}
	c.link.Close()
	if sseErr := c.connectSSE(ctx, h); sseErr != nil {
		// If there is no stream either, the first failure is the true one.
		if !refused(sseErr) {
			err = sseErr
		}
		return nil, err
	}
	return c.connected(DialectSSE, nil)
}

// connected ends Connect, one way or the other.
func (c *Client) connected(d Dialect, err error) (*Client, error) {
	if err != nil {
		if c.link != nil {
			c.Close()
		}
		return nil, err
	}
	c.remember(d)
	if c.modern() {
		c.listenForLists()
	}
	return c, nil
}

func (c *Client) recall() Dialect {
	if c.options.Eras == nil || c.options.ProtocolVersion != "" {
		return ""
	}
	d, _ := c.options.Eras.Load(c.options.EraKey)
	return d
}

func (c *Client) remember(d Dialect) {
	if d != "" && c.options.Eras != nil && c.options.ProtocolVersion == "" {
		c.options.Eras.Store(c.options.EraKey, d)
	}
}

// refused reports whether a server that was reached would not take the request
// at all. In answer to a POST this is how servers of HTTP+SSE show themselves.
func refused(err error) bool {
	e, ok := errors.AsType[*HTTPError](err)
	if !ok || isModernError(e.RPC) {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// isModernError reports whether only a server of the modern era says this.
func isModernError(e *Error) bool {
	if e == nil {
		return false
	}
	return e.Code == CodeHeaderMismatch || e.Code == CodeMissingClientCapability || e.Code == CodeUnsupportedVersion
}

// handshake agrees with the server on an era and a revision. The dialect is
// empty if it is not worth remembering.
func (c *Client) handshake(ctx context.Context, known Dialect) (Dialect, error) {
	pinned := c.options.ProtocolVersion
	switch {
	case EraOf(pinned) == Legacy:
		return DialectLegacy, c.initialize(ctx, pinned)
	case pinned != "":
		return DialectModern, c.discover(ctx)
	case c.options.PreferLegacy:
		return c.legacyFirst(ctx)
	case known == DialectLegacy:
		err := c.initialize(ctx, Version20251125)
		if _, spoke := errors.AsType[*Error](err); err == nil || !spoke && !refused(err) {
			return DialectLegacy, err
		} // else the server is another one than it was
	}
	if _, overHTTP := c.link.(*HTTPClient); !overHTTP {
		return c.modernFirst(ctx)
	}
	probe, stop := context.WithTimeoutCause(ctx, c.options.ProbeTimeout, errProbe)
	defer stop()
	err := c.discover(probe)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == CodeUnsupportedVersion {
		if supported, _ := Member(e.Data, "supported"); listsVersion(supported, Version20260728) {
			err = c.discover(probe) // that is what it was sent: perhaps it was not ready
		}
	}
	if err == nil {
		return DialectModern, nil
	}
	version := c.legacyVersion(err)
	if version == "" || ctx.Err() != nil {
		return "", err
	}
	if !errors.Is(err, errProbe) {
		return DialectLegacy, c.initialize(ctx, version)
	}
	// A slow start is more likely than a server that does not answer.
	if err = c.initialize(ctx, version); err != nil && ctx.Err() == nil && refusesLegacy(err) && c.discover(ctx) == nil {
		return DialectModern, nil
	}
	return "", err
}

var (
	errProbe       = errors.New("no answer to server/discover in time")
	errNotModern   = errors.New("the answer to server/discover is none")
	errNoCommonVer = errors.New("the server speaks no protocol version that this client speaks")
)

// legacyVersion returns the revision for an initialize after server/discover
// has failed with err, or "" if that makes no sense: the server is modern, or
// cannot be reached. What servers of the legacy era answer to a method they do
// not know is anybody's guess.
func (c *Client) legacyVersion(err error) string {
	if errors.Is(err, ErrClosed) {
		// It may have died of the question. Ask it differently next time.
		c.remember(DialectLegacy)
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok && isModernError(e) {
		if e.Code == CodeUnsupportedVersion {
			return newestLegacy(e.Data, "supported")
		}
		return ""
	}
	if e, ok := errors.AsType[*HTTPError](err); ok {
		if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
			return ""
		}
		return Version20251125
	}
	if e, ok := errors.AsType[*NetError](err); ok && e.Reason != ReasonTimeout && e.Reason != ReasonLost {
		return ""
	}
	return Version20251125
}

// newestLegacy returns the newest revision of the legacy era in a list of
// versions, "" if there is none.
func newestLegacy(obj json.RawMessage, member string) (newest string) {
	list, _ := Member(obj, member)
	for v := range Elements(list) {
		if s, _ := Unquote(v); EraOf(s) == Legacy && s > newest {
			newest = s
		}
	}
	return newest
}

// discover opens the modern era.
func (c *Client) discover(ctx context.Context) error {
	if h, ok := c.link.(*HTTPClient); ok {
		h.speakModern(Version20260728)
	}
	result, err := c.askDiscover(ctx)
	if err == nil {
		c.opened(Modern, Version20260728, result)
	}
	return err
}

// askDiscover returns what a server of the modern era says of itself.
func (c *Client) askDiscover(ctx context.Context) (json.RawMessage, error) {
	params, err := c.meta.Load().addTo(nil, nil)
	if err != nil {
		return nil, err
	}
	result, err := c.link.Call(ctx, Call{Method: "server/discover", Params: params, Timeout: c.options.Timeout})
	if err != nil {
		return nil, err
	}
	versions, ok := Member(result, "supportedVersions")
	if !ok {
		return nil, errNotModern // some servers answer every method with an empty object
	}
	if !listsVersion(versions, Version20260728) {
		return nil, &Error{Code: CodeUnsupportedVersion, Message: errNoCommonVer.Error(), Data: versionsData(versions)}
	}
	return result, nil
}

func listsVersion(list json.RawMessage, version string) bool {
	for v := range Elements(list) {
		if s, _ := Unquote(v); s == version {
			return true
		}
	}
	return false
}

func versionsData(supported json.RawMessage) json.RawMessage {
	return append(append(json.RawMessage(`{"supported":`), supported...), '}')
}

// initialize opens the legacy era.
func (c *Client) initialize(ctx context.Context, version string) error {
	if h, ok := c.link.(*HTTPClient); ok && !isRenewing(ctx, h) {
		h.speakLegacy()
	}
	result, err := c.askInitialize(ctx, version)
	if err != nil {
		return err
	}
	return c.initialized(ctx, result)
}

// askInitialize returns what a server of the legacy era says of itself.
func (c *Client) askInitialize(ctx context.Context, version string) (json.RawMessage, error) {
	params := AppendString([]byte(`{"protocolVersion":`), version)
	params = append(append(params, `,"capabilities":`...), c.options.Capabilities...)
	params = append(append(params, `,"clientInfo":`...), c.options.Info...)
	params = append(params, '}')
	result, err := c.link.Call(ctx, Call{Method: "initialize", Params: params, Timeout: c.options.Timeout})
	if err != nil {
		return nil, err
	}
	if agreed, _ := StringMember(result, "protocolVersion"); EraOf(agreed) != Legacy {
		return nil, fmt.Errorf("%w: it wants %q", errNoCommonVer, printable(agreed))
	}
	return result, nil
}

// initialized takes note of the answer to initialize, and tells the server.
func (c *Client) initialized(ctx context.Context, result json.RawMessage) error {
	agreed, _ := StringMember(result, "protocolVersion")
	c.opened(Legacy, agreed, result)
	return c.link.Notify(ctx, "notifications/initialized", nil)
}

func (c *Client) opened(era Era, version string, result json.RawMessage) {
	o := &Opening{Era: era, Version: version, Raw: result}
	o.Capabilities, _ = Member(result, "capabilities")
	o.Instructions, _ = StringMember(result, "instructions")
	if era == Modern {
		o.ServerInfo, _ = Member(result, "_meta", MetaServerInfo)
	} else {
		o.ServerInfo, _ = Member(result, "serverInfo")
	}
	c.opening.Store(o)
}

// reopen opens a new session where an HTTP server has forgotten the old one,
// and brings it into the state that the old one was in.
func (c *Client) reopen(ctx context.Context) error {
	if err := c.initialize(ctx, c.Opening().Version); err != nil {
		return err
	}
	c.restoreSession(ctx)
	c.changed(c.Opening().announced()...)
	return nil
}

// connectSSE connects over HTTP+SSE.
func (c *Client) connectSSE(ctx context.Context, t httpTransport) error {
	conn, err := dialSSE(ctx, t.url, t.options)
	if err != nil {
		return err
	}
	c.link = NewPeer(conn, clientHandler{c}, &PeerOptions{
		Logger: c.options.Logger, RequestsPerSecond: serverRequestsPerSecond, AskedIsNotSilent: true,
	})
	version := c.options.ProtocolVersion
	if version == "" {
		version = Version20251125
	}
	if err := c.initialize(ctx, version); err != nil {
		c.link.Close()
		return err
	}
	return nil
}
