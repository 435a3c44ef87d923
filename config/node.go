package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// Limits of a configuration file.
const (
	MaxFileSize = 4 << 20
	MaxDepth    = 100
)

// Kind is the JSON type of a Node.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// Node is one value of a configuration file with its place in the source. All
// formats, JSON with or without comments, TOML and YAML, become Nodes, so that
// one reader of a product's fields serves whatever syntax holds them.
type Node struct {
	Kind    Kind
	Text    string   // String: the value; Number: its text; Bool: true or false
	Items   []Node   // Array
	Members []Member // Object, in the order of the source
	Line    int      // from 1
	Column  int      // from 1, in bytes
}

// Member is one name and value of an object.
type Member struct {
	Name  string
	Value Node
	Line  int // of the name

	// Repeated is set when an earlier member of the object has the same name.
	// No reader guesses which of them is meant.
	Repeated bool
}

// Get returns the member of that name, and whether there is one.
func (n Node) Get(name string) (Node, bool) {
	for _, m := range n.Members {
		if m.Name == name {
			return m.Value, true
		}
	}
	return Node{}, false
}

// JSON renders the node as compact JSON.
func (n Node) JSON() json.RawMessage { return n.appendJSON(nil) }

func (n Node) appendJSON(b []byte) []byte {
	switch n.Kind {
	case Null:
		return append(b, "null"...)
	case Bool, Number:
		return append(b, n.Text...)
	case String:
		return appendString(b, n.Text)
	case Array:
		b = append(b, '[')
		for i, it := range n.Items {
			if i > 0 {
				b = append(b, ',')
			}
			b = it.appendJSON(b)
		}
		return append(b, ']')
	default:
		b = append(b, '{')
		for i, m := range n.Members {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, m.Name)
			b = append(b, ':')
			b = m.Value.appendJSON(b)
		}
		return append(b, '}')
	}
}

// appendString appends s as a JSON string, without escaping what only HTML
// needs escaped.
func appendString(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// SyntaxError says where a file stops being what its format demands.
type SyntaxError struct {
	Line, Column int
	Message      string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

var utf8BOM = []byte("\xef\xbb\xbf")

// ParseJSON parses JSON with comments and trailing commas. A byte order mark is
// skipped. An error is a *SyntaxError.
func ParseJSON(data []byte) (Node, error) {
	v, lines, err := parseValue(bytes.TrimPrefix(data, utf8BOM))
	if err != nil {
		return Node{}, err
	}
	return lines.node(v), nil
}

func parseValue(data []byte) (hujson.Value, lineIndex, error) {
	lines := newLineIndex(data)
	if off, ok := tooDeep(data); ok {
		return hujson.Value{}, nil, lines.errorAt(off, fmt.Sprintf("nested more than %d levels deep", MaxDepth))
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return hujson.Value{}, nil, &SyntaxError{1, 1, "the file is empty; expected a JSON object"}
	}
	if !utf8.Valid(data) {
		return hujson.Value{}, nil, lines.errorAt(invalidUTF8(data), "not valid UTF-8")
	}
	v, err := hujson.Parse(data)
	if err != nil {
		return hujson.Value{}, nil, fromHujson(err)
	}
	return v, lines, nil
}

// fromHujson turns hujson's "hujson: line L, column C: text" into a SyntaxError.
func fromHujson(err error) error {
	s := &SyntaxError{Line: 1, Column: 1, Message: strings.TrimPrefix(err.Error(), "hujson: ")}
	var text string
	if n, _ := fmt.Sscanf(s.Message, "line %d, column %d:", &s.Line, &s.Column); n == 2 {
		_, text, _ = strings.Cut(s.Message, ": ")
		s.Message = text
	}
	if cause := errors.Unwrap(err); cause != nil && text == "" {
		s.Message = cause.Error()
	}
	if what, _, ok := strings.Cut(s.Message, "invalid literal: "); ok {
		s.Message = what + "invalid literal" // its text may be a secret
	}
	return s
}

// tooDeep finds the first bracket beyond MaxDepth. It runs before the parser,
// which recurses.
func tooDeep(data []byte) (offset int, found bool) {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '/':
			rest := data[i:]
			switch {
			case bytes.HasPrefix(rest, []byte("//")):
				if n := bytes.IndexByte(rest, '\n'); n >= 0 {
					i += n
				} else {
					return 0, false
				}
			case bytes.HasPrefix(rest, []byte("/*")):
				if n := bytes.Index(rest[2:], []byte("*/")); n >= 0 {
					i += n + 3
				} else {
					return 0, false
				}
			}
		case '{', '[':
			if depth++; depth > MaxDepth {
				return i, true
			}
		case '}', ']':
			depth--
		}
	}
	return 0, false
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// lineIndex finds the line and column of a byte offset.
type lineIndex []int // offset of the first byte of each line

func newLineIndex(data []byte) lineIndex {
	idx := lineIndex{0}
	for i, c := range data {
		if c == '\n' {
			idx = append(idx, i+1)
		}
	}
	return idx
}

func (idx lineIndex) at(offset int) (line, column int) {
	line = sort.SearchInts(idx, offset+1)
	return line, offset - idx[line-1] + 1
}

func (idx lineIndex) errorAt(offset int, message string) error {
	line, column := idx.at(offset)
	return &SyntaxError{line, column, message}
}

func (idx lineIndex) node(v hujson.Value) Node {
	n := Node{}
	n.Line, n.Column = idx.at(v.StartOffset)
	switch t := v.Value.(type) {
	case hujson.Literal:
		switch t.Kind() {
		case 'n':
			n.Kind = Null
		case 't', 'f':
			n.Kind, n.Text = Bool, string(t)
		case '0':
			n.Kind, n.Text = Number, string(t)
		default:
			n.Kind, n.Text = String, unquote(t)
		}
	case *hujson.Array:
		n.Kind = Array
		for _, e := range t.Elements {
			n.Items = append(n.Items, idx.node(e))
		}
	case *hujson.Object:
		n.Kind = Object
		n.Members = make([]Member, 0, len(t.Members))
		for _, m := range t.Members {
			line, _ := idx.at(m.Name.StartOffset)
			name := unquote(m.Name.Value.(hujson.Literal))
			n.Members = append(n.Members, Member{Name: name, Value: idx.node(m.Value), Line: line})
		}
		MarkRepeated(n.Members)
	}
	return n
}

// unquote returns the text of a string that the parser has checked. Most have no
// escapes, and need no decoder.
func unquote(lit hujson.Literal) string {
	if bytes.IndexByte(lit, '\\') < 0 {
		return string(lit[1 : len(lit)-1])
	}
	return lit.String()
}

// MarkRepeated sets Repeated on every member whose name an earlier one has.
func MarkRepeated(members []Member) {
	seen := make(map[string]bool, len(members))
	for i := range members {
		members[i].Repeated = seen[members[i].Name]
		seen[members[i].Name] = true
	}
}

// PointerTo extends a JSON pointer by one member name or index.
func PointerTo(pointer, name string) string {
	if !strings.ContainsAny(name, "~/") {
		return pointer + "/" + name
	}
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// PointerAt extends a JSON pointer by an index.
func PointerAt(pointer string, i int) string { return pointer + "/" + strconv.Itoa(i) }
