package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// HookEvent is a moment at which hooks run.
type HookEvent string

// The events, by the names that other products have for them too.
const (
	PreToolUse        HookEvent = "PreToolUse"        // before a tool is called
	PostToolUse       HookEvent = "PostToolUse"       // after a tool has answered
	Elicitation       HookEvent = "Elicitation"       // before a person is asked what a server wants to know
	ElicitationResult HookEvent = "ElicitationResult" // before the answer goes to the server
	Notification      HookEvent = "Notification"      // something has happened
)

// hookEvents are all events.
var hookEvents = []HookEvent{PreToolUse, PostToolUse, Elicitation, ElicitationResult, Notification}

// Hooks are commands that run when something happens.
type Hooks struct {
	PreToolUse        []HookGroup `json:"PreToolUse,omitempty"`
	PostToolUse       []HookGroup `json:"PostToolUse,omitempty"`
	Elicitation       []HookGroup `json:"Elicitation,omitempty"`
	ElicitationResult []HookGroup `json:"ElicitationResult,omitempty"`
	Notification      []HookGroup `json:"Notification,omitempty"`
}

// Of returns the hooks of an event.
func (h Hooks) Of(event HookEvent) []HookGroup { return *h.of(event) }

func (h *Hooks) of(event HookEvent) *[]HookGroup {
	switch event {
	case PreToolUse:
		return &h.PreToolUse
	case PostToolUse:
		return &h.PostToolUse
	case Elicitation:
		return &h.Elicitation
	case ElicitationResult:
		return &h.ElicitationResult
	default:
		return &h.Notification
	}
}

// All iterates over the hooks of all events.
func (h Hooks) All() func(yield func(HookEvent, HookGroup) bool) {
	return func(yield func(HookEvent, HookGroup) bool) {
		for _, event := range hookEvents {
			for _, g := range h.Of(event) {
				if !yield(event, g) {
					return
				}
			}
		}
	}
}

// HookGroup is hooks that are about the same tools, servers or notifications.
type HookGroup struct {
	Matcher string        `json:"matcher,omitempty"` // see ParseHookMatcher
	Hooks   []HookCommand `json:"hooks"`
}

// HookCommand is a command line for a shell. It is told of the event on its
// standard input.
type HookCommand struct {
	Type    string `json:"type"` // command: there is no other
	Command string `json:"command"`
	Timeout int    `json:"timeout,omitempty"` // seconds; 0 means 60

	Line int `json:"-" hash:"-"` // where it is declared

	// Invalid says why it cannot run. It was meant to guard something, so it is
	// not as if it were not there.
	Invalid string `json:"-"`
}

const (
	hookTypeCommand = "command"
	maxHookTimeout  = 3600 // seconds
)

// HookMatcher says what hooks are about.
type HookMatcher struct {
	exact   []string       // nil if it is a pattern
	pattern *regexp.Regexp // nil with exact nil means everything
}

var exactMatcher = regexp.MustCompile(`^[A-Za-z0-9_|]+$`)

// maxHookMatcher bounds a matcher, which may be a project's.
const maxHookMatcher = 4096

// ParseHookMatcher reads a matcher. Nothing and * mean everything. Letters,
// digits and underscores are a name, several are divided by |. Anything else is
// a regular expression that fits if it fits any part of a name.
func ParseHookMatcher(text string) (HookMatcher, error) {
	switch {
	case text == "" || text == "*":
		return HookMatcher{}, nil
	case len(text) > maxHookMatcher:
		return HookMatcher{}, fmt.Errorf("a matcher has at most %d characters", maxHookMatcher)
	case exactMatcher.MatchString(text):
		return HookMatcher{exact: strings.Split(text, "|")}, nil
	}
	pattern, err := regexp.Compile(text)
	return HookMatcher{pattern: pattern}, err
}

// Fits reports whether the matcher fits any of the names of one thing.
func (m HookMatcher) Fits(names ...string) bool {
	switch {
	case m.pattern != nil:
		return slices.ContainsFunc(names, m.pattern.MatchString)
	case m.exact != nil:
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(m.exact, name) })
	}
	return true
}

// decodeHooks reads the hooks of settings. What cannot be understood is kept as
// hooks that are invalid, for everything they may have been about.
func decodeHooks(f *Fields) (h Hooks) {
	n, ok := f.Take("hooks")
	if !ok {
		return h
	}
	if n.Kind != Object {
		f.wrongType("hooks", Object.String(), n, SeverityError)
		h.PreToolUse = invalidHooks(n, "the hooks are no object")
		return h
	}
	events := f.at(n, PointerTo(f.Pointer, "hooks"))
	for _, event := range hookEvents {
		*h.of(event) = decodeHookGroups(events, event)
	}
	for _, name := range slices.Sorted(maps.Keys(events.Rest())) {
		events.Report(SeverityWarning, name, fmt.Sprintf("unknown event %q: its hooks never run", name), "expected one of "+joinEvents())
	}
	return h
}

func joinEvents() string {
	var names []string
	for _, e := range hookEvents {
		names = append(names, string(e))
	}
	return strings.Join(names, ", ")
}

func invalidHooks(n Node, reason string) []HookGroup {
	return []HookGroup{{Hooks: []HookCommand{{Line: n.Line, Invalid: reason}}}}
}

func decodeHookGroups(f *Fields, event HookEvent) (groups []HookGroup) {
	n, ok := f.Take(string(event))
	if !ok {
		return nil
	}
	if n.Kind != Array {
		f.wrongType(string(event), Array.String(), n, SeverityError)
		return invalidHooks(n, string(event)+" is no array")
	}
	for i, item := range n.Items {
		g := f.at(item, PointerAt(PointerTo(f.Pointer, string(event)), i))
		if item.Kind != Object {
			g.Report(SeverityError, "", fmt.Sprintf("every element of %q must be an object, found %s", event, item.Kind), "")
			groups = append(groups, invalidHooks(item, "it is no object")...)
			continue
		}
		groups = append(groups, decodeHookGroup(g))
	}
	return groups
}

func decodeHookGroup(f *Fields) HookGroup {
	var g HookGroup
	wrong := ""
	if m, ok := f.Take("matcher"); ok && m.Kind != String {
		f.wrongType("matcher", String.String(), m, SeverityError)
		wrong = "its matcher is no string"
	} else if _, err := ParseHookMatcher(m.Text); err != nil {
		f.Report(SeverityError, "matcher", "matcher: "+err.Error(), "expected a name, names divided by |, or a regular expression")
		wrong = "its matcher cannot be understood"
	} else {
		g.Matcher = m.Text
	}
	list, ok := f.Take("hooks")
	switch {
	case !ok:
		f.Report(SeverityError, "", `"hooks" is missing`, "expected an array of commands")
		g.Hooks = []HookCommand{{Line: f.Node.Line, Invalid: "it has no command"}}
	case list.Kind != Array:
		f.wrongType("hooks", Array.String(), list, SeverityError)
		g.Hooks = []HookCommand{{Line: list.Line, Invalid: "it has no command"}}
	}
	for i, item := range list.Items {
		c := decodeHookCommand(f.at(item, PointerAt(PointerTo(f.Pointer, "hooks"), i)))
		if wrong != "" {
			c.Invalid = wrong
		}
		g.Hooks = append(g.Hooks, c)
	}
	f.reportUnknown()
	return g
}

func decodeHookCommand(f *Fields) HookCommand {
	c := HookCommand{Line: f.Node.Line}
	invalid := func(member, message string) {
		f.Report(SeverityError, member, message, "")
		c.Invalid = message
	}
	if f.Node.Kind != Object {
		invalid("", "a hook must be an object, found "+f.Node.Kind.String())
		return c
	}
	before := len(*f.Problems)
	c.Type, c.Command, c.Timeout = f.String("type"), f.String("command"), f.Int("timeout", 1, maxHookTimeout)
	switch {
	case len(*f.Problems) > before:
		c.Invalid = (*f.Problems)[before].Message
	case c.Type != hookTypeCommand:
		invalid("type", fmt.Sprintf("unknown type of hook %q: expected %q", c.Type, hookTypeCommand))
	case strings.TrimSpace(c.Command) == "":
		invalid("command", `a hook needs a "command"`)
	}
	f.reportUnknown()
	return c
}
