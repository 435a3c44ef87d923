package gateway

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// testIssuer is an authorization server with real keys over real HTTP.
type testIssuer struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	keys    []jose.JSONWebKey // with private parts
	down    bool
	fetches int
	claimed string // what it says its name is; empty means the truth
	oauth   bool   // describes itself as RFC 8414 has it, not as OpenID Connect
}

func newTestIssuer(t *testing.T) *testIssuer {
	is := &testIssuer{t: t}
	is.Server = httptest.NewServer(is)
	t.Cleanup(is.Close)
	return is
}

func (is *testIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	is.mu.Lock()
	defer is.mu.Unlock()
	metadata := "/.well-known/openid-configuration"
	if is.oauth {
		metadata = "/.well-known/oauth-authorization-server"
	}
	switch {
	case is.down:
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == metadata:
		name := is.URL
		if is.claimed != "" {
			name = is.claimed
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": name, "jwks_uri": is.URL + "/keys"})
	case r.URL.Path == "/keys":
		is.fetches++
		set := jose.JSONWebKeySet{}
		for _, k := range is.keys {
			set.Keys = append(set.Keys, k.Public())
		}
		_ = json.NewEncoder(w).Encode(set)
	default:
		http.NotFound(w, r)
	}
}

// rotate makes a new key the only one, and returns it.
func (is *testIssuer) rotate(id string, key crypto.Signer, alg jose.SignatureAlgorithm) jose.JSONWebKey {
	is.mu.Lock()
	defer is.mu.Unlock()
	k := jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(alg), Use: "sig"}
	is.keys = []jose.JSONWebKey{k}
	return k
}

func ecKey(t *testing.T) crypto.Signer {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sign makes a token of claims with a key.
func sign(t *testing.T, key any, alg jose.SignatureAlgorithm, typ string, claims map[string]any) string {
	t.Helper()
	opts := &jose.SignerOptions{}
	if typ != "" {
		opts = opts.WithType(jose.ContentType(typ))
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// anything answers every request.
type anything struct{}

func (anything) HandleNotification(context.Context, *wire.Notification) {}
func (anything) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	return json.RawMessage(`{"content":[]}`), nil
}

// site serves an endpoint behind an Auth, over real HTTP, and returns a function
// that sends it a request with an Authorization header and returns the answer.
func site(t *testing.T, a *Auth) (server *httptest.Server, send func(path, authorization string) *http.Response) {
	t.Helper()
	mcp, err := wire.NewServer(wire.ServerOptions{Info: json.RawMessage(`{"name":"x","version":"1"}`), Handler: anything{}})
	if err != nil {
		t.Fatal(err)
	}
	principal := func(r *http.Request) (string, error) {
		p, err := a.Principal(r)
		if err == nil {
			r.Header.Set("Principal", p)
		}
		return p, err
	}
	handler := wire.NewHTTPHandler(mcp, wire.HTTPOptions{Principal: principal})
	s := &Site{Auth: a}
	server = httptest.NewServer(s.routes(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, r)
		for name, v := range rec.Header() {
			w.Header()[name] = v
		}
		w.Header().Set("Principal", r.Header.Get("Principal"))
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})))
	t.Cleanup(server.Close)
	a.opts.URL = server.URL
	return server, func(path, authorization string) *http.Response {
		t.Helper()
		body := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		req, err := http.NewRequest(http.MethodPost, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp
	}
}

func fixedToken(s string) func(context.Context) (config.Secret, error) {
	return func(context.Context) (config.Secret, error) { return config.NewSecret(s), nil }
}

func TestBearerToken(t *testing.T) {
	current, failure := "pbgw_right", error(nil)
	c := &clock{t: time.Unix(1e9, 0)}
	a := NewAuth(AuthOptions{Now: c.now, Token: func(context.Context) (config.Secret, error) { return config.NewSecret(current), failure }})
	server, send := site(t, a)
	for header, want := range map[string]string{
		"Bearer pbgw_right":   "",
		"bearer  pbgw_right":  "",
		"":                    `Bearer realm="patchbay"`,
		"Bearer pbgw_wrong":   `Bearer realm="patchbay", error="invalid_token"`,
		"Bearer pbgw_righ":    `Bearer realm="patchbay", error="invalid_token"`,
		"Bearer ":             `Bearer realm="patchbay", error="invalid_token"`,
		"Bearer":              `Bearer realm="patchbay", error="invalid_token"`,
		"Basic pbgw_right":    `Bearer realm="patchbay", error="invalid_token"`,
		"pbgw_right":          `Bearer realm="patchbay", error="invalid_token"`,
		"Bearer pbgw_right x": `Bearer realm="patchbay", error="invalid_token"`,
	} {
		resp := send("/mcp", header)
		if authenticated := resp.StatusCode != http.StatusUnauthorized; authenticated != (want == "") {
			t.Errorf("%q: %s", header, resp.Status)
		}
		if got := resp.Header.Get("WWW-Authenticate"); got != want {
			t.Errorf("%q is answered %q, want %q", header, got, want)
		}
		if want == "" && resp.Header.Get("Principal") != tokenPrincipal {
			t.Errorf("%q is of %q", header, resp.Header.Get("Principal"))
		}
	}
	if resp := send("/mcp?access_token=pbgw_right", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token in the query: %s", resp.Status)
	}

	// A new token counts within a second, and the old one no more.
	current = "pbgw_new"
	c.advance(tokenAge)
	if resp := send("/mcp", "Bearer pbgw_right"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the old token: %s", resp.Status)
	}
	if resp := send("/mcp", "Bearer pbgw_new"); resp.StatusCode == http.StatusUnauthorized {
		t.Errorf("the new token: %s", resp.Status)
	}
	// A token that cannot be read any more is nobody's.
	current, failure = "", errors.New("gone")
	c.advance(tokenAge)
	for _, header := range []string{"Bearer pbgw_new", "Bearer "} {
		if resp := send("/mcp", header); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q without a token: %s", header, resp.Status)
		}
	}
	// Without an issuer nothing says where to get access tokens.
	resp, err := server.Client().Get(server.URL + metadataRoot)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("without an issuer: %s", resp.Status)
	}
}

func TestTwoAuthorizationHeaders(t *testing.T) {
	a := NewAuth(AuthOptions{Token: fixedToken("pbgw_right")})
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header["Authorization"] = []string{"Bearer pbgw_right", "Bearer pbgw_right"}
	if p, err := a.Principal(r); err == nil {
		t.Errorf("is of %q", p)
	}
}

func TestAccessTokens(t *testing.T) {
	is := newTestIssuer(t)
	key := is.rotate("one", ecKey(t), jose.ES256)
	c := &clock{t: time.Unix(1e9, 0)}
	a := NewAuth(AuthOptions{Now: c.now, Token: fixedToken("pbgw_right"), OIDC: config.OIDC{Issuer: is.URL, Scopes: []string{"tools:call"}}})
	server, send := site(t, a)

	claims := func(change map[string]any) map[string]any {
		all := map[string]any{"iss": is.URL, "sub": "ada", "aud": server.URL + "/mcp", "scope": "openid tools:call", "exp": c.now().Unix() + 60, "iat": c.now().Unix()}
		for name, v := range change {
			if all[name] = v; v == nil {
				delete(all, name)
			}
		}
		return all
	}
	good := sign(t, key, jose.ES256, "at+jwt", claims(nil))
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other := newTestIssuer(t)
	stranger := other.rotate("one", ecKey(t), jose.ES256)
	public, err := json.Marshal(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	const none = "eyJhbGciOiJub25lIiwidHlwIjoiYXQrand0In0" // {"alg":"none","typ":"at+jwt"}

	for _, tt := range []struct {
		name, token, path string
		status            int
	}{
		{"right", good, "/mcp", 200},
		{"for the whole gateway, at one endpoint", good, "/mcp/files", 200},
		{"for that endpoint", sign(t, key, jose.ES256, "", claims(map[string]any{"aud": []string{"x", server.URL + "/mcp/files"}})), "/mcp/files", 200},
		{"type JWT", sign(t, key, jose.ES256, "JWT", claims(nil)), "/mcp", 200},
		{"scopes as a list", sign(t, key, jose.ES256, "JWT", claims(map[string]any{"scope": nil, "scp": []string{"tools:call"}})), "/mcp", 200},
		{"scp as a text", sign(t, key, jose.ES256, "JWT", claims(map[string]any{"scope": nil, "scp": "a tools:call"})), "/mcp", 200},

		{"for another endpoint", sign(t, key, jose.ES256, "", claims(map[string]any{"aud": server.URL + "/mcp/files"})), "/mcp/docs", 401},
		{"for one endpoint, at all", sign(t, key, jose.ES256, "", claims(map[string]any{"aud": server.URL + "/mcp/files"})), "/mcp", 401},
		{"for another resource", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"aud": "https://other.example.com/mcp"})), "/mcp", 401},
		{"for nobody", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"aud": nil})), "/mcp", 401},
		{"for an empty audience", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"aud": ""})), "/mcp", 401},
		{"expired", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"exp": c.now().Unix() - 1})), "/mcp", 401},
		{"without an end", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"exp": nil})), "/mcp", 401},
		{"not yet", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"nbf": c.now().Unix() + 3600})), "/mcp", 401},
		{"without a subject", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"sub": nil})), "/mcp", 401},
		{"another issuer", sign(t, stranger, jose.ES256, "at+jwt", claims(map[string]any{"iss": other.URL})), "/mcp", 401},
		{"signed by another", sign(t, stranger, jose.ES256, "at+jwt", claims(nil)), "/mcp", 401},
		{"our key, another issuer's name", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"iss": other.URL})), "/mcp", 401},
		{"signed with an unknown RSA key", sign(t, rsaKey, jose.RS256, "at+jwt", claims(nil)), "/mcp", 401},
		{"the public key as a shared one", sign(t, public, jose.HS256, "at+jwt", claims(nil)), "/mcp", 401},
		{"no signature", none + "." + parts[1] + ".", "/mcp", 401},
		{"none with a signature", none + "." + parts[1] + "." + parts[2], "/mcp", 401},
		{"changed", parts[0] + "." + parts[1] + "x." + parts[2], "/mcp", 401},
		{"an ID token", sign(t, key, jose.ES256, "JWT", claims(map[string]any{"scope": nil, "nonce": "n"})), "/mcp", 401},
		{"an ID token without a type", sign(t, key, jose.ES256, "", claims(map[string]any{"scope": nil})), "/mcp", 401},
		{"an ID token with scopes", sign(t, key, jose.ES256, "JWT", claims(map[string]any{"at_hash": "x"})), "/mcp", 401},
		{"a logout token", sign(t, key, jose.ES256, "logout+jwt", claims(nil)), "/mcp", 401},
		{"no JWT", "opaque", "/mcp", 401},
		{"long", strings.Repeat("x", maxCredential+1), "/mcp", 401},
		{"a scope missing", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"scope": "openid"})), "/mcp", 403},
		{"no scopes", sign(t, key, jose.ES256, "at+jwt", claims(map[string]any{"scope": nil})), "/mcp", 403},
	} {
		resp := send(tt.path, "Bearer "+tt.token)
		accepted := resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden
		if accepted != (tt.status == 200) || !accepted && resp.StatusCode != tt.status {
			t.Errorf("%s: %s", tt.name, resp.Status)
		}
		if got := resp.Header.Get("Principal"); accepted && got != is.URL+"#ada" {
			t.Errorf("%s: is of %q", tt.name, got)
		}
		challenge := resp.Header.Get("WWW-Authenticate")
		where := `resource_metadata="` + server.URL + metadataRoot + tt.path + `", scope="tools:call"`
		if !accepted && !strings.HasSuffix(challenge, where) {
			t.Errorf("%s: %s", tt.name, challenge)
		}
		if code := map[int]string{401: `error="invalid_token"`, 403: `error="insufficient_scope"`}[tt.status]; !strings.Contains(challenge, code) {
			t.Errorf("%s: %s", tt.name, challenge)
		}
	}
	if resp := send("/mcp", "Bearer pbgw_right"); resp.Header.Get("Principal") != tokenPrincipal {
		t.Errorf("the gateway's own token: %s", resp.Status)
	}
}

func TestAccessTokenKeys(t *testing.T) {
	is := newTestIssuer(t)
	c := &clock{t: time.Unix(1e9, 0)}
	a := NewAuth(AuthOptions{Now: c.now, Token: fixedToken("pbgw_right"), OIDC: config.OIDC{Issuer: is.URL, Audience: "api://tools"}})
	_, send := site(t, a)
	token := func(k jose.JSONWebKey, alg jose.SignatureAlgorithm) string {
		return "Bearer " + sign(t, k, alg, "at+jwt", map[string]any{"iss": is.URL, "sub": "ada", "aud": "api://tools", "exp": c.now().Unix() + 1e6})
	}
	accepts := func(what, header string, want bool) {
		t.Helper()
		if resp := send("/mcp", header); (resp.StatusCode != http.StatusUnauthorized) != want {
			t.Errorf("%s: %s", what, resp.Status)
		}
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	first := is.rotate("first", ecKey(t), jose.ES256)
	accepts("the first key", token(first, jose.ES256), true)

	// A new key is found when a token comes that is signed with it, but nobody
	// can make us ask the issuer all the time.
	second := is.rotate("second", private, jose.EdDSA)
	bogus := newTestIssuer(t).rotate("bogus", ecKey(t), jose.ES256)
	accepts("the second key, too early", token(second, jose.EdDSA), false)
	accepts("the first key, as it was", token(first, jose.ES256), true)
	c.advance(keysRetry)
	accepts("the second key", token(second, jose.EdDSA), true)
	accepts("the first key, which is gone", token(first, jose.ES256), false)
	before := is.fetches
	for range 20 {
		accepts("a bogus key", token(bogus, jose.ES256), false)
	}
	if is.fetches != before {
		t.Errorf("bogus tokens made %d fetches", is.fetches-before)
	}

	// An issuer that is away for a while does not lock everybody out.
	is.mu.Lock()
	is.down = true
	is.mu.Unlock()
	c.advance(time.Hour)
	accepts("the second key, with the issuer away", token(second, jose.EdDSA), true)
	c.advance(keysUsable)
	accepts("the second key, a day later", token(second, jose.EdDSA), false)

	// It comes back, with the older kind of metadata.
	is.mu.Lock()
	is.down, is.oauth = false, true
	is.mu.Unlock()
	c.advance(keysRetry)
	accepts("the second key, with the issuer back", token(second, jose.EdDSA), true)

	// One that calls itself otherwise is not the one that was named.
	is.mu.Lock()
	is.claimed = "https://other.example.com"
	is.mu.Unlock()
	c.advance(keysUsable)
	accepts("an issuer with another name", token(second, jose.EdDSA), false)
}

func TestResourceMetadata(t *testing.T) {
	a := NewAuth(AuthOptions{Token: fixedToken("pbgw_right"), OIDC: config.OIDC{Issuer: "https://login.example.com", Scopes: []string{"a", "b"}}})
	server, _ := site(t, a)
	for path, resource := range map[string]string{"": "/mcp", "/mcp": "/mcp", "/mcp/files": "/mcp/files", "/mcp/@read-only": "/mcp/@read-only"} {
		resp, err := server.Client().Get(server.URL + metadataRoot + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		want := `{"resource":"` + server.URL + resource + `","authorization_servers":["https://login.example.com"],"bearer_methods_supported":["header"],"scopes_supported":["a","b"],"resource_name":"Patchbay"}` + "\n"
		if string(got) != want || resp.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %s %s", path, resp.Header, got)
		}
	}
}

// Who has no token learns nothing about which servers and profiles there are,
// whatever is asked and also while the gateway ends.
func TestNamesAreNotTold(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".config", "patchbay")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), []byte(`{"gateway":{"profiles":{"some":{}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := patchbay.Open(t.Context(), patchbay.Options{
		Dir: home, Home: home, Environ: []string{},
		InProcess: map[string]patchbay.LocalServer{"held": heldServer{make(chan struct{}), make(chan error, 1)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	g := New(h, Options{})
	s := &Site{Gateway: g, Auth: NewAuth(AuthOptions{Token: fixedToken("pbgw_right")})}
	server := httptest.NewServer(s.handler())
	defer server.Close()
	send := func(name, method string, header http.Header) string {
		t.Helper()
		req, err := http.NewRequest(method, server.URL+"/mcp/"+name, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		resp.Header.Del("Date")
		body, _ := io.ReadAll(resp.Body)
		return fmt.Sprint(resp.Status, resp.Header, string(body))
	}
	compare := func() {
		t.Helper()
		for _, method := range []string{"GET", "POST", "DELETE", "PUT", "OPTIONS"} {
			for _, header := range []http.Header{
				{}, {"Authorization": {"Bearer pbgw_wrong"}},
				{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}},
				{"Content-Type": {"text/plain"}}, {"Content-Encoding": {"gzip"}, "Content-Type": {"application/json"}},
				{"Mcp-Protocol-Version": {"2026-07-28"}}, {"Mcp-Protocol-Version": {"1"}}, {"Origin": {"https://evil.example"}},
			} {
				unknown := send("none", method, header)
				for _, name := range []string{"held", "@some", "@none"} {
					if got := send(name, method, header); got != unknown {
						t.Errorf("%s %s with %v is answered\n%s\nand a name that nothing has\n%s", method, name, header, got, unknown)
					}
				}
			}
		}
	}
	compare()
	if err := g.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	compare()
}
