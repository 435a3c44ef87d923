package config

import (
	"slices"
	"strings"
	"testing"
)

func TestHookMatcher(t *testing.T) {
	for matcher, tt := range map[string]struct{ fits, not []string }{
		"":                             {fits: []string{"x", ""}},
		"*":                            {fits: []string{"x", ""}},
		"mcp__a__b":                    {fits: []string{"mcp__a__b"}, not: []string{"mcp__a__bc", "xmcp__a__b", ""}},
		"mcp__a__b|mcp__c":             {fits: []string{"mcp__a__b", "mcp__c"}, not: []string{"mcp__a", "mcp__a__b|mcp__c", "mcp__c__d"}},
		"mcp__a__.*":                   {fits: []string{"mcp__a__b"}, not: []string{"mcp__ab__c"}},
		"^mcp__a-b__(x|y)$":            {fits: []string{"mcp__a-b__x"}, not: []string{"mcp__a-b__xy"}},
		"a/b":                          {fits: []string{"a/b", "xa/bx"}, not: []string{"a__b"}},
		"mcp__.*__write.*|mcp__only__": {fits: []string{"mcp__a__write_file", "mcp__only__x"}, not: []string{"mcp__a__read"}},
	} {
		m, err := ParseHookMatcher(matcher)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range tt.fits {
			if !m.Fits("something else", name) {
				t.Errorf("%q does not fit %q", matcher, name)
			}
		}
		for _, name := range tt.not {
			if m.Fits(name) {
				t.Errorf("%q fits %q", matcher, name)
			}
		}
	}
	for _, bad := range []string{"mcp__(", "(?!x)", strings.Repeat("x.", maxHookMatcher)} {
		if _, err := ParseHookMatcher(bad); err == nil {
			t.Errorf("%.20q is a matcher", bad)
		}
	}
}

// What a hook was meant to guard is not left open because its settings are
// wrong: each place that cannot be understood leaves a hook that is invalid.
func TestInvalidHooks(t *testing.T) {
	for text, want := range map[string]struct{ problem, invalid string }{
		`{"hooks": [1]}`: {
			`error: settings.json:1:11: "hooks" must be an object, found an array (at /hooks)`, "the hooks are no object"},
		`{"hooks": {"PreToolUse": "x"}}`: {
			`error: settings.json:1:26: "PreToolUse" must be an array, found a string (at /hooks/PreToolUse)`, "PreToolUse is no array"},
		"{\"hooks\": {\"PreToolUse\": [\n7]}}": {
			`error: settings.json:2:1: every element of "PreToolUse" must be an object, found a number (at /hooks/PreToolUse/0)`, "it is no object"},
		`{"hooks": {"PreToolUse": [{"hooks": 1}]}}`: {
			`error: settings.json:1:37: "hooks" must be an array, found a number (at /hooks/PreToolUse/0/hooks)`, "it has no command"},
		`{"hooks": {"PreToolUse": [{}]}}`: {
			`error: settings.json:1:27: "hooks" is missing (at /hooks/PreToolUse/0)`, "it has no command"},
		`{"hooks": {"PreToolUse": [{"matcher": "a(", "hooks": [{"type": "command", "command": "x"}]}]}}`: {
			"error: settings.json:1:39: matcher: error parsing regexp: missing closing ): `a(` (at /hooks/PreToolUse/0/matcher)", "its matcher cannot be understood"},
		`{"hooks": {"PreToolUse": [{"matcher": 1, "hooks": [{"type": "command", "command": "x"}]}]}}`: {
			`error: settings.json:1:39: "matcher" must be a string, found a number (at /hooks/PreToolUse/0/matcher)`, "its matcher is no string"},
		`{"hooks": {"PreToolUse": [{"hooks": [1]}]}}`: {
			`error: settings.json:1:38: a hook must be an object, found a number (at /hooks/PreToolUse/0/hooks/0)`, "a hook must be an object, found a number"},
		`{"hooks": {"PreToolUse": [{"hooks": [{"type": "http", "command": "x"}]}]}}`: {
			`error: settings.json:1:47: unknown type of hook "http": expected "command" (at /hooks/PreToolUse/0/hooks/0/type)`, `unknown type of hook "http": expected "command"`},
		`{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": " "}]}]}}`: {
			`error: settings.json:1:69: a hook needs a "command" (at /hooks/PreToolUse/0/hooks/0/command)`, `a hook needs a "command"`},
		`{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x", "timeout": -1}]}]}}`: {
			`error: settings.json:1:85: "timeout" must be a whole number from 1 to 3600, found -1 (at /hooks/PreToolUse/0/hooks/0/timeout)`,
			`"timeout" must be a whole number from 1 to 3600, found -1`},
	} {
		got, problems := decodeSettings(t, text)
		if !slices.Equal(problems, []string{want.problem}) {
			t.Errorf("%s\n got %q\nwant %q", text, problems, want.problem)
		}
		groups := got.Hooks.PreToolUse
		if len(groups) != 1 || groups[0].Matcher != "" || len(groups[0].Hooks) != 1 || groups[0].Hooks[0].Invalid != want.invalid {
			t.Errorf("%s is %+v", text, groups)
		}
	}
	_, problems := decodeSettings(t, `{"hooks": {"Stop": [], "PreToolUse": [{"hooks": [], "x": 1}]}}`)
	want := []string{
		`warning: settings.json:1:58: unknown setting "x" (at /hooks/PreToolUse/0/x)`,
		`warning: settings.json:1:20: unknown event "Stop": its hooks never run (at /hooks/Stop)`,
	}
	if !slices.Equal(problems, want) {
		t.Errorf("got %q", problems)
	}
}

// Whatever a settings file holds, a hook either can run or is known not to.
func FuzzDecodeHooks(f *testing.F) {
	for _, seed := range []string{
		`{"hooks": {"PreToolUse": [{"matcher": "a|b", "hooks": [{"type": "command", "command": "x", "timeout": 3}]}]}}`,
		`{"hooks": {"Elicitation": [{"hooks": [{"type": "http"}]}, 7], "Notification": {}}}`, `{"hooks": []}`, `{"hooks": {"PostToolUse": [{"matcher": "("}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := ParseJSON(data)
		if err != nil {
			return
		}
		fields := NewFields(n, "settings.json", "")
		settings := DecodeSettings(fields)
		for event, g := range settings.Hooks.All() {
			if _, err := ParseHookMatcher(g.Matcher); err != nil {
				t.Errorf("%s: %v", event, err)
			}
			for _, c := range g.Hooks {
				usable := c.Type == "command" && strings.TrimSpace(c.Command) != "" && c.Timeout >= 0 && c.Timeout <= maxHookTimeout
				if c.Invalid == "" && !usable {
					t.Errorf("%s: %+v", event, c)
				}
				if c.Invalid != "" && len(*fields.Problems) == 0 {
					t.Errorf("%s: nobody is told of %+v", event, c)
				}
			}
		}
	})
}
