package discover

import "github.com/patchbay-mcp/patchbay/config"

// parse reads JSON, where comments and trailing commas are allowed in every
// product's file. An error is a *config.SyntaxError.
func parse(_ string, data []byte) (config.Node, error) {
	return config.ParseJSON(data)
}
