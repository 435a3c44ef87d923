package discover

import "github.com/patchbay-mcp/patchbay/config"

// gooseServer reads an extension of Goose. Its times are seconds, and the
// values of env_keys are in Goose's own store: only their names are known here.
func gooseServer(_ *doc, f *config.Fields, e *config.Entry) {
	f.Ignore("name", "bundled", "display_name")
	kind := f.String("type")
	s := &e.Server
	*s = config.Server{
		Type:         transport(kind),
		Command:      f.String("cmd"),
		Args:         f.Strings("args"),
		Env:          f.Secrets("envs"),
		EnvVars:      f.Strings("env_keys"),
		URL:          f.String("uri"),
		Headers:      f.Secrets("headers"),
		Enabled:      f.Bool("enabled"),
		Timeout:      f.Millis("timeout", 1000),
		EnabledTools: f.Strings("available_tools"),
		Description:  f.String("description"),
	}
	if len(s.EnabledTools) == 0 {
		s.EnabledTools = nil // Goose: no names, no limit
	}
	switch kind {
	case "builtin", "platform", "frontend", "inline_python":
		e.Skip = "a " + kind + " extension, which runs only inside Goose"
	case "sse":
		f.Report(config.SeverityNote, "type", "Goose itself no longer connects to sse extensions", "")
	}
}

// continueYAML reads Continue's list of servers.
func continueYAML(d *doc) {
	list, ok := d.root.Get("mcpServers")
	switch {
	case !ok || list.Kind == config.Null:
	case list.Kind == config.Array:
		d.addList(list, "/mcpServers", continueServer)
	default:
		d.status = Invalid
		d.report(config.SeverityError, list, "/mcpServers", `"mcpServers" must be an array, found `+list.Kind.String(), "")
	}
}

// continueServer reads one of them. Its key is sent as a bearer token.
func continueServer(_ *doc, f *config.Fields, e *config.Entry) {
	f.Ignore("name")
	e.Server = common(f, "url")
	s := &e.Server
	s.ConnectTimeout = f.Millis("connectionTimeout", 1)
	if key := f.Secret("apiKey"); !key.IsZero() {
		s.Auth = &config.Auth{Mode: config.AuthAPIKey, Key: key, ValuePrefix: "Bearer "}
	}
	if options := f.Object("requestOptions"); options != nil {
		if headers := options.Secrets("headers"); headers != nil {
			s.Headers = headers
		}
		s.Extra = options.Rest()
	}
	if uses := f.String("uses"); uses != "" {
		e.Skip = "refers to " + config.Escape(uses) + " on Continue's hub"
	}
}
