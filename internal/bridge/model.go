package bridge

import (
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// Model is a tool as a model is told of it.
type Model struct {
	Label          string          `json:"label"` // server/tool, for people
	Description    string          `json:"description"`
	InputSchema    json.RawMessage `json:"inputSchema"` // describes an object, always
	Annotations    Annotations     `json:"annotations,omitzero"`
	MaxResultChars int             `json:"maxResultChars"`       // characters of a result's text before it is shortened
	AlwaysLoad     bool            `json:"alwaysLoad,omitempty"` // the server wants it in front of the model from the start
}

// Annotations are what a server says of its tool, where it says it. They are
// claims: good for a badge or for calling two readers at once, never for
// permission.
type Annotations struct {
	ReadOnly    *bool `json:"readOnly,omitempty"`
	Destructive *bool `json:"destructive,omitempty"`
	OpenWorld   *bool `json:"openWorld,omitempty"`
}

// Brief is a tool in a few words, for people.
type Brief struct {
	Name        string      `json:"name"` // as its server calls it
	Description string      `json:"description,omitempty"`
	Annotations Annotations `json:"annotations,omitzero"`
}

// BriefTool returns the brief form of a tool's definition.
func BriefTool(definition json.RawMessage) Brief {
	d, _ := parseObject(definition)
	return Brief{
		Name:        d.text("name"),
		Description: cutBytes(clean(d.text("description")), maxBrief),
		Annotations: annotations(d.sub("annotations")),
	}
}

func annotations(said object) Annotations {
	return Annotations{
		ReadOnly:    said.flag("readOnlyHint"),
		Destructive: said.flag("destructiveHint"),
		OpenWorld:   said.flag("openWorldHint"),
	}
}

// Bounds of what is told of a tool.
const (
	maxBrief       = 1 << 10 // bytes, for people
	maxDescription = 4 << 10 // bytes, for a model
	cutMark        = "… [cut]"

	defaultResultChars = 100_000
	maxResultChars     = 500_000
)

// ModelTool returns the model form of a tool's definition, a member of the
// server's tools/list. It makes something usable of any definition.
func ModelTool(server string, definition json.RawMessage) Model {
	d, _ := parseObject(definition)
	meta := d.sub("_meta")
	always := meta.flag("anthropic/alwaysLoad")
	return Model{
		Label:          cleanLine(server) + "/" + cleanLine(d.text("name")),
		Description:    description(server, d.text("description")),
		InputSchema:    inputSchema(d.get("inputSchema")),
		Annotations:    annotations(d.sub("annotations")),
		MaxResultChars: resultChars(meta.get("anthropic/maxResultSizeChars")),
		AlwaysLoad:     always != nil && *always,
	}
}

func description(server, text string) string {
	text = clean(text)
	if cleanLine(text) == "" {
		return "MCP tool from " + cleanLine(server)
	}
	return cutBytes(text, maxDescription)
}

// cutBytes cuts a text to a number of bytes, between characters, and marks it.
func cutBytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(cutMark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cutMark
}

// openObject is the schema of a tool that does not say what it takes.
const openObject = `{"type":"object","properties":{}}`

// inputSchema returns a schema that model APIs accept as that of an object: the
// server's own bytes where they say object and have properties, else with as
// little changed as that takes. One tool that an API rejects would take all
// others of the request with it.
func inputSchema(raw json.RawMessage) json.RawMessage {
	schema, ok := parseObject(raw)
	if !ok {
		return json.RawMessage(openObject)
	}
	types := schema.get("type")
	kind, _ := parseString(types)
	hasProperties := firstByte(schema.get("properties")) == '{'
	if kind == "object" && hasProperties {
		return raw
	}
	if kind != "object" && types != nil && !allowsObject(types) {
		return json.RawMessage(openObject)
	}
	schema = schema.with("type", json.RawMessage(`"object"`))
	if !hasProperties {
		schema = schema.with("properties", json.RawMessage(`{}`))
	}
	return schema.encode()
}

// allowsObject reports whether a schema's list of types has object in it.
func allowsObject(types json.RawMessage) bool {
	var list []string
	return json.Unmarshal(types, &list) == nil && slices.Contains(list, "object")
}

// resultChars reads a server's own limit of a result's text.
func resultChars(raw json.RawMessage) int {
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < 1 {
		return defaultResultChars
	}
	return int(min(n, maxResultChars))
}
