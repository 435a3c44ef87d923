package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Fields reads the members of one object, checks their types and remembers
// which were read, so that what nobody understood is kept and shown. Every
// product's reader is written with it: it names what is wrong, with file, line
// and pointer, and goes on.
type Fields struct {
	Node     Node
	File     string
	Pointer  string
	Problems *[]Problem // shared by the Fields of nested objects

	read []bool // of the node's members, in their order
}

// NewFields starts reading the object node that file holds at pointer.
func NewFields(node Node, file, pointer string) *Fields {
	return &Fields{Node: node, File: file, Pointer: pointer, Problems: new([]Problem), read: make([]bool, len(node.Members))}
}

// MaxProblems bounds what is reported about one entry: the next one helps
// nobody, and a file of nothing but mistakes must not cost more than another.
const MaxProblems = 100

func (f *Fields) full() bool { return len(*f.Problems) >= MaxProblems }

// Report adds a problem at a member; an empty name means the object itself.
func (f *Fields) Report(sev Severity, name, message, hint string) {
	if f.full() {
		return
	}
	p := Problem{Severity: sev, File: f.File, Line: f.Node.Line, Column: f.Node.Column, Pointer: f.Pointer, Message: message, Hint: hint}
	if name != "" {
		p.Pointer = PointerTo(f.Pointer, name)
		if n, ok := f.Node.Get(name); ok {
			p.Line, p.Column = n.Line, n.Column
		}
	}
	*f.Problems = append(*f.Problems, p)
}

// Has reports whether the object has the member, whatever its type.
func (f *Fields) Has(name string) bool {
	_, ok := f.Node.Get(name)
	return ok
}

// Take returns the member and marks it read. A null counts as absent.
func (f *Fields) Take(name string) (Node, bool) {
	for i, m := range f.Node.Members {
		if m.Name == name {
			f.read[i] = true
			return m.Value, m.Value.Kind != Null
		}
	}
	return Node{}, false
}

// take returns the member if it is of the wanted kind, else reports it.
func (f *Fields) take(name string, kind Kind, sev Severity) (Node, bool) {
	n, ok := f.Take(name)
	if ok && n.Kind != kind {
		f.wrongType(name, kind.String(), n, sev)
		return Node{}, false
	}
	return n, ok
}

func (f *Fields) wrongType(name, want string, got Node, sev Severity) {
	message := fmt.Sprintf("%q must be %s, found %s", name, want, got.Kind)
	if sev == SeverityWarning {
		message = fmt.Sprintf("invalid %q value, ignoring: expected %s, found %s", name, want, got.Kind)
	}
	f.Report(sev, name, message, "")
}

// String reads the first of the names that is present as a string.
func (f *Fields) String(names ...string) string {
	for _, name := range names {
		if n, ok := f.take(name, String, SeverityError); ok {
			return n.Text
		}
	}
	return ""
}

// Secret reads a string that may be confidential.
func (f *Fields) Secret(name string) Secret { return NewSecret(f.String(name)) }

// Strings reads a list of strings. Absent is nil; an empty list is not.
func (f *Fields) Strings(name string) []string {
	n, ok := f.take(name, Array, SeverityError)
	if !ok {
		return nil
	}
	out := make([]string, 0, len(n.Items))
	for i, it := range n.Items {
		if it.Kind != String && f.full() {
			continue
		}
		if it.Kind != String {
			f.at(it, PointerAt(PointerTo(f.Pointer, name), i)).Report(SeverityError, "",
				fmt.Sprintf("every element of %q must be a string, found %s", name, it.Kind), "")
			continue
		}
		out = append(out, it.Text)
	}
	return out
}

// Secrets reads a map of strings. Numbers and booleans are taken as their text,
// as most products do; nulls are left out.
func (f *Fields) Secrets(name string) map[string]Secret {
	n, ok := f.take(name, Object, SeverityError)
	if !ok {
		return nil
	}
	out := make(map[string]Secret, len(n.Members))
	inner := f.at(n, PointerTo(f.Pointer, name))
	for _, m := range n.Members {
		switch {
		case m.Repeated:
			inner.repeated(m)
		case m.Value.Kind == Null:
		case m.Value.Kind == Array || m.Value.Kind == Object:
			inner.Report(SeverityError, m.Name, fmt.Sprintf("%s.%s must be a string, found %s", name, m.Name, m.Value.Kind), "")
		default:
			out[m.Name] = NewSecret(m.Value.Text)
		}
	}
	return out
}

// StringMap reads a map of strings that are no secrets.
func (f *Fields) StringMap(name string) map[string]string {
	secrets := f.Secrets(name)
	if secrets == nil {
		return nil
	}
	out := make(map[string]string, len(secrets))
	for k, v := range secrets {
		out[k] = v.Reveal()
	}
	return out
}

// Bool reads a boolean; nil means absent. A wrong type is a warning, so that a
// sloppy switch does not cost the server.
func (f *Fields) Bool(name string) *bool {
	n, ok := f.take(name, Bool, SeverityWarning)
	if !ok {
		return nil
	}
	b := n.Text == "true"
	return &b
}

// Millis reads a time span given in units of unit milliseconds; nil means
// absent. A wrong type or a negative number is a warning.
func (f *Fields) Millis(name string, unit float64) *int64 {
	n, ok := f.take(name, Number, SeverityWarning)
	if !ok {
		return nil
	}
	v, err := strconv.ParseFloat(n.Text, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*unit > math.MaxInt32*1000.0 {
		f.Report(SeverityWarning, name, fmt.Sprintf("invalid %q value, ignoring: %s is not a time span", name, n.Text), "")
		return nil
	}
	ms := int64(math.Round(v * unit))
	return &ms
}

// Int reads a whole number within bounds; 0 means absent.
func (f *Fields) Int(name string, low, high int) int {
	n, ok := f.take(name, Number, SeverityError)
	if !ok {
		return 0
	}
	v, err := strconv.Atoi(n.Text)
	if err != nil || v < low || v > high {
		f.Report(SeverityError, name, fmt.Sprintf("%q must be a whole number from %d to %d, found %s", name, low, high, n.Text), "")
		return 0
	}
	return v
}

// Object reads a nested object; nil means absent.
func (f *Fields) Object(name string) *Fields {
	n, ok := f.take(name, Object, SeverityError)
	if !ok {
		return nil
	}
	return f.at(n, PointerTo(f.Pointer, name))
}

// Raw takes a member of any type as JSON.
func (f *Fields) Raw(name string) json.RawMessage {
	n, ok := f.Take(name)
	if !ok {
		return nil
	}
	return n.JSON()
}

// Ignore marks members as understood although nothing is done with them.
func (f *Fields) Ignore(names ...string) {
	for _, name := range names {
		f.Take(name)
	}
}

// Rest returns the members nobody has read, and reports repeated ones. It is
// called last.
func (f *Fields) Rest() map[string]json.RawMessage {
	var rest map[string]json.RawMessage
	for i, m := range f.Node.Members {
		if m.Repeated {
			f.repeated(m)
			continue
		}
		if f.read[i] {
			continue
		}
		if rest == nil {
			rest = map[string]json.RawMessage{}
		}
		rest[m.Name] = m.Value.JSON()
	}
	return rest
}

func (f *Fields) repeated(m Member) {
	if f.full() {
		return
	}
	*f.Problems = append(*f.Problems, Problem{
		Severity: SeverityError, File: f.File, Line: m.Line, Pointer: PointerTo(f.Pointer, m.Name),
		Message: fmt.Sprintf("duplicate key %q", m.Name), Hint: "keep one of them",
	})
}

// at returns Fields for a nested node that share this one's problems.
func (f *Fields) at(n Node, pointer string) *Fields {
	return &Fields{Node: n, File: f.File, Pointer: pointer, Problems: f.Problems, read: make([]bool, len(n.Members))}
}

// words splits a list written as one string, as OAuth scopes are.
func words(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return strings.Fields(s)
}

// Locate completes a problem whose pointer is relative to the object: it adds
// the file, and the line of the member or of the nearest one around it.
func (f *Fields) Locate(p Problem) Problem {
	at := f.Node
	for _, name := range strings.Split(strings.TrimPrefix(p.Pointer, "/"), "/") {
		if at.Kind == Array {
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at.Items) {
				break
			}
			at = at.Items[i]
			continue
		}
		next, ok := at.Get(name)
		if !ok {
			break
		}
		at = next
	}
	p.File, p.Line, p.Column, p.Pointer = f.File, at.Line, at.Column, f.Pointer+p.Pointer
	return p
}
