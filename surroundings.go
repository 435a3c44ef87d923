package patchbay

import (
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/proc"
	"github.com/patchbay-mcp/patchbay/internal/secret"
)

// surroundings tells what of the host's environment decides about connections:
// servers for which that is the same are connected once, whoever starts them.
type surroundings struct {
	opts       Options
	project    string
	whole      func() []string // all that decides
	everything func() []string // of what programs inherit that get all of it
	basic      func() []string // and of what all others do
	proxies    func() []string
}

func (h *Host) newSurroundings() *surroundings {
	deciding := func(environ func() []string) func() []string {
		return sync.OnceValue(func() []string { return policy.Deciding(environ(), isDirectory) })
	}
	env := h.opts.Environ
	return &surroundings{
		opts: h.opts, project: h.places().project,
		whole:      deciding(func() []string { return env }),
		everything: deciding(func() []string { return proc.Inherited(env, true) }),
		basic:      deciding(func() []string { return proc.Inherited(env, false) }),
		proxies:    deciding(func() []string { return proc.ProxyEnv(env) }),
	}
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// of returns what decides about the connection of an entry.
func (s *surroundings) of(e config.Entry, expanded config.Server, inheritsAll bool) policy.Around {
	var around policy.Around
	switch {
	case expanded.Transport() != config.Stdio:
		around.Environ = s.proxies()
	case inheritsAll:
		around.Environ = s.everything()
	default:
		around.Environ = s.basic()
	}
	if expanded.Transport() == config.Stdio { // what the entry sets or removes is not inherited
		around.Environ = slices.DeleteFunc(slices.Clone(around.Environ), func(assignment string) bool {
			name, _, _ := strings.Cut(assignment, "=")
			_, set := expanded.Env[name]
			return set || slices.Contains(expanded.UnsetEnv, name)
		})
	}
	for _, name := range secret.Names(e) {
		if value, set := s.opts.lookup(name); set {
			around.Named = append(around.Named, name+"="+value)
		}
	}
	if len(config.Executes(e.Server, e.Dialect)) > 0 {
		around.Commands, around.Dir = s.whole(), s.project
	}
	return around
}

// EnvironmentKey returns a keyed hash of what in an environment decides what
// servers do. Hosts that differ in nothing else of it are the same, unless their
// entries name one of the variables that it leaves out: see Host.Suits.
func EnvironmentKey(key []byte, environ []string) string {
	return policy.EnvironHash(key, policy.Deciding(environ, isDirectory))
}

// Suits reports whether the host would be the same if it had been opened with
// another environment of the same EnvironmentKey.
func (h *Host) Suits(environ []string) bool {
	other := Options{Environ: environ}
	for _, st := range h.reading.Load().snap.Servers {
		for _, name := range slices.Concat(config.References(st.Server, st.entry.Dialect), secret.Names(st.entry)) {
			if policy.Decides(name) {
				continue
			}
			ours, set := h.opts.lookup(name)
			if theirs, also := other.lookup(name); ours != theirs || set != also {
				return false
			}
		}
	}
	return true
}

// notPassed returns the names of variables that a program which could not be
// connected does not get, as far as they may decide what it does.
func (h *Host) notPassed(st *ServerStatus) []string {
	if st.Reason == "" || st.Transport != config.Stdio || st.State == config.Disabled || st.State == config.NeedsApproval || st.State == config.Connected || h.inheritsAll(st.entry) {
		return nil
	}
	passed := proc.Inherited(h.opts.Environ, false)
	named := slices.Concat(st.Server.EnvVars, secret.Names(st.entry))
	var names []string
	for _, assignment := range policy.Deciding(h.opts.Environ, isDirectory) {
		name, _, _ := strings.Cut(assignment, "=")
		_, set := st.Server.Env[name]
		if name != "" && !set && !slices.Contains(named, name) && !slices.ContainsFunc(passed, func(p string) bool { return strings.HasPrefix(p, name+"=") }) {
			names = append(names, name)
		}
	}
	return names
}
