package discover

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Provider is one product that keeps MCP servers in files.
type Provider struct {
	ID       string  `json:"id"`
	Product  string  `json:"product"`
	Priority int     `json:"priority"` // higher wins a name
	Places   []Place `json:"places,omitempty"`
	Note     string  `json:"note,omitempty"` // why nothing is read, where that is so

	dialect config.Dialect
	read    reader // for places that name no other
}

// Place is where a provider keeps a file. The path is a template: relative ones
// are looked for in the project's directories; see resolve for the others.
type Place struct {
	Scope config.Scope `json:"scope"`
	Path  string       `json:"path"`
	OS    string       `json:"os,omitempty"`   // only there; empty means everywhere
	Note  string       `json:"note,omitempty"` // the file is reported, not read, for this reason

	// AlsoReadBy names further products that read this very file.
	AlsoReadBy []string `json:"alsoReadBy,omitempty"`

	// exclusive: where there is such a file, its product has no servers but these.
	exclusive bool

	read   reader
	script func(d *doc, text []byte) // for a file that is no data
	part   fileForm                  // of which a part is read; the zero value means all of it
}

// form is how the files of a place are read.
func (p *Place) form() fileForm {
	if p.script != nil {
		return scriptFile
	}
	return p.part
}

// relative reports whether the place is one in a project.
func (p *Place) relative() bool {
	return !strings.ContainsAny(p.Path[:1], "~{$") && !isAbs("windows", p.Path)
}

// flagProvider is the provider of files named for one run.
const flagProvider = "flag"

// Why a product's files are not read.
const (
	needsContainers = "needs a container runtime: not runnable here"
	unknownForm     = "the form of its servers is not documented"
)

const (
	managed = config.ScopeManaged
	local   = config.ScopeLocal
	project = config.ScopeProject
	user    = config.ScopeUser
)

// Providers returns the table of providers: every product, where it keeps its
// servers, and which reader understands them. The order is that of precedence.
func Providers() []Provider {
	table := []Provider{
		{ID: managedProvider, Product: "Claude Code (managed)", Priority: 110, dialect: config.DialectClaude, read: serversAt(claudeServer, "mcpServers"), Places: []Place{
			{Scope: managed, OS: "linux", Path: "/etc/claude-code/managed-mcp.json", exclusive: true},
			{Scope: managed, OS: "darwin", Path: "/Library/Application Support/ClaudeCode/managed-mcp.json", exclusive: true},
			{Scope: managed, OS: "windows", Path: "C:/Program Files/ClaudeCode/managed-mcp.json", exclusive: true},
			{Scope: managed, OS: "linux", Path: "/etc/claude-code/managed-settings.json", read: claudeSettings},
			{Scope: managed, OS: "linux", Path: "/etc/claude-code/managed-settings.d/*.json", read: claudeSettings},
			{Scope: managed, OS: "darwin", Path: "/Library/Application Support/ClaudeCode/managed-settings.json", read: claudeSettings},
			{Scope: managed, OS: "darwin", Path: "/Library/Application Support/ClaudeCode/managed-settings.d/*.json", read: claudeSettings},
			{Scope: managed, OS: "windows", Path: "C:/Program Files/ClaudeCode/managed-settings.json", read: claudeSettings},
			{Scope: managed, OS: "windows", Path: "C:/Program Files/ClaudeCode/managed-settings.d/*.json", read: claudeSettings},
		}},
		{ID: flagProvider, Product: "--mcp-config", Priority: 105, dialect: config.DialectPatchbay, read: rootFile, Places: []Place{
			{Scope: user, Path: "{flag}"},
		}},
		{ID: "patchbay", Product: "Patchbay", Priority: 100, dialect: config.DialectPatchbay, read: native, Places: []Place{
			{Scope: local, Path: "{local}"},
			{Scope: project, Path: ".patchbay/mcp.json"},
			{Scope: user, Path: "{patchbay}/mcp.json"},
		}},
		{ID: claudeProvider, Product: "Claude Code", Priority: 80, dialect: config.DialectClaude, read: serversAt(claudeServer, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".mcp.json", read: sharedFile, AlsoReadBy: []string{"Copilot CLI", "Qoder CLI", "oh-my-pi", "xcsh"}},
			{Scope: project, Path: ".claude/.mcp.json"},
			{Scope: project, Path: ".claude/mcp.json"},
			{Scope: project, Path: ".claude/settings.local.json", read: claudeSettings},
			{Scope: project, Path: ".claude/settings.json", read: claudeSettings},
			{Scope: user, Path: "${CLAUDE_CONFIG_DIR:-~}/.claude.json", read: claudeUser, part: claudeFile},
			{Scope: user, Path: "${CLAUDE_CONFIG_DIR:-~/.claude}/mcp.json"},
			{Scope: user, Path: "${CLAUDE_CONFIG_DIR:-~/.claude}/settings.json", read: claudeSettings},
			{Scope: user, Path: claudeDir + "/" + claudeRegistry, read: func(*doc) {}}, // see pluginCandidates
		}},
		{ID: "codex", Product: "Codex", Priority: 70, dialect: config.DialectNone, read: serversAt(codexServer, "mcp_servers"), Places: []Place{
			{Scope: project, Path: ".codex/config.toml"},
			{Scope: user, Path: "${CODEX_HOME:-~/.codex}/config.toml"},
		}},
		{ID: "gemini", Product: "Gemini CLI", Priority: 60, dialect: config.DialectGemini, read: gemini, Places: []Place{
			{Scope: project, Path: ".gemini/settings.json"},
			{Scope: project, Path: ".gemini/extensions/*/gemini-extension.json", read: geminiExtension},
			{Scope: user, Path: "~/.gemini/settings.json"},
			{Scope: user, Path: "~/.gemini/extensions/*/gemini-extension.json", read: geminiExtension},
		}},
		{ID: "qwen", Product: "Qwen Code", Priority: 60, dialect: config.DialectGemini, read: gemini, Places: []Place{
			{Scope: project, Path: ".qwen/settings.json"},
			{Scope: user, Path: "~/.qwen/settings.json"},
		}},
		{ID: "opencode", Product: "opencode", Priority: 55, dialect: config.DialectOpencode, read: opencode, Places: []Place{
			{Scope: project, Path: ".opencode/opencode.jsonc"},
			{Scope: project, Path: ".opencode/opencode.json"},
			{Scope: project, Path: "opencode.jsonc"},
			{Scope: project, Path: "opencode.json"},
			{Scope: user, Path: "${OPENCODE_CONFIG_DIR}/opencode.jsonc"},
			{Scope: user, Path: "${OPENCODE_CONFIG_DIR}/opencode.json"},
			{Scope: user, Path: "${OPENCODE_CONFIG}"},
			{Scope: user, Path: "{config}/opencode/opencode.jsonc"},
			{Scope: user, Path: "{config}/opencode/opencode.json"},
		}},
		{ID: "cursor", Product: "Cursor", Priority: 50, dialect: config.DialectCursor, read: dedicated(cursorServer, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".cursor/mcp.json"},
			{Scope: user, Path: "~/.cursor/mcp.json"},
			{Scope: user, Path: "{appdata}/Cursor/User/mcp.json", Note: "it is not known whether Cursor uses this file"},
		}},
		{ID: "windsurf", Product: "Windsurf", Priority: 50, dialect: config.DialectEnvOnly, read: dedicated(withServerURL, "mcpServers"), Places: []Place{
			{Scope: user, Path: "~/.codeium/windsurf/mcp_config.json"},
			{Scope: user, Path: "~/.codeium/windsurf-next/mcp_config.json"},
			{Scope: user, Path: "~/.codeium/mcp_config.json"},
		}},
		{ID: "amazon-q", Product: "Amazon Q", Priority: 40, dialect: config.DialectNone, read: serversAt(amazonQServer, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".amazonq/mcp.json"},
			{Scope: project, Path: ".amazonq/cli-agents/*.json"},
			{Scope: user, Path: "~/.aws/amazonq/mcp.json"},
			{Scope: user, Path: "~/.aws/amazonq/cli-agents/*.json"},
		}},
		{ID: "amp", Product: "Amp", Priority: 40, dialect: config.DialectDollar, read: amp, Places: []Place{
			{Scope: project, Path: ".amp/settings.json"},
			{Scope: user, OS: "linux", Path: "~/.config/amp/settings.json"},
			{Scope: user, OS: "darwin", Path: "~/.config/amp/settings.json"},
			{Scope: user, OS: "windows", Path: "{appdata}/amp/settings.json"},
		}},
		{ID: "antigravity", Product: "Antigravity", Priority: 40, dialect: config.DialectNone, read: dedicated(withServerURL, "mcpServers"), Places: []Place{
			{Scope: user, Path: "~/.gemini/config/mcp_config.json"},
			{Scope: user, Path: "~/.gemini/antigravity/mcp_config.json"},
		}},
		{ID: "claude-desktop", Product: "Claude Desktop", Priority: 40, dialect: config.DialectNone, read: serversAt(plain, "mcpServers"), Places: []Place{
			{Scope: user, Path: "{appdata}/Claude/claude_desktop_config.json"},
			{Scope: user, OS: "linux", Path: "{appdata}/claude/claude_desktop_config.json"},
		}},
		{ID: "cline", Product: "Cline", Priority: 40, dialect: config.DialectEnvOnly, read: dedicated(clineServer, "mcpServers"), Places: []Place{
			{Scope: user, Path: "${CLINE_DIR:-~/.cline}/data/settings/cline_mcp_settings.json"},
			{Scope: user, Path: "{appdata}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"},
			{Scope: user, Path: "{appdata}/Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"},
			{Scope: user, Path: "{appdata}/VSCodium/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"},
			{Scope: user, Path: "{appdata}/Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"},
		}},
		{ID: "continue", Product: "Continue", Priority: 40, dialect: config.DialectSecrets, read: continueYAML, Places: []Place{
			{Scope: project, Path: ".continue/mcpServers/*.yaml"},
			{Scope: project, Path: ".continue/mcpServers/*.yml"},
			{Scope: project, Path: ".continue/mcpServers/*.json", read: dedicated(plain, "mcpServers")},
			{Scope: user, Path: "~/.continue/config.yaml"},
		}},
		{ID: "copilot", Product: "Copilot CLI", Priority: 40, dialect: config.DialectClaude, read: dedicated(copilotServer, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".github/mcp.json", read: copilotProject},
			{Scope: user, Path: "~/.copilot/mcp-config.json"},
			{Scope: user, Path: "~/.copilot/settings.json", read: copilotSettings},
		}},
		{ID: "crush", Product: "Crush", Priority: 40, dialect: config.DialectShell, read: serversAt(crushServer, "mcp"), Places: []Place{
			{Scope: project, Path: ".crushrc", script: crushScript},
			{Scope: project, Path: "crushrc", script: crushScript},
			{Scope: project, Path: ".crush.json"},
			{Scope: project, Path: "crush.json"},
			{Scope: user, Path: "{config}/crush/crushrc", script: crushScript},
			{Scope: user, Path: "{config}/crush/crush.json"},
		}},
		{ID: "docker", Product: "Docker MCP", Priority: 40, Note: needsContainers, Places: []Place{
			{Scope: user, Path: "~/.docker/mcp/registry.yaml", Note: needsContainers},
			{Scope: user, Path: "~/.docker/mcp/catalogs/*.yaml", Note: needsContainers},
		}},
		{ID: "factory", Product: "Factory", Priority: 40, dialect: config.DialectNone, read: dedicated(plain, "mcpServers"), Places: []Place{
			{Scope: user, Path: "~/.factory/mcp.json"},
		}},
		{ID: "goose", Product: "Goose", Priority: 40, dialect: config.DialectDollar, read: serversAt(gooseServer, "extensions"), Places: []Place{
			{Scope: user, OS: "linux", Path: "{config}/goose/config.yaml"},
			{Scope: user, OS: "darwin", Path: "{config}/goose/config.yaml"},
			{Scope: user, OS: "windows", Path: "{appdata}/Block/goose/config/config.yaml"},
		}},
		{ID: "grok", Product: "Grok CLI", Priority: 40, Note: unknownForm, Places: []Place{
			{Scope: user, Path: "~/.grok/config.toml", Note: unknownForm},
		}},
		{ID: "inspector", Product: "MCP Inspector", Priority: 40, dialect: config.DialectNone, read: dedicated(plain, "mcpServers"), Places: []Place{
			{Scope: user, Path: "~/.mcp-inspector/mcp.json"},
		}},
		{ID: "jetbrains", Product: "JetBrains AI Assistant", Priority: 40, Note: "its servers are kept in the IDE's own settings"},
		{ID: "junie", Product: "Junie", Priority: 40, dialect: config.DialectNone, read: dedicated(plain, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".junie/mcp/mcp.json"},
			{Scope: user, Path: "~/.junie/mcp/mcp.json"},
		}},
		{ID: "kilo", Product: "Kilo", Priority: 40, dialect: config.DialectOpencode, read: opencode, Places: []Place{
			{Scope: project, Path: ".kilo/kilo.jsonc"},
			{Scope: project, Path: ".kilo/kilo.json"},
			{Scope: project, Path: "kilo.jsonc"},
			{Scope: project, Path: "kilo.json"},
			{Scope: user, Path: "{config}/kilo/kilo.jsonc"},
			{Scope: user, Path: "{config}/kilo/kilo.json"},
		}},
		{ID: "kimi", Product: "Kimi Code", Priority: 40, dialect: config.DialectNone, read: dedicated(kimiServer, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".kimi-code/mcp.json"},
			{Scope: user, Path: "${KIMI_CODE_HOME:-~/.kimi-code}/mcp.json"},
		}},
		{ID: "kiro", Product: "Kiro", Priority: 40, dialect: config.DialectBraces, read: dedicated(plain, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".kiro/settings/mcp.json"},
			{Scope: user, Path: "~/.kiro/settings/mcp.json"},
		}},
		{ID: "lm-studio", Product: "LM Studio", Priority: 40, dialect: config.DialectNone, read: dedicated(plain, "mcpServers"), Places: []Place{
			{Scope: user, Path: "~/.lmstudio/mcp.json"},
			{Scope: user, Path: "~/.cache/lm-studio/mcp.json"},
		}},
		{ID: "mcporter", Product: "mcporter", Priority: 40, dialect: config.DialectMcporter, read: dedicated(mcporterServer, "mcpServers"), Places: []Place{
			{Scope: project, Path: "config/mcporter.json"},
			{Scope: user, Path: "~/.mcporter/mcporter.jsonc"},
			{Scope: user, Path: "~/.mcporter/mcporter.json"},
		}},
		{ID: "omp", Product: "oh-my-pi", Priority: 40, dialect: config.DialectOMP, read: omp, Places: []Place{
			{Scope: project, Path: ".omp/mcp.json"},
			{Scope: project, Path: ".omp/.mcp.json"},
			{Scope: user, Path: "~/.omp/agent/mcp.json"},
			{Scope: user, Path: "~/.omp/agent/.mcp.json"},
		}},
		{ID: "pi", Product: "pi", Priority: 40, dialect: config.DialectOMP, read: omp, Places: []Place{
			{Scope: project, Path: ".pi/mcp.json"},
			{Scope: user, Path: "${PI_CODING_AGENT_DIR:-~/.pi/agent}/mcp.json"},
		}},
		{ID: "qoder", Product: "Qoder", Priority: 40, dialect: config.DialectClaude, read: serversAt(claudeServer, "mcpServers"), Places: []Place{
			{Scope: local, Path: ".qoder/settings.local.json"},
			{Scope: user, Path: "~/.qoder/settings.json"},
			{Scope: user, Path: "~/.qoder/mcp.json"},
			{Scope: user, OS: "windows", Path: "{appdata}/Qoder/SharedClientCache/mcp.json"},
		}},
		{ID: "roo", Product: "Roo Code", Priority: 40, dialect: config.DialectEnvOnly, read: dedicated(inSeconds, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".roo/mcp.json"},
			{Scope: user, Path: "{appdata}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"},
			{Scope: user, Path: "{appdata}/Code - Insiders/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"},
			{Scope: user, Path: "{appdata}/VSCodium/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"},
			{Scope: user, Path: "{appdata}/Cursor/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"},
		}},
		{ID: "trae", Product: "Trae", Priority: 40, dialect: config.DialectNone, read: dedicated(plain, "mcpServers"), Places: []Place{
			{Scope: user, Path: "{appdata}/Trae/User/mcp.json"},
		}},
		{ID: "vibe", Product: "Mistral Vibe", Priority: 40, Note: unknownForm, Places: []Place{
			{Scope: user, Path: "~/.vibe/config.toml", Note: unknownForm},
		}},
		{ID: "warp", Product: "Warp", Priority: 40, Note: "its servers are kept inside the application"},
		{ID: "xcsh", Product: "xcsh", Priority: 40, dialect: config.DialectOMP, read: omp, Places: []Place{
			{Scope: project, Path: ".xcsh/mcp.json"},
			{Scope: project, Path: ".xcsh/.mcp.json"},
			{Scope: user, Path: "~/.xcsh/mcp.json"},
			{Scope: user, Path: "~/.xcsh/.mcp.json"},
		}},
		{ID: "zed", Product: "Zed", Priority: 40, dialect: config.DialectNone, read: zed, Places: []Place{
			{Scope: project, Path: ".zed/settings.json"},
			{Scope: user, OS: "linux", Path: "{config}/zed/settings.json"},
			{Scope: user, OS: "darwin", Path: "~/.config/zed/settings.json"},
			{Scope: user, OS: "windows", Path: "{appdata}/Zed/settings.json"},
		}},
		{ID: "vscode", Product: "VS Code", Priority: 20, dialect: config.DialectVSCode, read: vscodeFile, Places: []Place{
			{Scope: project, Path: ".vscode/mcp.json"},
			{Scope: project, Path: ".vscode/settings.json", read: vscode("mcp", "servers")},
			{Scope: project, Path: ".devcontainer/devcontainer.json", read: devcontainer},
			{Scope: project, Path: ".devcontainer.json", read: devcontainer},
			{Scope: project, Path: ".devcontainer/*/devcontainer.json", read: devcontainer},
			{Scope: user, Path: "{appdata}/Code/User/mcp.json"},
			{Scope: user, Path: "{appdata}/Code/User/profiles/*/mcp.json"},
			{Scope: user, Path: "{appdata}/Code/User/settings.json", read: vscode("mcp", "servers")},
			{Scope: user, Path: "{appdata}/Code - Insiders/User/mcp.json"},
			{Scope: user, Path: "{appdata}/Code - Insiders/User/profiles/*/mcp.json"},
			{Scope: user, Path: "{appdata}/Code - Insiders/User/settings.json", read: vscode("mcp", "servers")},
			{Scope: user, Path: "{appdata}/VSCodium/User/mcp.json"},
			{Scope: user, Path: "{appdata}/VSCodium/User/profiles/*/mcp.json"},
			{Scope: user, Path: "{appdata}/VSCodium/User/settings.json", read: vscode("mcp", "servers")},
		}},
		{ID: "mcp-json", Product: "mcp.json", Priority: 5, dialect: config.DialectOMP, read: rootFile, Places: []Place{
			{Scope: project, Path: "mcp.json", AlsoReadBy: []string{"oh-my-pi", "xcsh"}},
		}},
	}
	for i := range table {
		p := &table[i]
		for j := range p.Places {
			if place := &p.Places[j]; place.read == nil {
				place.read = p.read
			}
		}
	}
	return table
}
