package bridge

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// LongText returns the text that stands for a result of tools/call, if it has
// more characters than the limit.
func LongText(result json.RawMessage, limit int) (text string, long bool) {
	if len(result) <= limit { // characters are no fewer bytes
		return "", false
	}
	flat := Flatten(result)
	if flat.IsError {
		flat.Text = strings.TrimPrefix(flat.Text, "Error: ") // the result says that by itself
	}
	if len(flat.Text) <= limit || utf8.RuneCountInString(flat.Text) <= limit {
		return "", false
	}
	return flat.Text, true
}

// WithText returns a result of tools/call with another text in the place of all
// the text it has. Images and sound stay, and so does structured content that is
// within the limit.
func WithText(result json.RawMessage, text string, limit int) json.RawMessage {
	r, ok := parseObject(result)
	if !ok {
		return result
	}
	content := append(json.RawMessage(`[{"type":"text","text":`), quoted(text)...)
	content = append(content, '}')
	items, _ := elements(r.get("content"))
	for _, raw := range items {
		item, _ := members(raw)
		if kind := item.text("type"); kind == "image" || kind == "audio" {
			content = append(append(content, ','), raw...)
		}
	}
	r = r.with("content", append(content, ']'))
	if len(r.get("structuredContent")) > limit {
		r = slices.DeleteFunc(r, func(m member) bool { return m.name == "structuredContent" })
	}
	return r.encode()
}
