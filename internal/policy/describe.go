package policy

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Describe returns what a person reads before approving a launch: exactly what
// would run or be contacted, nothing cut, with every character that could
// deceive shown as what it is. Nothing is masked: what stands in a file of the
// project is no secret of the reader, and may be an attack.
func Describe(l Launch) string {
	d := &description{}
	s := l.Server
	d.add("Server", fmt.Sprintf("%s (%s)", l.Name, string(s.Type)))
	d.add("Declared in", place(l.Origin))
	d.add("Plugin", shown(l.Origin.Plugin))
	d.add("Project", l.Project)
	d.program(l)
	d.remote(s)
	d.login(s)
	d.add("Also runs", shownAll(slices.DeleteFunc(slices.Clone(l.Executes), func(c string) bool { return c == s.HeadersHelper }))...)
	d.uses(l)
	d.add("Warnings", warnings(l)...)
	return d.String()
}

func fileLine(o config.Origin) string {
	if o.Line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

func place(o config.Origin) string {
	s := fileLine(o)
	if o.Product != "" {
		s += fmt.Sprintf(" (%s, %s scope)", o.Product, o.Scope)
	}
	return s
}

// description collects labelled lines. Rendering escapes them, so that no text
// can be forgotten.
type description struct{ lines []line }

type line struct{ label, text string }

// add adds one line for each text; the label stands before the first.
func (d *description) add(label string, texts ...string) {
	for _, text := range texts {
		if text == "" {
			continue
		}
		d.lines = append(d.lines, line{label, text})
		label = ""
	}
}

func (d *description) String() string {
	width := 0
	for _, l := range d.lines {
		width = max(width, len(l.label))
	}
	var b strings.Builder
	for _, l := range d.lines {
		fmt.Fprintf(&b, "%-*s  %s\n", width, l.label, config.Escape(l.text))
	}
	return b.String()
}

func (d *description) program(l Launch) {
	s := l.Server
	d.add("Command", shown(s.Command))
	switch {
	case s.Command == "":
	case l.ResolvedCommand == "":
		d.add("Program", "not found on this machine, or known only once its variables are replaced")
	case l.ResolvedCommand != s.Command:
		d.add("Program", shown(l.ResolvedCommand))
	}
	if l.CommandDigest != "" {
		d.add("Content", l.CommandDigest)
	}
	d.add("Arguments", shownAll(s.Args)...)
	for _, f := range l.Files {
		d.add("File", shown(f.Path)+" for "+shown(f.Argument))
		d.add("Content", f.Digest)
	}
	switch {
	case s.Cwd != "":
		d.add("Directory", shown(s.Cwd))
	case s.Command != "":
		d.add("Directory", "the project")
	}
	d.add("Shared", shown(string(s.Shared)))
	d.add("Sets", assignments(s.Env, " = ")...)
	d.add("Passes on", shownAll(s.EnvVars)...)
	d.add("Removes", shownAll(s.UnsetEnv)...)
	d.add("Reads", shown(s.EnvFile))
}

func (d *description) remote(s config.Server) {
	d.add("URL", shown(s.URL))
	headers := assignments(s.Headers, ": ")
	for _, header := range slices.Sorted(maps.Keys(s.EnvHeaders)) {
		headers = append(headers, header+": the variable "+s.EnvHeaders[header])
	}
	if s.BearerTokenEnvVar != "" {
		headers = append(headers, "Authorization: Bearer and the variable "+s.BearerTokenEnvVar)
	}
	d.add("Headers", headers...)
	d.add("Header program", shown(s.HeadersHelper))
}

func (d *description) login(s config.Server) {
	if a := s.Auth; a != nil {
		mode := string(a.Mode)
		if mode == "" {
			mode = a.Type
		}
		d.add("Login", mode)
		if a.CredentialID != "" {
			d.add("Login with", "the stored credential "+shown(a.CredentialID))
		}
		if a.OAuthProviderRef != "" {
			d.add("Login with", "the provider "+shown(a.OAuthProviderRef))
		}
		if a.HeaderName != "" {
			d.add("Login header", shown(a.HeaderName))
		}
		d.add("Login at", shown(a.TokenURL))
		d.add("Login for", shown(a.Resource), shown(a.Audience))
		d.add("Returns to", shown(a.RedirectURI))
		d.add("Scopes", shownAll(a.Scopes)...)
	}
	if o := s.OAuth; o != nil {
		d.add("Login at", shown(o.AuthServerMetadataURL))
		d.add("Login as", shown(o.ClientID))
		d.add("Login for", shown(o.Resource))
		d.add("Returns to", shown(o.RedirectURI))
		d.add("Scopes", shownAll(o.Scopes)...)
	}
}

// uses says which of the host's variables and files go where.
func (d *description) uses(l Launch) {
	var gives, sends []string
	for _, u := range config.Uses(l.Server, l.Dialect) {
		what := "the variable " + u.Name
		switch {
		case u.Whole:
			what += ", if one of that name is set,"
		case u.Kind == config.UseFile:
			what = "the content of the file " + u.Name
		case u.Kind == config.UseInput:
			what = "your answer to " + u.Name
		}
		if u.Sent {
			sends = append(sends, fmt.Sprintf("%s to %s (in %s)", what, destination(l.Server, u.Member), u.Member))
		} else {
			gives = append(gives, fmt.Sprintf("%s to %s", what, u.Member))
		}
	}
	d.add("Gives", gives...)
	d.add("Sends", sends...)
}

// destination returns the origin that a value of the member is sent to.
func destination(s config.Server, member string) string {
	target := s.URL
	switch {
	case strings.HasPrefix(member, "auth.") && s.Auth != nil && s.Auth.TokenURL != "":
		target = s.Auth.TokenURL
	case strings.HasPrefix(member, "oauth.") || strings.HasPrefix(member, "auth.client"):
		return "the login server of " + origin(target)
	}
	return origin(target)
}

// origin returns the scheme, host and port of a URL, or what can be said about
// one whose host is a placeholder.
func origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || strings.ContainsAny(u.Host, "${}%") {
		return "wherever " + shown(raw) + " leads"
	}
	return u.Scheme + "://" + u.Host
}

// assignments renders names with their values as they are written.
func assignments(values map[string]config.Secret, between string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, name+between+values[name].Reveal())
	}
	return out
}

// shown renders a text exactly. It is quoted only where its ends could not be
// seen otherwise.
func shown(s string) string {
	if s == "" {
		return ""
	}
	if strings.HasPrefix(s, " ") || strings.HasSuffix(s, " ") || strings.HasPrefix(s, `"`) {
		return `"` + s + `"`
	}
	return s
}

// shownAll does so for a list, in which an empty text counts.
func shownAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		if out[i] = shown(s); s == "" {
			out[i] = `""`
		}
	}
	return out
}
