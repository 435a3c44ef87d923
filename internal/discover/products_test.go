package discover

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestProductsDocument keeps docs/products.md equal to the table of providers.
func TestProductsDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Products

Every file that Patchbay looks for, in order of precedence. It is made from the table in internal/discover; ` + "`go test ./internal/discover -update`" + ` writes it.

- A relative path is looked for in the working directory and in every directory above it, up to the root of the project. A server found there needs approval.
- ` + "`~`" + ` is the home directory, ` + "`~/.config`" + ` stands for ` + "`$XDG_CONFIG_HOME`" + ` if that is set, and ` + "`*`" + ` for any name.
- A file that does not exist is no problem. ` + "`patchbay doctor`" + ` shows those that do and what became of each.
- The id is what ` + "`patchbay import`, `patchbay install`, `patchbay adopt`, `patchbay remove --from` and `discovery.disabledProviders`" + ` take.
`)
	installable := Installable("linux")
	for _, p := range Providers() {
		fmt.Fprintf(&b, "\n## %s\n\nid `%s`, priority %d\n\n", p.Product, p.ID, p.Priority)
		for _, place := range p.Places {
			fmt.Fprintf(&b, "- %s: %s%s\n", place.Scope, describePlace(place), remarks(place))
		}
		if len(p.Places) == 0 {
			fmt.Fprintf(&b, "- not read: %s\n", p.Note)
		}
		var scopes []string
		for _, scope := range installable[p.ID] {
			scopes = append(scopes, string(scope))
		}
		if scopes != nil {
			fmt.Fprintf(&b, "- `patchbay install` writes to: %s\n", strings.Join(scopes, ", "))
		}
		if slices.Contains(Adoptable(), p.ID) {
			b.WriteString("- `patchbay adopt` takes the place of its servers\n")
		}
	}
	b.WriteString(strings.ReplaceAll(`
## Plugins of Claude Code

The servers of plugins are read from @.mcp.json@ and @.claude-plugin/plugin.json@ (and the files that its @mcpServers@ names) in the directories that @plugins/installed_plugins.json@ lists, of plugins that are switched on in @enabledPlugins@ and installed for the user or this project. They are called @plugin_<plugin>_<server>@, as in Claude Code;
@${CLAUDE_PLUGIN_ROOT}@ and @${CLAUDE_PLUGIN_DATA}@ stand for the plugin's directories, which programs also find in their environment. A plugin that you or the administrator switched on is your own, and a project cannot switch it off here; the servers of one that only a project's settings switch on need approval, as the project's own do. Values
that a plugin asks for when it is switched on (@${user_config.…}@) are not known here.

## What administrators forbid

The files of Claude Code's administrator are always read, and hold for Claude Code's own servers: where there is a @managed-mcp.json@, whatever is in it, there are no servers but its own; @allowedMcpServers@ and @deniedMcpServers@ of the managed settings cannot be widened by anybody; @allowManagedMcpServersOnly@ without such a list leaves
the managed servers alone, and @strictPluginOnlyCustomization@ those of plugins. Managed settings that cannot be read forbid all until they can. What is forbidden is @disabled@ for that reason in @patchbay list@, @get@, @doctor@ and @why@. Policies that come from a server or from a device's management, not from these files, are not seen.

## What VS Code asks for

Where an entry of VS Code says @${input:id}@, VS Code asks its user and keeps the answer. Here such a server is @failed@, with the reason @needs input@, until somebody has run @patchbay inputs <server>@ on a terminal, once: @promptString@ is asked with its description and default, without an echo
if it is a @password@, and @pickString@ with its options. The daemon keeps the answers in its memory until it ends, for that entry of that file, and asks again if the input is defined otherwise; so it has to run first (agents start it, and @patchbay daemon start@), and @--no-daemon@ has none. Answers are in no file, no
output and no log. An input of the type @command@ is the result of a command of VS Code, which only VS Code can run: the entry says so.

## What servers inherit

What a program gets of the environment besides the variables that its entry sets. A *list* is some names and nothing else; Patchbay's own has what any program needs: @PATH@, @HOME@, the language, proxies, certificates (@SSL_CERT_FILE@,
@NODE_EXTRA_CA_CERTS@ …), the screen, sockets of agents (@SSH_AUTH_SOCK@ …) and where toolchains are (@internal/proc/env.go@). Entries of a project get that list, whatever their product does. Variables of Patchbay's own (@PATCHBAY_*@) are passed on to nobody.
With @"discovery": {"inheritEnv": "basic"}@ in settings.json it is the list for all. What an entry needs besides, it names in @envVars@; @patchbay test@ tells what a server that failed did not get.

| product | there | here, your own entries | here, entries of projects |
|---|---|---|---|
`, "@", "`"))
	there := map[Inheritance]string{InheritAll: "everything", InheritSome: "a list, or all but secrets", InheritUnknown: "not known"}
	for _, p := range Providers() {
		if len(p.Places) == 0 {
			continue
		}
		what, here := there[inheritance[p.ID]], "the list"
		if InheritsAll(p.ID) {
			here = "everything"
		}
		if p.ID == flagProvider || p.ID == "patchbay" {
			what = "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | the list |\n", p.Product, what, here)
	}
	golden(t, "../../docs/products.md", []byte(b.String()))
}

func remarks(p Place) string {
	var r string
	if len(p.AlsoReadBy) > 0 {
		r += "; also read by " + strings.Join(p.AlsoReadBy, ", ")
	}
	switch {
	case p.Note != "":
		r += "; reported, not read: " + p.Note
	case p.script != nil:
		r += "; reported, never run: it is a shell script"
	}
	return r
}

// describePlace renders the template of a place for people.
func describePlace(p Place) string {
	systems := []string{"linux", "darwin", "windows"}
	names := map[string]string{"linux": "Linux", "darwin": "macOS", "windows": "Windows"}
	if p.OS != "" {
		systems = []string{p.OS}
	}
	head, rest, _ := strings.Cut(p.Path, "/")
	switch {
	case p.Path == "{local}":
		return "a file in Patchbay's state directory, one for each project"
	case p.Path == "{flag}":
		return "the files that the flag names"
	case head == "{config}":
		return code(p.OS, "~/.config/"+rest)
	case head == "{appdata}" || head == "{patchbay}":
		directory := map[string]string{"linux": "~/.config/", "darwin": "~/Library/Application Support/", "windows": "%APPDATA%/"}
		if head == "{patchbay}" {
			rest = "patchbay/" + rest
		}
		var all []string
		for _, system := range systems {
			all = append(all, code(system, directory[system]+rest)+" ("+names[system]+")")
		}
		return strings.Join(all, ", ")
	case strings.HasPrefix(head, "${"):
		inner, after, _ := strings.Cut(strings.TrimPrefix(p.Path, "${"), "}")
		variable, fallback, _ := strings.Cut(inner, ":-")
		if fallback == "" {
			return code(p.OS, "$"+variable+after)
		}
		return code(p.OS, fallback+after) + ", or " + code(p.OS, "$"+variable+after)
	}
	text := code(p.OS, p.Path)
	if p.OS != "" {
		text += " (" + names[p.OS] + ")"
	}
	return text
}

func code(system, path string) string {
	if system == "windows" {
		path = strings.ReplaceAll(path, "/", `\`)
	}
	return "`" + path + "`"
}
