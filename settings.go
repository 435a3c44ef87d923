package patchbay

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
)

// readSettings reads the user's settings and the project's, and makes rules of
// the permissions in both. Damage is reported and leaves the defaults in force.
func (h *Host) readSettings() (config.Settings, []Rule, []config.Problem) {
	if h.opts.StrictConfig {
		return config.Settings{}, nil, nil
	}
	userFile := filepath.Join(h.places.config, "settings.json")
	user, problems := readSettingsFile(userFile)
	rules, bad := permissionRules(user.Permissions, userFile, true)
	problems = append(problems, bad...)

	// A project's settings can only restrict: nothing that comes with a clone
	// may widen what its reader allows.
	projectFile := filepath.Join(h.places.project, ".patchbay", "settings.json")
	project, found := readSettingsFile(projectFile)
	restrictions, bad := permissionRules(project.Permissions, projectFile, false)
	problems = append(append(problems, found...), bad...)
	return user, append(rules, restrictions...), problems
}

func readSettingsFile(path string) (config.Settings, []config.Problem) {
	data, err := atomicfile.Read(path, config.MaxFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Settings{}, nil
	}
	if err != nil {
		return config.Settings{}, []config.Problem{{Severity: config.SeverityError, File: path, Message: err.Error()}}
	}
	node, err := config.ParseJSON(data)
	if syntax, ok := errors.AsType[*config.SyntaxError](err); ok {
		return config.Settings{}, []config.Problem{{Severity: config.SeverityError, File: path, Line: syntax.Line, Column: syntax.Column, Message: syntax.Message}}
	}
	f := config.NewFields(node, path, "")
	return config.DecodeSettings(f), *f.Problems
}
