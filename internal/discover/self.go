package discover

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// SkipItself is the reason given for an entry that would connect Patchbay to
// itself.
const SkipItself = "this is Patchbay itself"

// endpoint is an address that Patchbay serves.
type endpoint struct{ host, path string }

func parseEndpoints(further []string) []endpoint {
	var out []endpoint
	for _, raw := range append([]string{"http://127.0.0.1:7332/mcp"}, further...) {
		if e, ok := parseEndpoint(raw); ok {
			out = append(out, e)
		}
	}
	return out
}

func parseEndpoint(raw string) (endpoint, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return endpoint{}, false
	}
	host := strings.ToLower(u.Host)
	if config.IsLoopback(u.Hostname()) { // by whichever of its names
		host = "localhost:" + u.Port()
	}
	return endpoint{host, strings.TrimSuffix(u.Path, "/")}, true
}

// itself says why a server is skipped when it is Patchbay, and nothing
// otherwise: a gateway that lists itself among its servers never ends.
func (s *scan) itself(server config.Server) string {
	if e, ok := parseEndpoint(server.URL); ok && server.URL != "" {
		for _, ours := range s.endpoints {
			if e.host == ours.host && (e.path == ours.path || strings.HasPrefix(e.path, ours.path+"/")) {
				return SkipItself
			}
		}
		// Another port of this machine: what `patchbay install` writes has a token.
		if u, err := url.Parse(server.URL); err == nil && config.IsLoopback(u.Hostname()) && servesGateway(server.URL) && strings.HasPrefix(server.Headers["Authorization"].Reveal(), "Bearer "+config.GatewayTokenPrefix) {
			return SkipItself
		}
	}
	command, args := unwrap(server.Command, server.Args)
	if s.executable != nil && filepath.IsAbs(command) && !Remote(s.env.OS, command) {
		if info, err := os.Stat(command); err == nil && os.SameFile(info, s.executable) {
			return SkipItself
		}
	}
	if isOurName(command) && slices.ContainsFunc(args, servesMCP) {
		return SkipItself
	}
	return ""
}

// unwrap looks through programs that only start another one.
func unwrap(command string, args []string) (string, []string) {
	for range 4 { // nobody nests deeper
		switch base(command) {
		case "env":
			i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") && !strings.Contains(a, "=") })
			if i < 0 {
				return command, args
			}
			command, args = args[i], args[i+1:]
		case "go":
			if len(args) == 0 || args[0] != "run" {
				return command, args
			}
			i := slices.IndexFunc(args[1:], func(a string) bool { return !strings.HasPrefix(a, "-") })
			if i < 0 {
				return command, args
			}
			target, _, _ := strings.Cut(args[i+1], "@")
			command, args = target, args[i+2:]
		default:
			return command, args
		}
	}
	return command, args
}

func isOurName(command string) bool { return base(command) == "patchbay" }

// base is the last element of a path written with either kind of slash, without
// the suffix of Windows programs.
func base(command string) string {
	command = strings.TrimRight(command, `/\`)
	if i := strings.LastIndexAny(command, `/\`); i >= 0 {
		command = command[i+1:]
	}
	return strings.TrimSuffix(strings.ToLower(command), ".exe")
}

// servesMCP reports whether an argument is a subcommand that makes us a server.
func servesMCP(arg string) bool {
	switch arg {
	case "serve", "code", "gateway", "mcp", "stdio":
		return true
	}
	return false
}
