package secret

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// variableName matches what may be the name of an environment variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ResolveServer completes a server whose placeholders are expanded: e is the
// entry as written, s the expanded server. Whole values are resolved where the
// entry's dialect does that; the variables of the envFile, envVars and
// envHeaders are added, so that those fields are empty in the result. What
// resolves to nothing is left out, and a problem names it.
//
// Whether a value is a command or the name of a variable is decided by what the
// file says, never by the content of a variable. In a project's file only names
// in capitals count, which is what its approval showed. allowCommands tells
// that the entry's commands may run: it is approved, or its file passed
// CheckOwner.
func (r *Resolver) ResolveServer(ctx context.Context, e config.Entry, s config.Server, allowCommands bool) (config.Server, []config.Problem) {
	x := &resolution{r: r, entry: e}
	if e.Dialect.ResolvesValues() {
		s = x.values(ctx, s, allowCommands)
	}
	s.Env = maps.Clone(s.Env)
	s.Headers = maps.Clone(s.Headers)
	x.environment(&s)
	x.headers(&s)
	return s, x.problems
}

// Names returns the variables, besides those of placeholders, whose values
// ResolveServer uses for an entry.
func Names(e config.Entry) []string {
	x := &resolution{entry: e}
	names := append(slices.Clone(e.Server.EnvVars), slices.Collect(maps.Values(e.Server.EnvHeaders))...)
	if name := e.Server.BearerTokenEnvVar; name != "" {
		names = append(names, name)
	}
	if e.Dialect.ResolvesValues() {
		config.MapValues(e.Server, func(_ config.Slot, value config.Secret) (config.Secret, bool) {
			if text := value.Reveal(); !strings.HasPrefix(text, "!") && x.mayResolve(text) {
				names = append(names, text)
			}
			return value, true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

type resolution struct {
	r        *Resolver
	entry    config.Entry
	problems []config.Problem
}

// values resolves the env, header and auth values. All commands run at once.
func (x *resolution) values(ctx context.Context, s config.Server, allowCommands bool) config.Server {
	written := map[string]config.Secret{}
	config.MapValues(x.entry.Server, func(at config.Slot, value config.Secret) (config.Secret, bool) {
		written[at.Pointer()] = value
		if command, ok := strings.CutPrefix(value.Reveal(), "!"); ok && allowCommands {
			x.r.start(command)
		}
		return value, true
	})
	return config.MapValues(s, func(at config.Slot, value config.Secret) (config.Secret, bool) {
		if w, ok := written[at.Pointer()]; !ok || w != value || !x.mayResolve(w.Reveal()) {
			return value, true
		}
		resolved, err := x.r.Resolve(ctx, value, allowCommands)
		switch {
		case err == errNotAllowed:
			x.report(config.SeverityError, at.Pointer(), fmt.Sprintf("%s is a command, and %v", at, err),
				"let only its owner write the file, or name a variable instead")
		case err != nil:
			x.report(config.SeverityWarning, at.Pointer(), fmt.Sprintf("%s is left out: %v", at, err), "")
		case resolved == value && config.NamesVariable(value.Reveal()) && strings.Contains(value.Reveal(), "_"):
			x.report(config.SeverityWarning, at.Pointer(), fmt.Sprintf("%s looks like the name of a variable that is not set; it is taken as it is written", at), "")
		}
		return resolved, err == nil
	})
}

// mayResolve reports whether a value as written is a command or may be the name
// of a variable.
func (x *resolution) mayResolve(text string) bool {
	switch {
	case strings.HasPrefix(text, "!"):
		return true
	case x.entry.Origin.Project != "":
		return config.NamesVariable(text)
	default:
		return variableName.MatchString(text)
	}
}

// environment adds the variables of the envFile, which the entry's own values
// override, and those that are passed on.
func (x *resolution) environment(s *config.Server) {
	add := func(name string, value config.Secret) {
		if _, ok := s.Env[name]; ok {
			return
		}
		if s.Env == nil {
			s.Env = map[string]config.Secret{}
		}
		s.Env[name] = value
	}
	for _, name := range s.EnvVars {
		if v, ok := x.r.opts.Lookup(name); ok {
			add(name, config.NewSecret(v))
		}
	}
	if s.EnvFile != "" {
		values, problems := ReadEnvFile(s.EnvFile)
		for name, value := range values {
			add(name, value)
		}
		x.problems = append(x.problems, problems...)
	}
	s.EnvVars, s.EnvFile = nil, ""
}

// headers adds those whose values are variables.
func (x *resolution) headers(s *config.Server) {
	set := func(header, variable, prefix, pointer string) {
		v, ok := x.r.opts.Lookup(variable)
		if !ok || v == "" {
			x.report(config.SeverityWarning, pointer, fmt.Sprintf("the header %q is left out: %s is not set", header, variable), "set "+variable+" in the environment")
			return
		}
		setHeader(s, header, config.NewSecret(prefix+v))
	}
	for _, header := range slices.Sorted(maps.Keys(s.EnvHeaders)) {
		set(header, s.EnvHeaders[header], "", config.PointerTo("/envHeaders", header))
	}
	if s.BearerTokenEnvVar != "" {
		set("Authorization", s.BearerTokenEnvVar, "Bearer ", "/bearerTokenEnvVar")
	}
	s.EnvHeaders, s.BearerTokenEnvVar = nil, ""
}

// setHeader sets a header of a server in place of one whose name differs only
// in case.
func setHeader(s *config.Server, name string, value config.Secret) {
	if s.Headers == nil {
		s.Headers = map[string]config.Secret{}
	}
	maps.DeleteFunc(s.Headers, func(old string, _ config.Secret) bool { return strings.EqualFold(old, name) })
	s.Headers[name] = value
}

// report adds a problem at a pointer below the entry.
func (x *resolution) report(sev config.Severity, pointer, message, hint string) {
	o := x.entry.Origin
	x.problems = append(x.problems, config.Problem{
		Severity: sev, File: o.File, Line: o.Line, Pointer: o.Pointer + pointer, Message: message, Hint: hint,
	})
}
