package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Verdict is what rules say about a call of a tool.
type Verdict struct {
	Effect Effect `json:"effect"`
	Rule   *Rule  `json:"rule,omitempty"` // what decided; nil for Passthrough
	Reason string `json:"reason"`         // one sentence for people
}

// Decide applies all rules to a tool: those given, which are about it, and the
// permission_policy of the server's own entry. Deny wins over ask and ask over allow, in whatever
// order they come. A project's entry may restrict but not allow. What a server
// says about its own tools plays no part.
func Decide(t *Tool, about []*Rule, e config.Entry) Verdict {
	own, ignored := entryRules(t, e.Server.Tools, cmp.Or(fileLine(e.Origin), "entry"), e.Origin.Project != "")
	for _, effect := range []Effect{Deny, Ask, Allow} {
		if r := firstOf(effect, about, own); r != nil {
			return Verdict{effect, r, r.reason()}
		}
	}
	reason := "no rule is about it"
	if ignored {
		reason += ", as " + config.Escape(fileLine(e.Origin)) + " cannot allow it: a project does not give permission"
	}
	return Verdict{Passthrough, nil, reason}
}

// firstOf returns the first rule of that effect, or nil.
func firstOf(effect Effect, about []*Rule, own []Rule) *Rule {
	for _, r := range about {
		if r.Effect == effect {
			return r
		}
	}
	for i := range own {
		if own[i].Effect == effect {
			return &own[i]
		}
	}
	return nil
}

// entryRules returns what an entry's own rules say about one of its tools, and
// whether a wish to allow it was ignored.
func entryRules(t *Tool, rules []config.ToolRule, source string, project bool) (own []Rule, ignored bool) {
	for _, tr := range rules {
		if tr.PermissionPolicy == "" || !glob(tr.Name, t.tool) {
			continue
		}
		r := Rule{Deny, t.server + "/" + tr.Name, source}
		switch tr.PermissionPolicy {
		case config.AlwaysAllow:
			r.Effect = Allow
		case config.AlwaysAsk:
			r.Effect = Ask
		} // what nobody understands must not let calls pass
		if r.Effect == Allow && project {
			ignored = true
			continue
		}
		own = append(own, r)
	}
	return own, ignored
}

func (r Rule) reason() string {
	reason := "the rule " + config.Escape(r.Pattern)
	if r.Source != "" {
		reason += " in " + config.Escape(r.Source)
	}
	switch r.Effect {
	case Allow:
		return reason + " allows it"
	case Ask:
		return reason + " wants it asked about"
	default:
		return reason + " denies it"
	}
}

// Shown is a list of the tools that are visible.
type Shown struct {
	Patterns []string // nil means all, empty none
	Source   string   // the file that has it; empty means whoever asks
}

// CheckShown says why a pattern of visible tools shows none.
func CheckShown(pattern string) error {
	pattern = strings.TrimSpace(pattern)
	switch {
	case pattern == "":
		return errors.New("an empty text shows no tool: name a tool or a server, as in mcp__github")
	case len(pattern) > maxPattern:
		return fmt.Errorf("a text of %d bytes shows no tool: a pattern has at most %d", len(pattern), maxPattern)
	}
	if err := checkPattern(Ask, pattern); err != nil {
		return fmt.Errorf("%q shows no tool: %w", config.Escape(pattern), err)
	}
	return nil
}

// Hidden reports whether a tool is left out of every list, and why: its entry
// leaves it out, a rule about it denies it, or one of the lists of what is visible does
// not have it.
func Hidden(t *Tool, about []*Rule, server config.Server, shown ...Shown) (reason string, hidden bool) {
	fits := func(pattern string) bool { return glob(pattern, t.tool) }
	if i := slices.IndexFunc(server.DisabledTools, fits); i >= 0 {
		return "disabledTools of its entry has " + config.Escape(server.DisabledTools[i]), true
	}
	if server.EnabledTools != nil && !slices.ContainsFunc(server.EnabledTools, fits) {
		return "enabledTools of its entry does not have it", true
	}
	own, _ := entryRules(t, server.Tools, "entry", false)
	if r := firstOf(Deny, about, own); r != nil {
		return r.reason(), true
	}
	shows := func(pattern string) bool { return Rule{Ask, strings.TrimSpace(pattern), ""}.matches(t) }
	for _, list := range shown {
		switch {
		case list.Patterns == nil || slices.ContainsFunc(list.Patterns, shows):
		case list.Source != "":
			return "tools in " + config.Escape(list.Source) + " does not have it", true
		default:
			return "it is not among the tools that are visible", true
		}
	}
	return "", false
}

// MissingToolRules returns what an entry says about tools that a catalog does
// not have: misspelt names, most likely. Names are the catalog's tools as the
// server calls them.
func MissingToolRules(server config.Server, names []string) []string {
	wanted := slices.Concat(server.EnabledTools, server.DisabledTools)
	for _, r := range server.Tools {
		wanted = append(wanted, r.Name)
	}
	var missing []string
	for _, pattern := range wanted {
		fits := func(name string) bool { return glob(pattern, name) }
		if !slices.ContainsFunc(names, fits) && !slices.Contains(missing, pattern) {
			missing = append(missing, pattern)
		}
	}
	return missing
}
