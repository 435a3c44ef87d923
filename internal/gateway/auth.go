package gateway

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// AuthOptions say whose requests over HTTP are answered.
type AuthOptions struct {
	// Token returns the token of the gateway as it is now.
	Token func(context.Context) (config.Secret, error)

	OIDC config.OIDC // an issuer whose access tokens are accepted too; zero means none
	URL  string      // where clients reach the gateway: scheme, host and port

	Logger *slog.Logger        // nil discards
	Now    func() time.Time    // nil means time.Now
	Getenv func(string) string // for the proxy before the issuer; nil means that there is none
}

// Auth tells who sends a request. What a client presents ends here: it is
// compared or verified, and no part of it is passed on to a server.
type Auth struct {
	opts   AuthOptions
	log    *slog.Logger
	issuer *issuer // nil if there is none

	mu     sync.Mutex
	token  []byte    // guarded by mu, like what follows
	readAt time.Time // zero if it is not known
}

// tokenAge is how long a token is believed to be the current one.
const tokenAge = time.Second

// maxCredential is the longest token worth looking at.
const maxCredential = 16 << 10

// tokenPrincipal is who presents the token of the gateway.
const tokenPrincipal = "token"

// NewAuth returns the judge of requests to one gateway.
func NewAuth(o AuthOptions) *Auth {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Auth{opts: o, log: o.Logger}
	if o.OIDC.Issuer != "" {
		a.issuer = newIssuer(o)
	}
	return a
}

// Principal is for wire.HTTPOptions.
func (a *Auth) Principal(r *http.Request) (string, error) {
	presented, err := bearer(r)
	if err != nil {
		return "", a.refuse(r, http.StatusUnauthorized, err)
	}
	if ok, err := a.isToken(r.Context(), presented); ok {
		return tokenPrincipal, nil
	} else if err != nil {
		a.log.Error("the gateway's token cannot be read", "error", err)
	}
	if a.issuer == nil {
		return "", a.refuse(r, http.StatusUnauthorized, errInvalidToken)
	}
	principal, err := a.issuer.verify(r.Context(), presented, a.audiences(r))
	if errors.Is(err, errInsufficientScope) {
		return "", a.refuse(r, http.StatusForbidden, err)
	}
	if err != nil {
		a.log.Info("access token refused", "error", err)
		return "", a.refuse(r, http.StatusUnauthorized, errInvalidToken)
	}
	return principal, nil
}

// Reasons to refuse a request. Their texts are those of RFC 6750; a client
// learns no more than that.
var (
	errNoCredentials     = errors.New("")
	errInvalidToken      = errors.New("invalid_token")
	errInsufficientScope = errors.New("insufficient_scope")
)

// bearer returns the token a request presents. The query is no place for one:
// it ends up in logs.
func bearer(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	if len(values) == 0 {
		return "", errNoCredentials
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimLeft(token, " ")
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxCredential {
		return "", errInvalidToken
	}
	return token, nil
}

// isToken compares with the gateway's own token, in a time that tells nothing
// about it but its length, which is no secret.
func (a *Auth) isToken(ctx context.Context, presented string) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.opts.Now(); a.readAt.IsZero() || now.Sub(a.readAt) >= tokenAge {
		token, err := a.opts.Token(ctx)
		if err != nil {
			a.readAt = time.Time{} // whatever it was, it may have been taken back
			return false, err
		}
		a.token, a.readAt = []byte(token.Reveal()), now
	}
	return len(a.token) > 0 && subtle.ConstantTimeCompare([]byte(presented), a.token) == 1, nil
}

// audiences are the resources a token may have been issued for: the whole
// gateway, or the one endpoint.
func (a *Auth) audiences(r *http.Request) []string {
	if a.opts.OIDC.Audience != "" {
		return []string{a.opts.OIDC.Audience}
	}
	return []string{a.opts.URL + endpointRoot, a.opts.URL + r.URL.EscapedPath()}
}

const (
	endpointRoot = "/mcp"
	metadataRoot = "/.well-known/oauth-protected-resource"
)

// refuse is the answer to a request that is not authenticated, or not enough.
func (a *Auth) refuse(r *http.Request, status int, why error) *wire.Refusal {
	challenge := `Bearer realm="patchbay"`
	if why != errNoCredentials {
		challenge += `, error="` + why.Error() + `"`
	}
	if a.issuer != nil {
		challenge += `, resource_metadata="` + a.opts.URL + metadataRoot + r.URL.EscapedPath() + `"`
		if len(a.opts.OIDC.Scopes) > 0 {
			challenge += `, scope="` + strings.Join(a.opts.OIDC.Scopes, " ") + `"`
		}
	}
	message := "Authentication required"
	if a.issuer == nil {
		message += ". " + tokenHint
	}
	if status == http.StatusForbidden {
		message = "The access token lacks a scope"
	}
	return &wire.Refusal{
		Status: status,
		Header: http.Header{"Www-Authenticate": {challenge}},
		Reason: wire.Errorf(wire.CodeInvalidRequest, "%s", message),
	}
}

// handleMetadata serves where access tokens come from (RFC 9728), for every
// endpoint. Without an issuer there is nothing to say.
func (a *Auth) handleMetadata(mux *http.ServeMux) {
	if a.issuer == nil {
		return
	}
	for _, pattern := range []string{"", endpointRoot, endpointRoot + "/{endpoint}"} {
		mux.HandleFunc("GET "+metadataRoot+pattern, a.metadata)
	}
}

func (a *Auth) metadata(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), metadataRoot)
	if path == "" {
		path = endpointRoot
	}
	document := struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Methods  []string `json:"bearer_methods_supported"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Name     string   `json:"resource_name"`
	}{a.opts.URL + path, []string{a.opts.OIDC.Issuer}, []string{"header"}, a.opts.OIDC.Scopes, "Patchbay"}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Access-Control-Allow-Origin", "*") // clients in browsers read it before they have a token
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(document) // the client may be gone
}
