package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// NewRoundTripper returns a transport tuned for many small calls to one host.
// It uses no proxy and no compression; the caller may change it before use.
func NewRoundTripper() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true, // answers are forwarded as they come, and streams must not be buffered
	}
}

// endpoint is a URL to which requests are made.
type endpoint struct {
	options       HTTPClientOptions
	url           atomic.Pointer[url.URL]
	authorization string // from the userinfo of the URL
	transport     http.RoundTripper
	owned         *http.Transport // the transport, if it is ours to close
}

func (e *endpoint) init(rawURL string, options HTTPClientOptions) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return errors.New("server URL: malformed") // err would quote it
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("server URL: not an absolute http or https URL")
	}
	if u.User != nil {
		password, _ := u.User.Password()
		req := http.Request{Header: make(http.Header)}
		req.SetBasicAuth(u.User.Username(), password)
		e.authorization = req.Header.Get("Authorization")
	}
	u.User, u.Fragment = nil, ""
	e.url.Store(u)
	e.options = options.withDefaults()
	e.transport = options.Transport
	if e.transport == nil {
		e.owned = NewRoundTripper()
		e.transport = e.owned
	}
	return nil
}

func (e *endpoint) closeIdle() {
	if e.owned != nil {
		e.owned.CloseIdleConnections()
	}
}

// httpMessage is one HTTP request to be made.
type httpMessage struct {
	verb        string
	method      string          // of the JSON-RPC message, "" if there is none
	params      json.RawMessage // for the mirror headers
	body        segments
	header      http.Header // from the caller
	lastEventID string
	repeats     *Repeats // of a call that must not be made as often as a server likes
}

// segments is a message in parts, so that large params or a large result are
// not copied into their envelope.
type segments [3][]byte

func (s segments) length() int { return len(s[0]) + len(s[1]) + len(s[2]) }

// reader reads the parts one after the other. A single one is read by a type
// that net/http knows: it then sends headers and body in one write.
func (s segments) reader() io.ReadCloser {
	if len(s[1]) == 0 {
		return io.NopCloser(bytes.NewReader(s[0]))
	}
	return &segmentReader{rest: s}
}

type segmentReader struct {
	rest segments
	i    int
}

func (r *segmentReader) Read(p []byte) (n int, err error) {
	for ; r.i < len(r.rest); r.i++ {
		k := copy(p[n:], r.rest[r.i])
		n += k
		if r.rest[r.i] = r.rest[r.i][k:]; len(r.rest[r.i]) > 0 {
			return n, nil
		}
	}
	return n, io.EOF
}

func (*segmentReader) Close() error { return nil }

// largeParams is the size from which params are sent from where they are.
const largeParams = 16 << 10

// encodeRequest writes a request or notification.
func encodeRequest(m Message) segments {
	if len(m.Params) < largeParams {
		return segments{m.AppendTo(make([]byte, 0, m.size()))}
	}
	params := m.Params
	m.Params = nil
	head := m.AppendTo(make([]byte, 0, m.size()+16))
	head = append(head[:len(head)-1], `,"params":`...)
	return segments{head, params, []byte{'}'}}
}

// maxRedirects is how often one request may be redirected.
const maxRedirects = 10

// send makes one request of a session and follows redirects within the origin.
// The body of the response is the caller's to close. Only the wait is bounded
// by ctx until the response is there; then also the reading of its body.
func (e *endpoint) send(ctx context.Context, m httpMessage, s *clientSession) (*http.Response, *http.Request, error) {
	header, err := e.requestHeader(ctx, m, s)
	if err != nil {
		return nil, nil, err
	}
	target := e.url.Load()
	if m.repeats != nil && m.repeats.moved != nil {
		target = m.repeats.moved
	}
	for hop := range maxRedirects + 1 {
		req := e.newRequest(ctx, m, target, header)
		resp, err := e.transport.RoundTrip(req)
		if err != nil {
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			e := newNetError(err, req)
			e.Unsent = e.Unsent && hop == 0
			return nil, nil, e
		}
		next, err := e.redirect(resp, req)
		if next == nil || err != nil {
			return resp, req, err
		}
		if m.repeats != nil {
			if !m.repeats.Again(SignMoved) {
				return nil, nil, &NetError{Reason: ReasonRedirect, Host: target.Host, Err: errors.New("a call follows one only")}
			}
			m.repeats.moved = next
		}
		target = next
	}
	return nil, nil, &NetError{Reason: ReasonRedirect, Host: target.Host, Err: fmt.Errorf("more than %d in a row", maxRedirects)}
}

func (e *endpoint) newRequest(ctx context.Context, m httpMessage, target *url.URL, header http.Header) *http.Request {
	req := &http.Request{
		Method:     m.verb,
		URL:        target,
		Host:       target.Host,
		Header:     header,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	if m.verb == http.MethodPost {
		body := m.body
		req.Body = body.reader()
		req.ContentLength = int64(body.length())
		req.GetBody = func() (io.ReadCloser, error) { return body.reader(), nil }
		if m.repeats != nil && (header["Idempotency-Key"] != nil || header["X-Idempotency-Key"] != nil) {
			req.GetBody = nil // a header of the user's would let net/http repeat the call
		}
	}
	return req.WithContext(ctx)
}

// acceptBoth is the value of a header, shared by all requests.
var acceptBoth = []string{"application/json, text/event-stream"}

// requestHeader builds the headers of a request. Those of the protocol win over
// those of the caller, which win over those of HTTPClientOptions.Header.
func (e *endpoint) requestHeader(ctx context.Context, m httpMessage, s *clientSession) (http.Header, error) {
	header := make(http.Header, 8)
	if e.authorization != "" {
		header["Authorization"] = []string{e.authorization}
	}
	if e.options.Header != nil {
		extra, err := e.options.Header(ctx)
		if err != nil {
			return nil, err
		}
		copyHeader(header, extra)
	}
	copyHeader(header, m.header)

	delete(header, headerSession)
	delete(header, headerVersion)
	header["Accept"] = acceptBoth
	if m.verb == http.MethodGet {
		header["Accept"] = contentTypeSSE
	}
	if m.verb == http.MethodPost {
		header["Content-Type"] = contentTypeJSON
	}
	if m.lastEventID != "" {
		header[headerLastEventID] = []string{m.lastEventID}
	}
	if m.method == "initialize" {
		return header, nil // it opens a session and agrees on a version
	}
	if s.version != nil {
		header[headerVersion] = s.version
	}
	if s.id != nil {
		header[headerSession] = s.id
	}
	if s.modern {
		setMirror(header, m.method, m.params)
	}
	if SafeToRepeat(m.method) {
		// This is how net/http is told that it may repeat a request whose
		// connection the server closed meanwhile; an empty list sends nothing.
		header["Idempotency-Key"] = nil
	}
	return header, nil
}

func copyHeader(dst, src http.Header) {
	for name, values := range src {
		dst[http.CanonicalHeaderKey(name)] = values
	}
}

// SafeToRepeat reports whether a request of that method only asks, and may be sent
// twice.
func SafeToRepeat(method string) bool {
	switch method {
	case "server/discover", "ping", "resources/read", "prompts/get", "completion/complete":
		return true
	}
	return strings.HasSuffix(method, "/list")
}

// redirect returns where a response sends us, nil if it is no redirect. If it
// is one that is refused, the response is closed and the error says why. The
// method and the body stay the same, and neither they nor the credentials ever
// leave the origin.
func (e *endpoint) redirect(resp *http.Response, req *http.Request) (*url.URL, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusSeeOther:
	default:
		return nil, nil
	}
	finish(resp.Body)
	refuse := func(format string, args ...any) (*url.URL, error) {
		return nil, &NetError{Reason: ReasonRedirect, Host: req.URL.Host, Err: fmt.Errorf(format, args...)}
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return refuse("it does not say where to")
	}
	target, err := req.URL.Parse(location)
	if err != nil {
		return refuse("its target is not a URL")
	}
	if resp.StatusCode == http.StatusSeeOther && req.Method == http.MethodPost {
		return refuse("status 303 would turn the request into a GET")
	}
	if origin(target) != origin(req.URL) {
		return refuse("it leads to another origin, %s", origin(target))
	}
	target.User, target.Fragment = nil, ""
	if resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusPermanentRedirect {
		e.url.Store(target) // saves the detour next time
	}
	return target, nil
}

// origin is the scheme, the host and the port, written in one way.
func origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		switch scheme {
		case "http":
			port = "80"
		case "https":
			port = "443"
		}
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// finish closes a body after reading the little that may be left, so that the
// connection can be used again.
func finish(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10) // a failure costs only the connection
	body.Close()
}
