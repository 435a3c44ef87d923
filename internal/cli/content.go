package cli

import (
	"encoding/json"
	"fmt"
	"strings"
)

// content is a piece of what a server answers, as far as people read it.
type content struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	MIMEType string `json:"mimeType"`
	URI      string `json:"uri"`
	Resource struct {
		URI  string `json:"uri"`
		Text string `json:"text"`
	} `json:"resource"`
}

// text is the content if it is text, and names it otherwise.
func (c content) text() string {
	switch c.Type {
	case "text":
		return c.Text
	case "resource":
		if c.Resource.Text != "" {
			return c.Resource.Text
		}
		return "[resource " + c.Resource.URI + "]"
	case "resource_link":
		return "[resource " + c.URI + "]"
	default:
		return fmt.Sprintf("[%s %s]", c.Type, c.MIMEType)
	}
}

// resultText is the text of a tool's result. Models get more, and marks around
// it; here a text is that text and nothing else, and data without text is data.
func resultText(raw json.RawMessage) string {
	var result struct {
		Content    []content       `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
	}
	if json.Unmarshal(raw, &result) != nil {
		return string(raw)
	}
	if len(result.Content) == 0 {
		return string(result.Structured)
	}
	var texts []string
	for _, c := range result.Content {
		texts = append(texts, c.text())
	}
	return strings.Join(texts, "\n")
}
