package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// HTTPError is an answer whose HTTP status is not success. The link survives
// it. If the body was a JSON-RPC error, errors.As finds that too.
type HTTPError struct {
	Status     int
	Host       string
	Challenges []Challenge   // of WWW-Authenticate
	RetryAfter time.Duration // 0 if the server did not say
	Body       string        // the beginning, printable, without what we sent as secrets
	RPC        *Error        // nil if the body was something else

	noID bool // RPC does not say which request it is about
}

func (e *HTTPError) Error() string {
	text := e.Host + " answered " + strconv.Itoa(e.Status)
	if name := http.StatusText(e.Status); name != "" {
		text += " " + name
	}
	switch {
	case e.RPC != nil:
		text += ": " + printable(e.RPC.Error())
	case e.Body != "":
		text += ": " + e.Body
	}
	return text
}

func (e *HTTPError) Unwrap() error {
	if e.RPC == nil {
		return nil // not a nil *Error
	}
	return e.RPC
}

// Bearer returns the challenge of OAuth, if there is one.
func (e *HTTPError) Bearer() (Challenge, bool) {
	for _, c := range e.Challenges {
		if c.Scheme == "bearer" {
			return c, true
		}
	}
	return Challenge{}, false
}

// NeedsAuth reports whether the server wants credentials, or others.
func (e *HTTPError) NeedsAuth() bool { return e.Status == http.StatusUnauthorized }

// InsufficientScope reports whether the credentials are good but not enough,
// and which scopes would do, if the server says.
func (e *HTTPError) InsufficientScope() (scopes []string, ok bool) {
	c, found := e.Bearer()
	if e.Status != http.StatusForbidden || !found || c.Params["error"] != "insufficient_scope" {
		return nil, false
	}
	return strings.Fields(c.Params["scope"]), true
}

const (
	maxErrorBody  = 64 << 10        // bytes of the body of an error that are looked at
	maxErrorText  = 300             // bytes that are shown
	errorBodyTime = 5 * time.Second // that the body may take
)

// newHTTPError makes an error of a response and the request it answers. It
// reads the body but does not close it.
func newHTTPError(resp *http.Response, req *http.Request) *HTTPError {
	e := &HTTPError{
		Status:     resp.StatusCode,
		Host:       req.URL.Host,
		Challenges: ParseChallenges(resp.Header.Values("WWW-Authenticate")),
		RetryAfter: parseRetryAfter(resp.Header.Get("Retry-After")),
	}
	patience := time.AfterFunc(errorBodyTime, func() { resp.Body.Close() })
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // as much as there is
	patience.Stop()
	secrets := secretsOf(req)
	if m, err := Parse(body, Limits{}); err == nil && m.Error != nil {
		e.RPC, e.noID = m.Error, m.ID.IsNull()
		e.RPC.Message = redact(e.RPC.Message, secrets)
		return e
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		return e // a page of a proxy; the status says it better
	}
	e.Body = printable(redact(string(body), secrets))
	return e
}

func parseRetryAfter(value string) time.Duration {
	if s, err := strconv.Atoi(value); err == nil {
		return time.Duration(max(0, min(s, 24*60*60))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, min(time.Until(at), 24*time.Hour))
	}
	return 0
}

// printable cuts text down to one short line of visible characters.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if b.Len() >= maxErrorText {
			b.WriteString("…")
			break
		}
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			continue
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}

// secretsOf lists what of a request must not show up in a text of ours: what
// its headers carry besides the protocol's own, and the query and the userinfo
// of its URL.
func secretsOf(req *http.Request) []string {
	var secrets []string
	add := func(s string) {
		if len(s) >= 4 {
			secrets = append(secrets, s)
		}
	}
	for name, values := range req.Header {
		if strings.HasPrefix(name, "Mcp-") && name != headerSession || name == "Accept" || name == "Content-Type" {
			continue
		}
		for _, v := range values {
			add(v)
			if _, token, ok := strings.Cut(v, " "); ok {
				add(token)
			}
		}
	}
	add(req.URL.RawQuery)
	for _, values := range req.URL.Query() {
		for _, v := range values {
			add(v)
		}
	}
	if password, ok := req.URL.User.Password(); ok {
		add(password)
	}
	return secrets
}

func redact(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "[redacted]")
	}
	return text
}

// NetReason is a category of NetError.
type NetReason string

const (
	ReasonDNS          NetReason = "name not found"
	ReasonRefused      NetReason = "connection refused"
	ReasonTimeout      NetReason = "timeout"
	ReasonLost         NetReason = "connection lost"
	ReasonRedirect     NetReason = "redirect refused"
	ReasonTLSExpired   NetReason = "certificate expired or not yet valid"
	ReasonTLSHost      NetReason = "certificate is for another host"
	ReasonTLSAuthority NetReason = "certificate signed by an unknown authority"
	ReasonTLS          NetReason = "TLS handshake failed"
	ReasonProxy        NetReason = "not reached through the proxy"
	ReasonNetwork      NetReason = "network error"
)

// NetError says why a request got no answer. Its text has no path, query,
// userinfo or header of the request.
type NetError struct {
	Reason NetReason
	Host   string
	Err    error

	// Unsent: there was no connection on which the request could have been sent.
	Unsent bool
}

func (e *NetError) Error() string {
	text := e.Host + ": " + string(e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *NetError) Unwrap() error { return e.Err }

// newNetError puts an error of a RoundTripper into its category.
func newNetError(err error, req *http.Request) *NetError {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // its text has the whole URL
	}
	reason, unsent := netReason(err), neverConnected(err)
	if text := err.Error(); redact(text, secretsOf(req)) != text {
		err = errors.New(redact(text, secretsOf(req)))
	}
	return &NetError{Reason: reason, Host: req.URL.Host, Err: err, Unsent: unsent}
}

// neverConnected reports whether an error of a RoundTripper came before it had a
// connection. It goes by types alone: texts may quote what a server sent.
func neverConnected(err error) bool {
	if p, ok := errors.AsType[*ProxyError](err); ok {
		return !p.answered
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func netReason(err error) NetReason {
	if _, ok := errors.AsType[*ProxyError](err); ok {
		return ReasonProxy
	}
	if reason, ok := tlsReason(err); ok {
		return reason
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && !dns.IsTimeout {
		return ReasonDNS
	}
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return ReasonTimeout
	}
	for _, lost := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, winReset, net.ErrClosed} {
		if errors.Is(err, lost) {
			return ReasonLost
		}
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, winRefused) {
		return ReasonRefused
	}
	return ReasonNetwork
}

// What Windows says, where the names of package syscall mean something else.
const (
	winReset   = syscall.Errno(10054)
	winRefused = syscall.Errno(10061)
)

func tlsReason(err error) (NetReason, bool) {
	if cert, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if cert.Reason == x509.Expired {
			return ReasonTLSExpired, true
		}
		return ReasonTLS, true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return ReasonTLSHost, true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return ReasonTLSAuthority, true
	}
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	text := err.Error() // most errors of crypto/tls have no type
	for _, from := range []string{"", "remote error: ", "local error: "} {
		record = record || strings.HasPrefix(text, from+"tls: ")
	}
	if record || alert {
		return ReasonTLS, true
	}
	return "", false
}
