package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
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
		return Flat{Text: "[Unreadable result]"}
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
	var items []json.RawMessage
	if json.Unmarshal(content, &items) != nil {
		return []string{"[Unreadable content]"}, nil
	}
	for _, raw := range items {
		item, ok := parseObject(raw)
		if !ok {
			parts = append(parts, "[Unreadable content]")
			continue
		}
		if item.text("type") == "text" {
			texts = append(texts, item.text("text"))
		}
		parts = append(parts, itemText(item))
	}
	return parts, texts
}

func itemText(item object) string {
	switch kind := item.text("type"); kind {
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
	return "MCP error: " + strings.ToValidUTF8(err.Error(), "\ufffd")
}

// Shorten returns a text of at most limit characters: the text itself, or its
// beginning and its end with a line between them that says how much was left
// out and, if it was saved, where all of it is.
func Shorten(text string, limit int, savedTo string) string {
	if len(text) <= limit {
		return text
	}
	total := utf8.RuneCountInString(text)
	if total <= limit {
		return text
	}
	// Written with the largest number it may have to hold.
	room := limit - utf8.RuneCountInString(gap(total, savedTo))
	if room <= 0 {
		return text[:runeOffset(text, limit)]
	}
	tail := room / 3
	head := room - tail
	from := runeOffset(text, head)
	to := from + runeOffset(text[from:], total-room)
	return text[:from] + gap(total-room, savedTo) + text[to:]
}

func gap(left int, savedTo string) string {
	if savedTo == "" {
		return fmt.Sprintf("\n\n[… %d characters left out …]\n\n", left)
	}
	return fmt.Sprintf("\n\n[… %d characters left out; the whole text is in %s …]\n\n", left, savedTo)
}
