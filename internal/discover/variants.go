package discover

import (
	"cmp"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Products whose form is the plain one but for a few members.

// cursorServer reads Cursor's static OAuth client, which sits under auth.
func cursorServer(d *doc, f *config.Fields, e *config.Entry) {
	plain(d, f, e)
	auth := f.Object("auth")
	if auth == nil {
		return
	}
	id, secret := auth.String("CLIENT_ID"), auth.Secret("CLIENT_SECRET")
	o := config.DecodeOAuth(auth)
	o.ClientID = cmp.Or(o.ClientID, id)
	o.ClientSecret = cmp.Or(o.ClientSecret, secret)
	e.Server.OAuth = o
}

// clineServer reads all three forms that Cline has written: `type`, the older
// `transportType`, and the CLI's nested `transport`.
func clineServer(d *doc, f *config.Fields, e *config.Entry) {
	if n, ok := f.Node.Get("transport"); ok && n.Kind == config.Object {
		inner := f.Object("transport")
		e.Server = common(inner, "url")
		e.Server.Extra = inner.Rest()
		if on := switchedOn(f); on != nil {
			e.Server.Enabled = on
		}
		if o := oauthHints(f, "oauth"); o != nil {
			e.Server.OAuth = o
		}
		e.Server.Timeout = f.Millis("timeout", 1000)
		return
	}
	inSeconds(d, f, e)
	if older := f.String("transportType"); e.Server.Type == "" {
		e.Server.Type = transport(older)
	}
}

// amazonQServer reads Amazon Q's oauthScopes.
func amazonQServer(d *doc, f *config.Fields, e *config.Entry) {
	plain(d, f, e)
	scopes := f.Strings("oauthScopes")
	if len(scopes) == 0 {
		return
	}
	if e.Server.OAuth == nil {
		e.Server.OAuth = &config.OAuth{}
	}
	e.Server.OAuth.Scopes = scopes
}

// copilotServer reads Copilot's list of tools, in which * is all of them.
func copilotServer(d *doc, f *config.Fields, e *config.Entry) {
	plain(d, f, e)
	e.Server.EnabledTools = toolNames(f, "tools")
}

// toolNames reads a list of the tools to offer; one that has "*" is no limit.
func toolNames(f *config.Fields, member string) []string {
	n, ok := f.Node.Get(member)
	if !ok || n.Kind == config.Array && len(n.Items) > 0 && n.Items[0].Kind == config.Object {
		return nil
	}
	names := f.Strings(member)
	for _, name := range names {
		if name == "*" {
			return nil
		}
	}
	return names
}

// copilotProject reads Copilot's file in a project: mcpServers, or the servers
// with nothing around them.
func copilotProject(d *doc) {
	if _, ok := d.root.Get("mcpServers"); ok {
		serversAt(copilotServer, "mcpServers")(d)
		return
	}
	d.addAll(d.root, "", copilotServer)
}

// copilotSettings reads which servers the user has switched off.
func copilotSettings(d *doc) {
	disabled, _ := d.names(d.root, "", "disabledMcpServers")
	d.denyNames(disabled, "disabledMcpServers", nil)
}

// ampServer reads Amp's includeTools.
func ampServer(d *doc, f *config.Fields, e *config.Entry) {
	plain(d, f, e)
	e.Server.EnabledTools = f.Strings("includeTools")
}

// amp reads Amp's settings, where the dots are part of the names.
func amp(d *doc) {
	serversAt(ampServer, "amp.mcpServers")(d)
	items, ok := d.listed(d.root, "", "amp.mcpPermissions")
	if !ok {
		return
	}
	type permission struct{ command, url, action string }
	var rules []permission
	for i, it := range items {
		f := config.NewFields(it, d.path, config.PointerAt("/amp.mcpPermissions", i))
		r := permission{action: f.String("action")}
		if m := f.Object("matches"); m != nil {
			r.command, r.url = m.String("command"), m.String("url")
		}
		d.problems = append(d.problems, *f.Problems...)
		rules = append(rules, r)
	}
	d.rule(func(e *config.Entry) string {
		line := strings.Join(append([]string{e.Server.Command}, e.Server.Args...), " ")
		for _, r := range rules {
			byCommand := r.command != "" && e.Server.Command != "" && (wildcard(r.command, e.Server.Command) || wildcard(r.command, line))
			byURL := r.url != "" && e.Server.URL != "" && wildcard(r.url, e.Server.URL)
			if !byCommand && !byURL {
				continue
			}
			if r.action == "reject" {
				return "amp.mcpPermissions"
			}
			return "" // the first that matches decides
		}
		return ""
	})
}

// mcporterServer reads mcporter's baseUrl, and its word for a login.
func mcporterServer(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = common(f, "baseUrl", "url")
	e.Server.Timeout = f.Millis("timeout", 1)
	if n, ok := f.Node.Get("auth"); ok && n.Kind == config.String && n.Text == "oauth" {
		f.Ignore("auth")
		e.Server.Auth = &config.Auth{Mode: config.AuthAuthorizationCode}
	}
}

// kimiServer reads Kimi's two times and its bearer token by name.
func kimiServer(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = common(f, "url")
	s := &e.Server
	if spelled := f.String("transport"); s.Type == "" {
		s.Type = transport(spelled)
	}
	s.Timeout = f.Millis("toolTimeoutMs", 1)
	s.ConnectTimeout = f.Millis("startupTimeoutMs", 1)
	s.BearerTokenEnvVar = f.String("bearerTokenEnvVar")
	s.EnabledTools = f.Strings("enabledTools")
}
