package patchbay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/secret"
)

// Process is the child of a stdio server that runs. Hosts beside each other have
// some in common.
type Process struct {
	Server string        `json:"server"`
	PID    int           `json:"pid"`
	Users  []ProcessUser `json:"users"` // the host's open sessions that use it, by name

	kind   conn.Process
	launch *policy.Connection // behind a pointer, so that nobody prints it by chance
}

// ProcessUser is a session that uses a process.
type ProcessUser struct {
	Name string `json:"name"`          // SessionOptions.Name
	PID  int    `json:"pid,omitempty"` // SessionOptions.PID
}

// Processes returns the children of the host's servers, by server.
func (h *Host) Processes() []Process {
	sessions := map[string]*Session{} // those that a client has for its single requests are one to servers
	for _, s := range h.openSessions() {
		sessions[s.profile().Session] = s
	}
	env := h.newSurroundings()
	all := []Process{}
	for _, kind := range h.manager.Processes() {
		p := Process{Server: kind.Server, PID: kind.PID, Users: []ProcessUser{}, kind: kind}
		for _, id := range kind.Users {
			if s := sessions[id]; s != nil && s.has(kind.Server) {
				p.Users = append(p.Users, ProcessUser{s.opts.Name, s.opts.PID})
			}
		}
		slices.SortFunc(p.Users, func(a, b ProcessUser) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID)) })
		if st, err := h.reading.Load().find(kind.Server); err == nil {
			launch := h.connection(*st, env)
			for _, name := range slices.Concat(config.References(st.Server, st.entry.Dialect), secret.Names(st.entry)) {
				if value, set := h.opts.lookup(name); set {
					launch.References = append(launch.References, name+"="+value)
				}
			}
			p.launch = &launch
		}
		all = append(all, p)
	}
	return all
}

// Unlike is how two processes of a server differ: why they are not one. Of what
// differs it has names, never values. Its zero value means that they could be one.
type Unlike struct {
	Directory    bool     `json:"directory,omitempty"`    // in which they run
	Variables    []string `json:"variables,omitempty"`    // of their environments
	Entry        []string `json:"entry,omitempty"`        // members of their configuration entries; of env and headers the single ones
	Person       bool     `json:"person,omitempty"`       // in whose name they are used
	Capabilities []string `json:"capabilities,omitempty"` // of their clients
	Era          bool     `json:"era,omitempty"`          // of the protocol, in which they are asked
	Roots        bool     `json:"roots,omitempty"`        // of their clients
	Session      bool     `json:"session,omitempty"`      // that has one of them for itself
}

// Unlike says how a process differs from another of its server.
func (p Process) Unlike(other Process) Unlike {
	a, b := p.kind, other.kind
	var u Unlike
	if a.Launch != b.Launch && p.launch != nil && other.launch != nil {
		d := policy.Differ(*p.launch, *other.launch)
		u.Directory, u.Variables, u.Entry = d.Directory, d.Variables, d.Entry
	}
	if a.Kind != b.Kind {
		u.Capabilities = differentCapabilities(a.Capabilities, b.Capabilities)
	}
	u.Person = a.Kind == b.Kind && a.Declared != b.Declared
	u.Era, u.Roots, u.Session = a.Legacy != b.Legacy, a.Roots != b.Roots, a.Session != b.Session
	return u
}

// differentCapabilities names what two clients do not declare alike.
func differentCapabilities(a, b json.RawMessage) (names []string) {
	one, two := members(a), members(b)
	for _, name := range slices.Sorted(maps.Keys(one)) {
		if one[name] != two[name] {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(two)) {
		if _, ok := one[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// members are what counts of capabilities, each in one form.
func members(capabilities json.RawMessage) map[string]string {
	var declared map[string]json.RawMessage
	_ = json.Unmarshal([]byte(whatCounts(capabilities)), &declared) // which is an object
	all := map[string]string{}
	for name, value := range declared {
		all[name] = string(value)
	}
	return all
}

// Count is how many things differ.
func (u Unlike) Count() int {
	n := len(u.Variables) + len(u.Entry) + len(u.Capabilities)
	for _, differs := range []bool{u.Directory, u.Person, u.Era, u.Roots, u.Session} {
		if differs {
			n++
		}
	}
	return n
}

// String says it in words, such as "variables A, B; directory"; it is empty if
// nothing differs. Of many names some are left out.
func (u Unlike) String() string {
	const most = 5
	var parts []string
	named := func(one, many string, names []string) {
		switch n := len(names); {
		case n == 1:
			parts = append(parts, one+" "+names[0])
		case n > most:
			parts = append(parts, fmt.Sprintf("%s %s and %d more", many, strings.Join(names[:most], ", "), n-most))
		case n > 0:
			parts = append(parts, many+" "+strings.Join(names, ", "))
		}
	}
	flag := func(set bool, word string) {
		if set {
			parts = append(parts, word)
		}
	}
	flag(u.Directory, "directory")
	named("variable", "variables", u.Variables)
	named("entry:", "entry:", u.Entry)
	flag(u.Person, "person")
	named("capability", "capabilities", u.Capabilities)
	flag(u.Era, "protocol era")
	flag(u.Roots, "roots")
	flag(u.Session, "one of them is for a single session")
	return strings.Join(parts, "; ")
}
