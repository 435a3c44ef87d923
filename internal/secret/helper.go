package secret

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// RunHeadersHelper runs the headersHelper of a server, if it has one, and
// returns the server with the headers it prints, which override the server's
// own. The helper runs anew each time: what it prints is meant to be fresh.
func (r *Resolver) RunHeadersHelper(ctx context.Context, name string, s config.Server) (config.Server, error) {
	if s.HeadersHelper == "" {
		return s, nil
	}
	out, err := r.shell(ctx, s.HeadersHelper, "CLAUDE_CODE_MCP_SERVER_NAME="+name, "CLAUDE_CODE_MCP_SERVER_URL="+s.URL)
	if err != nil {
		return s, fmt.Errorf("headersHelper: %w", err)
	}
	headers, err := parseHeaders(out)
	if err != nil {
		return s, fmt.Errorf("headersHelper: %w", err)
	}
	s.Headers = maps.Clone(s.Headers)
	for header, value := range headers {
		setHeader(&s, header, value)
	}
	return s, nil
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// parseHeaders reads what a helper printed. Its errors quote nothing of it.
func parseHeaders(out []byte) (map[string]config.Secret, error) {
	var values map[string]string
	if err := json.Unmarshal(out, &values); err != nil || values == nil {
		return nil, errors.New("it did not print a JSON object of strings")
	}
	headers := make(map[string]config.Secret, len(values))
	for name, value := range values {
		if !headerName.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return nil, errors.New("it printed something that cannot be a header")
		}
		headers[name] = config.NewSecret(value)
	}
	return headers, nil
}
