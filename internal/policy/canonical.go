package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// canonicalDefinition returns the one rendering of what is pinned of a tool's
// definition, and that of its member "name": no white space, members sorted,
// texts spelled in one way, numbers as they are written. Members of one name
// keep their order, as readers differ about which of them counts. For what is
// not JSON it returns nil.
func canonicalDefinition(raw []byte) (pinned, name []byte) {
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return nil, nil
	}
	c := canonicalizer{in: raw, out: make([]byte, 0, len(raw))}
	if c.next() == '{' {
		name = c.object(isPinned)
	} else {
		c.value()
	}
	return c.out, name
}

// isPinned reports whether a member of a definition is what a model or a person
// is shown. Case does not matter, as to many readers of JSON it does not.
func isPinned(name string) bool {
	for _, pinned := range []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons"} {
		if strings.EqualFold(name, pinned) {
			return true
		}
	}
	return false
}

func everyMember(string) bool { return true }

// canonicalizer walks once through JSON that is known to be valid: every
// catalog of every server passes through here.
type canonicalizer struct {
	in  []byte
	pos int
	out []byte
}

// next moves to the next byte that is not white space and returns it.
func (c *canonicalizer) next() byte {
	for c.in[c.pos] == ' ' || c.in[c.pos] == '\t' || c.in[c.pos] == '\n' || c.in[c.pos] == '\r' {
		c.pos++
	}
	return c.in[c.pos]
}

func (c *canonicalizer) value() {
	switch c.next() {
	case '{':
		c.object(everyMember)
	case '[':
		c.array()
	case '"':
		c.text()
	default:
		start := c.pos
		for c.pos < len(c.in) && !strings.ContainsRune(" \t\r\n,]}", rune(c.in[c.pos])) {
			c.pos++
		}
		c.out = append(c.out, c.in[start:c.pos]...)
	}
}

func (c *canonicalizer) array() {
	c.pos++
	c.out = append(c.out, '[')
	for first := true; c.next() != ']'; first = false {
		if !first {
			c.pos++ // the comma
			c.out = append(c.out, ',')
		}
		c.value()
	}
	c.pos++
	c.out = append(c.out, ']')
}

// object renders an object of the members that are kept, and returns the
// rendering of the first value called "name".
func (c *canonicalizer) object(keep func(name string) bool) (named []byte) {
	type member struct {
		name       string
		start, end int // in the output, with a comma at the end
	}
	var members []member
	c.pos++
	c.out = append(c.out, '{')
	begin := len(c.out)
	for c.next() != '}' {
		if c.in[c.pos] == ',' {
			c.pos++
			c.next()
		}
		m := member{start: len(c.out)}
		m.name = c.text()
		c.next()
		c.pos++ // the colon
		c.out = append(c.out, ':')
		value := len(c.out)
		c.value()
		c.out = append(c.out, ',')
		if !keep(m.name) {
			c.out = c.out[:m.start]
			continue
		}
		m.end = len(c.out)
		members = append(members, m)
		if m.name == "name" && named == nil {
			named = slices.Clone(c.out[value : m.end-1])
		}
	}
	c.pos++
	byName := func(a, b member) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(members, byName) {
		slices.SortStableFunc(members, byName)
		written := slices.Clone(c.out[begin:])
		c.out = c.out[:begin]
		for _, m := range members {
			c.out = append(c.out, written[m.start-begin:m.end-begin]...)
		}
	}
	if len(members) > 0 {
		c.out = c.out[:len(c.out)-1]
	}
	c.out = append(c.out, '}')
	return named
}

// text renders a string and returns what it says.
func (c *canonicalizer) text() string {
	start, plain := c.pos, true
	for c.pos++; c.in[c.pos] != '"'; c.pos++ {
		if c.in[c.pos] == '\\' {
			plain = false
			c.pos++
		}
	}
	c.pos++
	written := c.in[start:c.pos]
	if plain {
		c.out = append(c.out, written...)
		return string(written[1 : len(written)-1])
	}
	var s string
	_ = json.Unmarshal(written, &s) // it is a valid string
	c.out = append(c.out, '"')
	for i := range len(s) {
		// What needs no escape has none, like in a text that came without.
		switch b := s[i]; {
		case b == '"' || b == '\\':
			c.out = append(c.out, '\\', b)
		case b < ' ':
			const hex = "0123456789abcdef"
			c.out = append(c.out, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			c.out = append(c.out, b)
		}
	}
	c.out = append(c.out, '"')
	return s
}
