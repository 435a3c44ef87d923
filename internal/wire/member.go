package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"math/bits"
	"unicode/utf8"
)

// The functions of this file read and change single members of a JSON object
// without decoding the rest. They expect bytes that Parse or Valid accepted; on
// other bytes their answer is arbitrary, but they do not panic.

// Member returns the value found by following path from the object obj through
// the objects inside it.
func Member(obj []byte, path ...string) (json.RawMessage, bool) {
	value := json.RawMessage(obj)
	for _, name := range path {
		c := newCursor(value)
		if !c.find(name) {
			return nil, false
		}
		value = c.value()
	}
	return value, len(path) > 0
}

// StringMember is Member for a string, decoded. It reports false if the member
// is absent or not a string.
func StringMember(obj []byte, path ...string) (string, bool) {
	raw, ok := Member(obj, path...)
	if !ok {
		return "", false
	}
	return Unquote(raw)
}

// Members ranges over the members of obj in order, with the names decoded.
func Members(obj []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for c := newCursor(obj); c.next(); {
			name, _ := Unquote(obj[c.nameStart:c.nameEnd])
			if !yield(name, c.value()) {
				return
			}
		}
	}
}

var (
	errNoPath    = errors.New("no path to a member")
	errNotObject = errors.New("not an object")
)

// SetMember returns a copy of obj in which the member at path has the given
// value. If it was there its value is replaced, else it is appended to its
// object; objects missing on the way, or null there, are created. All other
// bytes stay as they are. An empty obj counts as an empty object.
func SetMember(obj, value []byte, path ...string) ([]byte, error) {
	if len(path) == 0 {
		return nil, errNoPath
	}
	size := len(obj) + len(value)
	for _, name := range path {
		size += len(name) + len(`,{"":}`)
	}
	out := make([]byte, 0, size)

	start, end := 0, len(obj) // of what is left to descend into
	for len(path) > 0 && !isNull(obj[start:end]) {
		c := newCursor(obj[start:end])
		if !c.open {
			return nil, errNotObject
		}
		if c.find(path[0]) {
			start, end = start+c.valueStart, start+c.valueEnd
			path = path[1:]
			continue
		}
		start += c.pos
		out = append(out, obj[:start]...)
		if c.valueEnd > 0 { // it is not the first
			out = append(out, ',')
		}
		out = append(AppendString(out, path[0]), ':')
		out = appendNested(out, path[1:], value)
		return append(out, obj[start:]...), nil
	}
	out = append(out, obj[:start]...)
	out = appendNested(out, path, value)
	return append(out, obj[end:]...), nil
}

// appendNested appends value, wrapped in an object for each name.
func appendNested(dst []byte, names []string, value []byte) []byte {
	for _, name := range names {
		dst = append(AppendString(append(dst, '{'), name), ':')
	}
	dst = append(dst, value...)
	for range names {
		dst = append(dst, '}')
	}
	return dst
}

// IsObject reports whether the valid JSON text is an object.
func IsObject(text []byte) bool {
	i := skipSpace(text, 0)
	return i < len(text) && text[i] == '{'
}

// isNull reports whether there is no value or a null.
func isNull(value []byte) bool {
	i := skipSpace(value, 0)
	return i == len(value) || value[i] == 'n'
}

// DeleteMember returns obj without the member at path; a copy if there was one,
// else obj itself. All other bytes stay as they are.
func DeleteMember(obj []byte, path ...string) []byte {
	if len(path) == 0 {
		return obj
	}
	last := len(path) - 1
	base, parent := 0, obj
	for _, name := range path[:last] {
		c := newCursor(parent)
		if !c.find(name) {
			return obj
		}
		base, parent = base+c.valueStart, c.value()
	}
	c := newCursor(parent)
	if !c.find(path[last]) {
		return obj
	}
	// With the member goes the comma before it, or after it if it is the first.
	start, end := c.before, c.valueEnd
	if c.first {
		start = c.nameStart
		if i := skipSpace(parent, end); i < len(parent) && parent[i] == ',' {
			end = skipSpace(parent, i+1)
		}
	}
	out := make([]byte, 0, len(obj)-(end-start))
	out = append(out, obj[:base+start]...)
	return append(out, obj[base+end:]...)
}

// A cursor walks over the members of an object.
type cursor struct {
	text   []byte
	open   bool // text is an object
	pos    int  // after the opening brace or the last member seen
	before int  // pos before the current member
	first  bool // the current member is the first

	nameStart, nameEnd   int // with the quotes
	valueStart, valueEnd int
}

func newCursor(obj []byte) cursor {
	i := skipSpace(obj, 0)
	if i == len(obj) || obj[i] != '{' {
		return cursor{text: obj, pos: len(obj)}
	}
	return cursor{text: obj, open: true, pos: i + 1}
}

func (c *cursor) next() bool {
	text := c.text
	i := skipSpace(text, c.pos)
	first := c.valueEnd == 0
	if !first && i < len(text) && text[i] == ',' {
		i = skipSpace(text, i+1)
	}
	if i >= len(text) || text[i] != '"' {
		return false
	}
	nameEnd := skipString(text, i)
	colon := skipSpace(text, nameEnd)
	if colon >= len(text) || text[colon] != ':' {
		return false
	}
	c.first, c.before = first, c.pos
	c.nameStart, c.nameEnd = i, nameEnd
	c.valueStart = skipSpace(text, colon+1)
	c.valueEnd = skipValue(text, c.valueStart)
	c.pos = c.valueEnd
	return true
}

// find goes on to the member of that name.
func (c *cursor) find(name string) bool {
	for c.next() {
		raw := c.text[c.nameStart+1 : c.nameEnd-1]
		if string(raw) == name {
			return true
		}
		if bytes.IndexByte(raw, '\\') >= 0 && string(appendUnescaped(nil, raw)) == name {
			return true
		}
	}
	return false
}

func (c *cursor) value() json.RawMessage {
	return c.text[c.valueStart:c.valueEnd:c.valueEnd]
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t') {
		i++
	}
	return i
}

// skipValue returns the index after the valid JSON value at i.
func skipValue(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch text[i] {
		case '"':
			i = skipString(text, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ' ', '\n', '\r', '\t', ',', ':':
			i++
			continue // only inside, so never the end
		default:
			for i++; i < len(text) && isScalarByte(text[i]); i++ {
			}
		}
		if depth <= 0 {
			return i
		}
	}
	return len(text)
}

// isScalarByte reports whether c can stand inside a number or a literal.
func isScalarByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'E'
}

// skipString returns the index after the valid string whose opening quote is at i.
func skipString(text []byte, i int) int {
	for start := i + 1; start < len(text); {
		n := bytes.IndexByte(text[start:], '"')
		if n < 0 {
			break
		}
		end := start + n
		// The quote is the end unless an odd number of backslashes precede it.
		slashes := 0
		for end-slashes > i+1 && text[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
		start = end + 1
	}
	return len(text)
}

// Unquote decodes a valid JSON string. It reports false if raw is another value.
func Unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	return string(appendUnescaped(make([]byte, 0, len(raw)), raw)), true
}

// isString reports whether a valid JSON value is the string s.
func isString(raw []byte, s string) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return len(raw) == len(s)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == s
	}
	text, ok := Unquote(raw)
	return ok && text == s
}

// appendUnescaped decodes the text between the quotes of a valid JSON string. A
// lone surrogate becomes U+FFFD.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 == len(raw) {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(raw, 0)
			if r < 0 {
				return dst
			}
			raw = raw[4:]
			if r < lowSurrogate && isSurrogate(r) && len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
				if low := hex4(raw, 2); lowSurrogate <= low && isSurrogate(low) {
					r = (r-0xD800)<<10 | (low - lowSurrogate) + 0x10000
					raw = raw[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

// AppendString appends s as a JSON string. Only what must be escaped is;
// invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0 // of what is not yet copied
	for i := plainEnd(s, 0); i < len(s); i = plainEnd(s, i) {
		if s[i] >= utf8.RuneSelf {
			for i < len(s) && s[i] >= utf8.RuneSelf {
				r, size := utf8.DecodeRuneInString(s[i:])
				if r == utf8.RuneError && size == 1 {
					dst = append(append(dst, s[start:i]...), "\uFFFD"...)
					start = i + 1
				}
				i += size
			}
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c := s[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// plainEnd returns the index of the first byte from i on that is not ASCII or
// cannot stand in a JSON string as it is. It looks at eight at a time.
func plainEnd(s string, i int) int {
	for ; len(s)-i >= 8; i += 8 {
		w := word(s[i:])
		if stop := special(w) | w&highBits; stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
	}
	for i < len(s) && ' ' <= s[i] && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// word returns the first eight bytes of s.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
