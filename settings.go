package patchbay

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/discover"
	"github.com/patchbay-mcp/patchbay/internal/policy"
)

// settings is what the settings files say.
type settings struct {
	user     config.Settings
	project  config.Settings // only restrictions, which are among the rules, and hooks that need approval
	rules    []Rule
	shown    []policy.Shown // what of the tools is visible
	files    []SourceFile   // those that exist
	problems []config.Problem
	good     map[string]goodSettings // by file: what it said when it could last be read
}

// goodSettings is what one file says.
type goodSettings struct {
	settings config.Settings
	rules    []Rule
}

// readSettings reads the user's settings and the project's, and makes rules of
// the permissions in both. Damage is reported. A file that was good before goes
// on saying what it said; of any other, what it might have denied is asked about.
func (h *Host) readSettings() settings {
	s := settings{good: map[string]goodSettings{}}
	var last map[string]goodSettings
	if r := h.reading.Load(); r != nil {
		last = r.goodSettings
	}
	s.user = s.read(h.places().userSettings(), config.ScopeUser, last)
	// A project's settings can only restrict: nothing that comes with a clone
	// may widen what its reader allows.
	if file := h.places().projectSettings(); !s.foreign(file) {
		s.project = s.read(file, config.ScopeProject, last)
	}
	for _, id := range s.user.Discovery.DisabledProviders {
		if !slices.ContainsFunc(Providers(), func(p Provider) bool { return p.ID == id }) {
			s.problems = append(s.problems, config.Problem{
				Severity: config.SeverityWarning, File: s.files[0].Path, Pointer: "/discovery/disabledProviders",
				Message: fmt.Sprintf("no product has the id %q", id),
			})
		}
	}
	return s
}

// UserSettings returns what the user's settings file says to a host opened with
// these options; of one that is damaged, nothing. A host reports the damage.
func (o Options) UserSettings() (config.Settings, error) {
	o, err := o.withDefaults()
	if err != nil {
		return config.Settings{}, err
	}
	p, err := findPlaces(o)
	if err != nil {
		return config.Settings{}, err
	}
	s := settings{good: map[string]goodSettings{}}
	return s.read(p.userSettings(), config.ScopeUser, nil), nil
}

// foreign reports whether a file of the project is another user's, who is not to
// decide what happens here, and says so.
func (s *settings) foreign(path string) bool {
	info, err := os.Stat(path)
	if err != nil || ownedByUser(info) {
		return false
	}
	p := config.Problem{Severity: config.SeverityWarning, File: path, Message: "these settings of the project are ignored: the file belongs to another user"}
	s.problems = append(s.problems, p)
	return true
}

// read takes in one file, if it exists.
func (s *settings) read(path string, scope config.Scope, last map[string]goodSettings) config.Settings {
	data, err := atomicfile.Read(path, config.MaxFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Settings{}
	}
	file := SourceFile{Path: path, Provider: nativeProvider, Product: "Patchbay", Scope: scope, Status: discover.Read}
	read, wasGood := last[path]
	if err != nil {
		file.Status = discover.Unreadable
		file.Problems = []config.Problem{{Severity: config.SeverityError, File: path, Message: err.Error()}}
	} else if node, err := config.ParseJSON(data); err != nil {
		file.Status = discover.Invalid
		p := config.Problem{Severity: config.SeverityError, File: path, Message: err.Error()}
		if syntax, ok := errors.AsType[*config.SyntaxError](err); ok {
			p.Line, p.Column, p.Message = syntax.Line, syntax.Column, syntax.Message
		}
		file.Problems = []config.Problem{p}
	} else {
		f := config.NewFields(node, path, "")
		read.settings = config.DecodeSettings(f)
		rules, bad := permissionRules(read.settings.Permissions, path, scope == config.ScopeUser)
		bad = append(bad, checkShown(read.settings.Tools)...)
		for i := range bad {
			bad[i] = f.Locate(bad[i])
		}
		file.Problems = slices.Concat(*f.Problems, bad)
		read.rules = rules
	}
	if file.Status == discover.Read || wasGood {
		s.good[path] = read
		s.rules = append(s.rules, read.rules...)
		s.shown = append(s.shown, policy.Shown{Patterns: read.settings.Tools, Source: path})
	} else {
		s.rules = append(s.rules, Rule{Effect: Ask, Pattern: "*", Source: path + ", which is damaged,"})
	}
	s.files = append(s.files, file)
	s.problems = append(s.problems, file.Problems...)
	return read.settings
}

// checkShown reports the patterns that are about nothing.
func checkShown(patterns []string) (problems []config.Problem) {
	for i, pattern := range patterns {
		if err := policy.CheckShown(pattern); err != nil {
			problems = append(problems, config.Problem{
				Severity: config.SeverityError, Pointer: config.PointerAt("/tools", i), Message: err.Error(),
			})
		}
	}
	return problems
}

// notServed reports what of the gateway's settings the program does not know of.
func (h *Host) notServed(now config.Gateway) (problems []config.Problem) {
	if h.reading.Load() == nil {
		h.serving = now
	}
	was := h.serving
	if len(h.served) > 0 {
		now.Listen = was.Listen
	}
	for _, member := range []struct {
		name string
		same bool
	}{
		{"memory", was.MemoryLimit() == now.MemoryLimit()},
		{"listen", cmp.Or(was.Listen, config.DefaultListen) == cmp.Or(now.Listen, config.DefaultListen)},
		{"url", was.URL == now.URL},
		{"oidc", reflect.DeepEqual(was.OIDC, now.OIDC)},
		{"allowedHosts", slices.Equal(was.AllowedHosts, now.AllowedHosts)},
		{"allowedOrigins", slices.Equal(was.AllowedOrigins, now.AllowedOrigins)},
	} {
		if h.opts.Serves && !member.same {
			problems = append(problems, config.Problem{
				Severity: config.SeverityWarning, File: h.places().userSettings(), Pointer: "/gateway/" + member.name,
				Message: "changed while the gateway runs, which goes on as it was until it is started again",
			})
		}
	}
	return problems
}

// Settings returns what the user's settings say.
func (h *Host) Settings() config.Settings { return h.reading.Load().settings }
