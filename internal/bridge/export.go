package bridge

import (
	"encoding/json"
	"slices"
)

// NamedModel is a tool with the name it is offered under.
type NamedModel struct {
	Name string `json:"name"`
	Model
}

// Anthropic returns the tools as the tools member of a request to the Messages
// API.
func Anthropic(tools []NamedModel) json.RawMessage {
	return array(tools, func(t NamedModel) json.RawMessage {
		description, schema := withoutRootRules(t.Model)
		return object{{"name", quoted(t.Name)}, {"description", quoted(description)}, {"input_schema", schema}}.encode()
	})
}

// OpenAI returns the tools as the tools member of a request to the Chat
// Completions API.
func OpenAI(tools []NamedModel) json.RawMessage {
	return array(tools, func(t NamedModel) json.RawMessage {
		description, schema := withoutRootRules(t.Model)
		function := object{{"name", quoted(t.Name)}, {"description", quoted(description)}, {"parameters", schema}}
		return object{{"type", json.RawMessage(`"function"`)}, {"function", function.encode()}}.encode()
	})
}

// Gemini returns the tools as the tools member of a request to the Gemini API.
// Its own dialect of schemas knows less than JSON Schema, but it takes JSON
// Schema too, under another name.
func Gemini(tools []NamedModel) json.RawMessage {
	if len(tools) == 0 {
		return json.RawMessage(`[]`)
	}
	declarations := array(tools, func(t NamedModel) json.RawMessage {
		return object{{"name", quoted(t.Name)}, {"description", quoted(t.Description)}, {"parametersJsonSchema", inputSchema(t.InputSchema)}}.encode()
	})
	return slices.Concat(json.RawMessage(`[{"functionDeclarations":`), declarations, json.RawMessage(`}]`))
}

func array(tools []NamedModel, element func(NamedModel) json.RawMessage) json.RawMessage {
	b := []byte{'['}
	for i, t := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, element(t)...)
	}
	return append(b, ']')
}

// maxNote bounds the rules that are told in a description, in bytes.
const maxNote = 2 << 10

// withoutRootRules returns a tool's description and schema for APIs that refuse
// a whole request because one schema has oneOf, anyOf, allOf, enum or not at
// its root. Those rules move into the description, and the properties that only
// they name into the schema; the server still checks what it is given.
func withoutRootRules(t Model) (string, json.RawMessage) {
	whole := inputSchema(t.InputSchema)
	schema, _ := members(whole)
	var rules, rest object
	for _, m := range schema {
		switch m.name {
		case "oneOf", "anyOf", "allOf", "enum", "not":
			rules = append(rules, m)
		default:
			rest = append(rest, m)
		}
	}
	if len(rules) == 0 {
		return t.Description, whole
	}
	note := "\n\nThe server checks the input against further rules."
	if text := rules.encode(); len(text) <= maxNote {
		note = "\n\nThe input must also match this JSON Schema: " + string(text)
	}
	properties := withBranchProperties(rest.get("properties"), rules)
	return t.Description + note, rest.with("properties", properties).encode()
}

// withBranchProperties adds to the properties of a schema those that only
// branches of its root rules have.
func withBranchProperties(raw json.RawMessage, rules object) json.RawMessage {
	properties, _ := members(raw)
	known := map[string]bool{}
	for _, p := range properties {
		known[p.name] = true
	}
	for _, rule := range rules {
		branches, ok := elements(rule.value)
		if !ok || rule.name == "enum" {
			continue
		}
		for _, branch := range branches {
			b, _ := members(branch)
			for _, p := range b.sub("properties") {
				if !known[p.name] {
					known[p.name] = true
					properties = append(properties, p)
				}
			}
		}
	}
	return properties.encode()
}
