package discover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// verdict is what a product's file decides about servers it does not itself
// declare. Only decisions against a server are taken over: that somebody
// approved one elsewhere says nothing here.
type verdict struct {
	file      string
	managed   bool     // the file is the administrator's: nothing lifts what it decides
	project   string   // the file is a project's: it decides about that project's entries alone
	providers []string // whose entries it concerns

	// decide changes the entry, or returns why it is off.
	decide func(*config.Entry) (off string)
}

// rule adds a verdict of this file about the entries of its own provider, or of
// the ones named.
func (d *doc) rule(decide func(*config.Entry) string, providers ...string) {
	if len(providers) == 0 {
		providers = []string{d.origin.Provider}
	}
	d.scan.verdicts = append(d.scan.verdicts, verdict{file: d.path, managed: d.origin.Scope == config.ScopeManaged, project: d.origin.Project, providers: providers, decide: decide})
}

func applyVerdicts(e *config.Entry, verdicts []verdict) {
	for _, v := range verdicts {
		if !slices.Contains(v.providers, e.Origin.Provider) || (v.project != "" && v.project != e.Origin.Project) {
			continue
		}
		if off := v.decide(e); off != "" && (e.Off == "" || v.managed && !e.Forbidden) {
			e.Off, e.Forbidden = fmt.Sprintf("%s in %s", off, v.file), v.managed
		}
	}
}

// sourceName is the entry's name as its own product knows it.
func sourceName(e *config.Entry) string {
	if e.Title != "" {
		return e.Title
	}
	return e.Name
}

// listed returns the elements of an array under a member of n, and whether
// there is one; anything else there is reported.
func (d *doc) listed(n config.Node, pointer, member string) (items []config.Node, ok bool) {
	list, ok := n.Get(member)
	if !ok || list.Kind == config.Null {
		return nil, false
	}
	pointer = config.PointerTo(pointer, member)
	if list.Kind != config.Array {
		d.report(config.SeverityWarning, list, pointer, fmt.Sprintf("invalid %q value, ignoring: expected an array, found %s", member, list.Kind), "")
		return nil, false
	}
	if len(list.Items) > maxListed {
		d.report(config.SeverityWarning, list, pointer, fmt.Sprintf("more than %d elements; the rest is ignored", maxListed), "")
		list.Items = list.Items[:maxListed]
	}
	return list.Items, true
}

// names reads a list of names under a member of n; what is no string in it is
// reported and left out. listed tells a list from none.
func (d *doc) names(n config.Node, pointer, member string) (names []string, listed bool) {
	items, listed := d.listed(n, pointer, member)
	for i, it := range items {
		if it.Kind != config.String {
			d.report(config.SeverityWarning, it, config.PointerAt(config.PointerTo(pointer, member), i), fmt.Sprintf("every element of %q must be a string, found %s", member, it.Kind), "")
			continue
		}
		names = append(names, it.Text)
	}
	return names, listed
}

// denyNames switches off the entries on a list of names.
func (d *doc) denyNames(names []string, reason string, concerns func(*config.Entry) bool) {
	if len(names) == 0 {
		return
	}
	denied := make(map[string]bool, len(names))
	for _, name := range names {
		denied[name] = true
	}
	d.rule(func(e *config.Entry) string {
		if concerns != nil && !concerns(e) || !denied[sourceName(e)] {
			return ""
		}
		return reason
	})
}

// wildcard matches text against a pattern in which * stands for anything.
func wildcard(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}
