package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

// decode reads one server from JSON the way every native file is read.
func decode(t *testing.T, src string) (config.Server, []config.Problem) {
	t.Helper()
	node, err := config.ParseJSON([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	f := config.NewFields(node, "mcp.json", "/mcpServers/s")
	s := config.DecodeServer(f)
	s.Extra = f.Rest()
	return s, *f.Problems
}

func TestValidateMessages(t *testing.T) {
	tests := []struct {
		name, server string
		strict       config.Strictness
		want         []string // pointer and message, one string each
	}{
		{"stdio", `{"command":"x"}`, config.Strict, nil},
		{"http", `{"type":"http","url":"https://a.test/mcp"}`, config.Strict, nil},
		{"transport spelling", `{"transport":"sse","url":"http://a.test"}`, config.Strict, nil},
		{"both", `{"command":"x","url":"https://a.test"}`, config.Lenient, []string{
			`/url Server "s": both "command" and "url" are set - server should be either stdio (command) OR http/sse (url), not both`}},
		{"empty", `{}`, config.Lenient, []string{`/command Server "s": stdio server requires "command" field`}},
		{"stdio without command", `{"type":"stdio"}`, config.Lenient, []string{`/command Server "s": stdio server requires "command" field`}},
		{"http without url", `{"type":"http"}`, config.Lenient, []string{`/url Server "s": http server requires "url" field`}},
		{"sse without url", `{"type":"sse"}`, config.Lenient, []string{`/url Server "s": sse server requires "url" field`}},
		{"unknown type", `{"type":"ws","url":"https://a.test"}`, config.Lenient, []string{`/type Server "s": unknown server type "ws"`}},
		{"url alone, a reader", `{"url":"https://a.test"}`, config.Lenient, nil},
		{"url alone, a writer", `{"url":"https://a.test"}`, config.Strict, []string{`/command Server "s": stdio server requires "command" field`}},
		{"placeholder url", `{"url":"${BASE}/mcp"}`, config.Lenient, nil},
		{"no url", `{"url":"ftp://a.test"}`, config.Lenient, []string{`/url Server "s": "ftp://a.test" is not an http:// or https:// URL`}},
		{"no host", `{"url":"https:///x"}`, config.Lenient, []string{`/url Server "s": "https:///x" names no host`}},
		{"unix url", `{"url":"unix:///run/x.sock"}`, config.Lenient, []string{`/url Server "s": unix:// addresses are not supported; use http:// or https://`}},
		{"auth none", `{"command":"x","auth":{"mode":"none"}}`, config.Strict, nil},
		{"auth credential", `{"command":"x","auth":{"type":"oauth","credentialId":"c"}}`, config.Strict, []string{
			`/auth/credentialId auth.credentialId has no effect yet: nobody is logged in, and nothing is sent`}},
		{"auth login", `{"url":"https://a.test","auth":{"mode":"authorizationCode","tokens":{"accessToken":"t"}}}`, config.Lenient, []string{
			`/auth/mode auth.mode authorizationCode has no effect yet: nobody is logged in, and nothing is sent`,
			`/auth/tokens auth.tokens has no effect yet: they are not sent`}},
		{"auth of a program", `{"command":"x","auth":{"mode":"apiKey","key":"k"}}`, config.Strict, []string{`/auth/key auth.key has no effect on a program`}},
		{"auth at a url", `{"url":"https://a.test","auth":{"mode":"apiKey","key":"k"}}`, config.Lenient, nil},
		{"sandbox", `{"command":"x","sandbox":{"network":false}}`, config.Strict, []string{`/sandbox sandbox has no effect yet: nothing confines the program`}},
		{"auth mode", `{"command":"x","auth":{"mode":"magic"}}`, config.Strict, []string{
			`/auth/mode Server "s": auth.mode invalid: expected none, apiKey, clientCredentials or authorizationCode, found "magic"`}},
		{"auth missing", `{"command":"x","auth":{}}`, config.Strict, []string{
			`/auth/mode Server "s": auth.mode invalid: expected none, apiKey, clientCredentials or authorizationCode`}},
		{"auth key", `{"command":"x","auth":{"mode":"apiKey"}}`, config.Strict, []string{`/auth/key Server "s": auth.mode apiKey requires auth.key`}},
		{"all at once", `{"type":"http","auth":{"mode":"clientCredentials"},"tools":[{"name":"t","exposedName":"x"}]}`, config.Strict, []string{
			`/url Server "s": http server requires "url" field`,
			`/auth/tokenUrl Server "s": auth.mode clientCredentials requires auth.tokenUrl`,
			`/auth/clientId Server "s": auth.mode clientCredentials requires auth.clientId`,
			`/auth/clientSecret Server "s": auth.mode clientCredentials requires auth.clientSecret`,
			`/tools/0/exposedName MCP tool "s/t" requires alwaysLoad: true when exposedName is set.`,
			`/auth/mode auth.mode clientCredentials has no effect yet: nobody is logged in, and nothing is sent`}},
		{"exposed name", `{"command":"x","tools":[{"name":"t","exposedName":"a b","alwaysLoad":true}]}`, config.Strict, []string{
			`/tools/0/exposedName MCP tool "s/t" has invalid exposedName "a b".`}},
		{"reserved name", `{"command":"x","tools":[{"name":"t","exposedName":"mcp_call","alwaysLoad":true}]}`, config.Strict, []string{
			`/tools/0/exposedName MCP tool "s/t" cannot use reserved exposedName "mcp_call".`}},
		{"policy", `{"command":"x","tools":[{"name":"t","permission_policy":"maybe"}]}`, config.Strict, []string{
			`/tools/0/permission_policy MCP tool "s/t" has invalid permission_policy "maybe": expected always_allow, always_ask or always_deny.`}},
		{"metadata url", `{"type":"http","url":"https://a.test","oauth":{"authServerMetadataUrl":"http://b.test"}}`, config.Strict, []string{
			`/oauth/authServerMetadataUrl Server "s": oauth.authServerMetadataUrl must be an https:// URL`}},
		{"impossible names", `{"command":"x","env":{"":"1","A=B":"2","ProgramFiles(x86)":"3"},"headers":{"X Y":"1","":"2","X-Z":"3"}}`, config.Lenient, []string{
			`/env/ Server "s": "" cannot be the name of a variable`,
			`/env/A=B Server "s": "A=B" cannot be the name of a variable`,
			`/headers/ Server "s": "" cannot be the name of a header`,
			`/headers/X Y Server "s": "X Y" cannot be the name of a header`}},
		{"impossible values", `{"command":"x\u0000","args":["a","b\u0000"],"headers":{"A":"1\r\nB: 2","C":"!printf 'a\nb'"}}`, config.Lenient, []string{
			`/command Server "s": command holds a NUL character`,
			`/args/1 Server "s": args[1] holds a NUL character`,
			`/headers/A Server "s": the header "A" has more than one line`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, problems := decode(t, tt.server)
			if len(problems) > 0 {
				t.Fatalf("decoding: %v", problems)
			}
			var got []string
			for _, p := range config.Validate("s", s, tt.strict) {
				got = append(got, p.Pointer+" "+p.Message)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDecodeProblems(t *testing.T) {
	tests := []struct{ name, server, want string }{
		{"enabled", "{\n \"command\":\"x\",\n \"enabled\":\"yes\"}", `warning mcp.json:3:12 /mcpServers/s/enabled invalid "enabled" value, ignoring: expected a boolean, found a string`},
		{"timeout", `{"command":"x","timeout":"30"}`, `warning mcp.json:1:26 /mcpServers/s/timeout invalid "timeout" value, ignoring: expected a number, found a string`},
		{"negative timeout", `{"command":"x","timeout":-1}`, `warning mcp.json:1:26 /mcpServers/s/timeout invalid "timeout" value, ignoring: -1 is not a time span`},
		{"command", `{"command":1}`, `error mcp.json:1:12 /mcpServers/s/command "command" must be a string, found a number`},
		{"args", `{"command":"x","args":["a",2]}`, `error mcp.json:1:28 /mcpServers/s/args/1 every element of "args" must be a string, found a number`},
		{"env", `{"command":"x","env":{"A":["b"]}}`, `error mcp.json:1:27 /mcpServers/s/env/A env.A must be a string, found an array`},
		{"reference", `{"command":"x","auth":{"mode":"apiKey","valueRef":"k"}}`, `error mcp.json:1:51 /mcpServers/s/auth/valueRef uses forbidden "valueRef" — secrets are not configured by reference`},
		{"repeated", `{"command":"x","command":"y"}`, `error mcp.json:1 /mcpServers/s/command duplicate key "command"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, problems := decode(t, tt.server)
			if len(problems) != 1 {
				t.Fatalf("got %d problems: %v", len(problems), problems)
			}
			p := problems[0]
			if got := strings.Join([]string{string(p.Severity), p.Place(), p.Pointer, p.Message}, " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestProviderReferenceIsAllowed(t *testing.T) {
	s, problems := decode(t, `{"type":"http","url":"https://a.test","auth":{"mode":"authorizationCode","oauthProviderRef":"corp"}}`)
	for _, p := range append(problems, config.Validate("s", s, config.Strict)...) {
		if p.Severity == config.SeverityError {
			t.Error(p)
		}
	}
	if s.Auth.OAuthProviderRef != "corp" {
		t.Errorf("OAuthProviderRef = %q", s.Auth.OAuthProviderRef)
	}
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"a.b-c_9":                "",
		"":                       "Server name cannot be empty",
		strings.Repeat("x", 100): "",
		strings.Repeat("x", 101): "Server name is too long (max 100 characters)",
		"a b":                    "Server name can only contain letters, numbers, dash, underscore, and dot",
		"ünï":                    "Server name can only contain letters, numbers, dash, underscore, and dot",
	} {
		got := ""
		if err := config.CheckName(name); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("CheckName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestUnknownMembersAreKept(t *testing.T) {
	s, _ := decode(t, `{"command":"x","x-vendor":{"b":1,"a":2},"type":"stdio"}`)
	if got := string(s.Extra["x-vendor"]); got != `{"b":1,"a":2}` {
		t.Errorf("Extra = %s", got)
	}
	if len(s.Extra) != 1 {
		t.Errorf("Extra has %d members", len(s.Extra))
	}
}
