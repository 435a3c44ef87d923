package config

import (
	"fmt"
	"strings"
)

// DecodeServer reads one server in the native form, which is also the form most
// products share. It reports what is wrong with types; Validate knows the rules.
func DecodeServer(f *Fields) Server {
	s := Server{
		Command:           f.String("command"),
		Args:              f.Strings("args"),
		EnvVars:           f.Strings("envVars"),
		UnsetEnv:          f.Strings("unsetEnv"),
		EnvFile:           f.String("envFile"),
		Cwd:               f.String("cwd"),
		URL:               f.String("url"),
		Headers:           f.Secrets("headers"),
		EnvHeaders:        f.StringMap("envHeaders"),
		BearerTokenEnvVar: f.String("bearerTokenEnvVar"),
		HeadersHelper:     f.String("headersHelper"),
		Enabled:           f.Bool("enabled"),
		Timeout:           f.Millis("timeout", 1),
		ConnectTimeout:    f.Millis("connectTimeout", 1),
		IdleStop:          f.Millis("idleStop", 1),
		Shared:            decodeSharing(f),
		Pin:               Pin(f.String("pin")),
		Auth:              decodeAuth(f.Object("auth")),
		OAuth:             DecodeOAuth(f.Object("oauth")),
		EnabledTools:      f.Strings("enabledTools"),
		DisabledTools:     f.Strings("disabledTools"),
		Tools:             DecodeToolRules(f),
		Description:       f.String("description"),
		Sandbox:           f.Raw("sandbox"),
	}
	s.Type = Transport(f.String("type", "transport"))
	if s.Type == InProcess {
		f.Report(SeverityError, "type", fmt.Sprintf("unknown server type %q", s.Type), "only the embedding program can have servers in its own process")
	}
	if b := f.Bool("lazy"); b != nil {
		s.Lazy = *b
	}
	s.Env = f.Secrets("env")
	s.UnsetEnv = append(s.UnsetEnv, NullMembers(f, "env")...)
	return s
}

// decodeSharing reads who shares a server.
func decodeSharing(f *Fields) Sharing {
	n, ok := f.Take("shared")
	switch {
	case !ok:
		return ""
	case n.Kind == Bool, n.Kind == String && n.Text != string(SharedNever) && n.Text != string(SharedSame):
		return Sharing(n.Text)
	}
	f.Report(SeverityWarning, "shared", `invalid "shared" value, ignoring: expected true, false or "user"`, "")
	return ""
}

// NullMembers returns the names whose value is null in an object member: the
// way to say that a variable is to be removed.
func NullMembers(f *Fields, name string) []string {
	n, _ := f.Node.Get(name)
	var names []string
	for _, m := range n.Members {
		if m.Value.Kind == Null {
			names = append(names, m.Name)
		}
	}
	return names
}

func decodeAuth(f *Fields) *Auth {
	if f == nil {
		return nil
	}
	a := &Auth{
		Mode:             AuthMode(f.String("mode")),
		Type:             f.String("type"),
		CredentialID:     f.String("credentialId"),
		Key:              f.Secret("key"),
		HeaderName:       f.String("headerName"),
		ValuePrefix:      f.String("valuePrefix"),
		TokenURL:         f.String("tokenUrl"),
		ClientID:         f.Secret("clientId"),
		ClientSecret:     f.Secret("clientSecret"),
		Audience:         f.String("audience"),
		Scopes:           scopes(f, "scopes"),
		Resource:         f.String("resource"),
		RedirectURI:      f.String("redirectUri"),
		OAuthProviderRef: f.String("oauthProviderRef"),
	}
	if c := f.Object("client"); c != nil {
		a.Client = &OAuthClient{ClientID: c.String("clientId", "client_id"), ClientSecret: NewSecret(c.String("clientSecret", "client_secret"))}
		a.Client.Extra = c.Rest()
	}
	if t := f.Object("tokens"); t != nil {
		a.Tokens = &OAuthTokens{AccessToken: t.Secret("accessToken"), RefreshToken: t.Secret("refreshToken"), ExpiresAt: int64(t.Int("expiresAt", 0, 1<<40))}
	}
	for _, m := range f.Node.Members {
		if strings.HasSuffix(m.Name, "Ref") && m.Name != "oauthProviderRef" {
			f.Ignore(m.Name)
			f.Report(SeverityError, m.Name, fmt.Sprintf("uses forbidden %q — secrets are not configured by reference", m.Name),
				"write the value inline, for example as ${VAR}")
		}
	}
	a.Extra = f.Rest()
	return a
}

// DecodeOAuth reads login hints in the form most products share; nil gives nil.
func DecodeOAuth(f *Fields) *OAuth {
	if f == nil {
		return nil
	}
	o := &OAuth{
		ClientID:              f.String("clientId"),
		ClientSecret:          f.Secret("clientSecret"),
		CallbackPort:          f.Int("callbackPort", 1, 65535),
		CallbackPath:          f.String("callbackPath"),
		RedirectURI:           f.String("redirectUri"),
		AuthServerMetadataURL: f.String("authServerMetadataUrl"),
		Scopes:                scopes(f, "scopes", "scope"),
		Resource:              f.String("resource"),
	}
	if b := f.Bool("disabled"); b != nil {
		o.Disabled = *b
	}
	if f.Has("prompt") {
		prompt := f.String("prompt")
		o.Prompt = &prompt
	}
	o.Extra = f.Rest()
	return o
}

// scopes reads a list of scopes, written as an array or as one string.
func scopes(f *Fields, names ...string) []string {
	for _, name := range names {
		n, ok := f.Node.Get(name)
		switch {
		case !ok:
		case n.Kind == String:
			return words(f.String(name))
		default:
			return f.Strings(name)
		}
	}
	return nil
}

// DecodeToolRules reads `tools` where it is a list of rules. A list of plain
// names, which some products write there, is left to their own readers.
func DecodeToolRules(f *Fields) []ToolRule {
	n, ok := f.Node.Get("tools")
	if !ok || n.Kind != Array || (len(n.Items) > 0 && n.Items[0].Kind == String) {
		return nil
	}
	f.Ignore("tools")
	var rules []ToolRule
	for i, it := range n.Items {
		r := f.at(it, PointerAt(PointerTo(f.Pointer, "tools"), i))
		if it.Kind != Object {
			r.Report(SeverityError, "", "every element of \"tools\" must be an object, found "+it.Kind.String(), "")
			continue
		}
		rule := ToolRule{Name: r.String("name"), PermissionPolicy: PermissionPolicy(r.String("permission_policy")), ExposedName: r.String("exposedName")}
		if b := r.Bool("alwaysLoad"); b != nil {
			rule.AlwaysLoad = *b
		}
		rules = append(rules, rule)
	}
	return rules
}
