package discover

import (
	"path/filepath"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// parse reads a file in the format that its name says: TOML, YAML, or JSON,
// where comments and trailing commas are allowed in every product's file. An
// error is a *config.SyntaxError.
func parse(path string, data []byte) (config.Node, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".toml":
		return parseTOML(data)
	case ".yaml", ".yml":
		return parseYAML(data)
	default:
		return config.ParseJSON(data)
	}
}
