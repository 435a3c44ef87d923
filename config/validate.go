package config

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const maxNameLength = 100

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// CheckName says what is wrong with the name of a new server.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("Server name cannot be empty")
	case len(name) > maxNameLength:
		return fmt.Errorf("Server name is too long (max %d characters)", maxNameLength)
	case !namePattern.MatchString(name):
		return fmt.Errorf("Server name can only contain letters, numbers, dash, underscore, and dot")
	}
	return nil
}

// Strictness selects how Validate treats a URL without a type.
type Strictness bool

const (
	Lenient Strictness = false // a reader: the type is inferred
	Strict  Strictness = true  // a writer: a missing type means stdio
)

// InvalidError is all that is wrong with one server that was to be written.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	texts := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		texts = append(texts, p.Message)
	}
	return "Invalid server config: " + strings.Join(texts, "; ")
}

// Validate returns everything that is wrong with a server, each problem with
// the member it is about, and warns of what has no effect. It checks structure,
// never reachability.
func Validate(name string, s Server, strict Strictness) []Problem {
	v := validation{name: name}
	v.transport(s, strict)
	switch s.Shared {
	case "", SharedNever, SharedSame, SharedUser:
	default:
		v.errorAt("/shared", "shared invalid: expected true, false or user, found %q", string(s.Shared))
	}
	switch s.Pin {
	case "", PinStrict, PinWarn, PinOff:
	default:
		v.errorAt("/pin", "pin invalid: expected strict, warn or off, found %q", string(s.Pin))
	}
	v.values(s)
	v.auth(s.Auth)
	v.oauth(s.OAuth)
	v.tools(s.Tools)
	return append(v.problems, NoEffect(s)...)
}

// NoEffect warns of members that are read and do nothing yet, so that nobody
// relies on them.
func NoEffect(s Server) []Problem {
	var problems []Problem
	warn := func(pointer, message, hint string) {
		problems = append(problems, Problem{Severity: SeverityWarning, Pointer: pointer, Message: message, Hint: hint})
	}
	stdio := s.Transport() == Stdio
	if len(s.Sandbox) > 0 && stdio {
		warn("/sandbox", "sandbox has no effect yet: nothing confines the program", "Run it in a container, or otherwise confined, if it must be.")
	} else if len(s.Sandbox) > 0 {
		warn("/sandbox", "sandbox has no effect on a server that is no program", "")
	}
	a := s.Auth
	if a == nil {
		return problems
	}
	const login, instead = "has no effect yet: nobody is logged in, and nothing is sent", `Until it has, give a token in "headers" or "env", or use auth.mode apiKey.`
	switch {
	case a.Mode == AuthClientCredentials || a.Mode == AuthAuthorizationCode:
		warn("/auth/mode", fmt.Sprintf("auth.mode %s %s", a.Mode, login), instead)
		if a.Tokens != nil {
			warn("/auth/tokens", "auth.tokens has no effect yet: they are not sent", instead)
		}
	case a.Mode == "" && a.CredentialID != "":
		warn("/auth/credentialId", "auth.credentialId "+login, instead)
	case a.Mode == "" && a.Type == "oauth":
		warn("/auth/type", "auth.type oauth "+login, instead)
	case stdio && !a.Key.IsZero():
		warn("/auth/key", "auth.key has no effect on a program", `Give it in "env", in the variable that the program reads.`)
	}
	return problems
}

type validation struct {
	name     string
	problems []Problem
}

// errorAt adds a problem of the member at the pointer below the entry.
func (v *validation) errorAt(pointer, format string, args ...any) {
	v.problems = append(v.problems, Problem{
		Severity: SeverityError, Pointer: pointer,
		Message: fmt.Sprintf("Server %q: ", v.name) + fmt.Sprintf(format, args...),
	})
}

func (v *validation) transport(s Server, strict Strictness) {
	kind := s.Transport()
	if strict == Strict && s.Type == "" {
		kind = Stdio
	}
	if s.Command != "" && s.URL != "" {
		v.errorAt("/url", `both "command" and "url" are set - server should be either stdio (command) OR http/sse (url), not both`)
		return
	}
	switch kind {
	case Stdio:
		if s.Command == "" {
			v.errorAt("/command", `stdio server requires "command" field`)
		}
	case HTTP, SSE:
		if s.URL == "" {
			v.errorAt("/url", `%s server requires "url" field`, kind)
		} else {
			v.url("/url", s.URL)
		}
	case InProcess:
	default:
		if reference.MatchString(string(kind)) {
			v.errorAt("/type", "the type of a server cannot be a placeholder: write stdio, http or sse")
			return
		}
		v.errorAt("/type", "unknown server type %q", string(kind))
	}
}

// headerName matches what HTTP allows as the name of a header.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// values checks what no process and no request can carry.
func (v *validation) values(s Server) {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			v.errorAt(PointerTo("/env", name), "%q cannot be the name of a variable", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if !headerName.MatchString(name) {
			v.errorAt(PointerTo("/headers", name), "%q cannot be the name of a header", name)
		}
	}
	mapStrings(s, func(at Slot, text string) (string, bool) {
		switch {
		case strings.Contains(text, "\x00"):
			v.errorAt(at.Pointer(), "%s holds a NUL character", at)
		case at.use == asHeader && strings.ContainsAny(text, "\r\n") && !strings.HasPrefix(text, "!"): // which is for a shell
			v.errorAt(at.Pointer(), "%s has more than one line", at)
		}
		return text, true
	})
}

// url checks an address as far as that is possible before its placeholders are
// expanded.
func (v *validation) url(pointer, raw string) {
	if reference.MatchString(raw) || strings.Contains(raw, "$(") {
		return
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		v.errorAt(pointer, "%q is not a URL", maskURL(raw))
	case u.Scheme == "unix" || u.Scheme == "pipe":
		v.errorAt(pointer, "%s:// addresses are not supported; use http:// or https://", u.Scheme)
	case u.Scheme != "http" && u.Scheme != "https":
		v.errorAt(pointer, "%q is not an http:// or https:// URL", maskURL(raw))
	case u.Hostname() == "":
		v.errorAt(pointer, "%q names no host", maskURL(raw))
	}
}

func (v *validation) auth(a *Auth) {
	if a == nil {
		return
	}
	require := func(pointer string, missing bool) {
		if missing {
			v.errorAt("/auth/"+pointer, "auth.mode %s requires auth.%s", a.Mode, pointer)
		}
	}
	switch a.Mode {
	case "":
		switch a.Type {
		case "oauth", "apikey":
		case "":
			v.errorAt("/auth/mode", "auth.mode invalid: expected none, apiKey, clientCredentials or authorizationCode")
		default:
			v.errorAt("/auth/type", "auth.type invalid: expected oauth or apikey, found %q", a.Type)
		}
	case AuthNone, AuthAuthorizationCode:
	case AuthAPIKey:
		require("key", a.Key.IsZero())
	case AuthClientCredentials:
		require("tokenUrl", a.TokenURL == "")
		require("clientId", a.ClientID.IsZero())
		require("clientSecret", a.ClientSecret.IsZero())
		if a.TokenURL != "" {
			v.url("/auth/tokenUrl", a.TokenURL)
		}
	default:
		v.errorAt("/auth/mode", "auth.mode invalid: expected none, apiKey, clientCredentials or authorizationCode, found %q", a.Mode)
	}
}

func (v *validation) oauth(o *OAuth) {
	if o != nil && o.AuthServerMetadataURL != "" && !strings.HasPrefix(o.AuthServerMetadataURL, "https://") && !reference.MatchString(o.AuthServerMetadataURL) {
		v.errorAt("/oauth/authServerMetadataUrl", "oauth.authServerMetadataUrl must be an https:// URL")
	}
}

var exposedNamePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (v *validation) tools(rules []ToolRule) {
	// These messages are a seed's own and name the tool, not the server alone.
	toolError := func(i int, member, format string, args ...any) {
		v.problems = append(v.problems, Problem{
			Severity: SeverityError, Pointer: PointerAt("/tools", i) + "/" + member, Message: fmt.Sprintf(format, args...),
		})
	}
	seen := map[string]bool{}
	for i, r := range rules {
		switch r.PermissionPolicy {
		case "", AlwaysAllow, AlwaysAsk, AlwaysDeny:
		default:
			toolError(i, "permission_policy", "MCP tool %q has invalid permission_policy %q: expected always_allow, always_ask or always_deny.", v.name+"/"+r.Name, r.PermissionPolicy)
		}
		switch {
		case r.Name == "":
			toolError(i, "name", "Tool name must be a non-empty string in server %q.", v.name)
		case seen[r.Name]:
			toolError(i, "name", "Duplicate tool name %q in server %q.", r.Name, v.name)
		case r.ExposedName == "":
		case !exposedNamePattern.MatchString(r.ExposedName):
			toolError(i, "exposedName", "MCP tool %q has invalid exposedName %q.", v.name+"/"+r.Name, r.ExposedName)
		case r.ExposedName == "mcp_list" || r.ExposedName == "mcp_get" || r.ExposedName == "mcp_call":
			toolError(i, "exposedName", "MCP tool %q cannot use reserved exposedName %q.", v.name+"/"+r.Name, r.ExposedName)
		case !r.AlwaysLoad:
			toolError(i, "exposedName", "MCP tool %q requires alwaysLoad: true when exposedName is set.", v.name+"/"+r.Name)
		}
		seen[r.Name] = true
	}
}
