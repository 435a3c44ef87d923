package patchbay

import (
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A schema that would take for ever to check is refused.
func TestFormWithReferences(t *testing.T) {
	defs := `{}`
	for range 64 {
		defs = `{"$defs":{"a":` + defs + `},"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}`
	}
	for _, schema := range []string{
		`{"type":"object","properties":{"a":` + defs + `}}`, `{"type":"object","$dynamicRef":"#a"}`, `{"type":"object","anyOf":[{"$ref":"#"}]}`,
	} {
		if _, err := (ElicitRequest{Schema: json.RawMessage(schema)}).Form(); err == nil {
			t.Errorf("%.60s… is a form", schema)
		}
	}
}

// What is wrong with a value is said so that a person can put it right, whichever
// way the server says what it may be.
func TestFieldCheck(t *testing.T) {
	for _, tt := range []struct{ field, value, want string }{
		{`{"type":"string","enum":["r","g"]}`, `"z"`, `"z" is not one of r, g`},
		{`{"type":"string","enum":["r","g"]}`, `"g"`, ""},
		{`{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}]}`, `"Red"`, `"Red" is not one of r, g`},
		{`{"type":"array","items":{"type":"string","enum":["r","g"]}}`, `["r","z"]`, `"z" is not one of r, g`},
		{`{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}]}}`, `["g","z"]`, `"z" is not one of r, g`},
		{`{"type":"array","items":{"type":"string","enum":["r","g"]},"maxItems":1}`, `["r","g"]`, "maxItems: got 2, want 1"},
		{`{"type":"string","anyOf":[{"pattern":"^a"},{"const":"r"}]}`, `"ab"`, ""},
		{`{"type":"integer","maximum":9}`, `12`, "maximum: got 12, want 9"},
	} {
		form, err := ElicitRequest{Schema: json.RawMessage(`{"type":"object","properties":{"a":` + tt.field + `}}`)}.Form()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := form.Fields[0].Check(json.RawMessage(tt.value)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s of %s: %q instead of %q", tt.value, tt.field, got, tt.want)
		}
	}
}

// Whatever a server asks for and whoever answers, what is passed on is an object
// that fits, and filling it in once more changes nothing.
func FuzzForm(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string","default":"x"},"b":{"type":"integer"}},"required":["b"]}`), []byte(`{"b":1}`))
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"array","items":{"enum":["x","y"]},"default":["x"]}}}`), []byte(`{}`))
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string","format":"email","pattern":"^a"}}}`), []byte(`{"a":"a@b.c"}`))
	f.Add([]byte(`{"type":"object","$ref":"file:///etc/passwd"}`), []byte(`{}`))
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#"}}}`), []byte(`{"a":{"a":{}}}`))
	f.Fuzz(func(t *testing.T, schema, content []byte) {
		if wire.Valid(schema, wire.Limits{}) != nil {
			return // no message has it
		}
		form, err := ElicitRequest{Schema: schema}.Form()
		if err != nil {
			return
		}
		filled, err := form.Fill(content)
		if err != nil {
			return
		}
		for _, field := range form.Fields {
			if value, ok := wire.Member(filled, field.Name); ok && field.Check(value) != nil {
				t.Errorf("%s fits, and its field %q does not: %v", filled, field.Name, field.Check(value))
			}
		}
		if wire.Valid(filled, wire.Limits{}) != nil || !wire.IsObject(filled) {
			t.Fatalf("%s became %s", content, filled)
		}
		again, err := form.Fill(filled)
		if err != nil || string(again) != string(filled) {
			t.Errorf("%s became %s, then %s, %v", content, filled, again, err)
		}
		if _, err := json.Marshal(ElicitResult{Action: ElicitAccept, Content: filled}); err != nil {
			t.Error(err)
		}
	})
}
