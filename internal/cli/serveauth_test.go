//go:build unix

package cli_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// What a client presents to the gateway stays there.
func TestServeForwardsNoCredentials(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen bytes.Buffer
	upstream, err := wire.NewServer(wire.ServerOptions{Info: json.RawMessage(`{"name":"up","version":"1"}`), Capabilities: json.RawMessage(`{"tools":{}}`), Handler: &scriptServer{tell: io.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	handler := wire.NewHTTPHandler(upstream, wire.HTTPOptions{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dump, _ := httputil.DumpRequest(r, true)
		mu.Lock()
		seen.Write(dump)
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	home, project := machine(t)
	configure(t, home, fmt.Sprintf(`{"type": "http", "url": %q, "headers": {"X-Own": "own-canary"}}`, server.URL))
	g := startGateway(t, home, project)
	for _, path := range []string{"/mcp", "/mcp/s"} {
		tool := map[string]string{"/mcp": "s__echo", "/mcp/s": "echo"}[path]
		if r := g.call(path, "tools/call", `{"name":"`+tool+`","arguments":{"text":"arrived"}}`, "Cookie", "session=cookie-canary", "X-Api-Key", "key-canary"); !strings.Contains(r, "arrived") {
			t.Errorf("%s: %s", path, r)
		}
	}
	g.end(syscall.SIGTERM)
	mu.Lock()
	defer mu.Unlock()
	for _, canary := range []string{g.token, "cookie-canary", "key-canary"} {
		if strings.Contains(seen.String(), canary) {
			t.Errorf("%q went upstream:\n%s", canary, seen.String())
		}
	}
	if !strings.Contains(seen.String(), "own-canary") || !strings.Contains(seen.String(), "arrived") {
		t.Errorf("the recorder saw %s", seen.String())
	}
}

func TestServeTLS(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	cert, key := filepath.Join(home, "cert.pem"), filepath.Join(home, "key.pem")
	pool := certificate(t, cert, key)
	g := startGateway(t, home, project, "--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(g.url, "https://127.0.0.1:") {
		t.Errorf("serves %s", g.url)
	}
	g.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	if resp, body := g.request(http.MethodGet, "/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if list := g.call("/mcp", "tools/list", `{}`); !strings.Contains(list, `"tools":[]`) {
		t.Errorf("no tools are %s", list)
	}
	if out, code := g.end(os.Interrupt); code != 0 || !strings.Contains(out, "No servers are configured yet") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// certificate writes a certificate for this machine and its key, and returns who
// trusts it.
func certificate(t *testing.T, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// An issuer that the settings name is asked for its keys, and its tokens count
// for the audience that they say.
func TestServeAccessToken(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var issuer *httptest.Server
	issuer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var document any = map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys"}
		if r.URL.Path == "/keys" {
			document = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}}
		}
		_ = json.NewEncoder(w).Encode(document)
	}))
	defer issuer.Close()
	home, project := machine(t)
	write(t, filepath.Join(home, ".config/patchbay/settings.json"), fmt.Sprintf(`{"gateway": {"oidc": {"issuer": %q, "audience": "urn:ada:tools"}}}`, issuer.URL))
	g := startGateway(t, home, project)
	tokenFor := func(audience string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(fmt.Appendf(nil, `{"iss":%q,"sub":"ada","aud":%q,"exp":%d,"client_id":"agent"}`, issuer.URL, audience, time.Now().Add(time.Hour).Unix()))
		if err != nil {
			t.Fatal(err)
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	resp, _ := g.request(http.MethodPost, "/mcp", "{}", "Authorization", "Bearer "+tokenFor("https://other.example.com/mcp"))
	metadata := g.url + "/.well-known/oauth-protected-resource/mcp"
	if challenge := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(challenge, `resource_metadata="`+metadata+`"`) {
		t.Errorf("%s, challenged with %q", resp.Status, challenge)
	}
	if resp, body := g.request(http.MethodGet, strings.TrimPrefix(metadata, g.url), ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"resource":"`+g.url+`/mcp"`) {
		t.Errorf("%s: %s", resp.Status, body)
	}
	for _, token := range []string{tokenFor("urn:ada:tools"), g.token} {
		g.token = token
		if list := g.call("/mcp", "tools/list", `{}`); !strings.Contains(list, `"tools":[]`) {
			t.Errorf("no tools are %s", list)
		}
	}
	g.end(syscall.SIGTERM)
}

func TestServeWithoutToken(t *testing.T) {
	t.Parallel()
	home, project := machine(t)
	g := startGateway(t, home, project, "--no-auth")
	g.token = ""
	if list := g.call("/mcp", "tools/list", `{}`); !strings.Contains(list, `"tools":[]`) {
		t.Errorf("no tools are %s", list)
	}
	out, code := g.end(os.Interrupt)
	if said := g.cmd.Stderr.(*bytes.Buffer).String(); code != 0 || said != "patchbay: --no-auth: every program on this machine can use your servers\n" {
		t.Errorf("exit code %d: %s", code, said)
	}
	if strings.Contains(out, "token") {
		t.Errorf("it speaks of a token:\n%s", out)
	}
}
