package patchbay

import "github.com/patchbay-mcp/patchbay/internal/conn"

// Process is the child of a stdio server that runs. Hosts beside each other have
// some in common.
type Process struct {
	Server   string `json:"server"`
	PID      int    `json:"pid"`
	Sessions int    `json:"sessions"` // open ones that use it

	kind conn.Process
}

// Processes returns the children of the host's servers, by server.
func (h *Host) Processes() []Process {
	all := []Process{}
	for _, p := range h.manager.Processes() {
		all = append(all, Process{Server: p.Server, PID: p.PID, Sessions: p.Sessions, kind: p})
	}
	return all
}

// Unlike says why a process is not the same as another of its server, in words
// that complete "it has"; nothing if it could be. Launched is whether the two are
// started the same way: if not, their entry, directory or environment differs.
func (p Process) Unlike(other Process) (reason string, launched bool) {
	a, b := p.kind, other.kind
	switch {
	case a.Launch != b.Launch:
		return "another way to be started", false
	case a.Session != "" || b.Session != "":
		return "a session for itself", true
	case a.Declared != b.Declared:
		return "clients with other capabilities", true
	case a.Legacy != b.Legacy:
		return "clients of another protocol era", true
	case a.Roots != b.Roots:
		return "clients with other roots", true
	}
	return "", true
}
