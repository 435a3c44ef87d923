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

	read   reader
	script func(d *doc, text []byte) // for a file that is no data
}

// relative reports whether the place is one in a project.
func (p *Place) relative() bool {
	return !strings.ContainsAny(p.Path[:1], "~{$") && !isAbs("windows", p.Path)
}

// flagProvider is the provider of files named for one run.
const flagProvider = "flag"

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
			{Scope: managed, OS: "linux", Path: "/etc/claude-code/managed-mcp.json"},
			{Scope: managed, OS: "darwin", Path: "/Library/Application Support/ClaudeCode/managed-mcp.json"},
			{Scope: managed, OS: "windows", Path: "C:/Program Files/ClaudeCode/managed-mcp.json"},
			{Scope: managed, OS: "linux", Path: "/etc/claude-code/managed-settings.json", read: claudeSettings},
			{Scope: managed, OS: "darwin", Path: "/Library/Application Support/ClaudeCode/managed-settings.json", read: claudeSettings},
			{Scope: managed, OS: "windows", Path: "C:/Program Files/ClaudeCode/managed-settings.json", read: claudeSettings},
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
			{Scope: project, Path: ".mcp.json", AlsoReadBy: []string{"Copilot CLI", "Qoder CLI", "oh-my-pi"}},
			{Scope: project, Path: ".claude/.mcp.json"},
			{Scope: project, Path: ".claude/mcp.json"},
			{Scope: project, Path: ".claude/settings.local.json", read: claudeSettings},
			{Scope: project, Path: ".claude/settings.json", read: claudeSettings},
			{Scope: user, Path: "${CLAUDE_CONFIG_DIR:-~}/.claude.json", read: claudeUser},
			{Scope: user, Path: "${CLAUDE_CONFIG_DIR:-~/.claude}/mcp.json"},
			{Scope: user, Path: "${CLAUDE_CONFIG_DIR:-~/.claude}/settings.json", read: claudeSettings},
		}},
		{ID: "cursor", Product: "Cursor", Priority: 50, dialect: config.DialectCursor, read: serversAt(plain, "mcpServers"), Places: []Place{
			{Scope: project, Path: ".cursor/mcp.json"},
			{Scope: user, Path: "~/.cursor/mcp.json"},
		}},
		{ID: "windsurf", Product: "Windsurf", Priority: 50, dialect: config.DialectEnvOnly, read: serversAt(plain, "mcpServers"), Places: []Place{
			{Scope: user, Path: "~/.codeium/windsurf/mcp_config.json"},
			{Scope: user, Path: "~/.codeium/windsurf-next/mcp_config.json"},
			{Scope: user, Path: "~/.codeium/mcp_config.json"},
		}},
		{ID: "claude-desktop", Product: "Claude Desktop", Priority: 40, dialect: config.DialectNone, read: serversAt(plain, "mcpServers"), Places: []Place{
			{Scope: user, Path: "{appdata}/Claude/claude_desktop_config.json"},
			{Scope: user, OS: "linux", Path: "{appdata}/claude/claude_desktop_config.json"},
		}},
		{ID: "mcp-json", Product: "mcp.json", Priority: 5, dialect: config.DialectClaude, read: rootFile, Places: []Place{
			{Scope: project, Path: "mcp.json", AlsoReadBy: []string{"oh-my-pi"}},
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
