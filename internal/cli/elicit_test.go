package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay"
)

// FuzzElicit: whatever a server asks and a person types, the question comes to
// an end, and what is accepted is an object of values for the fields asked for.
func FuzzElicit(f *testing.F) {
	f.Add(`{"message":"m","requestedSchema":{"properties":{"a":{"type":"string"},"b":{"type":"integer","default":3}},"required":["a"]}}`, "x\n\ny\n")
	f.Add(`{"requestedSchema":{"properties":{"c":{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"},{"const":"g"}]}},"n":{"type":"number"}}}}`, "r, g\n1e400\ny\n")
	f.Add(`{"requestedSchema":{"properties":{"e":{"enum":["x"],"type":"string"},"d":{"type":"boolean"}},"required":["e","d"]}}`, "q\nx\nmaybe\nno\nyes\n")
	f.Add(`{"mode":"url","url":"https://example.test/\u001b[2J"}`, "y\n")
	f.Fuzz(func(t *testing.T, params, typed string) {
		if !json.Valid([]byte(params)) {
			return // which no server can send
		}
		var shown strings.Builder
		a := newApp(Env{Stdin: strings.NewReader(typed), Stderr: &shown, Stdout: io.Discard})
		a.in = bufio.NewReader(a.env.Stdin)
		r, err := a.elicit(t.Context(), patchbay.ElicitRequest{Server: "s", Params: json.RawMessage(params)})
		if strings.ContainsAny(shown.String(), "\x1b\x07\u202e") {
			t.Errorf("a terminal would obey %q", shown.String())
		}
		if err != nil || r.Action != "accept" {
			return
		}
		var content map[string]json.RawMessage
		if len(r.Content) > 0 && json.Unmarshal(r.Content, &content) != nil {
			t.Errorf("accepted %s", r.Content)
		}
		var asked struct {
			Schema struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"requestedSchema"`
		}
		_ = json.Unmarshal([]byte(params), &asked) // it was read once already
		for name := range content {
			if _, ok := asked.Schema.Properties[name]; !ok {
				t.Errorf("%q was not asked for", name)
			}
		}
	})
}
