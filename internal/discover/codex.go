package discover

import (
	"fmt"

	"github.com/patchbay-mcp/patchbay/config"
)

// codexServer reads a table [mcp_servers.name] of Codex's config.toml. Codex
// has no placeholders: what comes from the environment is given by name.
func codexServer(_ *doc, f *config.Fields, e *config.Entry) {
	s := &e.Server
	*s = config.Server{
		Command:           f.String("command"),
		Args:              f.Strings("args"),
		Env:               f.Secrets("env"),
		EnvVars:           codexEnvVars(f),
		Cwd:               f.String("cwd"),
		URL:               f.String("url"),
		Headers:           f.Secrets("http_headers"),
		EnvHeaders:        f.StringMap("env_http_headers"),
		BearerTokenEnvVar: f.String("bearer_token_env_var"),
		HeadersHelper:     f.String("http_headers_helper"),
		Enabled:           f.Bool("enabled"),
		Timeout:           f.Millis("tool_timeout_sec", 1000),
		ConnectTimeout:    f.Millis("startup_timeout_sec", 1000),
		EnabledTools:      f.Strings("enabled_tools"),
		DisabledTools:     f.Strings("disabled_tools"),
		Tools:             codexTools(f),
		OAuth:             oauthHints(f, "oauth"),
	}
	if ms := f.Millis("startup_timeout_ms", 1); s.ConnectTimeout == nil {
		s.ConnectTimeout = ms
	}
	scopes, resource := f.Strings("scopes"), f.String("oauth_resource")
	if s.OAuth == nil && (len(scopes) > 0 || resource != "") {
		s.OAuth = &config.OAuth{}
	}
	if len(scopes) > 0 {
		s.OAuth.Scopes = scopes
	}
	if resource != "" {
		s.OAuth.Resource = resource
	}
	if f.Has("bearer_token") {
		f.Ignore("bearer_token")
		f.Report(config.SeverityError, "bearer_token", fmt.Sprintf("mcp_servers.%s uses unsupported `bearer_token`; set `bearer_token_env_var`", config.Escape(sourceName(e))), "")
	}
}

// codexEnvVars reads env_vars: names, or tables that also say on which machine
// the variable is set.
func codexEnvVars(f *config.Fields) []string {
	list, ok := f.Take("env_vars")
	if !ok {
		return nil
	}
	if list.Kind != config.Array {
		f.Report(config.SeverityError, "env_vars", `"env_vars" must be an array, found `+list.Kind.String(), "")
		return nil
	}
	names := []string{}
	for i, it := range list.Items {
		inner := &config.Fields{Node: it, File: f.File, Pointer: config.PointerAt(config.PointerTo(f.Pointer, "env_vars"), i), Problems: f.Problems}
		switch it.Kind {
		case config.String:
			names = append(names, it.Text)
		case config.Object:
			name, _ := it.Get("name")
			source, _ := it.Get("source")
			if source.Text == "remote" {
				inner.Report(config.SeverityNote, "", config.Escape(name.Text)+" is set on a remote machine and not passed on from here", "")
			} else if name.Text != "" {
				names = append(names, name.Text)
			}
		default:
			inner.Report(config.SeverityError, "", `every element of "env_vars" must be a string or a table, found `+it.Kind.String(), "")
		}
	}
	return names
}

// codexTools takes over tools that Codex asks about each time; that it runs
// others without asking is an approval given to Codex.
func codexTools(f *config.Fields) []config.ToolRule {
	tools := f.Object("tools")
	if tools == nil {
		return nil
	}
	var rules []config.ToolRule
	for _, m := range tools.Node.Members {
		if mode, ok := m.Value.Get("approval_mode"); ok && mode.Text == "prompt" {
			rules = append(rules, config.ToolRule{Name: m.Name, PermissionPolicy: config.AlwaysAsk})
		}
	}
	return rules
}
