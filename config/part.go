package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// MaxPartFile is the most that a file may have of which only a part is read.
const MaxPartFile = 256 << 20

// Part selects members of an object by their names: each leads to the part of
// its value that is selected, nil to all of it. The name "*" selects every member.
type Part map[string]Part

// of returns the part that is selected of a member, and whether any is.
func (p Part) of(name string) (Part, bool) {
	if p == nil {
		return nil, true
	}
	part, ok := p[name]
	if !ok {
		part, ok = p["*"]
	}
	return part, ok
}

// ReadPart parses JSON as ParseJSON does, and keeps only a part of it. Members
// that are not selected are not in the Node, and are looked at no closer than it
// takes to find where they end. The memory it takes is that of what is kept, which
// may have MaxFileSize bytes, however long the file is. An error that does not
// come from r is a *SyntaxError.
func ReadPart(r io.Reader, part Part) (Node, error) { return newPartReader(r).read(part) }

// partReader parses a stream of JSON with comments and trailing commas. It
// accepts what hujson does, which is tested.
type partReader struct {
	r        io.Reader
	buf      []byte
	pos, end int // what of buf is still to be read
	base     int // offset of buf[0] in the file
	ended    error

	line      int // of pos
	lineStart int // offset of its first byte
	depth     int

	raw  []byte // the literal that is being kept
	kept int    // bytes

	// skipped, if set, is told where values lie that are not kept.
	skipped func(from, to int)
}

func newPartReader(r io.Reader) *partReader {
	return &partReader{r: r, buf: make([]byte, 64<<10), line: 1}
}

func (p *partReader) read(part Part) (Node, error) {
	if p.more(len(utf8BOM)) && bytes.HasPrefix(p.buf[p.pos:p.end], utf8BOM) {
		p.pos, p.lineStart = len(utf8BOM), len(utf8BOM)
	}
	if err := p.space(); err != nil {
		return Node{}, err
	}
	if !p.more(1) && errors.Is(p.ended, io.EOF) {
		return Node{}, &SyntaxError{1, 1, "the file is empty; expected a JSON object"}
	}
	n, err := p.value(part)
	if err == nil {
		err = p.space()
	}
	switch {
	case err != nil:
		return Node{}, err
	case p.more(1):
		return Node{}, p.unexpected("after top-level value")
	case !errors.Is(p.ended, io.EOF):
		return Node{}, p.ended
	}
	return n, nil
}

// more reports whether there are n bytes to read, n being small.
func (p *partReader) more(n int) bool { return p.end-p.pos >= n || p.fill(n) }

func (p *partReader) fill(n int) bool {
	for p.end-p.pos < n && p.ended == nil {
		if p.pos > 0 {
			p.base += p.pos
			p.end = copy(p.buf, p.buf[p.pos:p.end])
			p.pos = 0
		}
		var got int
		got, p.ended = p.r.Read(p.buf[p.end:])
		p.end += got
	}
	return p.end-p.pos >= n
}

func (p *partReader) offset() int { return p.base + p.pos }

func (p *partReader) syntax(message string) error { return p.syntaxAt(p.offset(), message) }

// syntaxAt reports an error in this line.
func (p *partReader) syntaxAt(offset int, message string) error {
	return &SyntaxError{p.line, offset - p.lineStart + 1, message}
}

// unexpected says what is wrong at pos: a byte that cannot be there, or the end.
func (p *partReader) unexpected(where string) error {
	switch {
	case p.more(1):
		p.more(utf8.UTFMax)
		r, n := utf8.DecodeRune(p.buf[p.pos:p.end])
		if r == utf8.RuneError && n == 1 {
			return p.syntax("not valid UTF-8")
		}
		return p.syntax(fmt.Sprintf("invalid character %q %s", r, where))
	case !errors.Is(p.ended, io.EOF):
		return p.ended
	default:
		return p.syntax("unexpected EOF")
	}
}

// space skips white space and comments.
func (p *partReader) space() error {
	for p.more(1) {
		switch p.buf[p.pos] {
		case ' ', '\t', '\r':
			p.pos++
		case '\n':
			p.newLine()
		case '/':
			if !p.more(2) || p.buf[p.pos+1] != '/' && p.buf[p.pos+1] != '*' {
				return nil // which is not the start of anything
			}
			if err := p.comment(p.buf[p.pos+1] == '/'); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

func (p *partReader) newLine() {
	p.pos++
	p.line++
	p.lineStart = p.offset()
}

// comment skips one, which goes on to the end of the line or to its mark.
func (p *partReader) comment(toEnd bool) error {
	for p.pos += 2; p.more(1); {
		switch c := p.buf[p.pos]; {
		case c == '\n':
			p.newLine()
			if toEnd {
				return nil
			}
		case c == '*' && !toEnd && p.more(2) && p.buf[p.pos+1] == '/':
			p.pos += 2
			return nil
		case c >= utf8.RuneSelf:
			r, err := p.rune()
			if err != nil {
				return err
			}
			if toEnd && (r == '\u2028' || r == '\u2029') {
				return p.syntax("a line separator in a line comment")
			}
		default:
			p.pos++
		}
	}
	return p.unexpected("")
}

// rune skips one that is not ASCII.
func (p *partReader) rune() (rune, error) {
	p.more(utf8.UTFMax)
	r, n := utf8.DecodeRune(p.buf[p.pos:p.end])
	if r == utf8.RuneError && n == 1 {
		return r, p.syntax("not valid UTF-8")
	}
	p.pos += n
	return r, nil
}

// value reads one, at whose first byte the reader is, and keeps the part of it.
// Of an array of which members are selected only the kind is told.
func (p *partReader) value(part Part) (Node, error) {
	n := Node{Line: p.line, Column: p.offset() - p.lineStart + 1}
	if !p.more(1) {
		return n, p.unexpected("")
	}
	err := p.count(leastValue)
	switch c := p.buf[p.pos]; {
	case err != nil:
	case c == '{':
		n.Kind = Object
		err = p.nested('}', func() error { return p.member(&n, part) })
		MarkRepeated(n.Members)
	case c == '[' && part != nil:
		n.Kind = Array
		err = p.skip()
	case c == '[':
		n.Kind = Array
		err = p.nested(']', func() error {
			it, err := p.value(nil)
			n.Items = append(n.Items, it)
			return err
		})
	case c == '"':
		n.Kind = String
		n.Text, err = p.text()
	default:
		if n.Kind, n.Text, err = p.literal(); err == nil {
			err = p.count(len(n.Text))
		}
	}
	return n, err
}

func (p *partReader) tooDeep() error {
	return p.syntax(fmt.Sprintf("nested more than %d levels deep", MaxDepth))
}

// nested reads what is between two brackets, separated by commas.
func (p *partReader) nested(end byte, one func() error) error {
	if p.depth++; p.depth > MaxDepth {
		return p.tooDeep()
	}
	p.pos++
	for {
		if err := p.space(); err != nil {
			return err
		}
		if p.more(1) && p.buf[p.pos] == end {
			break
		}
		if err := one(); err != nil {
			return err
		}
		if err := p.space(); err != nil {
			return err
		}
		if p.more(1) && p.buf[p.pos] == end {
			break
		}
		if !p.more(1) || p.buf[p.pos] != ',' {
			return p.unexpected(fmt.Sprintf("after a value (expecting ',' or %q)", end))
		}
		p.pos++
	}
	p.pos++
	p.depth--
	return nil
}

func (p *partReader) member(n *Node, part Part) error {
	if !p.more(1) || p.buf[p.pos] != '"' {
		return p.unexpected("at start of object name")
	}
	line, kept := p.line, p.kept
	name, err := p.text()
	if err == nil {
		err = p.space()
	}
	if err != nil {
		return err
	}
	if !p.more(1) || p.buf[p.pos] != ':' {
		return p.unexpected("after object name")
	}
	p.pos++
	if err := p.space(); err != nil {
		return err
	}
	part, selected := part.of(name)
	if !selected {
		p.kept = kept
		return p.skip()
	}
	value, err := p.value(part)
	n.Members = append(n.Members, Member{Name: name, Value: value, Line: line})
	return err
}

// What bytes mean to skip.
const (
	skipBad    = iota // cannot be there
	skipPlain         // white space, literals, separators
	skipLine          // ends a line
	skipOpen          // and shut: brackets
	skipShut          //
	skipText          // a string begins
	skipRemark        // a comment may
)

var skipClass = func() (class [256]uint8) {
	for _, c := range []byte(" \t\r,:+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		class[c] = skipPlain
	}
	class['\n'], class['"'], class['/'] = skipLine, skipText, skipRemark
	class['{'], class['['], class['}'], class[']'] = skipOpen, skipOpen, skipShut, skipShut
	return class
}()

// skip finds the end of a value, which nobody needs: it may be most of the file,
// so it is looked at only as far as that takes.
func (p *partReader) skip() error {
	from := p.offset()
	var open [MaxDepth]byte
	depth := 0
	for {
		if !p.more(1) {
			return p.unexpected("")
		}
		c := p.buf[p.pos]
		class := skipClass[c]
		if depth == 0 && class != skipOpen && class != skipText {
			if _, _, err := p.literal(); err != nil {
				return err
			}
			break
		}
		switch class {
		case skipPlain:
			rest, n := p.buf[p.pos:p.end], 1
			for n < len(rest) && skipClass[rest[n]] == skipPlain {
				n++
			}
			p.pos += n
			continue
		case skipLine:
			p.newLine()
			continue
		case skipRemark:
			if !p.more(2) || p.buf[p.pos+1] != '/' && p.buf[p.pos+1] != '*' {
				return p.unexpected("in a value")
			}
			if err := p.comment(p.buf[p.pos+1] == '/'); err != nil {
				return err
			}
			continue
		case skipOpen:
			if p.depth+depth == MaxDepth {
				return p.tooDeep()
			}
			open[depth] = c
			depth++
			p.pos++
			continue
		case skipShut:
			if open[depth-1] != c-2 { // as ASCII has them
				return p.unexpected("in a value")
			}
			depth--
			p.pos++
		case skipText:
			if err := p.skipText(); err != nil {
				return err
			}
		default:
			return p.unexpected("in a value")
		}
		if depth == 0 {
			break
		}
	}
	if p.skipped != nil {
		p.skipped(from, p.offset())
	}
	return nil
}

// skipText skips a string.
func (p *partReader) skipText() error {
	for p.pos++; p.more(1); {
		rest, n := p.buf[p.pos:p.end], 0
		for n < len(rest) && rest[n] >= ' ' && rest[n] != '"' && rest[n] != '\\' {
			n++
		}
		p.pos += n
		switch {
		case n == len(rest):
		case rest[n] == '"':
			p.pos++
			return nil
		case rest[n] < ' ' || !p.more(2):
			return p.unexpected("in a string")
		default:
			p.pos += 2
		}
	}
	return p.unexpected("")
}

// plainText has the bytes of a string that need no look.
var plainText = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// text reads a string.
func (p *partReader) text() (string, error) {
	start, escaped := p.offset(), false
	p.raw = p.raw[:0]
	p.pos++
	for {
		if !p.more(1) {
			return "", p.unexpected("")
		}
		n := 1
		switch c := p.buf[p.pos]; {
		case plainText[c]:
			rest := p.buf[p.pos:p.end]
			for n < len(rest) && plainText[rest[n]] {
				n++
			}
			p.pos += n
		case c == '"':
			p.pos++
			if escaped {
				return hujson.Literal(`"` + string(p.raw) + `"`).String(), nil
			}
			return string(p.raw), nil
		case c == '\\':
			escaped = true
			if n = p.escape(); n == 0 {
				return "", p.syntaxAt(start, "invalid literal") // its text may be a secret
			}
		case c >= utf8.RuneSelf:
			r, err := p.rune()
			if err != nil {
				return "", err
			}
			n = utf8.RuneLen(r)
		default:
			return "", p.syntaxAt(start, "invalid literal")
		}
		if err := p.count(n); err != nil {
			return "", err
		}
		p.raw = append(p.raw, p.buf[p.pos-n:p.pos]...)
	}
}

// escape skips an escape and returns its length; 0 means that it is none.
func (p *partReader) escape() int {
	if !p.more(2) {
		return 0
	}
	n := 2
	switch p.buf[p.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		n = 6
		if !p.more(n) {
			return 0
		}
		for _, c := range p.buf[p.pos+2 : p.pos+n] {
			if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
				return 0
			}
		}
	default:
		return 0
	}
	p.pos += n
	return n
}

// maxLiteral is the longest number.
const maxLiteral = 4096

// literal reads null, a boolean or a number.
func (p *partReader) literal() (Kind, string, error) {
	start := p.offset()
	p.raw = p.raw[:0]
	for p.more(1) && len(p.raw) <= maxLiteral {
		c := p.buf[p.pos]
		if c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			break
		}
		p.raw = append(p.raw, c)
		p.pos++
	}
	switch {
	case len(p.raw) == 0:
		return Null, "", p.unexpected("at start of value")
	case len(p.raw) > maxLiteral || !json.Valid(p.raw):
		return Null, "", p.syntaxAt(start, "invalid literal")
	case p.raw[0] == 'n':
		return Null, "", nil
	}
	kind := Number
	if p.raw[0] == 't' || p.raw[0] == 'f' {
		kind = Bool
	}
	return kind, string(p.raw), nil
}

// leastValue is what the shortest value takes in a file, with its comma.
const leastValue = 2

// count adds to what is kept of the file.
func (p *partReader) count(bytes int) error {
	if p.kept += bytes; p.kept > MaxFileSize {
		return p.syntax(fmt.Sprintf("more than %d MiB of it would have to be kept", MaxFileSize>>20))
	}
	return nil
}
