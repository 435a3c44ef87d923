package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/config"
)

// Effect is what becomes of a call.
type Effect string

const (
	Allow       Effect = "allow"
	Ask         Effect = "ask"
	Deny        Effect = "deny"
	Passthrough Effect = "passthrough" // no rule is about the tool; never the effect of a rule
)

// Rule is one permission rule. Its pattern is about
//
//	mcp__server  mcp__server__*  server/*    every tool of one server
//	mcp__server__tool  server/tool  server.tool, or the tool's name in any
//	                                         naming style: one tool
//	mcp__*__delete_*                         all whose names fit; not to allow
//
// Names may be written as they are or as mcp__server__tool writes them; see Settle
// for case. A * stands for any text. In a rule that allows it may stand for tools of one
// server only: its pattern begins with that server's name.
type Rule struct {
	Effect  Effect `json:"effect"`
	Pattern string `json:"pattern"`
	Source  string `json:"source,omitempty"` // the file that has it, or who gave it
}

// maxPattern is longer than any name.
const maxPattern = 1024

// NewRule returns a rule, or says why there cannot be such a one.
func NewRule(effect Effect, pattern, source string) (Rule, error) {
	r := Rule{effect, strings.TrimSpace(pattern), source}
	if err := r.Validate(); err != nil {
		return Rule{}, err
	}
	return r, nil
}

// Validate says why there cannot be such a rule. What it rejects allows
// nothing, however the rule was made.
func (r Rule) Validate() error {
	switch {
	case r.Effect != Allow && r.Effect != Ask && r.Effect != Deny:
		return fmt.Errorf("unknown effect %q: a rule allows, asks or denies", r.Effect)
	case r.Pattern == "":
		return fmt.Errorf("%s rule without a pattern: name a tool or a server, as in mcp__github", r.Effect)
	case len(r.Pattern) > maxPattern:
		return fmt.Errorf("%s rule of %d bytes: a pattern has at most %d", r.Effect, len(r.Pattern), maxPattern)
	}
	if err := checkPattern(r.Effect, r.Pattern); err != nil {
		return fmt.Errorf("%s rule %q: %w", r.Effect, config.Escape(r.Pattern), err)
	}
	return nil
}

func checkPattern(effect Effect, pattern string) error {
	if strings.HasSuffix(pattern, ")") && strings.Contains(pattern, "(") {
		return errors.New("rules are about tools, not about their arguments: leave out the parentheses")
	}
	if head, _, glob := strings.Cut(pattern, "*"); glob && effect == Allow && !namesServer(head) {
		return errors.New("in a rule that allows, * stands for tools of one server only: begin with its name, as in mcp__github__* or github/*")
	}
	return nil
}

// namesServer reports whether the text begins with the whole name of a server,
// as far as that can be seen without knowing the servers.
func namesServer(head string) bool {
	if rest, ok := strings.CutPrefix(head, "mcp__"); ok {
		return rest != "" && strings.Contains(rest[1:], "__")
	}
	return strings.Index(head, "/") > 0
}

// Tool is what rules can be about, in all its spellings. They are made once:
// every rule is held against every tool. It does not change.
type Tool struct {
	server, tool string   // as they are called; no server means a tool of ours, which only names name
	names        []string // in every naming style, and the name it is exposed under

	servers   []string // the server's name, as it is and as mcp__server writes it
	tools     []string // the same of the tool's
	spellings []string // everything a wildcard may fit, the server among it: mcp__*-prod means servers

	folded *Tool  // the same in lower case; nil of such a one itself
	plain  bool   // it is all ASCII: what fits it as it is fits it in lower case
	base   *Tool  // what it was before it got the name also
	also   string // nothing if it is as it was made

	known atomic.Pointer[knownFits]
}

// NewTool returns a tool of a server, by all names that rules may have for it.
func NewTool(server, tool string, names []string) *Tool {
	t := newTool(server, tool, names)
	lower := make([]string, len(names))
	for i, name := range names {
		lower[i] = strings.ToLower(name)
	}
	t.folded = newTool(strings.ToLower(server), strings.ToLower(tool), lower)
	t.plain = !strings.ContainsFunc(server+tool, func(r rune) bool { return r >= utf8.RuneSelf })
	return t
}

func newTool(server, tool string, names []string) *Tool {
	t := &Tool{server: server, tool: tool, names: names, spellings: names}
	if server == "" {
		return t
	}
	t.servers, t.tools = written(server), written(tool)
	t.spellings = append(slices.Clone(names), server+"."+tool)
	for _, s := range t.servers {
		t.spellings = append(t.spellings, prefix+s)
		for _, own := range t.tools {
			t.spellings = append(t.spellings, prefix+s+"__"+own, s+"/"+own)
		}
	}
	slices.Sort(t.spellings)
	t.spellings = slices.Compact(t.spellings)
	return t
}

// prefix begins every name of the kind mcp__server__tool.
const prefix = "mcp__"

// written are a name as it is, and as mcp__server__tool writes it.
func written(name string) []string {
	if plain := sanitize(name); plain != name {
		return []string{name, plain}
	}
	return []string{name}
}

// Names are the names that the tool was made with. They are not to be changed.
func (t *Tool) Names() []string { return t.names }

// Also returns the tool with one more name.
func (t *Tool) Also(name string) *Tool {
	if slices.Contains(t.names, name) {
		return t
	}
	with := NewTool(t.server, t.tool, append(slices.Clip(t.names), name))
	with.base, with.also = t, name
	return with
}

// matches reports whether the rule is about the tool. The server part of a
// pattern is never cut out of its text: names may contain whatever separates
// them. Instead the name of the tool's own server must fit it.
func (r Rule) matches(t *Tool) bool {
	p, wild := r.Pattern, strings.Contains(r.Pattern, "*")
	if t.isNamedBy(p) || !wild && slices.Contains(t.names, p) {
		return r.Effect != Allow || r.Validate() == nil
	}
	if !wild || r.Effect == Allow || oneServer(p) {
		return false
	}
	return slices.ContainsFunc(t.spellings, func(name string) bool { return glob(p, name) })
}

// isNamedBy reports whether a pattern begins with the name of the tool's server
// and goes on with nothing or what fits the tool.
func (t *Tool) isNamedBy(p string) bool {
	fits := func(pattern string) bool {
		return slices.ContainsFunc(t.tools, func(tool string) bool { return glob(pattern, tool) })
	}
	full, prefixed := strings.CutPrefix(p, prefix)
	for _, server := range t.servers {
		if rest, ok := strings.CutPrefix(full, server); ok && prefixed {
			if rest == "" {
				return true
			}
			if rest, ok := strings.CutPrefix(rest, "__"); ok && fits(rest) {
				return true
			}
		}
		rest, ok := strings.CutPrefix(p, server)
		if !ok || rest == "" {
			continue
		}
		// A dot is part of many names: where there is a slash, it separates nothing.
		separates := rest[0] == '/' || rest[0] == '.' && !strings.Contains(rest, "/")
		if separates && fits(rest[1:]) {
			return true
		}
	}
	return false
}

// oneServer reports whether a pattern is mcp__server__* or server/* with the
// server spelled out: such a one is about no server with a longer name.
func oneServer(p string) bool {
	head := strings.TrimRight(p, "*")
	return head != p && !strings.Contains(head, "*") && namesServer(head) &&
		(strings.HasPrefix(head, "mcp__") && strings.HasSuffix(head, "__") || strings.Index(head, "/") == len(head)-1)
}

// Names reports whether the pattern begins with the name of a server, in whatever
// case.
func (r Rule) Names(server string) bool {
	r.Pattern = strings.ToLower(r.Pattern)
	return r.names(written(strings.ToLower(server)))
}

// anyServer reports whether the pattern names no server in particular.
func (r Rule) anyServer() bool {
	head, _, wild := strings.Cut(r.Pattern, "*")
	return wild && !namesServer(head)
}

// coversServer reports whether the rule is about every tool of a server,
// whatever they are called.
func (r Rule) coversServer(server string) bool {
	return slices.ContainsFunc(written(server), r.coversWritten)
}

func (r Rule) coversWritten(server string) bool {
	p, name := r.Pattern, prefix+server
	switch {
	case p == name:
		return true
	case !strings.Contains(p, "*"):
		return false
	case oneServer(p):
		head := strings.TrimRight(p, "*")
		return head == name+"__" || head == server+"/"
	}
	// What ends in * and fits the beginning of every name fits every name.
	open := strings.HasSuffix(p, "*")
	return glob(p, name) || open && (glob(p, name+"__") || glob(p, server+"/") || glob(p, server+"."))
}

// names reports whether the pattern begins with the name of a server, in one of
// the ways it is written.
func (r Rule) names(written []string) bool {
	return slices.ContainsFunc(written, func(s string) bool {
		if rest, ok := strings.CutPrefix(r.Pattern, prefix+s); ok && (rest == "" || strings.HasPrefix(rest, "__")) {
			return true
		}
		rest, ok := strings.CutPrefix(r.Pattern, s)
		return ok && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, ".") && !strings.Contains(r.Pattern, "/"))
	})
}

// sanitize writes a name the way mcp__server__tool does.
func sanitize(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool { return !isPlain(r) }) {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		switch {
		case isPlain(r):
			b.WriteRune(r)
		case r > 0xffff: // two units where the rule was made
			b.WriteString("__")
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

// isPlain reports whether a character may be in any name.
func isPlain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}

// glob reports whether a pattern fits a whole text; a * fits any part of it.
func glob(pattern, text string) bool {
	p, i := 0, 0
	star, resume := -1, 0 // the last * passed, and where in the text what follows it is to be tried next
	for i < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, i
			p++
		case p < len(pattern) && pattern[p] == text[i]:
			p++
			i++
		case star >= 0:
			resume++
			p, i = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
