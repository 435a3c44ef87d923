package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Slot is one string of a server that may hold placeholders.
type Slot struct {
	path []string // in the names of Server
	use  use
}

// use is what becomes of a slot's value, and so what an unresolved
// placeholder in it costs.
type use uint8

const (
	asArgument use = iota // args
	asVariable            // env
	asProgram             // command, cwd, envFile: nothing starts without it
	asURL                 // where to connect
	asHeader              // sent along
	asSecret              // a secret of auth or oauth
	asLogin               // what else is sent to log in
	asHelper              // headersHelper: run by a shell
)

// Pointer returns the JSON pointer of the slot below its entry.
func (at Slot) Pointer() string {
	p := ""
	for _, name := range at.path {
		p = PointerTo(p, name)
	}
	return p
}

// String names the slot for people.
func (at Slot) String() string {
	switch at.use {
	case asHeader:
		return fmt.Sprintf("the header %q", at.path[1])
	case asVariable:
		return fmt.Sprintf("env %q", at.path[1])
	case asArgument:
		return fmt.Sprintf("args[%s]", at.path[1])
	default:
		return strings.Join(at.path, ".")
	}
}

// leavesMachine reports whether the value is sent to somebody.
func (at Slot) leavesMachine() bool {
	switch at.use {
	case asURL, asHeader, asSecret, asLogin:
		return true
	}
	return false
}

// resolves reports whether the value may be a `!command` or the name of a
// variable.
func (at Slot) resolves(d Dialect) bool {
	return d.ResolvesValues() && (at.use == asVariable || at.use == asHeader || at.use == asSecret)
}

// runsInShell reports whether a shell runs the text.
func (at Slot) runsInShell(d Dialect, text string) bool {
	return at.use == asHelper || at.resolves(d) && strings.HasPrefix(text, "!")
}

// MapValues returns the server with each of its env, header and auth values
// replaced by what f makes of it, in a fixed order. What f does not keep is
// left out. The server given is not changed.
func MapValues(s Server, f func(at Slot, value Secret) (Secret, bool)) Server {
	return mapStrings(s, func(at Slot, text string) (string, bool) {
		switch at.use {
		case asVariable, asHeader, asSecret:
			v, keep := f(at, NewSecret(text))
			return v.Reveal(), keep
		}
		return text, true
	})
}

// mapStrings does the same with every string that may hold placeholders.
func mapStrings(s Server, f stringMap) Server {
	f.text(&s.Command, asProgram, "command")
	f.list(&s.Args, asArgument, "args")
	f.secrets(&s.Env, asVariable, "env")
	f.text(&s.EnvFile, asProgram, "envFile")
	f.text(&s.Cwd, asProgram, "cwd")
	f.text(&s.URL, asURL, "url")
	f.secrets(&s.Headers, asHeader, "headers")
	f.text(&s.HeadersHelper, asHelper, "headersHelper")
	s.Auth = f.auth(s.Auth)
	s.OAuth = f.oauth(s.OAuth)
	return s
}

// stringMap replaces strings in place, in values that the caller has copied.
type stringMap func(at Slot, text string) (string, bool)

func (f stringMap) text(p *string, u use, path ...string) {
	if *p == "" {
		return
	}
	t, keep := f(Slot{path, u}, *p)
	if !keep {
		t = ""
	}
	*p = t
}

func (f stringMap) secret(p *Secret, path ...string) {
	t := p.Reveal()
	f.text(&t, asSecret, path...)
	*p = NewSecret(t)
}

func (f stringMap) list(p *[]string, u use, path ...string) {
	*p = slices.Clone(*p)
	for i := range *p {
		f.text(&(*p)[i], u, append(slices.Clone(path), strconv.Itoa(i))...)
	}
}

func (f stringMap) secrets(p *map[string]Secret, u use, name string) {
	old := *p
	if old == nil {
		return
	}
	*p = make(map[string]Secret, len(old))
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if t, keep := f(Slot{[]string{name, key}, u}, old[key].Reveal()); keep {
			(*p)[key] = NewSecret(t)
		}
	}
}

func (f stringMap) auth(old *Auth) *Auth {
	if old == nil {
		return nil
	}
	a := *old
	f.text(&a.CredentialID, asLogin, "auth", "credentialId")
	f.secret(&a.Key, "auth", "key")
	f.text(&a.HeaderName, asLogin, "auth", "headerName")
	f.text(&a.ValuePrefix, asLogin, "auth", "valuePrefix")
	f.text(&a.TokenURL, asLogin, "auth", "tokenUrl")
	f.secret(&a.ClientID, "auth", "clientId")
	f.secret(&a.ClientSecret, "auth", "clientSecret")
	f.text(&a.Audience, asLogin, "auth", "audience")
	f.list(&a.Scopes, asLogin, "auth", "scopes")
	f.text(&a.Resource, asLogin, "auth", "resource")
	f.text(&a.RedirectURI, asLogin, "auth", "redirectUri")
	if a.Client != nil {
		c := *a.Client
		f.text(&c.ClientID, asLogin, "auth", "client", "clientId")
		f.secret(&c.ClientSecret, "auth", "client", "clientSecret")
		a.Client = &c
	}
	if a.Tokens != nil {
		t := *a.Tokens
		f.secret(&t.AccessToken, "auth", "tokens", "accessToken")
		f.secret(&t.RefreshToken, "auth", "tokens", "refreshToken")
		a.Tokens = &t
	}
	return &a
}

func (f stringMap) oauth(old *OAuth) *OAuth {
	if old == nil {
		return nil
	}
	o := *old
	f.text(&o.ClientID, asLogin, "oauth", "clientId")
	f.secret(&o.ClientSecret, "oauth", "clientSecret")
	f.text(&o.CallbackPath, asLogin, "oauth", "callbackPath")
	f.text(&o.RedirectURI, asLogin, "oauth", "redirectUri")
	f.text(&o.AuthServerMetadataURL, asLogin, "oauth", "authServerMetadataUrl")
	f.list(&o.Scopes, asLogin, "oauth", "scopes")
	f.text(&o.Resource, asLogin, "oauth", "resource")
	if o.Prompt != nil {
		prompt := *o.Prompt
		f.text(&prompt, asLogin, "oauth", "prompt")
		o.Prompt = &prompt
	}
	return &o
}
