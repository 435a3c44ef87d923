package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

// PinnedTool is the definition of a tool as it was accepted or first seen.
type PinnedTool struct {
	Digest string    `json:"digest"`
	Since  time.Time `json:"since"`

	// Definition is what the digest covers, to show changes against. A very
	// large one is not kept.
	Definition json.RawMessage `json:"definition,omitempty"`
}

// Bounds of what is remembered of one server.
const (
	maxPinnedTools      = 2048
	maxPinnedDefinition = 64 << 10
)

// pinsVersion is the format of the pins file.
const pinsVersion = 1

// Pins is the remembered definitions of tools, by a key of their server and
// their name: the content of the pins file. The zero value holds none.
type Pins struct {
	servers map[string]map[string]PinnedTool
}

type pinsFile struct {
	Version int                              `json:"version"`
	Servers map[string]map[string]PinnedTool `json:"servers"`
}

// MarshalJSON writes the pins file.
func (p Pins) MarshalJSON() ([]byte, error) {
	f := pinsFile{pinsVersion, p.servers}
	if f.Servers == nil {
		f.Servers = map[string]map[string]PinnedTool{}
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads it. A file of another version is an error: taking it for
// empty would accept every change unseen.
func (p *Pins) UnmarshalJSON(data []byte) error {
	var f pinsFile
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if f.Version != pinsVersion {
		return fmt.Errorf("version %d of the pins file is not known here", f.Version)
	}
	p.servers = f.Servers
	return nil
}

// PinReport is how a catalog differs from what is remembered of it, by sorted
// names of tools.
type PinReport struct {
	New     []string `json:"new,omitempty"`
	Changed []string `json:"changed,omitempty"` // not to be called until accepted
	Removed []string `json:"removed,omitempty"`
}

// Check compares a server's tools with what is remembered of them. A name that
// is defined twice is changed unless both are as remembered. When more names
// are remembered than any honest server has, unknown ones count as changed, so
// that a flood of names cannot push the others out of memory.
func (p Pins) Check(server string, tools []json.RawMessage) PinReport {
	pinned := p.servers[server]
	full := len(pinned) >= maxPinnedTools
	var report PinReport
	seen := map[string]string{}
	for _, definition := range tools {
		t := readDefinition(definition)
		if !t.named {
			continue // it cannot be called
		}
		was, known := pinned[t.name]
		first, again := seen[t.name]
		seen[t.name] = t.digest
		switch {
		case known && was.Digest != t.digest, again && first != t.digest, !known && full:
			report.Changed = append(report.Changed, t.name)
		case !known:
			report.New = append(report.New, t.name)
		}
	}
	for name := range pinned {
		if _, ok := seen[name]; !ok {
			report.Removed = append(report.Removed, name)
		}
	}
	report.Changed = sortedSet(report.Changed)
	report.Removed = sortedSet(report.Removed)
	report.New = sortedSet(slices.DeleteFunc(report.New, func(name string) bool {
		return slices.Contains(report.Changed, name)
	}))
	return report
}

func sortedSet(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// Learn remembers the tools that are new and leaves the others: trust on first
// use. It reports whether there was anything to remember.
func (p *Pins) Learn(server string, tools []json.RawMessage, now time.Time) bool {
	pinned, learned := maps.Clone(p.servers[server]), false
	for _, definition := range tools {
		t := readDefinition(definition)
		if _, known := pinned[t.name]; known || !t.named || len(pinned) >= maxPinnedTools {
			continue
		}
		if pinned == nil {
			pinned = map[string]PinnedTool{}
		}
		pinned[t.name] = t.pin(now)
		learned = true
	}
	if learned {
		p.set(server, pinned)
	}
	return learned
}

// Accept remembers a server's tools as they are now, in place of whatever was
// remembered: a person has seen what changed.
func (p *Pins) Accept(server string, tools []json.RawMessage, now time.Time) {
	was, is := p.servers[server], map[string]PinnedTool{}
	for _, definition := range tools {
		t := readDefinition(definition)
		if _, twice := is[t.name]; twice || !t.named || len(is) >= maxPinnedTools {
			continue
		}
		since := now
		if old, ok := was[t.name]; ok && old.Digest == t.digest {
			since = old.Since
		}
		is[t.name] = t.pin(since)
	}
	p.set(server, is)
}

// set never changes a map in place, so that a copy of Pins stays what it was.
func (p *Pins) set(server string, tools map[string]PinnedTool) {
	servers := maps.Clone(p.servers)
	if servers == nil {
		servers = map[string]map[string]PinnedTool{}
	}
	servers[server] = tools
	p.servers = servers
}

// Digest returns the number a definition is remembered by: SHA-256, as
// hexadecimal text, over the members that a model or a person is shown. The
// order of members and white space do not count, the text of numbers does.
func Digest(definition json.RawMessage) string { return readDefinition(definition).digest }

// definition is what pins know of the definition of a tool.
type definition struct {
	name   string
	named  bool
	digest string
	pinned []byte // what the digest covers; nil if it is not to be read
}

func readDefinition(raw json.RawMessage) definition {
	node, err := config.ParseJSON(raw)
	if err != nil { // its bytes have to do
		var d struct{ Name *string }
		if json.Unmarshal(raw, &d) != nil || d.Name == nil {
			d.Name = new(string)
		}
		return definition{*d.Name, *d.Name != "", digest("patchbay bytes 1\n", raw), nil}
	}
	name, named := node.Get("name")
	pinned := canonicalJSON(nil, pinnedPart(node))
	return definition{name.Text, named && name.Kind == config.String, digest("patchbay tool 1\n", pinned), pinned}
}

func digest(kind string, covered []byte) string {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write(covered)
	return hex.EncodeToString(h.Sum(nil))
}

func (d definition) pin(since time.Time) PinnedTool {
	t := PinnedTool{Digest: d.digest, Since: since.UTC()}
	if len(d.pinned) <= maxPinnedDefinition {
		t.Definition = d.pinned
	}
	return t
}

// pinnedPart reduces a definition to the members that are pinned. Case does not
// matter, because to many readers of JSON it does not either.
func pinnedPart(definition config.Node) config.Node {
	covered := []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons"}
	definition.Members = slices.DeleteFunc(slices.Clone(definition.Members), func(m config.Member) bool {
		return !slices.ContainsFunc(covered, func(c string) bool { return strings.EqualFold(c, m.Name) })
	})
	return definition
}

// canonicalJSON appends the one rendering of a value: no white space, members
// sorted by name. Members of one name keep their order, as readers differ about
// which of them counts.
func canonicalJSON(b []byte, n config.Node) []byte {
	switch n.Kind {
	case config.Null:
		return append(b, "null"...)
	case config.String:
		return appendText(b, n.Text)
	case config.Array:
		b = append(b, '[')
		for _, item := range n.Items {
			b = canonicalJSON(separate(b), item)
		}
		return append(b, ']')
	case config.Object:
		b = append(b, '{')
		for _, m := range sortedMembers(n) {
			b = append(appendText(separate(b), m.Name), ':')
			b = canonicalJSON(b, m.Value)
		}
		return append(b, '}')
	default: // numbers and booleans, as they are written
		return append(b, n.Text...)
	}
}

func sortedMembers(n config.Node) []config.Member {
	members := slices.Clone(n.Members)
	slices.SortStableFunc(members, func(a, b config.Member) int { return strings.Compare(a.Name, b.Name) })
	return members
}

// Mode returns what happens when definitions of an entry's tools change. A
// project cannot loosen it.
func Mode(e config.Entry) config.Pin {
	remote := e.Server.Transport() == config.HTTP || e.Server.Transport() == config.SSE
	switch {
	case e.Origin.Project != "":
		return config.PinStrict
	case e.Server.Pin != "":
		return e.Server.Pin
	case remote:
		return config.PinStrict
	default:
		return config.PinOff
	}
}
