package bridge

import (
	"bytes"
	"encoding/json"
	"slices"
)

// member is one name and value of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// object is a JSON object in the order and with the bytes it was written in.
// Its names are compared exactly, which encoding/json does not do for structs.
type object []member

// parseObject reads a foreign text as a JSON object; ok tells whether it is one.
func parseObject(raw json.RawMessage) (o object, ok bool) {
	if !json.Valid(raw) {
		return nil, false
	}
	return members(raw)
}

// members is parseObject for what is known to be JSON. The values are parts of
// it, not copies: a result may be large.
func members(raw json.RawMessage) (o object, ok bool) {
	raw = trimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	for rest := trimSpace(raw[1:]); rest[0] != '}'; {
		end := valueEnd(rest)
		name, _ := parseString(rest[:end])
		rest = trimSpace(trimSpace(rest[end:])[1:]) // the colon
		end = valueEnd(rest)
		o = append(o, member{name, rest[:end:end]})
		rest = afterComma(rest[end:])
	}
	return o, true
}

// elements returns the values of a JSON array.
func elements(raw json.RawMessage) (list []json.RawMessage, ok bool) {
	raw = trimSpace(raw)
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	for rest := trimSpace(raw[1:]); rest[0] != ']'; {
		end := valueEnd(rest)
		list = append(list, rest[:end:end])
		rest = afterComma(rest[end:])
	}
	return list, true
}

// afterComma skips what is between two values, up to the next or to the end of
// their object or array.
func afterComma(rest json.RawMessage) json.RawMessage {
	if rest = trimSpace(rest); rest[0] == ',' {
		rest = trimSpace(rest[1:])
	}
	return rest
}

// valueEnd returns where the JSON value ends that a text starts with.
func valueEnd(raw json.RawMessage) int {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i)
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of what the value is in
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}

// stringEnd returns the closing quote of the string that opens at a place.
func stringEnd(raw json.RawMessage, open int) int {
	i := open + 1
	for raw[i] != '"' {
		if raw[i] == '\\' {
			i++
		}
		i++
	}
	return i
}

func trimSpace(raw json.RawMessage) json.RawMessage {
	return bytes.Trim(raw, " \t\r\n")
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
	s, _ := members(o.get(name))
	return s
}

// text returns a member that is a string, or an empty one.
func (o object) text(name string) string {
	s, _ := parseString(o.get(name))
	return s
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

// with returns the object with a member changed, or added at the end.
func (o object) with(name string, value json.RawMessage) object {
	for i, m := range o {
		if m.name == name {
			o = slices.Clone(o)
			o[i].value = value
			return o
		}
	}
	return append(slices.Clip(o), member{name, value})
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

func parseString(raw json.RawMessage) (s string, ok bool) {
	if firstByte(raw) != '"' {
		return "", false
	}
	if text, ok := plainString(raw); ok {
		return text, true
	}
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// plainString is parseString for what nearly all texts are: ASCII without any
// escape.
func plainString(raw json.RawMessage) (string, bool) {
	raw = trimSpace(raw)
	last := len(raw) - 1
	if last < 1 || raw[last] != '"' {
		return "", false
	}
	for _, c := range raw[1:last] {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return string(raw[1:last]), true
}

// quoted returns a text as a JSON string.
func quoted(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string into memory: nothing to fail
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// firstByte tells the kind of a JSON value.
func firstByte(raw json.RawMessage) byte {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) > 0 {
		return raw[0]
	}
	return 0
}
