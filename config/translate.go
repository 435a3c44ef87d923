package config

import "strings"

// Translate rewrites a server's placeholders from dialect d to Patchbay's own,
// so that the entry means the same in our files as in its own. The second
// result names the members for which that is not possible: their text is kept,
// and somebody has to look at them.
func Translate(s Server, d Dialect) (out Server, unclear []string) {
	out = mapStrings(s, func(at Slot, text string) (string, bool) {
		if d == DialectPatchbay || at.runsInShell(d, text) {
			return text, true
		}
		ok := true
		var b strings.Builder
		for _, p := range d.parse(text) {
			t, clear := p.native(dialects[d])
			// A dollar sign before a placeholder would make it literal.
			collides := strings.HasSuffix(b.String(), "$") && strings.HasPrefix(t, "${")
			ok = ok && clear && !collides
			b.WriteString(t)
		}
		// In our files such a value is looked up or run; in its own it was text.
		if !d.ResolvesValues() && at.resolves(DialectPatchbay) && (strings.HasPrefix(text, "!") || NamesVariable(text)) {
			ok = false
		}
		if !ok {
			unclear = append(unclear, at.String())
		}
		return b.String(), true
	})
	return out, unclear
}

// native renders one part of a value of grammar g in Patchbay's own dialect.
func (p part) native(g grammar) (text string, clear bool) {
	quote := func(s string) string { return strings.ReplaceAll(s, "${", "$${") }
	switch p.kind {
	case literal:
		return quote(p.text), true
	case escape:
		return quote(p.name), true
	case variable:
		switch {
		case leadingName(p.name) != p.name: // which we cannot write
			return quote(p.text), false
		case p.hasFallback:
			return "${" + p.name + ":-" + p.fallback + "}", !strings.ContainsAny(p.fallback, "{}$")
		case g.unset == emptyText:
			return "${" + p.name + ":-}", true
		}
		return "${" + p.name + "}", true
	case workspaceRoot:
		return "${workspaceRoot}", true
	case userHome:
		return "${HOME}", true
	}
	return quote(p.text), false
}
