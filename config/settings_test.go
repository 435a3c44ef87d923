package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func decodeSettings(t *testing.T, text string) (Settings, []string) {
	t.Helper()
	n, err := ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f := NewFields(n, "settings.json", "")
	s := DecodeSettings(f)
	var problems []string
	for _, p := range *f.Problems {
		problems = append(problems, string(p.Severity)+": "+p.String())
	}
	return s, problems
}

func TestDecodeSettings(t *testing.T) {
	got, problems := decodeSettings(t, `{
		"$schema": "x",
		"permissions": {"allow": ["mcp__docs"], "ask": [], "deny": ["mcp__files__delete"], "default": "ask"},
		"naming": {"style": "xcsh", "maxLength": 128, "collision": "last-wins"},
		"discovery": {"disabledProviders": ["cursor"], "inheritEnv": "basic"},
		"limits": {"resultChars": 5000, "callTimeout": 60000, "processes": 100, "starts": 4},
		"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "guard"}]}]},
		"tools": ["mcp__docs", "mcp__files__read_*"],
	}`)
	want := Settings{
		Permissions: Permissions{Allow: []string{"mcp__docs"}, Ask: []string{}, Deny: []string{"mcp__files__delete"}, Default: DefaultAsk},
		Naming:      Naming{Style: NamingXcsh, MaxLength: 128, Collision: CollisionLastWins},
		Discovery:   Discovery{[]string{"cursor"}, InheritBasic},
		Limits:      Limits{5000, new(int64(60000)), 100, 4},
		Hooks:       Hooks{PreToolUse: []HookGroup{{Hooks: []HookCommand{{Type: "command", Command: "guard", Line: 7}}}}},
		Tools:       []string{"mcp__docs", "mcp__files__read_*"},
	}
	if !reflect.DeepEqual(got, want) || problems != nil {
		t.Errorf("got %+v, %q", got, problems)
	}
	if got, problems := decodeSettings(t, `{"permissions": null}`); !reflect.DeepEqual(got, Settings{}) || problems != nil {
		t.Errorf("nothing is %+v, %q", got, problems)
	}
}

func TestDecodeSettingsProblems(t *testing.T) {
	for text, want := range map[string][]string{
		`[]`: {`error: settings.json:1:1: settings must be an object, found an array`},
		"{\n\"permisions\": {}}": {
			`warning: settings.json:2:15: unknown setting "permisions" (at /permisions)`},
		`{"permissions": {"alow": []}, "limits": {"x": 1}}`: {
			`warning: settings.json:1:26: unknown setting "alow" (at /permissions/alow)`,
			`warning: settings.json:1:47: unknown setting "x" (at /limits/x)`},
		`{"permissions": []}`:             {`error: settings.json:1:17: "permissions" must be an object, found an array (at /permissions)`},
		`{"permissions": {"deny": "x"}}`:  {`error: settings.json:1:26: "deny" must be an array, found a string (at /permissions/deny)`},
		`{"naming": {"style": "short"}}`:  {`error: settings.json:1:22: unknown naming style "short": expected claude, xcsh, omp or plain (at /naming/style)`},
		`{"naming": {"maxLength": 1000}}`: {`error: settings.json:1:26: "maxLength" must be a whole number from 32 to 128, found 1000 (at /naming/maxLength)`},
		`{"limits": {"resultChars": -1}}`: {`error: settings.json:1:28: "resultChars" must be a whole number from 1 to 67108864, found -1 (at /limits/resultChars)`},
		`{"gateway": {"listen": "7332"}}`: {`error: settings.json:1:24: "7332" is no address with a port, such as 127.0.0.1:7332 (at /gateway/listen)`},
		`{"gateway": {"url": "https://x/mcp"}}`: {
			`error: settings.json:1:21: "https://x/mcp" is not of the form https://host (at /gateway/url)`},
		`{"gateway": {"oidc": {"issuer": "http://login.example.com"}}}`: {
			`error: settings.json:1:33: the issuer "http://login.example.com" must be reached over https (at /gateway/oidc/issuer)`},
		`{"limits": {}, "limits": {"a": 1}}`: {`error: settings.json:1: duplicate key "limits" (at /limits)`},
	} {
		if _, got := decodeSettings(t, text); !slices.Equal(got, want) {
			t.Errorf("%s\ngives %q\nwant  %q", text, got, want)
		}
	}
}

// A default that cannot be read must not open what it was meant to close.
func TestBadDefaultPermissionDenies(t *testing.T) {
	for _, bad := range []string{`"Deny"`, `""`, `true`, `["ask"]`} {
		s, problems := decodeSettings(t, `{"permissions": {"default": `+bad+`}}`)
		if s.Permissions.Default != DefaultDeny || len(problems) != 1 {
			t.Errorf("%s gives %q, %q", bad, s.Permissions.Default, problems)
		}
	}
}

// A list of what is visible that cannot be read shows nothing, and an empty one
// is not the same as none.
func TestVisibleTools(t *testing.T) {
	for text, want := range map[string][]string{`{}`: nil, `{"tools": null}`: nil, `{"tools": []}`: {}, `{"tools": "mcp__docs"}`: {}, `{"tools": [1, "a"]}`: {"a"}} {
		if s, _ := decodeSettings(t, text); !reflect.DeepEqual(s.Tools, want) {
			t.Errorf("%s shows %#v, want %#v", text, s.Tools, want)
		}
	}
}

// What cannot be understood opens nothing.
func TestDamagedGatewaySettings(t *testing.T) {
	s, problems := decodeSettings(t, `{"gateway": {
		"profiles": {"p": {"servers": "docs", "tools": 1}, "../x": {}, "q": []},
		"oidc": {"issuer": "login.example.com", "audience": "api"},
	}}`)
	want := Gateway{Profiles: map[string]Profile{"p": {Servers: []string{}, Tools: []string{}}}}
	if !reflect.DeepEqual(s.Gateway, want) || len(problems) != 5 {
		t.Errorf("got %+v, %q", s.Gateway, problems)
	}
	s, problems = decodeSettings(t, `{"gateway": {"listen": "[::1]:1", "url": "https://x/", "oidc": {"issuer": "http://127.0.0.1:8/realm"}}}`)
	want = Gateway{Listen: "[::1]:1", URL: "https://x", OIDC: OIDC{Issuer: "http://127.0.0.1:8/realm"}}
	if !reflect.DeepEqual(s.Gateway, want) || problems != nil {
		t.Errorf("got %+v, %q", s.Gateway, problems)
	}
	// A token must be for one gateway, not for what every machine calls its own.
	for url, ok := range map[string]bool{"": false, "http://localhost:7332": false, "http://127.0.0.1:7332": false, "http://[::1]": false, "http://0.0.0.0:1": false, "https://x": true, "http://10.0.0.1": true} {
		for audience, named := range map[string]bool{"": false, "api": true} {
			s, problems := decodeSettings(t, fmt.Sprintf(`{"gateway": {"url": %q, "oidc": {"issuer": "https://i", "audience": %q}}}`, url, audience))
			if got := s.Gateway.OIDC.Issuer != ""; got != (ok || named) || got != (problems == nil) {
				t.Errorf("url %q, audience %q: %+v, %q", url, audience, s.Gateway, problems)
			}
		}
	}
}

func TestMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"256MiB": 256 << 20, "1GiB": 1 << 30, "65536 KiB": 64 << 20, "": DefaultMemory,
		"63MiB": 0, "256": 0, "256MB": 0, "-1GiB": 0, "9999999999GiB": 0, "MiB": 0,
	} {
		if text == "" {
			if got := (Gateway{}).MemoryLimit(); got != want {
				t.Errorf("without a setting: %d", got)
			}
			continue
		}
		got, err := ParseMemory(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if limit := (Gateway{Memory: text}).MemoryLimit(); want > 0 && limit != want {
			t.Errorf("%s: the limit is %d", text, limit)
		}
	}
}

func TestGatewayEndpoint(t *testing.T) {
	for want, g := range map[string]Gateway{
		"http://127.0.0.1:7332/mcp":     {},
		"http://[::1]:80/mcp":           {Listen: "[::1]:80"},
		"http://localhost:80/mcp":       {Listen: "0.0.0.0:80"},
		"http://localhost:81/mcp":       {Listen: ":81"},
		"https://tools.example.com/mcp": {Listen: ":81", URL: "https://tools.example.com"},
	} {
		if got := g.Endpoint(); got != want {
			t.Errorf("%+v is at %s, want %s", g, got, want)
		}
	}
}

func TestUnknownSettingsAreKept(t *testing.T) {
	s, _ := decodeSettings(t, `{"later": {"a": [1, 2]}}`)
	if string(s.Extra["later"]) != `{"a":[1,2]}` {
		t.Errorf("Extra is %s", s.Extra)
	}
}

// More rules than a file may have are not applied, and what they might have
// restricted is asked about.
func TestTooManyRules(t *testing.T) {
	list := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat("\"mcp__a__b\",\n", n), ",\n") + "]"
	}
	for _, tt := range []struct {
		deny, ask, allow int
		want             [3]int // of each
		line             int    // of the problem, 0 if there is none
	}{
		{1000, 0, 0, [3]int{1000, 0, 0}, 0},
		{400, 300, 300, [3]int{400, 300, 300}, 0},
		{1001, 0, 0, [3]int{1000, 1, 0}, 1001},
		{60000, 0, 5, [3]int{1000, 1, 0}, 1001},
		{999, 3, 0, [3]int{999, 2, 0}, 999 + 1},
		{0, 0, 1002, [3]int{0, 0, 1000}, 1001},
	} {
		text := `{"permissions":{"deny":` + list(tt.deny) + `,"ask":` + list(tt.ask) + `,"allow":` + list(tt.allow) + `}}`
		node, err := ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		f := NewFields(node, "settings.json", "")
		p := DecodeSettings(f).Permissions
		if got := [3]int{len(p.Deny), len(p.Ask), len(p.Allow)}; got != tt.want {
			t.Errorf("%v: %v", tt, got)
		}
		if tt.want[1] > tt.ask && p.Ask[len(p.Ask)-1] != "*" {
			t.Errorf("%v: what was cut is not asked about: %q", tt, p.Ask)
		}
		problems := *f.Problems
		if tt.line == 0 && len(problems) > 0 || tt.line > 0 && (len(problems) == 0 || problems[0].Line != tt.line || problems[0].File != "settings.json" || !strings.Contains(problems[0].Message, "at most 1000 rules")) {
			t.Errorf("%v: %v", tt, problems)
		}
	}
}
