package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// SetMember returns src, a file of JSON with or without comments, with the
// member that a JSON pointer names set to value. Objects missing on the way are
// made; an empty src gives a new document.
//
// The file may have MaxPartFile bytes, if no more than MaxFileSize of them are the
// member and what leads to it.
//
// Every byte that need not change stays: comments, order, indentation, line
// ends, a byte order mark. An object that replaces an object is merged into it,
// so that the comments of the members they share survive. What is added follows
// the style around it.
//
// An error for broken input is a *SyntaxError. A name that occurs twice on the
// way is an error too, since either could be meant.
func SetMember(src []byte, pointer string, value json.RawMessage) ([]byte, error) {
	names, err := memberNames(pointer)
	if err != nil {
		return nil, err
	}
	v, err := ParseJSON(value)
	if err != nil {
		return nil, fmt.Errorf("value of %s: %w", pointer, err)
	}
	if name, ok := repeatedName(v); ok {
		return nil, fmt.Errorf("value of %s: duplicate key %q", pointer, name)
	}
	short, whole, err := condense(src, names, MaxFileSize-len(value))
	if err != nil {
		return nil, err
	}
	out, err := setMember(short, names, v)
	if err != nil {
		return nil, err
	}
	if _, deep := tooDeep(out); deep {
		return nil, fmt.Errorf("setting %s would nest the file more than %d levels deep", pointer, MaxDepth)
	}
	if len(out) > MaxFileSize {
		return nil, fmt.Errorf("setting %s would make the file longer than %d bytes", pointer, MaxFileSize)
	}
	return whole(out)
}

// RemoveMember returns src without the member that a JSON pointer names and
// without the comments that belong to it: those on the lines directly above it
// and behind it on its own line. Everything else stays as SetMember describes.
// If there is no such member src is returned as it is.
func RemoveMember(src []byte, pointer string) ([]byte, error) {
	d, at, whole, err := findMember(src, pointer)
	if err != nil || at.index < 0 {
		return src, err
	}
	return whole(d.apply(d.remove(at.in, at.index)...))
}

// RenameMember gives the member at a JSON pointer another name, in its place and
// with its comments. The file is returned as it is if there is no such member; a
// name that another member of the object has is an error.
func RenameMember(src []byte, pointer, name string) ([]byte, error) {
	d, at, whole, err := findMember(src, pointer)
	if err != nil || at.index < 0 {
		return src, err
	}
	for _, m := range at.in.obj.Members {
		if m.Name.Value.(hujson.Literal).String() == name {
			return nil, fmt.Errorf("there is a member %q already", name)
		}
	}
	old := at.in.obj.Members[at.index].Name
	return whole(d.apply(splice{old.StartOffset, old.EndOffset, string(hujson.String(name))}))
}

// findMember returns the place of a member, whose index is negative if there is
// none, in a document of src, and what makes a whole file of that again.
func findMember(src []byte, pointer string) (d *document, at position, whole func([]byte) ([]byte, error), err error) {
	at.index = -1
	names, err := memberNames(pointer)
	if err != nil || len(bytes.TrimSpace(src)) == 0 {
		return nil, at, nil, err
	}
	short, whole, err := condense(src, names, MaxFileSize)
	if err != nil {
		return nil, at, nil, err
	}
	if d, err = parseDocument(short); err != nil {
		return nil, at, nil, err
	}
	at, err = d.find(names)
	return d, at, whole, err
}

func memberNames(pointer string) ([]string, error) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, fmt.Errorf("%q is not a JSON pointer to a member", pointer)
	}
	if !utf8.ValidString(pointer) {
		return nil, errors.New("the name of the member is not valid UTF-8")
	}
	names := strings.Split(pointer[1:], "/")
	for i, n := range names {
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(n)
	}
	return names, nil
}

func repeatedName(n Node) (string, bool) {
	for _, m := range n.Members {
		if m.Repeated {
			return m.Name, true
		}
		if name, ok := repeatedName(m.Value); ok {
			return name, true
		}
	}
	for _, it := range n.Items {
		if name, ok := repeatedName(it); ok {
			return name, true
		}
	}
	return "", false
}

func setMember(src []byte, names []string, value Node) ([]byte, error) {
	d, err := parseDocument(src)
	if err != nil {
		return nil, err
	}
	at, err := d.find(names)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Backward(at.missing) {
		value = Node{Kind: Object, Members: []Member{{Name: name, Value: value}}}
	}
	if at.index < 0 {
		return d.apply(d.insert(at.in, at.name, value)...), nil
	}
	old := at.in.obj.Members[at.index].Value
	oldNode := d.lines.node(old)
	switch {
	case equalNodes(oldNode, value):
		return src, nil
	case mergeable(oldNode, value):
		return mergeMembers(src, names, oldNode, value)
	default:
		return d.apply(d.replace(at.in, at.index, value)), nil
	}
}

// mergeable reports whether an object is to be changed member by member. Each
// change parses the file again, so there is a limit to it.
func mergeable(old, value Node) bool {
	const most = 64
	_, repeated := repeatedName(old)
	return old.Kind == Object && value.Kind == Object && !repeated &&
		len(old.Members) > 0 && len(old.Members)+len(value.Members) <= most
}

// mergeMembers makes the object at names equal to value. It sets before it
// removes, lest the object be empty in between and lose its style.
func mergeMembers(src []byte, names []string, old, value Node) ([]byte, error) {
	var err error
	for _, m := range value.Members {
		if src, err = setMember(src, append(slices.Clone(names), m.Name), m.Value); err != nil {
			return nil, err
		}
	}
	for _, m := range old.Members {
		if _, kept := value.Get(m.Name); kept {
			continue
		}
		pointer := ""
		for _, name := range append(slices.Clone(names), m.Name) {
			pointer = PointerTo(pointer, name)
		}
		if src, err = RemoveMember(src, pointer); err != nil {
			return nil, err
		}
	}
	return src, nil
}

// equalNodes compares values whatever the order of their members.
func equalNodes(a, b Node) bool {
	if a.Kind != b.Kind || a.Text != b.Text || len(a.Items) != len(b.Items) || len(a.Members) != len(b.Members) {
		return false
	}
	for i := range a.Items {
		if !equalNodes(a.Items[i], b.Items[i]) {
			return false
		}
	}
	for _, m := range a.Members {
		other, ok := b.Get(m.Name)
		if m.Repeated || !ok || !equalNodes(m.Value, other) {
			return false
		}
	}
	return true
}

// document is a file being edited.
type document struct {
	bom   []byte // the byte order mark, if there is one
	src   []byte // the rest; offsets are into it
	lines lineIndex
	root  hujson.Value
	style style
}

// parseDocument parses src; a blank one becomes an empty object.
func parseDocument(src []byte) (*document, error) {
	d := &document{}
	if rest, ok := bytes.CutPrefix(src, utf8BOM); ok {
		d.bom, src = utf8BOM, rest
	}
	if len(bytes.TrimSpace(src)) == 0 {
		src = []byte("{}\n")
	}
	d.src = src
	var err error
	if d.root, d.lines, err = parseValue(src); err != nil {
		return nil, err
	}
	d.style = style{eol: "\n", unit: "  "}
	if i := bytes.IndexByte(src, '\n'); i > 0 && src[i-1] == '\r' {
		d.style.eol = "\r\n"
	}
	if unit, ok := d.indentUnit(d.root); ok {
		d.style.unit = unit
	}
	return d, nil
}

// indentUnit finds how far the members of an object that spans lines are
// indented from the line it begins on.
func (d *document) indentUnit(v hujson.Value) (string, bool) {
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return "", false
	}
	for _, m := range obj.Members {
		outer, inner := d.indentAt(v.StartOffset), d.indentAt(m.Name.StartOffset)
		if unit, ok := strings.CutPrefix(inner, outer); ok && unit != "" && ownLine(m) {
			return unit, true
		}
	}
	for _, m := range obj.Members {
		if unit, ok := d.indentUnit(m.Value); ok {
			return unit, true
		}
	}
	return "", false
}

// indentAt returns the white space that begins the line of an offset.
func (d *document) indentAt(offset int) string {
	line := d.src[bytes.LastIndexByte(d.src[:offset], '\n')+1 : offset]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// container is an object of the document.
type container struct {
	obj     *hujson.Object
	start   int  // offset of its opening brace
	end     int  // and behind its closing one
	oneLine bool // its members are written in one line
	tight   bool // and without spaces
}

func newContainer(v hujson.Value, obj *hujson.Object, holder *container, held hujson.ObjectMember) container {
	c := container{obj: obj, start: v.StartOffset, end: v.EndOffset}
	if n := len(obj.Members); n > 0 {
		held = obj.Members[n-1]
		c.oneLine = !ownLine(held)
	} else if holder != nil {
		c.oneLine = !ownLine(held)
	}
	c.tight = c.oneLine && len(held.Value.BeforeExtra) == 0
	return c
}

// position is where a pointer leads.
type position struct {
	in      container
	index   int      // of the member there, or -1
	name    string   // of the member
	missing []string // names below it that have nothing to be in
}

// find follows names from the root as far as there are objects.
func (d *document) find(names []string) (position, error) {
	v, pointer := d.root, ""
	var holder *container
	var held hujson.ObjectMember
	for i, name := range names {
		obj, ok := v.Value.(*hujson.Object)
		if !ok {
			n := d.lines.node(v)
			return position{}, fmt.Errorf("line %d: %s is %s, expected an object", n.Line, orRoot(pointer), n.Kind)
		}
		at := position{in: newContainer(v, obj, holder, held), index: -1, name: name}
		for k, m := range obj.Members {
			if m.Name.Value.(hujson.Literal).String() != name {
				continue
			}
			if at.index >= 0 {
				line, _ := d.lines.at(m.Name.StartOffset)
				return position{}, fmt.Errorf("line %d: duplicate key %q; keep one of them", line, name)
			}
			at.index = k
		}
		if at.index >= 0 {
			held = obj.Members[at.index]
			v = held.Value
		}
		switch last := i == len(names)-1; {
		case last:
			return at, nil
		case at.index < 0 || v.Value.Kind() == 'n': // null is as good as absent
			at.missing = names[i+1:]
			return at, nil
		}
		pointer, holder = PointerTo(pointer, name), &at.in
	}
	return position{}, errors.New("no member named")
}

func orRoot(pointer string) string {
	if pointer == "" {
		return "the file"
	}
	return pointer
}

// splice replaces the bytes from one offset to another.
type splice struct {
	from, to int
	text     string
}

// apply carries out splices, which must not overlap, and gives back the file.
func (d *document) apply(splices ...splice) []byte {
	slices.SortStableFunc(splices, func(a, b splice) int { return a.from - b.from })
	out := slices.Clone(d.bom)
	done := 0
	for _, s := range splices {
		out = append(out, d.src[done:s.from]...)
		out = append(out, s.text...)
		done = s.to
	}
	return append(out, d.src[done:]...)
}

// replace gives a member another value.
func (d *document) replace(in container, index int, value Node) splice {
	m := in.obj.Members[index]
	s := d.style
	s.oneLine, s.tight = !ownLine(m), in.tight
	column := m.Value.StartOffset - m.Name.StartOffset
	return splice{m.Value.StartOffset, m.Value.EndOffset, s.render(value, d.indentAt(m.Name.StartOffset), column)}
}

// MemberText returns the bytes of the value of the member that a JSON pointer
// names, as they stand in src, and nothing if there is no such member.
func MemberText(src []byte, pointer string) ([]byte, error) {
	d, from, to, _, err := memberSpan(src, pointer)
	if err != nil || to == 0 {
		return nil, err
	}
	return slices.Clone(d.src[from:to]), nil
}

// SetMemberText returns src with text, which is JSON with or without comments, in
// place of the bytes of a value that MemberText returns. There must be one.
func SetMemberText(src []byte, pointer string, text []byte) ([]byte, error) {
	d, from, to, whole, err := memberSpan(src, pointer)
	if err == nil && to == 0 {
		err = fmt.Errorf("there is no %s", pointer)
	}
	if err != nil {
		return nil, err
	}
	if _, err := ParseJSON(text); err != nil {
		return nil, fmt.Errorf("value of %s: %w", pointer, err)
	}
	return whole(d.apply(splice{from, to, string(text)}))
}

// memberSpan finds the value of a member in what is parsed of a file; to is 0 if
// there is none.
func memberSpan(src []byte, pointer string) (d *document, from, to int, whole func([]byte) ([]byte, error), err error) {
	names, err := memberNames(pointer)
	if err != nil {
		return nil, 0, 0, nil, err
	}
	short, whole, err := condense(src, names, MaxFileSize)
	if err != nil {
		return nil, 0, 0, nil, err
	}
	if d, err = parseDocument(short); err != nil {
		return nil, 0, 0, nil, err
	}
	at, err := d.find(names)
	if err != nil || at.index < 0 || len(at.missing) > 0 {
		return d, 0, 0, nil, err
	}
	v := at.in.obj.Members[at.index].Value
	return d, v.StartOffset, v.EndOffset, whole, nil
}
