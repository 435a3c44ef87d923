package patchbay

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
)

// readSettings reads the user's settings. Damage there is reported and leaves
// the defaults in force.
func (h *Host) readSettings() (config.Settings, []config.Problem) {
	path := filepath.Join(h.places.config, "settings.json")
	if h.opts.StrictConfig {
		return config.Settings{}, nil
	}
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
