package discover

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// native reads our own files: mcpServers and the overrides beside it.
func native(d *doc) {
	for _, m := range d.root.Members {
		switch m.Name {
		case "$schema", "mcpServers", "disabledServers", "enabledServers", "sharedServers":
		default:
			d.report(config.SeverityWarning, m.Value, config.PointerTo("", m.Name), fmt.Sprintf("unknown top-level field %q", m.Name), "")
		}
	}
	serversAt(nativeServer, "mcpServers")(d)
	disabled, _ := d.names(d.root, "", "disabledServers")
	enabled, _ := d.names(d.root, "", "enabledServers")
	shared, _ := d.names(d.root, "", "sharedServers")
	if d.origin.Project != "" {
		d.overrides(disabled, enabled)
		return
	}
	r := &d.scan.result
	r.DisabledServers = mergeNames(r.DisabledServers, disabled)
	r.EnabledServers = mergeNames(r.EnabledServers, enabled)
	r.SharedServers = mergeNames(r.SharedServers, shared)
}

func mergeNames(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// overrides applies lists of names to the entries of the file's provider:
// enabledServers switches on what says enabled: false, disabledServers wins.
func (d *doc) overrides(disabled, enabled []string) {
	if len(enabled) > 0 {
		d.rule(func(e *config.Entry) string {
			if slices.Contains(enabled, sourceName(e)) {
				e.Server.Enabled = nil
			}
			return ""
		})
	}
	d.denyNames(disabled, "disabledServers", nil)
}

// nativeServer reads a server of our own files. Here a member nobody knows is
// likely a mistake.
func nativeServer(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = config.DecodeServer(f)
	e.Server.Extra = f.Rest()
	if len(e.Server.Extra) > 0 {
		f.Report(config.SeverityWarning, "", "not understood: "+config.Escape(strings.Join(slices.Sorted(maps.Keys(e.Server.Extra)), ", ")), "")
	}
	if e.Title != "" {
		f.Report(config.SeverityWarning, "", fmt.Sprintf("Server name can only contain letters, numbers, dash, underscore, and dot; read as %q", e.Name), "")
	}
}
