package bridge

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestExport(t *testing.T) {
	tools := []NamedModel{
		{"mcp__files__read", ModelTool("files", json.RawMessage(`{"name":"read","description":"Reads <b>.","inputSchema":{"type":"object", "properties":{"path":{"type":"string"}}}}`))},
		{"mcp__files__stat", ModelTool("files", json.RawMessage(`{"name":"stat"}`))},
	}
	for _, tt := range []struct {
		api       string
		got, want json.RawMessage
	}{
		{"Anthropic", Anthropic(tools), json.RawMessage(`[` +
			`{"name":"mcp__files__read","description":"Reads <b>.","input_schema":{"type":"object", "properties":{"path":{"type":"string"}}}},` +
			`{"name":"mcp__files__stat","description":"MCP tool from files","input_schema":{"type":"object","properties":{}}}]`)},
		{"OpenAI", OpenAI(tools), json.RawMessage(`[` +
			`{"type":"function","function":{"name":"mcp__files__read","description":"Reads <b>.","parameters":{"type":"object", "properties":{"path":{"type":"string"}}}}},` +
			`{"type":"function","function":{"name":"mcp__files__stat","description":"MCP tool from files","parameters":{"type":"object","properties":{}}}}]`)},
		{"Gemini", Gemini(tools), json.RawMessage(`[{"functionDeclarations":[` +
			`{"name":"mcp__files__read","description":"Reads <b>.","parametersJsonSchema":{"type":"object", "properties":{"path":{"type":"string"}}}},` +
			`{"name":"mcp__files__stat","description":"MCP tool from files","parametersJsonSchema":{"type":"object","properties":{}}}]}]`)},
		{"Anthropic", Anthropic(nil), json.RawMessage(`[]`)},
		{"OpenAI", OpenAI(nil), json.RawMessage(`[]`)},
		{"Gemini", Gemini(nil), json.RawMessage(`[]`)},
		{"a model without a schema", Anthropic([]NamedModel{{Name: "n"}}), json.RawMessage(`[{"name":"n","description":"","input_schema":{"type":"object","properties":{}}}]`)},
	} {
		if string(tt.got) != string(tt.want) {
			t.Errorf("%s:\n got %s\nwant %s", tt.api, tt.got, tt.want)
		}
	}
}

func TestExportMovesRootRules(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"}},"$defs":{"x":{"anyOf":[]}},` +
		`"anyOf":[{"required":["a"]},{"properties":{"a":{},"b":{"type":"integer"}}},{"$ref":"#/$defs/x"}],"not":{"required":["a","b"]}}`
	tool := NamedModel{"n", Model{Description: "Does.", InputSchema: json.RawMessage(schema)}}
	const want = `[{"name":"n","description":"Does.\n\nThe input must also match this JSON Schema: ` +
		`{\"anyOf\":[{\"required\":[\"a\"]},{\"properties\":{\"a\":{},\"b\":{\"type\":\"integer\"}}},{\"$ref\":\"#/$defs/x\"}],\"not\":{\"required\":[\"a\",\"b\"]}}",` +
		`"input_schema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"$defs":{"x":{"anyOf":[]}}}}]`
	if got := string(Anthropic([]NamedModel{tool})); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := string(Gemini([]NamedModel{tool})); !strings.Contains(got, schema) {
		t.Errorf("Gemini takes root rules, got %s", got)
	}

	tool.InputSchema = json.RawMessage(`{"type":"object","properties":{},"enum":[{"properties":{"no":1}},"` + strings.Repeat("x", maxNote) + `"]}`)
	const short = `[{"type":"function","function":{"name":"n","description":"Does.\n\nThe server checks the input against further rules.","parameters":{"type":"object","properties":{}}}}]`
	if got := string(OpenAI([]NamedModel{tool})); got != short {
		t.Errorf("got %s\nwant %s", got, short)
	}
}
