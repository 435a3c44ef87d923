package bridge

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Ref is the identity of a tool: the server that has it and the name that the
// server gave it.
type Ref struct {
	Server string `json:"server"`
	Tool   string `json:"tool"`
}

// String returns the pair as people write it.
func (r Ref) String() string {
	if r.Server == "" {
		return r.Tool // one of ours
	}
	return r.Server + "/" + r.Tool
}

// styles are all renderings of a pair; the first is the default.
var styles = [...]config.NamingStyle{config.NamingClaude, config.NamingXcsh, config.NamingOMP, config.NamingPlain}

// Renderings returns all the ways to write a tool, without regard to others.
func Renderings(r Ref) []string {
	forms := []string{r.Server + "/" + r.Tool, r.Server + "." + r.Tool}
	for _, style := range styles {
		forms = append(forms, Render(style, r))
	}
	return forms
}

// Render returns the plain name of a tool in a style; an unknown style is
// claude. It knows neither other tools nor a limit, so two tools may have the
// same plain name and it may be of any length: Names takes care of both.
func Render(style config.NamingStyle, r Ref) string {
	switch style {
	case config.NamingXcsh:
		server, tool := reducedPair(r, false)
		return "mcp_" + server + "_" + tool
	case config.NamingOMP:
		server, tool := reducedPair(r, true)
		return "mcp__" + server + "_" + tool
	case config.NamingPlain:
		return safe(r.Server) + "__" + safe(r.Tool)
	default:
		return "mcp__" + safe(r.Server) + "__" + safe(r.Tool)
	}
}

// joined is Render without changing anything in either part.
func joined(style config.NamingStyle, r Ref) string {
	switch style {
	case config.NamingXcsh:
		return "mcp_" + r.Server + "_" + r.Tool
	case config.NamingOMP:
		return "mcp__" + r.Server + "_" + r.Tool
	case config.NamingPlain:
		return r.Server + "__" + r.Tool
	default:
		return "mcp__" + r.Server + "__" + r.Tool
	}
}

// begins reports whether a name may be that of a tool of a server, whatever the
// server has, and whether the server's part of it is written as the server is.
func begins(name, server string) (fit, bool) {
	plain := strings.TrimPrefix(name, "mcp__")
	switch {
	case server == "":
		return 0, false
	case separated(plain, server, "__"), separated(name, server, "__"), separated(name, server, "/"), separated(name, server, "."):
		return exact, true
	}
	written := safe(server)
	return altered, separated(plain, written, "__") || separated(name, written, "__")
}

// separated reports whether text is of two parts, of which the first is head.
func separated(text, head, separator string) bool {
	rest, ok := strings.CutPrefix(text, head)
	return ok && len(rest) > len(separator) && strings.HasPrefix(rest, separator)
}

// Begins reports whether a name, in whichever style, may be that of a tool of a
// server.
func Begins(name, server string) bool {
	if _, ok := begins(name, server); ok {
		return true
	}
	for _, style := range []config.NamingStyle{config.NamingXcsh, config.NamingOMP} {
		head := strings.TrimSuffix(Render(style, Ref{Server: server, Tool: "tool"}), "_tool")
		if separated(name, head, "_") {
			return true
		}
	}
	return false
}

// safe replaces what a name must not contain. The products that made the rule
// count UTF-16 units, so a character outside the basic plane becomes two.
func safe(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, c := range s {
		switch {
		case isNameByte(c):
			b.WriteByte(byte(c))
		case c > 0xffff:
			b.WriteString("__")
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

func isNameByte(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// reducedPair reduces both names and takes the name of the server, if the tool
// repeats it, off the tool once.
func reducedPair(r Ref, digits bool) (server, tool string) {
	server, tool = reduced(r.Server, "server", digits), reduced(r.Tool, "tool", digits)
	return server, strings.TrimPrefix(tool, server+"_")
}

// reduced keeps lower-case letters, and digits if asked to; each run of
// anything else becomes one underscore, and none is left at either end.
func reduced(s, fallback string, digits bool) string {
	// The one capital whose lower case starts with an ASCII letter and goes on:
	// Unicode says i and a combining dot, Go's mapping by character says i.
	s = strings.ReplaceAll(s, "\u0130", "i\u0307")
	var b strings.Builder
	gap := false
	for _, c := range strings.ToLower(s) {
		if 'a' <= c && c <= 'z' || digits && '0' <= c && c <= '9' {
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			b.WriteByte(byte(c))
			gap = false
		} else {
			gap = true
		}
	}
	if b.Len() == 0 {
		return fallback
	}
	return b.String()
}
