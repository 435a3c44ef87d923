package conn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
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
	server, more := m.resolver.ResolveServer(ctx, t.Entry, server, t.AllowCommands)
	if ctx.Err() != nil {
		return server, context.Cause(ctx)
	}
	warnings := slices.DeleteFunc(slices.Concat(problems, more), func(p config.Problem) bool { return p.Severity != config.SeverityWarning })
	s.mu.Lock()
	s.update(func(st *state) { st.Warnings = warnings })
	s.mu.Unlock()
	return server, s.report(more)
}

// recallMissing adds to a refusal for want of authentication what was left out
// of the request: most likely the one is the reason for the other.
func (s *Server) recallMissing(err error) error {
	if err == nil {
		return nil
	}
	f := classify(err)
	if f.kind != KindAuth {
		return err
	}
	for _, p := range s.Status().Warnings {
		f.err = fmt.Errorf("%w; %s", f.err, p.Message)
	}
	return f
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

func (e environment) get(name string) string {
	value, _ := e.lookup(name)
	return value
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

// newRedactor returns one for a child: written is its server as the entry has
// it, resolved as it was started.
func newRedactor(written, resolved config.Server) *redactor {
	var secrets []string
	hide := func(name, text string) {
		// A path is no secret, and often what a message is about.
		if len(text) >= shortestSecret && (secretName.MatchString(name) || !filepath.IsAbs(text)) {
			secrets = append(secrets, text)
		}
	}
	for name, value := range resolved.Env {
		hide(name, value.Reveal())
	}
	for i, arg := range resolved.Args {
		name, value, pair := strings.Cut(arg, "=")
		fromVariable := i >= len(written.Args) || arg != written.Args[i]
		if pair && (fromVariable || secretName.MatchString(name)) {
			hide(name, value)
		}
		option := ""
		if i > 0 && strings.HasPrefix(resolved.Args[i-1], "-") && !strings.Contains(resolved.Args[i-1], "=") {
			option = resolved.Args[i-1]
		}
		if fromVariable || secretName.MatchString(option) {
			hide(option, arg)
		}
	}
	// The longest first: another may be a part of it.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, "[redacted]")
	}
	return &redactor{strings.NewReplacer(pairs...)}
}

func (r *redactor) clean(text string) string { return r.replacer.Replace(text) }

// cleanError returns an error that says the same without secrets.
func (r *redactor) cleanError(err error) error {
	text := err.Error()
	if clean := r.clean(text); clean != text {
		return &redactedError{clean, err}
	}
	return err
}

// redactedError is an error with another text.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// commandsForbidden is why a headersHelper is not run.
func commandsForbidden(what string) error {
	return &failure{kind: KindConfig, permanent: true, err: fmt.Errorf("%s is a command, and commands are not run for this file", what)}
}
