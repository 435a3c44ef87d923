package bridge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestModelTool(t *testing.T) {
	const plain = `{"type":"object","properties":{"n":{"type":"integer","maximum":12345678901234567890}}}`
	for _, tt := range []struct {
		about, definition string
		want              Model
	}{
		{"complete", `{"name":"read","description":"Reads.","inputSchema":` + plain + `,"annotations":{"readOnlyHint":true,"destructiveHint":false,"openWorldHint":true,"title":"x"},
			"_meta":{"anthropic/maxResultSizeChars":200000,"anthropic/alwaysLoad":true}}`,
			Model{Label: "files/read", Description: "Reads.", InputSchema: json.RawMessage(plain),
				Annotations: Annotations{new(true), new(false), new(true)}, MaxResultChars: 200_000, AlwaysLoad: true}},
		{"only what is set", `{"name":"read","description":"Reads.","inputSchema":` + plain + `,"annotations":{"readOnlyHint":"yes","destructiveHint":null,"idempotentHint":true}}`,
			Model{Label: "files/read", Description: "Reads.", InputSchema: json.RawMessage(plain), MaxResultChars: 100_000}},
		{"names are exact", `{"name":"read","Description":"no","DESCRIPTION":"no","InputSchema":{},"_meta":{"anthropic/alwaysload":true},"annotations":{"ReadOnlyHint":true}}`,
			Model{Label: "files/read", Description: "MCP tool from files", InputSchema: json.RawMessage(openObject), MaxResultChars: 100_000}},
		{"wrong kinds", `{"name":7,"description":["x"],"inputSchema":"x","annotations":[],"_meta":{"anthropic/maxResultSizeChars":"9","anthropic/alwaysLoad":1}}`,
			Model{Label: "files/", Description: "MCP tool from files", InputSchema: json.RawMessage(openObject), MaxResultChars: 100_000}},
		{"not an object", `[]`, Model{Label: "files/", Description: "MCP tool from files", InputSchema: json.RawMessage(openObject), MaxResultChars: 100_000}},
		{"not JSON", `{"name":"read"`, Model{Label: "files/", Description: "MCP tool from files", InputSchema: json.RawMessage(openObject), MaxResultChars: 100_000}},
		{"hidden characters", `{"name":"re\u200bad\n\u001b[2K","description":"a\u0000\u001b[31mb\u009b\u202ec\u2066\u200b\u200f\udb40\udc41\udb40\udd00\ufe00\u00add\r\n\te\u2764\ufe0f\u0600f"}`,
			Model{Label: "files/read [2K", Description: "a[31mbcd\n\te\u2764\ufe0f\u0600f", InputSchema: json.RawMessage(openObject), MaxResultChars: 100_000}},
		{"nothing but hidden characters", `{"name":"read","description":" \u200b\n\u2060"}`,
			Model{Label: "files/read", Description: "MCP tool from files", InputSchema: json.RawMessage(openObject), MaxResultChars: 100_000}},
	} {
		if diff := cmp.Diff(tt.want, ModelTool("files", json.RawMessage(tt.definition))); diff != "" {
			t.Errorf("%s:\n%s", tt.about, diff)
		}
	}
}

func TestResultLimit(t *testing.T) {
	for raw, want := range map[string]int{
		`1`: 1, `500000`: 500_000, `500001`: 500_000, `1e300`: 500_000, `2e5`: 200_000, `0`: 100_000, `-5`: 100_000, `0.5`: 100_000, `1e999`: 100_000, `null`: 100_000, `true`: 100_000,
	} {
		if got := ModelTool("s", json.RawMessage(`{"_meta":{"anthropic/maxResultSizeChars":`+raw+`}}`)).MaxResultChars; got != want {
			t.Errorf("%s: got %d, want %d", raw, got, want)
		}
	}
}

func TestInputSchema(t *testing.T) {
	for _, tt := range []struct{ schema, want string }{
		{`{"type":"object","properties":{"b":{},"a":{}},  "required":["a"]}`, ``},
		{`{"properties":{}, "type" : "object" , "x":1e400}`, ``},
		{`{"type":"object"}`, `{"type":"object","properties":{}}`},
		{`{"type":"object","$schema":"s", "additionalProperties" : {"const": 1.50}}`, `{"type":"object","$schema":"s","additionalProperties":{"const": 1.50},"properties":{}}`},
		{`{"properties":{"z":{}},"a\"b<":1}`, `{"properties":{"z":{}},"a\"b<":1,"type":"object"}`},
		{`{}`, openObject},
		{`{"type":["object","null"],"properties":{"z":{}}}`, `{"type":"object","properties":{"z":{}}}`},
		{`{"type":"object","properties":null}`, openObject},
		{`{"type":"string"}`, openObject},
		{`{"type":["string"]}`, openObject},
		{`{"type":7}`, openObject},
		{`true`, openObject},
		{`null`, openObject},
	} {
		got := ModelTool("s", json.RawMessage(`{"name":"t","inputSchema": `+tt.schema+` }`)).InputSchema
		if tt.want == "" {
			tt.want = tt.schema // the server's own bytes
		}
		if string(got) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.schema, got, tt.want)
		}
	}
}

func TestLongDescription(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int // bytes kept
	}{
		{strings.Repeat("d", 4096), 4096},
		{strings.Repeat("d", 4097), 4096 - len(cutMark)},
		{strings.Repeat("é", 4097), 4096 - len(cutMark) - 1}, // between characters
		{strings.Repeat("\u200b", 5000) + "d", 1},            // what is not seen does not count
	} {
		raw, err := json.Marshal(map[string]string{"description": tt.text})
		if err != nil {
			t.Fatal(err)
		}
		got := ModelTool("s", raw).Description
		kept := strings.TrimSuffix(got, cutMark)
		if len(got) > 4096 || len(kept) != tt.want || !utf8.ValidString(got) || !strings.HasPrefix(strings.Trim(tt.text, "\u200b"), kept) {
			t.Errorf("of %d bytes %d are left, %d kept", len(tt.text), len(got), len(kept))
		}
	}
}

func FuzzModelTool(f *testing.F) {
	f.Add(`{"name":"read","description":"a\u001b[31mb","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"anthropic/maxResultSizeChars":200000}}`)
	f.Add(`{"inputSchema":{"anyOf":[{"properties":{"a":{}}},{"$ref":"#"}],"type":["object"],"properties":{"b":{}}}}`)
	f.Add(`{"a":[1,{"b":"}]\"\\"}, -1.5e3 ,true],"inputSchema" : {"enum":[{}],"not":{},"properties":7}}`)
	f.Add("\xff{}")
	f.Fuzz(func(t *testing.T, definition string) {
		m := ModelTool("s", json.RawMessage(definition))
		if m.Description == "" || len(m.Description) > maxDescription || !utf8.ValidString(m.Description) || clean(m.Description) != m.Description {
			t.Errorf("description %q", m.Description)
		}
		if !utf8.ValidString(m.Label) || strings.ContainsAny(m.Label, "\n\t\x1b") {
			t.Errorf("label %q", m.Label)
		}
		if m.MaxResultChars < 1 || m.MaxResultChars > maxResultChars {
			t.Errorf("limit %d", m.MaxResultChars)
		}
		checkObjectSchema(t, m.InputSchema)

		// The reader of members finds what encoding/json finds.
		var want map[string]json.RawMessage
		if o, ok := parseObject(json.RawMessage(definition)); ok && json.Unmarshal([]byte(definition), &want) == nil {
			for _, value := range o {
				if !json.Valid(value.value) {
					t.Errorf("member %q is %q", value.name, value.value)
				}
			}
			got := map[string]json.RawMessage{}
			for _, member := range o {
				got[member.name] = member.value
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		named := []NamedModel{{"n", m}, {"m", m}}
		for _, export := range []json.RawMessage{Anthropic(named), OpenAI(named), Gemini(named)} {
			if !json.Valid(export) {
				t.Errorf("export %s", export)
			}
		}
		_, schema := withoutRootRules(m)
		checkObjectSchema(t, schema)
		for _, rule := range []string{"oneOf", "anyOf", "allOf", "enum", "not"} {
			if o, _ := parseObject(schema); o.get(rule) != nil {
				t.Errorf("%s is left in %s", rule, schema)
			}
		}
	})
}

func checkObjectSchema(t *testing.T, raw json.RawMessage) {
	t.Helper()
	var schema map[string]json.RawMessage
	if err := json.Unmarshal(raw, &schema); err != nil || string(schema["type"]) != `"object"` || !bytes.HasPrefix(schema["properties"], []byte{'{'}) {
		t.Errorf("schema %s", raw)
	}
}
