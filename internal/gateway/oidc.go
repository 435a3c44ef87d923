package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// signatures are the algorithms an access token may be signed with: those with
// a public key. "none" and shared keys are not among them.
var signatures = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// How long the keys of an issuer count.
const (
	keysFresh  = 10 * time.Minute // then they are asked for again
	keysRetry  = 10 * time.Second // between two attempts, whatever tokens come
	keysUsable = 24 * time.Hour   // if the issuer cannot be reached

	fetchTime    = 10 * time.Second
	maxDocument  = 1 << 20
	maxKeys      = 64
	maxRedirects = 3
)

// issuer verifies the access tokens of one authorization server. The address of
// its keys comes from its own metadata, never from a token.
type issuer struct {
	want     config.OIDC
	now      func() time.Time
	client   *http.Client
	verifier *oidc.IDTokenVerifier

	mu      sync.Mutex // held while the keys are fetched
	keys    []jose.JSONWebKey
	fetched time.Time // when the keys came
	tried   time.Time // when they were last asked for
}

func newIssuer(o AuthOptions) *issuer {
	i := &issuer{want: o.OIDC, now: o.Now}
	var transport http.RoundTripper = wire.NewRoundTripper()
	if o.Getenv != nil {
		transport = wire.NewProxyTransport(o.Getenv)
	}
	i.client = &http.Client{Transport: transport, Timeout: fetchTime, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || r.URL.Scheme != via[0].URL.Scheme || r.URL.Host != via[0].URL.Host {
			return errors.New("redirect to another place")
		}
		return nil
	}}
	algorithms := make([]string, len(signatures))
	for n, alg := range signatures {
		algorithms[n] = string(alg)
	}
	i.verifier = oidc.NewVerifier(o.OIDC.Issuer, i, &oidc.Config{
		SkipClientIDCheck:    true, // a token is for a resource, which verify checks
		SupportedSigningAlgs: algorithms, Now: o.Now,
	})
	return i
}

// verify returns who an access token stands for.
func (i *issuer) verify(ctx context.Context, token string, audiences []string) (string, error) {
	says, err := checkType(token)
	if err != nil {
		return "", err
	}
	claims, err := i.verifier.Verify(ctx, token) // signature, issuer, time
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(claims.Audience, func(a string) bool { return a != "" && slices.Contains(audiences, a) }) {
		return "", fmt.Errorf("the token is for %q, not for this resource", claims.Audience)
	}
	if claims.Subject == "" {
		return "", errors.New("the token has no subject")
	}
	var granted struct {
		Scope    string   `json:"scope"`
		Scp      scopeSet `json:"scp"`
		ClientID string   `json:"client_id"`
		AtHash   string   `json:"at_hash"`
		CHash    string   `json:"c_hash"`
	}
	if err := claims.Claims(&granted); err != nil {
		return "", err
	}
	if !says && (granted.Scope == "" && len(granted.Scp) == 0 && granted.ClientID == "" || granted.AtHash != "" || granted.CHash != "") {
		return "", errors.New("nothing tells the token from an ID token: it needs the type at+jwt, or scope, scp or client_id")
	}
	has := append(strings.Fields(granted.Scope), granted.Scp...)
	for _, scope := range i.want.Scopes {
		if !slices.Contains(has, scope) {
			return "", errInsufficientScope
		}
	}
	return claims.Issuer + "#" + claims.Subject, nil
}

// scopeSet is a list of scopes, which some issuers write as one string.
type scopeSet []string

func (s *scopeSet) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*s = strings.Fields(text)
		return nil
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// checkType refuses a JWT that says it is something else than an access token:
// a logout token or a proof, for example. It returns whether the JWT says that it
// is one (RFC 9068), which those of many issuers do not.
func checkType(token string) (isAccess bool, err error) {
	head, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return false, errors.New("not a JWT")
	}
	var header struct {
		Type     string   `json:"typ"`
		Critical []string `json:"crit"`
	}
	if err := json.Unmarshal(raw, &header); err != nil {
		return false, errors.New("not a JWT")
	}
	if len(header.Critical) > 0 {
		return false, errors.New("the token has extensions that are not understood")
	}
	switch strings.TrimPrefix(strings.ToLower(header.Type), "application/") {
	case "at+jwt":
		return true, nil
	case "", "jwt":
		return false, nil
	}
	return false, fmt.Errorf("a JWT of type %q is no access token", header.Type)
}

// VerifySignature implements oidc.KeySet.
func (i *issuer) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token, signatures)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, errors.New("not a JWT with one signature")
	}
	keys, err := i.keysNow(ctx, false)
	if err != nil {
		return nil, err
	}
	if payload, ok := verifyWith(keys, signed); ok {
		return payload, nil
	}
	// The key may be newer than what is known here.
	if keys, err = i.keysNow(ctx, true); err != nil {
		return nil, err
	}
	if payload, ok := verifyWith(keys, signed); ok {
		return payload, nil
	}
	return nil, errors.New("the token is not signed by the issuer")
}

func verifyWith(keys []jose.JSONWebKey, signed *jose.JSONWebSignature) ([]byte, bool) {
	header := signed.Signatures[0].Header
	for _, k := range keys {
		if header.KeyID != "" && k.KeyID != header.KeyID || k.Algorithm != "" && k.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := signed.Verify(k.Key); err == nil {
			return payload, true
		}
	}
	return nil, false
}

// keysNow returns the issuer's keys, fetched anew if they are old or the one that
// is wanted is lacking among them, unless that was just tried. An issuer that cannot be
// reached does not make those it had worthless at once.
func (i *issuer) keysNow(ctx context.Context, lacking bool) ([]jose.JSONWebKey, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	age := now.Sub(i.fetched)
	if i.keys != nil && age < keysFresh && !lacking {
		return i.keys, nil
	}
	err := errors.New("the issuer's keys are not known yet")
	if now.Sub(i.tried) >= keysRetry {
		i.tried = now
		var keys []jose.JSONWebKey
		if keys, err = i.fetchKeys(ctx); err == nil {
			i.keys, i.fetched = keys, now
			return keys, nil
		}
	}
	if i.keys != nil && age < keysUsable {
		return i.keys, nil
	}
	return nil, fmt.Errorf("keys of %s: %w", i.want.Issuer, err)
}

// fetchKeys asks the issuer where its keys are, and for them. What it finds is
// for everybody who waits, so it does not end with the request that caused it.
func (i *issuer) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
	defer cancel()
	defer i.client.CloseIdleConnections() // the next time is far away
	var metadata struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	var failed error
	for _, address := range metadataOf(i.want.Issuer) {
		if err := i.get(ctx, address, &metadata); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if metadata.Issuer != i.want.Issuer {
			return nil, fmt.Errorf("%s calls itself %q", address, metadata.Issuer)
		}
		if err := i.checkAddress(metadata.Keys); err != nil {
			return nil, err
		}
		var set jose.JSONWebKeySet
		if err := i.get(ctx, metadata.Keys, &set); err != nil {
			return nil, err
		}
		keys := slices.DeleteFunc(set.Keys, func(k jose.JSONWebKey) bool { return !k.Valid() || !k.IsPublic() || k.Use == "enc" })
		if len(keys) == 0 || len(keys) > maxKeys {
			return nil, fmt.Errorf("%s has %d keys to verify tokens with", metadata.Keys, len(keys))
		}
		return keys, nil
	}
	return nil, failed
}

// metadataOf returns where an issuer may describe itself: as OpenID Connect has
// it, and as RFC 8414 has it.
func metadataOf(issuer string) []string {
	base := strings.TrimSuffix(issuer, "/")
	addresses := []string{base + "/.well-known/openid-configuration"}
	if u, err := url.Parse(base); err == nil {
		path := u.EscapedPath()
		u.Path, u.RawPath = "", ""
		addresses = append(addresses, u.String()+"/.well-known/oauth-authorization-server"+path)
	}
	return addresses
}

// checkAddress wants https, unless the issuer itself is on this machine.
func (i *issuer) checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return errors.New("the issuer does not say where its keys are")
	}
	own, _ := url.Parse(i.want.Issuer) // checked with the settings
	if u.Scheme == "https" || u.Scheme == "http" && own.Scheme == "http" && config.IsLoopback(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("the issuer's keys at %s are not to be had over https", address)
}

func (i *issuer) get(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := i.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", address, err)
	case len(data) > maxDocument:
		return fmt.Errorf("%s: more than %d bytes", address, maxDocument)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: not the JSON that was expected", address)
	}
	return nil
}
