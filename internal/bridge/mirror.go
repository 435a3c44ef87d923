package bridge

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// maxCompared bounds what is decoded to find out whether two JSON texts mean
// the same: decoded, a text is many times its size.
const maxCompared = 1 << 20

// isMirrored reports whether a result's text already says what its structured
// content says. Servers that give both are told to give the same, but some wrap
// what is not an object as {"result": …} and give a list as one text for each
// item, and some give a text as the one member of an object.
func isMirrored(structured json.RawMessage, texts []string) bool {
	if says(texts, structured) {
		return true
	}
	o, ok := members(structured)
	if !ok || len(o) != 1 {
		return false
	}
	if _, isString := parseString(o[0].value); isString || o[0].name == "result" {
		if says(texts, o[0].value) {
			return true
		}
	}
	if o[0].name != "result" {
		return false
	}
	items, ok := elements(o[0].value)
	if !ok || len(items) == 0 || len(items) != len(texts) {
		return false
	}
	for i, item := range items {
		if !says(texts[i:i+1], item) {
			return false
		}
	}
	return true
}

// says reports whether one of the texts is a value: its JSON, or a string's own
// characters.
func says(texts []string, value json.RawMessage) bool {
	plain, isString := parseString(value)
	for _, t := range texts {
		if isString && t == plain || sameJSON(t, value) {
			return true
		}
	}
	return false
}

func sameJSON(text string, value json.RawMessage) bool {
	text = strings.TrimSpace(text)
	if text == "" || text[0] != firstByte(value) && !isNumber(value) {
		return false
	}
	var a, b bytes.Buffer
	if json.Compact(&a, []byte(text)) != nil || json.Compact(&b, value) != nil {
		return false
	}
	if bytes.Equal(a.Bytes(), b.Bytes()) {
		return true
	}
	if a.Len() > maxCompared || b.Len() > maxCompared {
		return false
	}
	return sameValue(decoded(a.Bytes()), decoded(b.Bytes()))
}

func isNumber(raw json.RawMessage) bool {
	c := firstByte(raw)
	return c == '-' || '0' <= c && c <= '9'
}

func decoded(raw []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, ok := b[name]; !ok || !sameValue(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(string(a), string(b))
	default:
		return a == b
	}
}

// sameNumber compares numbers by value, whole ones by their digits: a float
// does not tell large ones apart.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	if !strings.ContainsAny(a, ".eE") && !strings.ContainsAny(b, ".eE") {
		return false
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}
