package config

import (
	"encoding/json"
)

// Transport is how a server is reached.
type Transport string

const (
	Stdio     Transport = "stdio"     // a child process, newline JSON on its pipes
	HTTP      Transport = "http"      // Streamable HTTP
	SSE       Transport = "sse"       // the older HTTP+SSE, with Streamable HTTP tried first
	InProcess Transport = "inprocess" // a server of the embedding program; never from a file
)

// Server is the configuration of one MCP server. Values are as the file has
// them: placeholders unexpanded, secrets unresolved. In lists nil means "not
// said" and empty means none.
type Server struct {
	Type Transport `json:"type,omitempty"` // empty: see Transport

	Command  string            `json:"command,omitempty"`
	Args     []string          `json:"args,omitempty"`
	Env      map[string]Secret `json:"env,omitempty"`
	EnvVars  []string          `json:"envVars,omitempty"`  // names passed on from the host's environment, where set
	UnsetEnv []string          `json:"unsetEnv,omitempty"` // names removed from the child's environment
	EnvFile  string            `json:"envFile,omitempty"`  // NAME=value lines, read when the server starts
	Cwd      string            `json:"cwd,omitempty"`

	URL               string            `json:"url,omitempty"`
	Headers           map[string]Secret `json:"headers,omitempty"`
	EnvHeaders        map[string]string `json:"envHeaders,omitempty"`        // header → variable that holds its value
	BearerTokenEnvVar string            `json:"bearerTokenEnvVar,omitempty"` // variable that holds a bearer token
	HeadersHelper     string            `json:"headersHelper,omitempty"`     // program that prints headers as JSON

	Enabled        *bool  `json:"enabled,omitempty"`        // nil means true
	Timeout        *int64 `json:"timeout,omitempty"`        // ms a call may take; 0 none, nil the default
	ConnectTimeout *int64 `json:"connectTimeout,omitempty"` // ms the start may take; 0 none, nil the default

	Lazy     bool    `json:"lazy,omitempty"`     // connect on the first call, not at the start
	IdleStop *int64  `json:"idleStop,omitempty"` // ms without a call after which the connection ends until the next one; nil or 0 never
	Shared   Sharing `json:"shared,omitempty"`   // who has a process in common; empty: see Sharing
	Pin      Pin     `json:"pin,omitempty"`      // what a tool whose definition changed is worth; empty: see Pin

	Auth  *Auth  `json:"auth,omitempty"`
	OAuth *OAuth `json:"oauth,omitempty"`

	EnabledTools  []string   `json:"enabledTools,omitempty"`  // nil: all
	DisabledTools []string   `json:"disabledTools,omitempty"` // wins over EnabledTools
	Tools         []ToolRule `json:"tools,omitempty"`

	Description string          `json:"description,omitempty"`
	Sandbox     json.RawMessage `json:"sandbox,omitempty"` // how the child is confined; interpreted where it is started

	// Extra holds members this model does not know, as they were written.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// Transport returns how the server is reached, inferring it where the file does
// not say: a command means stdio, a URL alone means http.
func (s Server) Transport() Transport {
	switch {
	case s.Type != "":
		return s.Type
	case s.Command == "" && s.URL != "":
		return HTTP
	default:
		return Stdio
	}
}

// Target renders what the server is, for one line of a list: its command line
// or its URL, with what may be confidential in them masked.
func (s Server) Target() string {
	if s.URL != "" {
		return maskURL(s.URL)
	}
	return quoteCommand(MaskText(s.Command), maskArgs(s.Args))
}

// connectionKey is equal for two servers that would reach the same thing with the
// same credentials. Secrets are in it.
func (s Server) connectionKey() string {
	return string(EncodeServer(Server{
		Type: s.Transport(), Command: s.Command, Args: s.Args, Env: s.Env, EnvVars: s.EnvVars, UnsetEnv: s.UnsetEnv, EnvFile: s.EnvFile, Cwd: s.Cwd,
		URL: s.URL, Headers: s.Headers, EnvHeaders: s.EnvHeaders, BearerTokenEnvVar: s.BearerTokenEnvVar, HeadersHelper: s.HeadersHelper,
		Auth: s.Auth, OAuth: s.OAuth,
	}))
}

// Sharing says which sessions have a connection to a server in common. Unsaid it
// is those for which it would be the same, in one directory. In files it is a
// boolean, or the text user.
type Sharing string

const (
	SharedNever Sharing = "false" // each session has its own
	SharedSame  Sharing = "true"  // those for which it would be the same, as if unsaid
	SharedUser  Sharing = "user"  // in all directories: a program runs in the home directory
)

// MarshalJSON implements json.Marshaler.
func (s Sharing) MarshalJSON() ([]byte, error) {
	if s == SharedNever || s == SharedSame {
		return []byte(s), nil
	}
	return json.Marshal(string(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Sharing) UnmarshalJSON(data []byte) error {
	if text := Sharing(data); text == SharedNever || text == SharedSame {
		*s = text
		return nil
	}
	return json.Unmarshal(data, (*string)(s))
}

// Pin says what happens when the definition of a tool changes after it was
// first seen. For servers of a project it is strict, whatever they say; unsaid it
// is warn, and off for servers in the program itself.
type Pin string

const (
	PinStrict Pin = "strict" // what is new or changed is held back until it is accepted
	PinWarn   Pin = "warn"   // what changed is passed on and reported
	PinOff    Pin = "off"    // definitions are not remembered
)

// AuthMode selects how a server is authenticated to.
type AuthMode string

const (
	AuthNone              AuthMode = "none"
	AuthAPIKey            AuthMode = "apiKey"
	AuthClientCredentials AuthMode = "clientCredentials"
	AuthAuthorizationCode AuthMode = "authorizationCode"
)

// Auth says how to authenticate. Mode selects which of the fields count; the
// older form {type: "oauth", credentialId} names a stored credential instead.
type Auth struct {
	Mode         AuthMode `json:"mode,omitempty"`
	Type         string   `json:"type,omitempty"` // "oauth" or "apikey", where Mode is empty
	CredentialID string   `json:"credentialId,omitempty"`

	// apiKey
	Key         Secret `json:"key,omitzero"`
	HeaderName  string `json:"headerName,omitempty"`  // empty means Authorization
	ValuePrefix string `json:"valuePrefix,omitempty"` // such as "Bearer "

	// clientCredentials
	TokenURL     string `json:"tokenUrl,omitempty"`
	ClientID     Secret `json:"clientId,omitzero"`
	ClientSecret Secret `json:"clientSecret,omitzero"`
	Audience     string `json:"audience,omitempty"`

	// authorizationCode, and in part clientCredentials
	Scopes           []string     `json:"scopes,omitempty"`
	Resource         string       `json:"resource,omitempty"`
	RedirectURI      string       `json:"redirectUri,omitempty"`
	Client           *OAuthClient `json:"client,omitempty"`
	Tokens           *OAuthTokens `json:"tokens,omitempty"`
	OAuthProviderRef string       `json:"oauthProviderRef,omitempty"`

	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// OAuthClient is a client registered beforehand; Extra keeps the metadata of
// its registration verbatim.
type OAuthClient struct {
	ClientID     string                     `json:"clientId"`
	ClientSecret Secret                     `json:"clientSecret,omitzero"`
	Extra        map[string]json.RawMessage `json:"extra,omitempty"`
}

// OAuthTokens are tokens obtained elsewhere, to start with.
type OAuthTokens struct {
	AccessToken  Secret `json:"accessToken"`
	RefreshToken Secret `json:"refreshToken,omitzero"`
	ExpiresAt    int64  `json:"expiresAt,omitempty"` // Unix seconds
}

// OAuth holds hints for an authorization-code login, as several products write
// them beside `auth`.
type OAuth struct {
	ClientID              string   `json:"clientId,omitempty"`
	ClientSecret          Secret   `json:"clientSecret,omitzero"`
	CallbackPort          int      `json:"callbackPort,omitempty"`
	CallbackPath          string   `json:"callbackPath,omitempty"`
	RedirectURI           string   `json:"redirectUri,omitempty"`
	AuthServerMetadataURL string   `json:"authServerMetadataUrl,omitempty"`
	Scopes                []string `json:"scopes,omitempty"`
	Resource              string   `json:"resource,omitempty"`
	Prompt                *string  `json:"prompt,omitempty"` // nil: consent; empty: not sent
	Disabled              bool     `json:"disabled,omitempty"`

	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// ToolRule is what an entry says about one of its tools.
type ToolRule struct {
	Name             string           `json:"name"`
	PermissionPolicy PermissionPolicy `json:"permission_policy,omitempty"`
	ExposedName      string           `json:"exposedName,omitempty"`
	AlwaysLoad       bool             `json:"alwaysLoad,omitempty"`
}

// PermissionPolicy is an entry's wish for one tool.
type PermissionPolicy string

const (
	AlwaysAllow PermissionPolicy = "always_allow"
	AlwaysAsk   PermissionPolicy = "always_ask"
	AlwaysDeny  PermissionPolicy = "always_deny"
)
