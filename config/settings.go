package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Settings is the content of settings.json. The zero value is what holds
// without one.
type Settings struct {
	Permissions Permissions `json:"permissions,omitzero"`
	Tools       []string    `json:"tools,omitzero"` // names or patterns of the tools that are visible; nil means all, empty none
	Naming      Naming      `json:"naming,omitzero"`
	Discovery   Discovery   `json:"discovery,omitzero"`
	Limits      Limits      `json:"limits,omitzero"`
	Gateway     Gateway     `json:"gateway,omitzero"`
	Hooks       Hooks       `json:"hooks,omitzero"`

	// Extra holds members this model does not know, as they were written.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// Permissions are rules about calls of tools. Deny wins over ask, ask over
// allow.
type Permissions struct {
	Allow   []string          `json:"allow,omitempty"`
	Ask     []string          `json:"ask,omitempty"`
	Deny    []string          `json:"deny,omitempty"`
	Default PermissionDefault `json:"default,omitempty"` // where no rule matches; empty: whoever calls decides
}

// PermissionDefault is what happens to a call that no rule is about.
type PermissionDefault string

const (
	DefaultAllow PermissionDefault = "allow"
	DefaultAsk   PermissionDefault = "ask"
	DefaultDeny  PermissionDefault = "deny"
)

// Naming is how the name of a tool is made of the server's and its own.
type Naming struct {
	Style     NamingStyle `json:"style,omitempty"`     // empty means claude
	MaxLength int         `json:"maxLength,omitempty"` // of a name; 0 means 64
	Collision Collision   `json:"collision,omitempty"` // empty means suffix
}

// Collision is what becomes of tools whose names come out the same.
type Collision string

const (
	CollisionSuffix   Collision = "suffix"    // they get a suffix, but for one that has more right to the name
	CollisionLastWins Collision = "last-wins" // only the last is there; for the xcsh style
)

// NamingStyle selects a rendering of names.
type NamingStyle string

const (
	NamingClaude NamingStyle = "claude" // mcp__server__tool
	NamingXcsh   NamingStyle = "xcsh"   // mcp_server_tool
	NamingOMP    NamingStyle = "omp"
	NamingPlain  NamingStyle = "plain" // server__tool
)

// Bounds of Naming.MaxLength.
const (
	minNameLength = 32 // shorter ones would be hashes more than names
	maxToolName   = 128
)

// Discovery is where servers are looked for.
type Discovery struct {
	DisabledProviders []string   `json:"disabledProviders,omitempty"` // ids of products whose files are not read
	InheritEnv        InheritEnv `json:"inheritEnv,omitempty"`        // empty means product
}

// InheritEnv is what programs of the user's entries in other products' files
// inherit of the environment.
type InheritEnv string

const (
	InheritProduct InheritEnv = "product" // all of it where their product passes on all
	InheritBasic   InheritEnv = "basic"   // the part that any program needs
)

// Limits bound what passes through.
type Limits struct {
	ResultChars int    `json:"resultChars,omitempty"` // of a tool's result; 0 means the default
	CallTimeout *int64 `json:"callTimeout,omitempty"` // ms a server may be silent in a call; 0 for ever, nil the default
	Processes   int    `json:"processes,omitempty"`   // of all servers together; 0 means the default
	Starts      int    `json:"starts,omitempty"`      // of processes at the same time; 0 means the default
}

// maxProcesses is more than any machine can bear.
const maxProcesses = 1 << 20

// maxResultChars is the size of the largest message.
const maxResultChars = 64 << 20

// DecodeSettings reads settings.json. What is wrong is reported and left at its
// default, except that a default permission nobody understands denies.
func DecodeSettings(f *Fields) Settings {
	if f.Node.Kind != Object {
		f.Report(SeverityError, "", "settings must be an object, found "+f.Node.Kind.String(), "")
		return Settings{}
	}
	f.Ignore("$schema")
	s := Settings{Hooks: decodeHooks(f), Tools: f.selection("tools")}
	s.Tools, _ = f.upTo(MaxRules, "tools", s.Tools)
	if p := f.Object("permissions"); p != nil {
		s.Permissions = decodeRules(p)
		s.Permissions.Default = decodeDefault(p)
		p.reportUnknown()
	}
	s.Naming = decodeNaming(f)
	if d := f.Object("discovery"); d != nil {
		s.Discovery.DisabledProviders = d.Strings("disabledProviders")
		switch s.Discovery.InheritEnv = InheritEnv(d.String("inheritEnv")); s.Discovery.InheritEnv {
		case "", InheritProduct, InheritBasic:
		default:
			d.Report(SeverityError, "inheritEnv", fmt.Sprintf("unknown value %q: expected product or basic", s.Discovery.InheritEnv), "until it is corrected, basic holds")
			s.Discovery.InheritEnv = InheritBasic
		}
		d.reportUnknown()
	}
	if l := f.Object("limits"); l != nil {
		s.Limits = Limits{
			ResultChars: l.Int("resultChars", 1, maxResultChars), CallTimeout: l.Millis("callTimeout", 1),
			Processes: l.Int("processes", 1, maxProcesses), Starts: l.Int("starts", 1, maxProcesses),
		}
		l.reportUnknown()
	}
	if g := f.Object("gateway"); g != nil {
		s.Gateway = decodeGateway(g)
	}
	s.Extra = f.reportUnknown()
	return s
}

// decodeNaming reads how names are made.
func decodeNaming(f *Fields) (naming Naming) {
	n := f.Object("naming")
	if n == nil {
		return naming
	}
	naming = Naming{Style: NamingStyle(n.String("style")), MaxLength: n.Int("maxLength", minNameLength, maxToolName)}
	switch naming.Style {
	case "", NamingClaude, NamingXcsh, NamingOMP, NamingPlain:
	default:
		n.Report(SeverityError, "style", fmt.Sprintf("unknown naming style %q: expected claude, xcsh, omp or plain", naming.Style), "")
		naming.Style = ""
	}
	naming.Collision = Collision(n.String("collision"))
	switch naming.Collision {
	case "", CollisionSuffix, CollisionLastWins:
	default:
		n.Report(SeverityError, "collision", fmt.Sprintf("unknown way to settle a collision %q: expected suffix or last-wins", naming.Collision), "")
		naming.Collision = ""
	}
	n.reportUnknown()
	return naming
}

// MaxRules is how many permission rules one file may have, and how many patterns
// of visible tools: every one is held against every tool.
const MaxRules = 1000

// decodeRules reads the rules, the restrictions first. Of those that are too many
// to be applied each might be about any tool, so all are asked about.
func decodeRules(p *Fields) (rules Permissions) {
	left, cut := MaxRules, false
	for _, list := range []struct {
		name string
		into *[]string
	}{{"deny", &rules.Deny}, {"ask", &rules.Ask}, {"allow", &rules.Allow}} {
		patterns, more := p.upTo(left, list.name, p.Strings(list.name))
		*list.into = patterns
		left -= len(patterns)
		cut = cut || more && list.name != "allow"
	}
	if cut {
		rules.Ask = append(rules.Ask, "*")
	}
	return rules
}

// upTo cuts a list of patterns after the first max, and reports the place.
func (f *Fields) upTo(max int, name string, list []string) (kept []string, cut bool) {
	if len(list) <= max {
		return list, false
	}
	n, _ := f.Take(name)
	f.at(n.Items[max], PointerAt(PointerTo(f.Pointer, name), max)).Report(SeverityError, "",
		fmt.Sprintf("a file may have at most %d rules: from here on they are not applied", MaxRules), "one pattern with * can stand for many names")
	return list[:max:max], true
}

// decodeDefault reads the permission for calls without a rule. A wrong one was
// meant to say something, so it must not let calls pass.
func decodeDefault(p *Fields) PermissionDefault {
	n, ok := p.Take("default")
	if !ok {
		return ""
	}
	switch d := PermissionDefault(n.Text); {
	case n.Kind == String && (d == DefaultAllow || d == DefaultAsk || d == DefaultDeny):
		return d
	case n.Kind == String:
		p.Report(SeverityError, "default", "unknown default permission "+strconv.Quote(n.Text)+": expected allow, ask or deny", "until it is corrected, calls without a rule are denied")
	default:
		p.wrongType("default", String.String(), n, SeverityError)
	}
	return DefaultDeny
}

// reportUnknown warns of members nobody has read and returns them.
func (f *Fields) reportUnknown() map[string]json.RawMessage {
	rest := f.Rest()
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		f.Report(SeverityWarning, name, fmt.Sprintf("unknown setting %q", name), "")
	}
	return rest
}
