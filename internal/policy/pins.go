package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

// PinnedTool is the definition of a tool as it was accepted or first seen.
type PinnedTool struct {
	Digest string    `json:"digest"`
	Since  time.Time `json:"since"`

	// Definition is what the digest covers, to show changes against. It is
	// missing where a server's definitions are too large to keep them all.
	Definition json.RawMessage `json:"definition,omitempty"`

	// Ignored are members of the definition, as JSON pointers, that a person has
	// said do not count: they are no part of Definition and its digest.
	Ignored []string `json:"ignored,omitempty"`
}

// Bounds of what is remembered of one server.
const (
	maxPinnedTools = 2048
	maxPinnedName  = 1 << 10
	maxPinnedBytes = 2 << 20   // of definitions
	maxPinnedText  = 256 << 10 // of instructions
)

// pinsVersion is the format of the pins file.
const pinsVersion = 1

// Pins is the remembered definitions of tools, by a key of their server and
// their name, and the remembered instructions of servers: the content of the
// pins file. The zero value holds none.
type Pins struct {
	servers      map[string]map[string]PinnedTool
	instructions map[string]PinnedTool
}

type pinsFile struct {
	Version      int                              `json:"version"`
	Servers      map[string]map[string]PinnedTool `json:"servers"`
	Instructions map[string]PinnedTool            `json:"instructions,omitempty"`
}

// MarshalJSON writes the pins file.
func (p Pins) MarshalJSON() ([]byte, error) {
	f := pinsFile{pinsVersion, p.servers, p.instructions}
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
	p.servers, p.instructions = f.Servers, f.Instructions
	return nil
}

// PinReport is how a catalog differs from what is remembered of it, by sorted
// names of tools.
type PinReport struct {
	New     []string `json:"new,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`

	// Instructions says that the instructions are not the remembered ones.
	Instructions bool `json:"instructions,omitempty"`

	// First says that nothing is remembered of the server's tools, Untold that
	// nothing is of its instructions.
	First  bool `json:"-"`
	Untold bool `json:"-"`
}

// Check compares a server's tools with what is remembered of them. A name that
// is defined twice is changed unless both are as remembered. What could not be
// remembered counts as changed: a name longer than any honest one, and every
// new name when a flood of them has filled the memory.
func (p Pins) Check(server string, tools Definitions) PinReport {
	pinned := p.servers[server]
	full := len(pinned) >= maxPinnedTools
	seen := map[string]string{}
	fresh, changed, removed := map[string]bool{}, map[string]bool{}, map[string]bool{}
	report := PinReport{First: len(pinned) == 0}
	for _, d := range tools {
		if d.instructions {
			was, known := p.instructions[server]
			report.Untold, report.Instructions = !known, known && d.pinned != nil && was.Digest != d.digest
			continue
		}
		if !d.named {
			continue // it cannot be called
		}
		was, known := pinned[d.name]
		d = d.without(was.Ignored)
		first, again := seen[d.name]
		seen[d.name] = d.digest
		switch {
		case known && was.Digest != d.digest, again && first != d.digest, !known && (full || len(d.name) > maxPinnedName):
			changed[d.name] = true
			delete(fresh, d.name)
		case !known && !changed[d.name]:
			fresh[d.name] = true
		}
	}
	for name := range pinned {
		if _, ok := seen[name]; !ok {
			removed[name] = true
		}
	}
	report.New, report.Changed, report.Removed = slices.Sorted(maps.Keys(fresh)), slices.Sorted(maps.Keys(changed)), slices.Sorted(maps.Keys(removed))
	return report
}

// Holds reports whether a tool is defined as it is remembered.
func (p Pins) Holds(server string, tool json.RawMessage) bool {
	d := readDefinition(tool)
	was, known := p.servers[server][d.name]
	return d.named && known && was.Digest == d.without(was.Ignored).digest
}

// Learn remembers what is new and leaves the rest: trust on first use. It reports
// whether there was anything to remember.
func (p *Pins) Learn(server string, tools Definitions, now time.Time) bool {
	told := p.learnInstructions(server, tools, now)
	was := p.servers[server]
	is := maps.Clone(was)
	if is == nil {
		is = map[string]PinnedTool{}
	}
	remember(is, tools, now)
	if len(is) == len(was) {
		return told
	}
	p.set(server, is)
	return true
}

// LearnFirst is Learn for a server whose new tools wait to be accepted: it
// remembers tools only if it knows none of the server.
func (p *Pins) LearnFirst(server string, tools Definitions, now time.Time) bool {
	if len(p.servers[server]) > 0 {
		return p.learnInstructions(server, tools, now)
	}
	return p.Learn(server, tools, now)
}

// learnInstructions remembers the instructions of a server of which nothing is
// remembered, also that it has none.
func (p *Pins) learnInstructions(server string, tools Definitions, now time.Time) bool {
	if _, known := p.instructions[server]; known {
		return false
	}
	return p.setInstructions(server, tools, now)
}

func (p *Pins) setInstructions(server string, tools Definitions, now time.Time) bool {
	i := slices.IndexFunc(tools, func(d definition) bool { return d.instructions })
	if i < 0 {
		return false
	}
	t := PinnedTool{Digest: tools[i].digest, Since: now.UTC()}
	if len(tools[i].pinned) <= maxPinnedText {
		t.Definition = tools[i].pinned
	}
	all := maps.Clone(p.instructions)
	if all == nil {
		all = map[string]PinnedTool{}
	}
	all[server] = t
	p.instructions = all
	return true
}

// Accept remembers what a server offers as it is now, in place of whatever was
// remembered: a person has seen what changed. What is ignored of a tool, by its
// name, does not count from now on, besides what did not count before. Tools that
// the server does not offer now stay remembered as long as there is plenty of room:
// it may offer them to other clients.
func (p *Pins) Accept(server string, tools Definitions, ignored map[string][]string, now time.Time) {
	tools = slices.Clone(tools)
	for i, d := range tools {
		all := append(slices.Clip(p.servers[server][d.name].Ignored), ignored[d.name]...)
		slices.Sort(all)
		tools[i] = d.without(slices.Compact(all))
	}
	is := map[string]PinnedTool{}
	remember(is, tools, now)
	for _, name := range slices.Sorted(maps.Keys(p.servers[server])) {
		old := p.servers[server][name]
		t, ok := is[name]
		switch {
		case ok && t.Digest == old.Digest:
			t.Since = old.Since
			is[name] = t
		case !ok && len(is) < maxPinnedTools/2:
			is[name] = old
		}
	}
	p.set(server, is)
	if was := p.instructions[server]; was.Digest != tools.instructions() {
		p.setInstructions(server, tools, now)
	}
}

// remember adds the tools that are not known yet, as far as there is room.
func remember(known map[string]PinnedTool, tools Definitions, now time.Time) {
	size := 0
	for _, t := range known {
		size += len(t.Definition)
	}
	for _, d := range tools {
		if _, ok := known[d.name]; ok || d.instructions || !d.named || len(d.name) > maxPinnedName || len(known) >= maxPinnedTools {
			continue
		}
		t := PinnedTool{Digest: d.digest, Since: now.UTC(), Ignored: d.ignored}
		if size += len(d.pinned); size <= maxPinnedBytes {
			t.Definition = d.pinned
		}
		known[d.name] = t
	}
}

// Copy has what is remembered of a server be remembered of another one, too.
func (p *Pins) Copy(from, to string) {
	if tools, ok := p.servers[from]; ok {
		p.set(to, tools)
	}
	if text, ok := p.instructions[from]; ok {
		instructions := maps.Clone(p.instructions)
		instructions[to] = text
		p.instructions = instructions
	}
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

// DigestInstructions is Digest for the instructions of a server.
func DigestInstructions(text string) string {
	return digest("patchbay instructions 1\n", []byte(text))
}

// Definitions are those of a server's tools as pins compare them. To read them
// takes a while, as every byte counts.
type Definitions []definition

// ReadDefinitions reads the definitions of a server's tools.
func ReadDefinitions(tools []json.RawMessage) Definitions {
	all := make(Definitions, len(tools), len(tools)+1)
	for i, raw := range tools {
		all[i] = readDefinition(raw)
	}
	return all
}

// WithInstructions adds what the server tells models of itself; empty means
// nothing.
func (ds Definitions) WithInstructions(text string) Definitions {
	d := definition{instructions: true, digest: DigestInstructions(text)}
	if text != "" {
		d.pinned, _ = json.Marshal(text) // texts always marshal
	}
	return append(ds, d)
}

// instructions returns the digest of the instructions, nothing if they are not
// among the definitions.
func (ds Definitions) instructions() string {
	for _, d := range ds {
		if d.instructions {
			return d.digest
		}
	}
	return ""
}

// definition is what pins know of the definition of a tool, or of a server's
// instructions.
type definition struct {
	instructions bool

	name   string
	named  bool
	digest string
	pinned []byte // what the digest covers; nil if it is not JSON, or if there are no instructions

	ignored []string // members that were left out of it
}

func readDefinition(raw json.RawMessage) definition {
	pinned, name := canonicalDefinition(raw)
	d := definition{digest: digest("patchbay tool 1\n", pinned), pinned: pinned}
	if pinned == nil { // no JSON: the bytes have to do
		d.digest = digest("patchbay bytes 1\n", raw)
	}
	d.named = json.Unmarshal(name, &d.name) == nil && len(name) > 0 && name[0] == '"'
	return d
}

func digest(kind string, covered []byte) string {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write(covered)
	return hex.EncodeToString(h.Sum(nil))
}

// Mode returns what happens when definitions of an entry's tools change. For an
// entry of a project that is always strict, and for one of the user's own what it
// says: a user updates what they have installed, and is told what that changed.
func Mode(e config.Entry) config.Pin {
	switch {
	case e.Origin.Project != "":
		return config.PinStrict
	case e.Server.Pin == config.PinWarn, e.Server.Pin == config.PinOff:
		return e.Server.Pin
	case e.Server.Pin != "": // strict, or a word that nobody knows
		return config.PinStrict
	case e.Server.Transport() == config.InProcess: // it is a part of the program
		return config.PinOff
	default:
		return config.PinWarn
	}
}
