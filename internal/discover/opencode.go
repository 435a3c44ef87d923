package discover

import "github.com/patchbay-mcp/patchbay/config"

// opencode reads both layouts of opencode, which may occur in one file: servers
// right under mcp, and under mcp.servers.
func opencode(d *doc) {
	mcp, pointer, ok := d.find("mcp")
	if !ok {
		return
	}
	first := config.Node{Kind: config.Object, Line: mcp.Line, Column: mcp.Column}
	var off []string
	for _, m := range mcp.Members {
		_, isServer := m.Value.Get("type")
		switch {
		case m.Name == "servers" && m.Value.Kind == config.Object && !isServer:
			if !m.Repeated {
				d.opencodeServers(mcp)
			}
		case m.Name == "timeout" && !isServer: // the default of the second layout
		case onlySwitch(m.Value):
			if word := m.Value.Members[0]; (word.Name == "enabled") == (word.Value.Text == "false") && len(off) < maxListed {
				off = append(off, m.Name)
			}
		default:
			first.Members = append(first.Members, m)
		}
	}
	d.addAll(first, pointer, opencodeServer)
	d.denyNames(off, "switched off", nil)
}

// opencodeServers reads the second layout: mcp.servers, and in mcp.timeout the
// times for those that say none.
func (d *doc) opencodeServers(mcp config.Node) {
	defaults, _ := mcp.Get("timeout")
	inherited := config.NewFields(defaults, d.path, "/mcp/timeout")
	startup, request := inherited.Millis("startup", 1), inherited.Millis("request", 1)
	d.problems = append(d.problems, *inherited.Problems...)
	serversAt(func(d *doc, f *config.Fields, e *config.Entry) {
		opencodeServer(d, f, e)
		if e.Server.ConnectTimeout == nil {
			e.Server.ConnectTimeout = startup
		}
		if e.Server.Timeout == nil {
			e.Server.Timeout = request
		}
	}, "mcp", "servers")(d)
}

// onlySwitch reports whether a server says nothing but whether it is on: the
// way one layer of opencode's configuration switches off a server of another.
func onlySwitch(n config.Node) bool {
	if n.Kind != config.Object || len(n.Members) != 1 || n.Members[0].Value.Kind != config.Bool {
		return false
	}
	return n.Members[0].Name == "enabled" || n.Members[0].Name == "disabled"
}

// opencodeServer reads one server: the command is an array, and a time bounds
// the start as well as each call.
func opencodeServer(_ *doc, f *config.Fields, e *config.Entry) {
	command, args := commandLine(f)
	e.Server = config.Server{
		Type:    transport(f.String("type")),
		Command: command,
		Args:    args,
		Env:     f.Secrets("environment"),
		Cwd:     f.String("cwd"),
		URL:     f.String("url"),
		Headers: f.Secrets("headers"),
		Enabled: switchedOn(f),
		OAuth:   oauthHints(f, "oauth"),
	}
	s := &e.Server
	if n, ok := f.Node.Get("timeout"); ok && n.Kind == config.Object {
		t := f.Object("timeout")
		s.ConnectTimeout, s.Timeout = t.Millis("startup", 1), t.Millis("request", 1)
		return
	}
	s.Timeout = f.Millis("timeout", 1)
	s.ConnectTimeout = s.Timeout
}
