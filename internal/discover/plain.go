package discover

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// plain reads the form most products share: a command with its arguments and
// environment, or a URL with headers, under names that Claude Desktop made
// common. Times are milliseconds.
func plain(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = common(f, "url")
	e.Server.Timeout = f.Millis("timeout", 1)
}

// inSeconds is plain with the timeout in seconds, as Roo Code has it.
func inSeconds(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = common(f, "url")
	e.Server.Timeout = f.Millis("timeout", 1000)
}

// withServerURL is plain for products that call the URL serverUrl: Windsurf,
// Antigravity.
func withServerURL(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = common(f, "serverUrl", "url")
	e.Server.Timeout = f.Millis("timeout", 1)
}

// common reads the members that nearly every product spells alike. The first of
// the names for the URL that is present counts.
func common(f *config.Fields, url ...string) config.Server {
	command, args := commandLine(f)
	return config.Server{
		Type:          transport(f.String("type")),
		Command:       command,
		Args:          args,
		Env:           f.Secrets("env"),
		UnsetEnv:      config.NullMembers(f, "env"),
		EnvFile:       f.String("envFile"),
		Cwd:           f.String("cwd"),
		URL:           f.String(url...),
		Headers:       f.Secrets("headers"),
		HeadersHelper: f.String("headersHelper"),
		Enabled:       switchedOn(f),
		OAuth:         oauthHints(f, "oauth"),
		DisabledTools: f.Strings("disabledTools"),
		Tools:         foreignRules(config.DecodeToolRules(f)),
		Description:   f.String("description"),
	}
}

// commandLine reads a command with its arguments, written as a string and a
// list, or as one list that begins with the command: opencode, mcporter.
func commandLine(f *config.Fields) (command string, args []string) {
	n, ok := f.Node.Get("command")
	if !ok || n.Kind != config.Array {
		return f.String("command"), f.Strings("args")
	}
	argv := append(f.Strings("command"), f.Strings("args")...)
	if len(argv) == 0 {
		return "", nil
	}
	return argv[0], argv[1:]
}

// dedicated reads a file whose one purpose is its map of servers, under the
// member named. That it is missing from such a file is worth a word.
func dedicated(decode decoder, member string) reader {
	return func(d *doc) {
		d.expect(member)
		serversAt(decode, member)(d)
	}
}

func (d *doc) expect(member string) {
	if _, ok := d.root.Get(member); !ok && len(d.root.Members) > 0 {
		d.report(config.SeverityWarning, d.root, "", fmt.Sprintf("no %q is here", member), "")
	}
}

// oauthHints reads login hints in camelCase or snake_case, or a boolean that
// says whether there is a login at all.
func oauthHints(f *config.Fields, member string) *config.OAuth {
	if n, ok := f.Node.Get(member); ok && n.Kind == config.Bool {
		f.Ignore(member)
		return &config.OAuth{Disabled: n.Text != "true"}
	}
	hints := f.Object(member)
	if hints == nil {
		return nil
	}
	// Read first, so that they do not count as unknown.
	id, secret := hints.String("client_id"), hints.Secret("client_secret")
	port, uri := hints.Int("callback_port", 1, 65535), hints.String("redirect_uri")
	o := config.DecodeOAuth(hints)
	o.ClientID = cmp.Or(o.ClientID, id)
	o.ClientSecret = cmp.Or(o.ClientSecret, secret)
	o.CallbackPort = cmp.Or(o.CallbackPort, port)
	o.RedirectURI = cmp.Or(o.RedirectURI, uri)
	return o
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
