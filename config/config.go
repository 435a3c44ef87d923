// Package config is the one model of an MCP server's configuration: what an
// entry says, where it comes from, whether it is valid, how several sources
// merge, how its placeholders expand and how a file is edited in place.
//
// Everything here is a pure function of values: the package touches no file
// system, no environment and no network, so any of it may be called before an
// entry is trusted. Reading files is the job of package discover, writing them
// that of package atomicfile.
//
// The path of one entry:
//
//	ParseJSON     bytes → Node, with lines and columns        node.go
//	DecodeServer  Node → Server and problems                  decode.go
//	Validate      the rules of a server, in the seeds' words  validate.go
//	Merge         entries of all sources → what is in force   merge.go
//	Expand        ${VAR} and the like, after trust            expand.go
//	SetMember     a change to a file's bytes, and no other    edit.go
package config

import "strconv"

// State is where a server stands. Discovery and trust give the first ones,
// a connection the others.
type State string

const (
	Disabled      State = "disabled"
	NeedsApproval State = "needs-approval"
	Pending       State = "pending"
	Connecting    State = "connecting"
	Connected     State = "connected"
	NeedsAuth     State = "needs-auth"
	Failed        State = "failed"
)

// Scope says whose file an entry comes from.
type Scope string

const (
	ScopeManaged Scope = "managed" // the administrator's
	ScopeLocal   Scope = "local"   // this user's, for this project only
	ScopeProject Scope = "project" // the project's, shared with everyone who clones it
	ScopeUser    Scope = "user"    // this user's, for every project
)

// rank orders scopes within one provider: the nearest to the work wins.
func (s Scope) rank() int {
	switch s {
	case ScopeManaged:
		return 0
	case ScopeLocal:
		return 1
	case ScopeProject:
		return 2
	default:
		return 3
	}
}

// Origin is the place an entry was read from.
type Origin struct {
	Provider string `json:"provider"`          // id of the provider, such as "cursor"
	Product  string `json:"product"`           // its name for people, such as "Cursor"
	Priority int    `json:"priority"`          // of the provider: higher wins a name
	Scope    Scope  `json:"scope"`             // as the product calls it
	File     string `json:"file"`              // absolute path
	Line     int    `json:"line,omitempty"`    // of the entry's key, from 1
	Pointer  string `json:"pointer,omitempty"` // JSON pointer of the entry in its file
	Plugin   string `json:"plugin,omitempty"`  // of the product that brings the entry
	Project  string `json:"project,omitempty"` // the project whose tree holds the file: such an entry needs approval

	// AlsoReadBy names other products that read the same file.
	AlsoReadBy []string `json:"alsoReadBy,omitempty"`
}

// Entry is one server as one file declares it.
type Entry struct {
	Name   string `json:"name"`            // the identifier used everywhere
	Title  string `json:"title,omitempty"` // the name as the file spells it, where that differs
	Server Server `json:"server"`
	Origin Origin `json:"origin"`

	// Dialect tells what placeholders mean in this entry.
	Dialect Dialect `json:"dialect,omitempty"`

	// Problems of this entry alone. One of severity error means it cannot be
	// used; the other entries of the file are unaffected.
	Problems []Problem `json:"problems,omitempty"`

	// Off says why the source itself switches the entry off, beyond its own
	// `enabled` member: a name on the product's deny list, for example.
	Off string `json:"off,omitempty"`

	// Forbidden tells that Off is an administrator's decision, which nobody else
	// lifts.
	Forbidden bool `json:"forbidden,omitempty"`

	// Skip says why the entry can never be connected from here: it is Patchbay
	// itself, or exists only inside its product. Such an entry is shown, owns
	// no name and is no error.
	Skip string `json:"skip,omitempty"`

	// Adopted is set where the file has Patchbay in the place of the entry, which
	// is as it was: provider/name, the endpoint that its product is served at.
	Adopted string `json:"adopted,omitempty"`

	// Executes lists what would run on this machine to obtain a value, besides
	// the server's own command: `!command` values, header helpers. They run
	// only for an entry that is trusted.
	Executes []string `json:"executes,omitempty"`

	// Inputs are what the user has to be asked for before the entry can be used.
	Inputs []Input `json:"inputs,omitempty"`
}

// Enabled reports whether the entry's own source wants it on.
func (e Entry) Enabled() bool {
	return e.Off == "" && (e.Server.Enabled == nil || *e.Server.Enabled)
}

// Valid reports whether no problem forbids the entry's use.
func (e Entry) Valid() bool {
	for _, p := range e.Problems {
		if p.Severity == SeverityError {
			return false
		}
	}
	return true
}

// Severity grades a Problem.
type Severity string

const (
	SeverityError   Severity = "error"   // the entry, or the file, cannot be used
	SeverityWarning Severity = "warning" // something was ignored or will surprise
	SeverityNote    Severity = "note"    // worth knowing, nothing to fix
)

// Problem is one thing wrong in a configuration file, with its place.
type Problem struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Pointer  string   `json:"pointer,omitempty"` // JSON pointer to the member
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"` // what to do about it
}

// String renders the problem the way compilers do: file:line:column: message.
func (p Problem) String() string {
	s := p.Place()
	if s != "" {
		s += ": "
	}
	s += p.Message
	if p.Pointer != "" {
		s += " (at " + p.Pointer + ")"
	}
	return s
}

// Place renders where the problem is, as far as it is known.
func (p Problem) Place() string {
	if p.File == "" || p.Line == 0 {
		return p.File
	}
	s := p.File + ":" + strconv.Itoa(p.Line)
	if p.Column > 0 {
		s += ":" + strconv.Itoa(p.Column)
	}
	return s
}
