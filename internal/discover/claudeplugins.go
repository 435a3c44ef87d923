package discover

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Where Claude Code keeps its plugins and its settings.
const (
	claudeDir      = "${CLAUDE_CONFIG_DIR:-~/.claude}"
	claudeRegistry = "plugins/installed_plugins.json"
)

// The two places in which a plugin declares servers, below its own directory.
// Which directories those are, the user's list of installed plugins says.
var (
	pluginManifest = Place{Scope: config.ScopeUser, Path: ".claude-plugin/plugin.json", read: func(d *doc) { d.pluginServers("mcpServers") }}
	pluginFile     = Place{Scope: config.ScopeUser, Path: ".mcp.json", read: func(d *doc) {
		if _, ok := d.root.Get("mcpServers"); ok {
			d.pluginServers("mcpServers")
		} else {
			d.pluginServers() // a bare map
		}
	}}
)

// plugin is one that is installed and switched on.
type plugin struct {
	id      string // name@marketplace
	root    string // its own directory
	data    string // where it may keep what outlives an update
	project bool   // a project switched it on: its servers need approval
}

func (p *plugin) name() string {
	name, _, _ := strings.Cut(p.id, "@")
	return name
}

// pluginCandidates lists the files in which plugins of Claude Code declare servers,
// as far as they are installed and switched on.
func (s *scan) pluginCandidates(provider *Provider) (files []candidate) {
	dir, _, fromHome := s.resolve(claudeDir + "/" + claudeRegistry)
	if dir == "" {
		return nil
	}
	add := func(p *plugin, place *Place, path string) {
		files = append(files, candidate{provider: provider, place: place, path: path, base: p.root, inProject: p.project, fromHome: fromHome, plugin: p})
	}
	for _, p := range s.plugins(dir) {
		manifest := filepath.Join(p.root, filepath.FromSlash(pluginManifest.Path))
		add(p, &pluginManifest, manifest)
		add(p, &pluginFile, filepath.Join(p.root, pluginFile.Path))
		declared, _ := s.object(manifest).Get("mcpServers")
		for _, it := range append([]config.Node{declared}, declared.Items...) { // or other files of it
			path := filepath.Join(p.root, filepath.FromSlash(it.Text))
			if it.Kind == config.String && filepath.Ext(path) == ".json" && Inside(path, p.root) {
				add(p, &pluginFile, path)
			}
		}
	}
	if len(files) > maxMatches {
		files = files[:maxMatches]
	}
	return files
}

// plugins are those that are installed for this project or all, and switched on:
// by the administrator or the user, or else by the project.
func (s *scan) plugins(dir string) (all []*plugin) {
	installed, _ := s.object(filepath.Join(dir, filepath.FromSlash(claudeRegistry))).Get("plugins")
	if len(installed.Members) == 0 {
		return nil
	}
	on := s.pluginSwitches(dir)
	for _, m := range installed.Members {
		byProject, known := on[m.Name]
		installs := m.Value.Items
		if m.Value.Kind == config.Object { // as older versions wrote it
			installs = []config.Node{m.Value}
		}
		i := slices.IndexFunc(installs, s.installedHere)
		if m.Repeated || !known || i < 0 {
			continue
		}
		path, _ := installs[i].Get("installPath")
		id := m.Name
		all = append(all, &plugin{
			id: id, root: filepath.Clean(filepath.FromSlash(path.Text)), project: byProject,
			data: filepath.Join(dir, "plugins", "data", pluginUnsafe.ReplaceAllString(id, "-")),
		})
	}
	return all
}

var pluginUnsafe = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// installedHere reports whether an installation of a plugin counts in this project.
func (s *scan) installedHere(n config.Node) bool {
	path, _ := n.Get("installPath")
	scope, _ := n.Get("scope")
	project, _ := n.Get("projectPath")
	if path.Kind != config.String || !isAbs(s.env.OS, path.Text) || Remote(s.env.OS, path.Text) {
		return false
	}
	everywhere := scope.Text == "" || scope.Text == "user" || scope.Text == "managed"
	return everywhere || sameDir(s.env.OS, project.Text, s.env.Project) || sameDir(s.env.OS, project.Text, s.realProject)
}

// pluginSwitches returns the plugins that are switched on, and whether it is a
// project alone that does so.
func (s *scan) pluginSwitches(dir string) map[string]bool {
	on, decided := map[string]bool{}, map[string]bool{}
	read := func(file string, project bool) {
		switches, _ := s.object(file).Get("enabledPlugins")
		for _, m := range switches.Members {
			if m.Value.Kind != config.Bool || m.Repeated || decided[m.Name] {
				continue
			}
			decided[m.Name] = !project // one that a project switches off is still the user's
			if m.Value.Text == "true" {
				on[m.Name] = project
			}
		}
	}
	for _, place := range Providers()[0].Places { // the administrator's
		if place.OS == s.env.OS && !place.exclusive {
			root, rest, _ := s.resolve(place.Path)
			for _, file := range expandGlob(root, rest) {
				read(file, false)
			}
		}
	}
	read(filepath.Join(dir, "settings.json"), false)
	for _, dir := range s.dirs {
		for _, name := range []string{"settings.local.json", "settings.json"} {
			read(filepath.Join(dir, ".claude", name), true)
		}
	}
	return on
}

// object returns what a file says, or said when it was last good; nothing if there
// is none.
func (s *scan) object(file string) config.Node {
	info, _, err := lookUp(file)
	if info == nil || err != nil {
		return config.Node{}
	}
	now, err := s.env.Cache.read(file, wholeFile, info)
	if err == nil && now.wrong == nil {
		return now.root
	}
	return s.env.Memory.good(file)
}

// pluginServers reads the servers of a plugin, under the names that Claude Code
// gives them. They may name the plugin's own directory, and their programs find it
// in the environment.
func (d *doc) pluginServers(path ...string) {
	if len(path) > 0 {
		if servers, _ := d.root.Get(path[0]); servers.Kind != config.Object {
			return // other files, which are read by themselves
		}
	}
	p := d.plugin
	own := map[string]string{"CLAUDE_PLUGIN_ROOT": p.root, "CLAUDE_PLUGIN_DATA": p.data, "CLAUDE_PROJECT_DIR": d.scan.env.Project}
	replaced := func(text string, form func(string) string) string {
		for name, value := range own {
			text = strings.ReplaceAll(text, "${"+name+"}", form(value))
		}
		return text
	}
	plainly := func(text string) string { return replaced(text, func(value string) string { return value }) }
	d.origin.Plugin = p.id
	serversAt(func(d *doc, f *config.Fields, e *config.Entry) {
		e.Title = "plugin:" + p.name() + ":" + sourceName(e)
		e.Name = identifier(e.Title)
		claudeServer(d, f, e)
		s := &e.Server
		for _, text := range []*string{&s.Command, &s.Cwd, &s.URL, &s.EnvFile} {
			*text = plainly(*text)
		}
		s.HeadersHelper = replaced(s.HeadersHelper, shellWord)
		for i := range s.Args {
			s.Args[i] = plainly(s.Args[i])
		}
		for _, values := range []map[string]config.Secret{s.Env, s.Headers} {
			for name, value := range values {
				values[name] = config.NewSecret(plainly(value.Reveal()))
			}
		}
		if s.Command == "" {
			return
		}
		if s.Env == nil {
			s.Env = map[string]config.Secret{}
		}
		for _, name := range []string{"CLAUDE_PLUGIN_ROOT", "CLAUDE_PLUGIN_DATA"} {
			if _, set := s.Env[name]; !set {
				s.Env[name] = config.NewSecret(own[name])
			}
		}
	}, path...)(d)
}
