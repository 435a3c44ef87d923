package wire

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const secretQuery = "?api_key=s3cret-in-the-query"

// secretHeaders are credentials that must show up nowhere.
func secretHeaders(context.Context) (http.Header, error) {
	return http.Header{"Authorization": {"Bearer s3cret-token"}, "X-Api-Key": {"s3cret-key"}}, nil
}

// checkSecrets fails the test if an error, in whatever form, shows a secret.
func checkSecrets(t *testing.T, err error) {
	t.Helper()
	for ; err != nil; err = errors.Unwrap(err) {
		if text := fmt.Sprintf("%v %+v %q", err, err, err); strings.Contains(text, "s3cret") {
			t.Errorf("a secret shows: %s", text)
		}
	}
}

// Fault 27: redirects stay within the origin, and neither credentials nor the
// body ever leave it.
func TestHTTPRedirects(t *testing.T) {
	var leaked atomic.Int32
	other := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) { leaked.Add(1) }).listen(t)
	overTLS := httptest.NewTLSServer(httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		http.Redirect(w, r, other, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(overTLS.Close)

	tests := []struct {
		name, path string
		want       string // of the error, "" for success
		requests   int32  // to the first server
	}{
		{"none", "/end", "", 1},
		{"301", "/301", "", 2}, {"302", "/302", "", 2}, {"307", "/307", "", 2}, {"308", "/308", "", 2},
		{"303 would lose the body", "/303", "status 303", 1},
		{"nine more of a read", "/hop/1", "", 10},
		{"nine more", "/hop/1", "follows one only", 2},
		{"loop of a read", "/loop", "more than 10 in a row", maxRedirects + 1},
		{"loop", "/loop", "follows one only", 2},
		{"another origin", "/away", "another origin, " + other, 1},
		{"another scheme", "/scheme", "another origin, https://127.0.0.1:", 1},
		{"another port", "/port", "another origin, http://127.0.0.1:1", 1},
		{"userinfo does not help", "/userinfo", "another origin", 1},
		{"no target", "/nowhere", "does not say where to", 1},
		{"bad target", "/bad", "not a URL", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			method := "tools/call"
			if strings.HasSuffix(tt.name, "a read") {
				method = "tools/list"
			}
			var requests atomic.Int32
			var host string
			base := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
				requests.Add(1)
				if m.Method != method || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer s3cret-token" {
					t.Errorf("%s %s with %v", r.Method, m.Method, r.Header)
				}
				var hop int
				fmt.Sscanf(r.URL.Path, "/hop/%d", &hop)
				to := func(status int, location string) {
					w.Header().Set("Location", location)
					w.WriteHeader(status)
				}
				switch {
				case r.URL.Path == "/end" || hop == 10:
					respondJSON(w, m, `{}`)
				case hop > 0:
					to(307, fmt.Sprint("/hop/", hop+1))
				case r.URL.Path == "/loop":
					to(308, "/loop"+secretQuery)
				case r.URL.Path == "/away":
					to(307, other+"/x"+secretQuery)
				case r.URL.Path == "/scheme":
					to(308, "https://"+host+"/end")
				case r.URL.Path == "/port":
					to(307, "//127.0.0.1:1/end")
				case r.URL.Path == "/userinfo":
					to(307, "http://"+host+"@"+strings.TrimPrefix(other, "http://"))
				case r.URL.Path == "/nowhere":
					w.WriteHeader(307)
				case r.URL.Path == "/bad":
					to(307, "http://[::")
				default:
					var status int
					fmt.Sscanf(r.URL.Path, "/%d", &status)
					to(status, "/end")
				}
			}).listen(t)
			host = strings.TrimPrefix(base, "http://")
			h := link(t, base+tt.path+secretQuery, nil, HTTPClientOptions{Header: secretHeaders})
			_, err := h.Call(t.Context(), Call{Method: method})
			checkSecrets(t, err)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
			} else if e, ok := errors.AsType[*NetError](err); !ok || e.Reason != ReasonRedirect || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if requests.Load() != tt.requests {
				t.Errorf("%d requests, want %d", requests.Load(), tt.requests)
			}
		})
	}

	h := link(t, overTLS.URL, nil, HTTPClientOptions{Header: secretHeaders, Transport: overTLS.Client().Transport})
	if _, err := h.Call(t.Context(), Call{Method: "tools/call"}); err == nil || !strings.Contains(err.Error(), "another origin, http://") {
		t.Errorf("from https to http: %v", err)
	}
	if leaked.Load() > 0 {
		t.Error("something reached another origin")
	}
}

// A permanent redirect is learnt, a temporary one is not.
func TestHTTPPermanentRedirect(t *testing.T) {
	for status, want := range map[int]int32{308: 1 + 3, 307: 2 * 3} {
		var requests atomic.Int32
		url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
			requests.Add(1)
			if r.URL.Path != "/mcp/" {
				http.Redirect(w, r, "/mcp/", status)
				return
			}
			respondJSON(w, m, `{}`)
		}).listen(t)
		h := link(t, url+"/mcp", nil, HTTPClientOptions{})
		for range 3 {
			if _, err := h.Call(t.Context(), Call{Method: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if requests.Load() != want {
			t.Errorf("%d: %d requests, want %d", status, requests.Load(), want)
		}
	}
}

// certificate makes a certificate for a host, valid around a time.
func certificate(t *testing.T, host string, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: notAfter.Add(-time.Hour), NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Fault 28: each failure of TLS has its category, and there is no way around.
func TestHTTPTLSErrors(t *testing.T) {
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	tests := []struct {
		name    string
		cert    tls.Certificate
		trusted bool
		oldTLS  bool
		plain   bool
		want    NetReason
	}{
		{"expired", certificate(t, "localhost", past), true, false, false, ReasonTLSExpired},
		{"wrong host", certificate(t, "elsewhere.example", soon), true, false, false, ReasonTLSHost},
		{"self-signed", certificate(t, "localhost", soon), false, false, false, ReasonTLSAuthority},
		{"TLS 1.0", certificate(t, "localhost", soon), true, true, false, ReasonTLS},
		{"no TLS at all", certificate(t, "localhost", soon), true, false, true, ReasonTLS},
		{"good", certificate(t, "localhost", soon), true, false, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			noLeaks(t)
			var served atomic.Int32
			srv := httptest.NewUnstartedServer(httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
				served.Add(1)
				respondJSON(w, m, `{}`)
			}))
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			srv.TLS = &tls.Config{Certificates: []tls.Certificate{tt.cert}}
			if tt.oldTLS {
				srv.TLS.MinVersion, srv.TLS.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
			}
			if tt.plain {
				srv.Start()
			} else {
				srv.StartTLS()
			}
			t.Cleanup(srv.Close)
			rt := NewRoundTripper()
			rt.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
			if tt.trusted {
				rt.TLSClientConfig.RootCAs.AddCert(tt.cert.Leaf)
			}
			t.Cleanup(rt.CloseIdleConnections)
			address := strings.Replace(srv.Listener.Addr().String(), "127.0.0.1", "localhost", 1)
			h := link(t, "https://"+address+"/mcp"+secretQuery, nil, HTTPClientOptions{Transport: rt, Header: secretHeaders})
			_, err := h.Call(t.Context(), Call{Method: "tools/call"})
			checkSecrets(t, err)
			if tt.want == "" {
				if err != nil || served.Load() != 1 {
					t.Errorf("%v", err)
				}
				return
			}
			if e, ok := errors.AsType[*NetError](err); !ok || e.Reason != tt.want || served.Load() != 0 {
				t.Errorf("%v, want %q; %d requests served", err, tt.want, served.Load())
			}
		})
	}
}

func TestHTTPNetworkErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	roundTrip := func(err error) http.RoundTripper {
		return roundTripFunc(func(r *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Post", URL: r.URL.String(), Err: err}
		})
	}
	tests := []struct {
		name, url string
		transport http.RoundTripper
		want      NetReason
	}{
		{"refused", "http://" + free, nil, ReasonRefused},
		{"name", "http://server.example", roundTrip(&net.DNSError{Err: "no such host", Name: "server.example", IsNotFound: true}), ReasonDNS},
		{"timeout", "http://server.example", roundTrip(&net.OpError{Op: "dial", Err: context.DeadlineExceeded}), ReasonTimeout},
		{"reset", "http://server.example", roundTrip(io.ErrUnexpectedEOF), ReasonLost},
		{"unknown, with a secret in it", "http://server.example", roundTrip(errors.New("proxy said: bad s3cret-token")), ReasonNetwork},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := strings.Replace(tt.url, "http://", "http://user:s3cret-password@", 1) + "/mcp" + secretQuery
			h := link(t, u, nil, HTTPClientOptions{Transport: tt.transport, Header: secretHeaders})
			_, err := h.Call(t.Context(), Call{Method: "tools/call"})
			checkSecrets(t, err)
			e, ok := errors.AsType[*NetError](err)
			if !ok || e.Reason != tt.want || !strings.HasPrefix(err.Error(), e.Host+": "+string(tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The userinfo of a URL is sent as basic authentication, unless there are other
// credentials.
func TestHTTPUserinfo(t *testing.T) {
	var got string
	base := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
		got = r.Header.Get("Authorization")
		respondJSON(w, m, `{}`)
	}).listen(t)
	withUser := strings.Replace(base, "http://", "http://user:pass@", 1)
	for header, want := range map[string]string{"": "Basic dXNlcjpwYXNz", "Bearer x": "Bearer x"} {
		h := link(t, withUser, nil, HTTPClientOptions{Header: func(context.Context) (http.Header, error) {
			if header == "" {
				return nil, nil
			}
			return http.Header{"Authorization": {header}}, nil
		}})
		if _, err := h.Call(t.Context(), Call{Method: "x"}); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

// If there are no credentials to be had, the call fails with the reason.
func TestHTTPHeaderFails(t *testing.T) {
	why := errors.New("not logged in")
	h := link(t, "http://server.example", nil, HTTPClientOptions{Header: func(context.Context) (http.Header, error) { return nil, why }})
	if _, err := h.Call(t.Context(), Call{Method: "x"}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

func TestHTTPErrorText(t *testing.T) {
	tests := []struct {
		name       string
		status     int
		header     http.Header
		body       string
		want       string
		retryAfter time.Duration
	}{
		{"plain", 500, nil, "oh\n\tno \x1b[31m\x00\xff!", "server.example answered 500 Internal Server Error: oh  no [31m!", 0},
		{"rate limit", 429, http.Header{"Retry-After": {"7"}}, "", "server.example answered 429 Too Many Requests", 7 * time.Second},
		{"endless wait", 503, http.Header{"Retry-After": {"99999999999"}}, "", "server.example answered 503 Service Unavailable", 24 * time.Hour},
		{"date in the past", 503, http.Header{"Retry-After": {"Mon, 02 Jan 2006 15:04:05 GMT"}}, "", "server.example answered 503 Service Unavailable", 0},
		{"page of a proxy", 502, http.Header{"Content-Type": {"text/html; charset=utf-8"}}, "<html>", "server.example answered 502 Bad Gateway", 0},
		{"error object", 400, nil, `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"bad\nheader s3cret-token"}}`,
			"server.example answered 400 Bad Request: bad header [redacted] (code -32020)", 0},
		{"echo", 400, nil, "you sent Authorization: Bearer s3cret-token and api_key=s3cret-in-the-query",
			"server.example answered 400 Bad Request: you sent Authorization: [redacted] and [redacted]", 0},
		{"unknown status", 799, nil, "", "server.example answered 799", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rt := roundTripFunc(func(r *http.Request) (*http.Response, error) {
				h := tt.header
				if h == nil {
					h = make(http.Header)
				}
				return &http.Response{StatusCode: tt.status, Header: h, Body: io.NopCloser(strings.NewReader(tt.body))}, nil
			})
			h := link(t, "http://server.example/mcp"+secretQuery, nil, HTTPClientOptions{Transport: rt, Header: secretHeaders})
			_, err := h.Call(t.Context(), Call{Method: "x"})
			checkSecrets(t, err)
			e, ok := errors.AsType[*HTTPError](err)
			if !ok || err.Error() != tt.want || e.RetryAfter != tt.retryAfter {
				t.Errorf("%v (%v), want %q", err, e.RetryAfter, tt.want)
			}
			rpc, ok := errors.AsType[*Error](err)
			if ok != strings.HasPrefix(tt.body, "{") || ok && rpc.Code != CodeHeaderMismatch {
				t.Errorf("JSON-RPC error %v", rpc)
			}
		})
	}
	long := &HTTPError{Status: 500, Host: "h", Body: printable(strings.Repeat("x", 10_000))}
	if len(long.Error()) > 2*maxErrorText {
		t.Errorf("%d bytes of text", len(long.Error()))
	}
}

// The body of an error is read up to a limit.
func TestHTTPErrorBodyLimit(t *testing.T) {
	src := new(endless)
	resp := &http.Response{StatusCode: 500, Header: make(http.Header), Body: io.NopCloser(io.MultiReader(bytes.NewReader(nil), src))}
	req, err := http.NewRequest(http.MethodPost, "http://server.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := newHTTPError(resp, req); src.read > 2*maxErrorBody || len(e.Body) > maxErrorText+10 {
		t.Errorf("%d bytes read, %d shown", src.read, len(e.Body))
	}
}
