package conn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/proc"
)

// resolve turns the entry of a target into what is really started or contacted:
// placeholders expanded, secrets obtained.
func (s *Server) resolve(ctx context.Context, t Target) (config.Server, error) {
	m := s.manager
	server, problems := config.Expand(t.Entry.Server, t.Entry.Dialect, m.opts.Vars)
	if err := s.report(problems); err != nil {
		return server, err
	}
	server, problems = m.resolver.ResolveServer(ctx, t.Entry, server, t.AllowCommands)
	if ctx.Err() != nil {
		return server, context.Cause(ctx)
	}
	return server, s.report(problems)
}

// report logs the warnings among problems and returns the errors.
func (s *Server) report(problems []config.Problem) error {
	var all []string
	for _, p := range problems {
		if p.Severity != config.SeverityError {
			s.log.Warn(p.Message, "hint", p.Hint)
			continue
		}
		text := p.Message
		if p.Hint != "" {
			text += " (" + p.Hint + ")"
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return nil
	}
	return &failure{kind: KindConfig, permanent: true, err: errors.New(strings.Join(all, "; "))}
}

// environment is a list of NAME=value.
type environment []string

// lookup returns the value of a variable; the last one counts.
func (e environment) lookup(name string) (string, bool) {
	for _, assignment := range slices.Backward(e) {
		if n, value, ok := strings.Cut(assignment, "="); ok && n == name {
			return value, true
		}
	}
	return "", false
}

// childEnv is the environment of a child: what any program needs, and what the
// entry declares.
func childEnv(host []string, server config.Server) []string {
	env := append(proc.BaseEnv(host), proc.ProxyEnv(host)...)
	for _, name := range slices.Sorted(maps.Keys(server.Env)) {
		env = append(env, name+"="+server.Env[name].Reveal())
	}
	return slices.DeleteFunc(env, func(assignment string) bool {
		name, _, _ := strings.Cut(assignment, "=")
		_, declared := server.Env[name]
		return !declared && slices.Contains(server.UnsetEnv, name)
	})
}

// redactor takes the secrets of an entry out of texts that people see.
type redactor struct{ replacer *strings.Replacer }

// secretName matches variables whose value is a secret by their name.
var secretName = regexp.MustCompile(`(?i)token|secret|passw|pwd|key|auth|credential|cookie|session|dsn`)

// shortestSecret is the length from which a text counts as a secret. Shorter
// ones occur in ordinary text.
const shortestSecret = 6

func newRedactor(server config.Server) *redactor {
	var pairs []string
	hide := func(secret string) {
		if len(secret) >= shortestSecret {
			pairs = append(pairs, secret, "[redacted]")
		}
	}
	for name, value := range server.Env {
		// A path is no secret, and often what a message is about.
		if text := value.Reveal(); secretName.MatchString(name) || !strings.HasPrefix(text, "/") {
			hide(text)
		}
	}
	for _, value := range server.Headers {
		hide(value.Reveal())
		if _, token, ok := strings.Cut(value.Reveal(), " "); ok {
			hide(token)
		}
	}
	if server.Auth != nil {
		hide(server.Auth.Key.Reveal())
	}
	return &redactor{strings.NewReplacer(pairs...)}
}

func (r *redactor) clean(text string) string { return r.replacer.Replace(text) }

// commandsForbidden is why a headersHelper is not run.
func commandsForbidden(what string) error {
	return &failure{kind: KindConfig, permanent: true, err: fmt.Errorf("%s is a command, and commands are not run for this file", what)}
}
