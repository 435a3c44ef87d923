package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// UseKind is the kind of thing an entry takes from the machine it runs on.
type UseKind string

const (
	UseVariable UseKind = "variable"
	UseFile     UseKind = "file"
	UseInput    UseKind = "input" // an answer of the user
)

// Use is one thing of the host that an entry refers to.
type Use struct {
	Kind   UseKind
	Name   string // of the variable, file or input
	Member string // what it is used for, named for people

	// Sent tells that the value leaves the machine: in the URL, in a header, or
	// to log in.
	Sent bool

	// Optional tells that the entry can do without: there is a default, or the
	// product passes on nothing.
	Optional bool

	// Whole tells that the whole value has the shape of a variable's name: it
	// is the variable where one of that name is set, and plain text elsewhere.
	Whole bool

	windowsOnly bool
}

// Uses returns what an entry refers to in dialect d, sorted by kind, name and
// member. A value that is the name of a variable as a whole counts, where the
// dialect resolves values.
func Uses(s Server, d Dialect) []Use {
	seen := map[Use]bool{}
	add := func(u Use) { seen[u] = true }
	mapStrings(s, func(at Slot, text string) (string, bool) {
		u := Use{Member: at.String(), Sent: at.leavesMachine()}
		for _, p := range d.parse(text) {
			switch p.kind {
			case variable, windowsOnly:
				u.Kind = UseVariable
			case file:
				u.Kind = UseFile
			case input:
				u.Kind = UseInput
			default:
				continue
			}
			u.Name, u.Optional, u.windowsOnly = p.name, p.hasFallback, p.kind == windowsOnly
			add(u)
		}
		if at.resolves(d) && NamesVariable(text) {
			add(Use{Kind: UseVariable, Name: text, Member: u.Member, Sent: u.Sent, Optional: true, Whole: true})
		}
		return text, true
	})
	for _, name := range s.EnvVars {
		add(Use{Kind: UseVariable, Name: name, Member: "envVars", Optional: true})
	}
	for _, header := range slices.Sorted(maps.Keys(s.EnvHeaders)) {
		at := Slot{[]string{"headers", header}, asHeader}
		add(Use{Kind: UseVariable, Name: s.EnvHeaders[header], Member: at.String(), Sent: true})
	}
	if s.BearerTokenEnvVar != "" {
		at := Slot{[]string{"headers", "Authorization"}, asHeader}
		add(Use{Kind: UseVariable, Name: s.BearerTokenEnvVar, Member: at.String(), Sent: true})
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Member, b.Member), compareBool(a.Optional, b.Optional))
	})
}

// References returns the names of the environment variables an entry refers to,
// sorted. A whole value that only might be such a name is not among them.
func References(s Server, d Dialect) []string {
	return variables(Uses(s, d), func(u Use) bool { return !u.Whole })
}

// Unset returns those of the variables that an entry needs and that are not
// set, sorted.
func Unset(s Server, d Dialect, v Vars) []string {
	return variables(Uses(s, d), func(u Use) bool {
		if u.Optional || u.windowsOnly && v.OS != "windows" {
			return false
		}
		if v.Lookup == nil {
			return true
		}
		_, set := v.Lookup(u.Name)
		return !set
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func variables(uses []Use, want func(Use) bool) []string {
	var names []string
	for _, u := range uses {
		if u.Kind == UseVariable && want(u) {
			names = append(names, u.Name)
		}
	}
	return slices.Compact(names)
}

// NamesVariable reports whether a whole value looks like the name of an
// environment variable: capitals, digits and underscores. In files of a project
// only such values are taken for one.
func NamesVariable(value string) bool {
	return value != "" && leadingName(value) == value && strings.ToUpper(value) == value
}

// Executes returns the commands that would run on this machine to obtain values
// of an entry: its headersHelper, and its `!command` values without the
// exclamation mark.
func Executes(s Server, d Dialect) []string {
	var commands []string
	if s.HeadersHelper != "" {
		commands = append(commands, s.HeadersHelper)
	}
	MapValues(s, func(at Slot, value Secret) (Secret, bool) {
		if at.runsInShell(d, value.Reveal()) {
			commands = append(commands, strings.TrimPrefix(value.Reveal(), "!"))
		}
		return value, true
	})
	return commands
}
