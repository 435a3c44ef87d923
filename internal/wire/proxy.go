package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// ProxyError says that a proxy on the way to a server did not let a request
// pass, or cannot be used. Its text has no credentials.
type ProxyError struct {
	Proxy  string // host and port; empty if the setting makes no sense
	Status int    // that it answered with; 0 if there was no answer
	Err    error  // why there was none; nil if there was

	answered bool // the request itself, not only that for a connection
}

func (e *ProxyError) Error() string {
	if e.Status == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("proxy %s answered %d %s", e.Proxy, e.Status, http.StatusText(e.Status))
}

func (e *ProxyError) Unwrap() error { return e.Err }

// ProxyTransport is NewRoundTripper with the proxies that an environment names:
// HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in small letters too. Hosts on the
// loopback interface are reached directly.
type ProxyTransport struct{ direct *http.Transport }

// NewProxyTransport returns one for the variables that getenv knows.
func NewProxyTransport(getenv func(string) string) *ProxyTransport {
	either := func(upper, lower string) string {
		if v := getenv(upper); v != "" {
			return v
		}
		return getenv(lower)
	}
	settings := httpproxy.Config{
		HTTPProxy: either("HTTP_PROXY", "http_proxy"), HTTPSProxy: either("HTTPS_PROXY", "https_proxy"), NoProxy: either("NO_PROXY", "no_proxy"),
		CGI: getenv("REQUEST_METHOD") != "", // there HTTP_PROXY is a header of the client
	}
	malformed := map[string]bool{"http": malformed(settings.HTTPProxy), "https": malformed(settings.HTTPSProxy)}
	choose := settings.ProxyFunc()
	t := NewRoundTripper()
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		u, err := choose(r.URL)
		if err != nil || u != nil && malformed[r.URL.Scheme] { // err has the whole address, the password in it
			return nil, &ProxyError{Err: fmt.Errorf("the address of the proxy for %s is malformed", r.URL.Scheme)}
		}
		return u, checkProxy(u)
	}
	t.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, _ *http.Request, answer *http.Response) error {
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		return &ProxyError{Proxy: proxy.Host, Status: answer.StatusCode}
	}
	return &ProxyTransport{t}
}

// malformed reports whether an address is meant as a URL and is none. httpproxy
// would take its scheme for a host.
func malformed(address string) bool {
	_, err := url.Parse(address)
	return err != nil && strings.Contains(address, "://")
}

// checkProxy says why a proxy cannot be used.
func checkProxy(u *url.URL) error {
	if u == nil {
		return nil
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		return nil
	}
	return &ProxyError{Proxy: u.Host, Err: errors.New("proxy " + u.Host + " is of an unknown kind: " + strconv.Quote(u.Scheme))}
}

// RoundTrip implements http.RoundTripper. That a proxy wants credentials is an
// error: the answer is not the server's.
func (t *ProxyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.direct.RoundTrip(r)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" {
			err = &ProxyError{Err: err}
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusProxyAuthRequired {
		return resp, nil
	}
	proxy, err := t.direct.Proxy(r)
	if proxy == nil || err != nil || r.URL.Scheme == "https" { // there it answers before the request is made
		return resp, nil // a strange answer of the server
	}
	resp.Body.Close()
	return nil, &ProxyError{Proxy: proxy.Host, Status: resp.StatusCode, answered: true}
}

// CloseIdleConnections closes those that nobody uses.
func (t *ProxyTransport) CloseIdleConnections() { t.direct.CloseIdleConnections() }
