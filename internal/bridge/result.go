package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Flat is a tool's result as text, with the server's own parts beside it.
type Flat struct {
	Text       string          `json:"text"`
	IsError    bool            `json:"isError,omitempty"`
	Structured json.RawMessage `json:"structuredContent,omitempty"` // as the server sent it
	Content    json.RawMessage `json:"content,omitempty"`           // as the server sent it
}

// Flatten returns the text that stands for a result of tools/call. Whatever a
// server sends gives a text, of valid UTF-8; what cannot be shown is named.
func Flatten(result json.RawMessage) Flat {
	r, ok := parseObject(result)
	if !ok {
		return Flat{Text: "Error: the server sent a result that cannot be read", IsError: true}
	}
	flat := Flat{Content: r.get("content")}
	failed := r.flag("isError")
	flat.IsError = failed != nil && *failed
	parts, texts := contentParts(flat.Content)
	if s := r.get("structuredContent"); s != nil && string(s) != "null" {
		flat.Structured = s
		if !isMirrored(s, texts) {
			parts = append(parts, fenced(s))
		}
	}
	flat.Text = strings.Join(parts, "\n\n")
	if flat.IsError {
		if flat.Text == "" {
			flat.Text = "the tool reports a failure without saying which"
		}
		flat.Text = "Error: " + flat.Text
	}
	return flat
}

// contentParts returns the text of each item of a result, and the items that
// were text to begin with.
func contentParts(content json.RawMessage) (parts, texts []string) {
	if content == nil || string(content) == "null" {
		return nil, nil
	}
	items, ok := elements(content)
	if !ok {
		return []string{unreadable}, nil
	}
	for _, raw := range items {
		item, ok := members(raw)
		if !ok {
			parts = append(parts, unreadable)
			continue
		}
		kind := item.text("type")
		text := itemText(kind, item)
		parts = append(parts, text)
		if kind == "text" {
			texts = append(texts, text)
		}
	}
	return parts, texts
}

const unreadable = "[Unreadable content]"

func itemText(kind string, item object) string {
	switch kind {
	case "text":
		return item.text("text")
	case "image":
		return label("Image", item.text("mimeType"))
	case "audio":
		return label("Audio", item.text("mimeType"))
	case "resource":
		r := item.sub("resource")
		text := label("Resource", r.text("uri"))
		if body := r.text("text"); body != "" {
			text += "\n" + body
		}
		return text
	case "resource_link":
		text := label("Resource link", item.text("uri"))
		if name := cleanLine(item.text("name")); name != "" {
			text += "\n" + name
			if about := clean(item.text("description")); about != "" {
				text += ": " + about
			}
		}
		return text
	default:
		return label("Unsupported content", kind)
	}
}

// label names something that is not text.
func label(what, which string) string {
	if which = cleanLine(which); which == "" {
		which = "unknown"
	}
	return "[" + what + ": " + which + "]"
}

func fenced(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "[Unreadable structured content]"
	}
	return "```json\n" + strings.ToValidUTF8(b.String(), "\ufffd") + "\n```"
}

// ErrorText returns the text that stands for a call that got no result.
// Cancellation is not such a failure: its callers return it as it is.
func ErrorText(err error) string {
	return strings.ToValidUTF8(fmt.Sprintf("MCP error: %v", err), "\ufffd")
}
