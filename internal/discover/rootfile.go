package discover

import (
	"fmt"
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
)

// rootFile reads a file that belongs to no product: mcp.json in a project's
// root, or a file named on the command line. Its one container says whose form
// it has: mcpServers is everybody's, servers is that of electric's agents.
func rootFile(d *doc) {
	_, plain := d.root.Get("mcpServers")
	_, electric := d.root.Get("servers")
	switch {
	case plain && d.origin.Provider == flagProvider:
		native(d)
	case plain:
		serversAt(ompServer, "mcpServers")(d)
	case electric:
		d.electric()
	case len(d.root.Members) > 0:
		d.report(config.SeverityWarning, d.root, "", `neither "mcpServers" nor "servers" is here`, "")
	}
}

// sharedFile reads .mcp.json in a project, which several products share: the
// form of Claude Code, that of electric's agents, or the servers with nothing
// around them, as Copilot reads it.
func sharedFile(d *doc) {
	_, plain := d.root.Get("mcpServers")
	_, electric := d.root.Get("servers")
	switch {
	case plain:
		serversAt(claudeServer, "mcpServers")(d)
	case electric:
		d.electric()
	case onlyServers(d.root):
		d.addAll(d.root, "", copilotServer)
	default:
		d.expect("mcpServers")
	}
}

// onlyServers reports whether an object holds servers and nothing else.
func onlyServers(n config.Node) bool {
	return len(n.Members) > 0 && !slices.ContainsFunc(n.Members, func(m config.Member) bool {
		_, command := m.Value.Get("command")
		_, url := m.Value.Get("url")
		return !command && !url
	})
}

// electric reads {"servers": {name: {transport, url, auth, timeoutMs}}}.
func (d *doc) electric() {
	d.dialect = config.DialectElectric
	for _, m := range d.root.Members {
		if m.Name != "servers" {
			d.report(config.SeverityWarning, m.Value, config.PointerTo("", m.Name), fmt.Sprintf("mcp.json: unknown top-level field %q", m.Name), "")
		}
	}
	serversAt(func(_ *doc, f *config.Fields, e *config.Entry) {
		f.Ignore("name") // the key says it
		e.Server = config.DecodeServer(f)
		if e.Server.Type == config.SSE {
			f.Report(config.SeverityError, "transport", `transport must be "http" or "stdio"`, "")
		}
		if ms := f.Millis("timeoutMs", 1); ms != nil {
			e.Server.Timeout = new(min(max(*ms, 1), maxElectricTimeout))
		}
	}, "servers")(d)
}

// maxElectricTimeout is where electric cuts a timeout, in milliseconds.
const maxElectricTimeout = int64(600_000)

// ompServer reads a server of oh-my-pi, pi and xcsh, whose form is ours. Their
// timeout bounds the start as well as each call.
func ompServer(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = config.DecodeServer(f)
	s := &e.Server
	if off := f.Bool("disabled"); off != nil && *off {
		s.Enabled = new(false)
	}
	if ms := f.Millis("requestTimeoutMs", 1); s.Timeout == nil {
		s.Timeout = ms
	} else if s.ConnectTimeout == nil {
		s.ConnectTimeout = s.Timeout
	}
	s.Type = transport(string(s.Type))
	s.Tools = foreignRules(s.Tools)
}

// omp reads a file of oh-my-pi or xcsh, with its lists of names.
func omp(d *doc) {
	serversAt(ompServer, "mcpServers")(d)
	disabled, _ := d.names(d.root, "", "disabledServers")
	enabled, _ := d.names(d.root, "", "enabledServers")
	d.overrides(disabled, enabled)
}
