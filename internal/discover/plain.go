package discover

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// plain reads the form most products share: a command with its arguments and
// environment, or a URL with headers, under names that Claude Desktop made
// common. Times are milliseconds.
func plain(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = common(f)
	e.Server.Timeout = f.Millis("timeout", 1)
}

// inSeconds is plain with the timeout in seconds: Cline, Roo Code.
func inSeconds(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = common(f)
	e.Server.Timeout = f.Millis("timeout", 1000)
}

// common reads the members that nearly every product spells alike.
func common(f *config.Fields) config.Server {
	s := config.Server{
		Command:       f.String("command"),
		Args:          f.Strings("args"),
		Env:           f.Secrets("env"),
		UnsetEnv:      config.NullMembers(f, "env"),
		EnvFile:       f.String("envFile"),
		Cwd:           f.String("cwd"),
		URL:           f.String("url", "serverUrl"),
		Headers:       f.Secrets("headers"),
		HeadersHelper: f.String("headersHelper"),
		Enabled:       switchedOn(f),
		OAuth:         config.DecodeOAuth(f.Object("oauth")),
		DisabledTools: f.Strings("disabledTools"),
		Tools:         foreignRules(config.DecodeToolRules(f)),
		Description:   f.String("description"),
		Type:          transport(f.String("type")),
	}
	return s
}

// switchedOn reads `enabled` and `disabled`; if they disagree, off wins.
func switchedOn(f *config.Fields) *bool {
	on, off := f.Bool("enabled"), f.Bool("disabled")
	if off != nil && (on == nil || *on) {
		v := !*off
		return &v
	}
	return on
}

// transport translates every product's spelling. What is unknown stays, so that
// validation can name it.
func transport(spelled string) config.Transport {
	switch strings.ToLower(spelled) {
	case "stdio", "local":
		return config.Stdio
	case "http", "streamable-http", "streamablehttp", "streamable_http", "remote":
		return config.HTTP
	case "sse":
		return config.SSE
	default:
		return config.Transport(spelled)
	}
}

// foreignRules takes over what another product's file says about tools, but for
// approvals: those were given to that product.
func foreignRules(rules []config.ToolRule) []config.ToolRule {
	for i := range rules {
		if rules[i].PermissionPolicy == config.AlwaysAllow {
			rules[i].PermissionPolicy = ""
		}
	}
	return rules
}
