package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/proc"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// resolve turns the entry of a target into what is really started or contacted:
// placeholders expanded, secrets obtained.
func (s *line) resolve(ctx context.Context, m *Manager, t Target) (config.Server, error) {
	vars := m.opts.Vars.Answered(t.Inputs)
	vars.WorkspaceRoot = cmp.Or(t.Workspace, vars.WorkspaceRoot)
	server, problems := config.Expand(t.Entry.Server, t.Entry.Dialect, vars)
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

// recallMissing adds to a refusal for want of credentials what was left out of
// the request: most likely the one is the reason for the other.
func (s *line) recallMissing(f *failure) {
	answer, ok := errors.AsType[*wire.HTTPError](f.err)
	if !ok || answer.Status != http.StatusUnauthorized && answer.Status != http.StatusForbidden {
		return
	}
	for _, p := range s.status().Warnings {
		f.err = fmt.Errorf("%w; %s", f.err, p.Message)
	}
}

// report logs the warnings among problems and returns the errors.
func (s *line) report(problems []config.Problem) error {
	var all []string
	for _, p := range problems {
		if p.Severity != config.SeverityError {
			s.up.warn(s.log, p)
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

// warn logs a problem of the entry, once however often the server is dialled.
func (u *upstream) warn(log *slog.Logger, p config.Problem) {
	u.pool.mu.Lock()
	known := slices.Contains(u.warned, p)
	if !known {
		u.warned = append(u.warned, p)
	}
	u.pool.mu.Unlock()
	if !known {
		log.Warn(p.Message, "hint", p.Hint)
	}
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

// childEnv is the environment of a child: what it inherits, and what the entry
// declares.
func childEnv(host []string, all bool, server config.Server) []string {
	env := proc.Inherited(host, all)
	for _, name := range slices.Sorted(maps.Keys(server.Env)) {
		env = append(env, name+"="+server.Env[name].Reveal())
	}
	return slices.DeleteFunc(env, func(assignment string) bool {
		name, _, _ := strings.Cut(assignment, "=")
		_, declared := server.Env[name]
		return !declared && slices.Contains(server.UnsetEnv, name)
	})
}

// commandsForbidden is why a headersHelper is not run.
func commandsForbidden(what string) error {
	return &failure{kind: KindConfig, permanent: true, err: fmt.Errorf("%s is a command, and commands are not run for this file", what)}
}
