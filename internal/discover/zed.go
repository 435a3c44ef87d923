package discover

import "github.com/patchbay-mcp/patchbay/config"

// zed reads Zed's settings. Its times are seconds.
func zed(d *doc) {
	top := config.NewFields(d.root, d.path, "")
	timeout := top.Millis("context_server_timeout", 1000)
	d.problems = append(d.problems, *top.Problems...)
	serversAt(func(d *doc, f *config.Fields, e *config.Entry) {
		zedServer(d, f, e)
		if e.Server.Timeout == nil {
			e.Server.Timeout = timeout
		}
	}, "context_servers")(d)
}

// zedServer reads the flat form, and the older one in which command is an
// object of its own.
func zedServer(d *doc, f *config.Fields, e *config.Entry) {
	source := f.String("source")
	if n, ok := f.Node.Get("command"); ok && n.Kind == config.Object {
		inner := f.Object("command")
		e.Server = config.Server{
			Command: inner.String("path"),
			Args:    inner.Strings("args"),
			Env:     inner.Secrets("env"),
			Enabled: f.Bool("enabled"),
			Timeout: f.Millis("timeout", 1000),
			Extra:   inner.Rest(),
		}
	} else {
		inSeconds(d, f, e)
	}
	if source == "extension" {
		e.Skip = "provided by a Zed extension, which alone knows its command"
	}
}
