package discover

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// claudeProvider is also the provider that managed servers answer to.
const (
	claudeProvider  = "claude"
	managedProvider = "managed"
)

// claudeServer reads a server of Claude Code.
func claudeServer(d *doc, f *config.Fields, e *config.Entry) {
	plain(d, f, e)
	s := &e.Server
	if ms := f.Millis("request_timeout_ms", 1); s.Timeout == nil {
		s.Timeout = ms
	}
	if s.Timeout != nil && *s.Timeout < 1000 {
		s.Timeout = nil // as Claude Code: less than a second is taken for a mistake
	}
	if s.Description == "" {
		s.Description = f.String("displayName")
	}
	switch {
	case s.Type == "sdk" || strings.HasSuffix(string(s.Type), "-ide"):
		e.Skip = "exists only inside a running Claude Code"
	case s.Type == "claudeai-proxy":
		e.Skip = "a claude.ai connector, reachable only through Claude"
	case e.Origin.Provider == claudeProvider && sourceName(e) == "workspace":
		e.Skip = "Claude Code reserves the name \"workspace\" and does not load it"
	}
}

// claudePart is what claudeUser reads of a file in which Claude Code keeps much
// else, such as what was typed in every project.
var claudePart = config.Part{
	"mcpServers": nil,
	"projects":   {"*": {"mcpServers": nil, "disabledMcpServers": nil, "disabledMcpjsonServers": nil}},
}

// claudeUser reads .claude.json: the user's servers, and under projects those
// of this user for one directory, with the decisions made there.
func claudeUser(d *doc) {
	for _, key := range d.claudeProjects() {
		node, pointer, ok := d.find("projects", key)
		if !ok {
			continue
		}
		user, base := d.origin, d.base
		d.origin.Scope, d.base = config.ScopeLocal, filepath.FromSlash(key)
		if servers, pointer, ok := d.find("projects", key, "mcpServers"); ok {
			d.addAll(servers, pointer, claudeServer)
		}
		d.origin, d.base = user, base
		disabled, _ := d.names(node, pointer, "disabledMcpServers")
		d.denyNames(disabled, "disabledMcpServers", nil)
		disabled, _ = d.names(node, pointer, "disabledMcpjsonServers")
		d.denyNames(disabled, "disabledMcpjsonServers", fromMcpjson)
	}
	serversAt(claudeServer, "mcpServers")(d)
}

// claudeProjects returns the keys of .claude.json's projects that mean the
// working directory or the project, the nearer one first.
func (d *doc) claudeProjects() []string {
	projects, ok := d.root.Get("projects")
	if !ok {
		return nil
	}
	var keys []string
	env := d.scan.env
	for _, dir := range []string{env.Dir, env.Project} {
		if dir == "" {
			continue
		}
		for _, m := range projects.Members {
			if !m.Repeated && !slices.Contains(keys, m.Name) && (sameDir(env.OS, m.Name, dir) || sameDir(env.OS, m.Name, RealPath(dir))) {
				keys = append(keys, m.Name)
			}
		}
	}
	return keys
}

// sameDir compares a directory as some program wrote it with one of ours.
func sameDir(goos, written, dir string) bool {
	if goos != "windows" {
		return filepath.Clean(written) == filepath.Clean(dir)
	}
	normal := func(p string) string {
		return strings.TrimSuffix(strings.ReplaceAll(p, `\`, "/"), "/")
	}
	return strings.EqualFold(normal(written), normal(dir))
}

// fromMcpjson reports whether an entry is a project's, shared in .mcp.json.
func fromMcpjson(e *config.Entry) bool {
	return filepath.Base(e.Origin.File) == ".mcp.json" && e.Origin.Scope == config.ScopeProject
}

// claudeSettings reads decisions about servers from a settings.json of Claude
// Code. What such a file enables or allows is not taken over: only its
// restrictions are.
func claudeSettings(d *doc) {
	disabled, _ := d.names(d.root, "", "disabledMcpjsonServers")
	d.denyNames(disabled, "disabledMcpjsonServers", fromMcpjson)
	if denied, ok := d.claudeMatches("deniedMcpServers"); ok {
		d.rule(func(e *config.Entry) string {
			if slices.ContainsFunc(denied, func(m claudeMatch) bool { return m.matches(e) }) {
				return "deniedMcpServers"
			}
			return ""
		}, claudeProvider, managedProvider)
	}
	if allowed, ok := d.claudeMatches("allowedMcpServers"); ok {
		d.rule(func(e *config.Entry) string {
			if !claudeAllows(allowed, e) {
				return "not among allowedMcpServers"
			}
			return ""
		}, claudeProvider, managedProvider)
	}
	if d.origin.Scope == config.ScopeManaged {
		d.claudeLockdown()
	}
	if permissions, pointer, ok := d.find("permissions"); ok {
		deny, _ := d.names(permissions, pointer, "deny")
		d.denyTools(deny)
	}
}

// claudeLockdown reads what an administrator alone can decide.
func (d *doc) claudeLockdown() {
	forbid := func(reason string, concerns func(*config.Entry) bool) {
		d.rule(func(e *config.Entry) string {
			if concerns(e) {
				return reason
			}
			return ""
		}, claudeProvider)
	}
	all := func(*config.Entry) bool { return true }
	f := config.NewFields(d.root, d.path, "")
	if only := f.Bool("allowManagedMcpServersOnly"); only != nil && *only && !f.Has("allowedMcpServers") {
		forbid("allowManagedMcpServersOnly", all)
	}
	// Plugins are what the administrator's marketplaces have.
	if strict, ok := d.root.Get("strictPluginOnlyCustomization"); ok {
		of := func(it config.Node) bool { return it.Text == "mcp" }
		if strict.Kind == config.Bool && strict.Text == "true" || slices.ContainsFunc(strict.Items, of) {
			forbid("strictPluginOnlyCustomization", func(e *config.Entry) bool { return e.Origin.Plugin == "" })
		}
	}
	d.problems = append(d.problems, *f.Problems...)
	serversAt(claudeServer, "managedMcpServers")(d)
}

// exclude switches off what its product does not look at any more because the
// file is there, whatever is in it.
func (d *doc) exclude(reason string) {
	d.rule(func(*config.Entry) string { return reason }, claudeProvider)
}

// denyTools applies rules of the form mcp__server, mcp__server__* and
// mcp__server__tool.
func (d *doc) denyTools(rules []string) {
	rules = slices.DeleteFunc(rules, func(r string) bool { return !strings.HasPrefix(r, "mcp__") })
	if len(rules) == 0 {
		return
	}
	d.rule(func(e *config.Entry) string {
		prefix := "mcp__" + claudeUnsafe.ReplaceAllString(sourceName(e), "_")
		for _, r := range rules {
			if r == prefix || r == prefix+"__*" {
				return "permissions.deny " + config.Escape(r)
			}
			if tool, ok := strings.CutPrefix(r, prefix+"__"); ok && !slices.Contains(e.Server.DisabledTools, tool) {
				e.Server.DisabledTools = append(e.Server.DisabledTools, tool)
			}
		}
		return ""
	})
}

// claudeUnsafe matches what Claude Code replaces in a server's name.
var claudeUnsafe = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// claudeMatch is one element of an allow or deny list; one member is set.
type claudeMatch struct {
	name    string
	command []string // the whole command line
	url     string   // * stands for anything
}

func (d *doc) claudeMatches(member string) ([]claudeMatch, bool) {
	items, ok := d.listed(d.root, "", member)
	var out []claudeMatch
	for i, it := range items {
		f := config.NewFields(it, d.path, config.PointerAt(config.PointerTo("", member), i))
		m := claudeMatch{name: f.String("serverName"), command: f.Strings("serverCommand"), url: f.String("serverUrl")}
		d.problems = append(d.problems, *f.Problems...)
		out = append(out, m)
	}
	return out, ok
}

func (m claudeMatch) matches(e *config.Entry) bool {
	switch {
	case m.name != "":
		return m.name == sourceName(e)
	case len(m.command) > 0:
		return e.Server.Command != "" && slices.Equal(m.command, append([]string{e.Server.Command}, e.Server.Args...))
	case m.url != "":
		return e.Server.URL != "" && wildcard(lowerHost(m.url), lowerHost(e.Server.URL))
	default:
		return false
	}
}

// claudeAllows applies an allow list as Claude Code does: once it names any
// command, a name alone admits no process any more, and likewise for URLs.
func claudeAllows(allowed []claudeMatch, e *config.Entry) bool {
	byCommand := slices.ContainsFunc(allowed, func(m claudeMatch) bool { return len(m.command) > 0 })
	byURL := slices.ContainsFunc(allowed, func(m claudeMatch) bool { return m.url != "" })
	remote := e.Server.URL != ""
	return slices.ContainsFunc(allowed, func(m claudeMatch) bool {
		if m.name != "" && (remote && byURL || !remote && byCommand) {
			return false
		}
		return m.matches(e)
	})
}

// lowerHost lowers a URL up to its path: hosts have no case.
func lowerHost(u string) string {
	scheme, rest, ok := strings.Cut(u, "://")
	if !ok {
		return u
	}
	host, path, _ := strings.Cut(rest, "/")
	return strings.ToLower(scheme+"://"+host) + "/" + path
}
