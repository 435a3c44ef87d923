package patchbay

import (
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/conn"
)

// ToolInfo is a tool as its server offers it, for people: its own name, the
// beginning of its description, and what its server explicitly says of its
// effects. Sessions have Tools.
type ToolInfo = bridge.Brief

// ToolAnnotations are what a server explicitly says of a tool's effects: claims,
// which decide nothing about permission.
type ToolAnnotations = bridge.Annotations

// toolInfos is what a catalog says of its tools, for as long as it is the
// server's. Every snapshot shares it.
type toolInfos struct {
	catalog *conn.Catalog
	tools   []ToolInfo
}

// toolInfos reads the tools of a server's catalog, once.
func (h *Host) toolInfos(server string, c *conn.Catalog) []ToolInfo {
	h.knownMu.Lock()
	known := h.infos[server]
	h.knownMu.Unlock()
	if known.catalog == c {
		return known.tools
	}
	known = toolInfos{catalog: c, tools: make([]ToolInfo, len(c.Tools))}
	for i, definition := range c.Tools {
		known.tools[i] = bridge.BriefTool(definition)
	}
	h.knownMu.Lock()
	defer h.knownMu.Unlock()
	h.infos[server] = known
	return known.tools
}

// forgetInfos drops what was read of servers that are gone.
func (h *Host) forgetInfos(now *reading) {
	h.knownMu.Lock()
	defer h.knownMu.Unlock()
	maps.DeleteFunc(h.infos, func(server string, _ toolInfos) bool {
		_, there := now.inForce[server]
		return !there
	})
}

// WithoutTools returns the snapshot without the tools of servers, of which there
// may be thousands. Their numbers stay.
func (s Snapshot) WithoutTools() Snapshot {
	s.Servers = slices.Clone(s.Servers)
	for i := range s.Servers {
		s.Servers[i].Tools = nil
	}
	return s
}
