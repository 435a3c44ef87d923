// Package bridge turns what servers offer into what models are given: names of
// tools, definitions and results as text, and back from a name to the tool it
// means. Its main type is Names. Everything is a pure function of its
// arguments and safe for concurrent use. It decides nothing about permission,
// calls nothing, and leaves the servers' own bytes to those who pass them on.
package bridge

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// member is one name and value of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// object is a JSON object in the order and with the bytes it was written in.
// Its names are compared exactly, which encoding/json does not do for structs.
type object []member

// parseObject reads a JSON object; ok tells whether it is one.
func parseObject(raw json.RawMessage) (o object, ok bool) {
	if firstByte(raw) != '{' || !json.Valid(raw) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, false
		}
		o = append(o, member{name.(string), value})
	}
	return o, true
}

// get returns a member's value, or nothing.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// sub returns a member that is an object, or an empty one.
func (o object) sub(name string) object {
	s, _ := parseObject(o.get(name))
	return s
}

// text returns a member that is a string, or an empty one.
func (o object) text(name string) string {
	s, _ := parseString(o.get(name))
	return s
}

func parseString(raw json.RawMessage) (s string, ok bool) {
	if firstByte(raw) != '"' {
		return "", false
	}
	return s, json.Unmarshal(raw, &s) == nil
}

// flag returns a member that is true or false, or nil.
func (o object) flag(name string) *bool {
	switch string(o.get(name)) {
	case "true":
		return new(true)
	case "false":
		return new(false)
	default:
		return nil
	}
}

// encode writes the object, its values as they are.
func (o object) encode() json.RawMessage {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quoted(m.name)...), ':'), m.value...)
	}
	return append(b, '}')
}

// quoted returns a text as a JSON string.
func quoted(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil { // a string has no way to fail
		return json.RawMessage(`""`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

func firstByte(raw json.RawMessage) byte {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) > 0 {
		return raw[0]
	}
	return 0
}

// clean removes from a foreign text what a reader does not see but a terminal
// or a model would obey: controls except line ends and tabs, bidirectional
// marks, zero-width and other invisible characters.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && isHidden(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// cleanLine is clean for what must stay in one line.
func cleanLine(s string) string {
	return strings.Join(strings.Fields(clean(s)), " ")
}

func isHidden(c rune) bool {
	switch {
	case c < 0x20 || 0x7f <= c && c < 0xa0:
		return true
	case c < 0x300: // ordinary letters first: they are nearly all there is
		return c == 0xad
	case c == 0xfe0f: // makes the character before it an emoji
		return false
	default:
		return unicode.In(c, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
			!unicode.Is(unicode.Prepended_Concatenation_Mark, c)
	}
}

// runeOffset returns where the first n characters of a text end.
func runeOffset(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	offset := 0
	for ; n > 0 && offset < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[offset:])
		offset += size
	}
	return offset
}
