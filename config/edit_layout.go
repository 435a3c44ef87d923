package config

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// The rules of where members and their comments lie. A comment belongs to the
// member before it if it begins on the line where that ends, and to the member
// after it if it ends on the line above that one or further up without a blank
// line between.

// extraLine is one line of the white space and comments between two tokens. The
// first begins behind the former token, the last ends before the latter. A
// comment that spans lines makes one line of them.
type extraLine struct {
	start   int // offset of its first byte
	text    int // offset of its first byte that is not a space
	content int // offset behind its last comment, or start
	comment bool
	slashes bool // its last comment reaches to the end of the line
}

// extraLines divides what lies between two tokens; from is its offset.
func extraLines(extra []byte, from int) []extraLine {
	newLine := func(at int) extraLine { return extraLine{start: at, text: -1, content: at} }
	var lines []extraLine
	l := newLine(from)
	for i := 0; i < len(extra); {
		n := 1
		switch c := extra[i]; {
		case c == '\n':
			if l.text < 0 {
				l.text = from + i
			}
			lines = append(lines, l)
			l = newLine(from + i + 1)
		case c == '/':
			if extra[i+1] == '*' {
				n = bytes.Index(extra[i+2:], []byte("*/")) + 4
			} else {
				n = len(bytes.TrimSuffix(extra[i:i+bytes.IndexByte(extra[i:], '\n')], []byte("\r")))
				l.slashes = true
			}
			if l.text < 0 {
				l.text = from + i
			}
			l.comment, l.content = true, from+i+n
		}
		i += n
	}
	if l.text < 0 {
		l.text = from + len(extra)
	}
	return append(lines, l)
}

// ownLine reports whether a member begins on another line than what precedes it.
func ownLine(m hujson.ObjectMember) bool {
	return len(extraLines(m.Name.BeforeExtra, 0)) > 1
}

// comma returns the offset of the comma behind a member, if there is one.
func (c container) comma(index int) (offset int, ok bool) {
	v := c.obj.Members[index].Value
	last := index == len(c.obj.Members)-1
	return v.EndOffset + len(v.AfterExtra), !last || v.AfterExtra != nil
}

// insert adds a member at the end of an object: behind the last one and the
// comments that belong to that, before any that belong to none.
func (d *document) insert(in container, name string, value Node) []splice {
	if len(in.obj.Members) == 0 {
		return d.insertFirst(in, name, value)
	}
	index := len(in.obj.Members) - 1
	last := in.obj.Members[index]
	after := last.Value.EndOffset
	comma, hasComma := in.comma(index)
	if hasComma {
		after = comma + 1
	}
	line := extraLines(in.obj.AfterExtra, after)[0]
	s := d.style
	s.oneLine, s.tight = in.oneLine && !line.slashes, in.tight
	indent := d.indentAt(in.start) + s.unit
	if ownLine(last) {
		indent = d.indentAt(last.Name.StartOffset)
	}
	text := s.gap(indent) + s.member(name, value, indent)
	switch {
	case hasComma:
		return []splice{{line.content, line.content, text + ","}}
	case s.oneLine:
		return []splice{{line.content, line.content, "," + text}}
	default:
		return []splice{{after, after, ","}, {line.content, line.content, text}}
	}
}

// insertFirst adds a member to an object that has none, but perhaps comments.
func (d *document) insertFirst(in container, name string, value Node) []splice {
	lines := extraLines(in.obj.AfterExtra, in.start+1)
	first, last := lines[0], lines[len(lines)-1]
	s := d.style
	s.oneLine, s.tight = in.oneLine && len(lines) == 1, in.tight
	base := d.indentAt(in.start)
	text := s.member(name, value, base+s.unit)
	switch end := in.end - 1; {
	case !containsComment(lines):
		if !s.oneLine {
			text = s.gap(base+s.unit) + text + s.gap(base)
		}
		return []splice{{in.start + 1, end, text}}
	case s.oneLine:
		return []splice{{first.content, end, s.gap("") + text}}
	case len(lines) == 1 || last.comment: // the brace does not stand on its own
		return []splice{{first.content, first.content, s.gap(base+s.unit) + text}, {max(first.content, last.content), end, s.gap(base)}}
	default:
		return []splice{{first.content, first.content, s.gap(base+s.unit) + text}}
	}
}

// remove takes a member away, with the comments that belong to it and the comma
// that becomes superfluous.
func (d *document) remove(in container, index int) []splice {
	m := in.obj.Members[index]
	name, isLast := m.Name.StartOffset, index == len(in.obj.Members)-1
	before := extraLines(m.Name.BeforeExtra, name-len(m.Name.BeforeExtra))
	own := before[len(before)-1]

	after, next := m.Value.EndOffset, in.obj.AfterExtra
	var splices []splice
	if comma, ok := in.comma(index); ok {
		after = comma + 1
	} else if index > 0 {
		comma, _ := in.comma(index - 1)
		splices = append(splices, splice{comma, comma + 1, ""})
	}
	if !isLast {
		next = in.obj.Members[index+1].Name.BeforeExtra
	}
	behind := extraLines(next, after)
	endsLine := len(behind) > 1
	end := behind[0].content
	if !endsLine && !isLast {
		end = behind[0].text // what is there belongs to the next member
	}

	attached := len(before) - 1 // index of the first line that belongs to the member
	for attached > 1 && before[attached-1].comment {
		attached--
	}
	if len(in.obj.Members) == 1 && !containsComment(before[:attached]) && !containsComment(behind[1:]) {
		return []splice{{in.start + 1, in.end - 1, ""}}
	}
	switch beginsLine := len(before) > 1; {
	case beginsLine && endsLine:
		from, to := wholeLines(before, behind, attached, index == 0, isLast)
		splices = append(splices, splice{from, to, ""})
	case beginsLine && !isLast:
		splices = append(splices, splice{before[attached].start, own.start, ""}, splice{own.text, end, ""})
	case beginsLine && before[attached-1].slashes: // which must not swallow the brace
		splices = append(splices, splice{before[attached].start, end, ""})
	case beginsLine:
		splices = append(splices, splice{d.lineEnd(before[attached].start), end, ""})
	case !isLast && !endsLine:
		splices = append(splices, splice{own.text, end, ""})
	default:
		splices = append(splices, splice{before[0].start, end, ""})
	}
	return splices
}

// wholeLines returns the extent of a member that has its lines to itself, with
// blank lines that would be left at an end of the object or double.
func wholeLines(before, behind []extraLine, attached int, isFirst, isLast bool) (from, to int) {
	next := 1
	switch {
	case isLast && !containsComment(behind[1:]):
		for attached > 1 && !before[attached-1].comment {
			attached--
		}
	case !isLast && (attached > 1 || isFirst): // the line above is blank, or the brace
		for next < len(behind)-1 && !behind[next].comment {
			next++
		}
	}
	return before[attached].start, behind[next].start
}

func containsComment(lines []extraLine) bool {
	return slices.ContainsFunc(lines, func(l extraLine) bool { return l.comment })
}

// lineEnd returns where the line ends before the one that begins at start.
func (d *document) lineEnd(start int) int {
	end := start - len("\n")
	if end > 0 && d.src[end-1] == '\r' {
		end--
	}
	return end
}

// style is how members are written.
type style struct {
	eol, unit string
	oneLine   bool // everything in one line
	tight     bool // and without spaces
}

// longestLine is how far a list of plain values goes on in one line.
const longestLine = 100

// gap is what separates a member from what precedes it.
func (s style) gap(indent string) string {
	switch {
	case !s.oneLine:
		return s.eol + indent
	case s.tight:
		return ""
	default:
		return " "
	}
}

func (s style) member(name string, value Node, indent string) string {
	key := string(appendString(nil, name)) + ":"
	if !s.oneLine || !s.tight {
		key += " "
	}
	return key + s.render(value, indent, len(key))
}

// render writes a value that begins at a column behind indent.
func (s style) render(n Node, indent string, column int) string {
	var parts []string
	inner := indent + s.unit
	open, shut := "[", "]"
	switch {
	case n.Kind == Object && len(n.Members) > 0:
		open, shut = "{", "}"
		for _, m := range n.Members {
			parts = append(parts, s.member(m.Name, m.Value, inner))
		}
	case n.Kind == Array && len(n.Items) > 0:
		flat := s
		flat.oneLine = true
		if line := flat.renderItems(n.Items, indent); s.oneLine || (plain(n.Items) && len(indent)+column+len(line) <= longestLine) {
			return line
		}
		for _, it := range n.Items {
			parts = append(parts, s.render(it, inner, 0))
		}
	default:
		return string(n.JSON())
	}
	if s.oneLine {
		return open + strings.Join(parts, ","+s.gap("")) + shut
	}
	return open + s.gap(inner) + strings.Join(parts, ","+s.gap(inner)) + s.gap(indent) + shut
}

func (s style) renderItems(items []Node, indent string) string {
	parts := make([]string, len(items))
	for i, it := range items {
		parts[i] = s.render(it, indent, 0)
	}
	return "[" + strings.Join(parts, ","+s.gap("")) + "]"
}

func plain(items []Node) bool {
	return !slices.ContainsFunc(items, func(n Node) bool { return n.Kind == Object || n.Kind == Array })
}
