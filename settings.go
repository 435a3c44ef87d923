package patchbay

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// settings is what the settings files say.
type settings struct {
	user     config.Settings // the project's has only restrictions, which are among the rules
	rules    []Rule
	files    []SourceFile // those that exist
	problems []config.Problem
	damaged  bool // a file cannot be read
}

// readSettings reads the user's settings and the project's, and makes rules of
// the permissions in both. Damage is reported, and allows nothing: what the file
// might have denied is asked about.
func (h *Host) readSettings() settings {
	var s settings
	if h.opts.StrictConfig {
		return s
	}
	s.user = s.read(filepath.Join(h.places.config, "settings.json"), config.ScopeUser)
	// A project's settings can only restrict: nothing that comes with a clone
	// may widen what its reader allows.
	s.read(filepath.Join(h.places.project, ".patchbay", "settings.json"), config.ScopeProject)
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

// read takes in one file, if it exists.
func (s *settings) read(path string, scope config.Scope) config.Settings {
	data, err := atomicfile.Read(path, config.MaxFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Settings{}
	}
	file := SourceFile{Path: path, Provider: nativeProvider, Product: "Patchbay", Scope: scope, Status: discover.Read}
	var read config.Settings
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
		read = config.DecodeSettings(f)
		rules, bad := permissionRules(read.Permissions, path, scope == config.ScopeUser)
		file.Problems = append(*f.Problems, bad...)
		s.rules = append(s.rules, rules...)
	}
	if file.Status != discover.Read {
		s.damaged = true
		s.rules = append(s.rules, Rule{Effect: Ask, Pattern: "*", Source: path + ", which is damaged,"})
	}
	s.files = append(s.files, file)
	s.problems = append(s.problems, file.Problems...)
	return read
}

// Settings returns what the user's settings say.
func (h *Host) Settings() config.Settings { return h.reading.Load().settings }
