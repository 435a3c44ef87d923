package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	redPixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	silence  = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

const (
	image    = `{"type":"image","mimeType":"image/png","data":"` + redPixel + `"}`
	audio    = `{"type":"audio","mimeType":"audio/wav","data":"` + silence + `"}`
	embedded = `{"type":"resource","resource":{"uri":"test://embedded-resource","mimeType":"text/plain","text":"This is an embedded resource content."}}`
	mixed    = `{"type":"resource","resource":{"uri":"test://mixed-content-resource","mimeType":"application/json","text":"{\"test\":\"data\",\"value\":123}"}}`
)

// contentTools answer with one kind of content each.
var contentTools = []tool{
	{name: "test_simple_text", description: "A text", call: answer(text("This is a simple text response for testing."))},
	{name: "test_image_content", description: "An image", call: answer(image)},
	{name: "test_audio_content", description: "A sound", call: answer(audio)},
	{name: "test_embedded_resource", description: "A resource", call: answer(embedded)},
	{name: "test_multiple_content_types", description: "A text, an image and a resource",
		call: answer(text("Multiple content types test:"), image, mixed)},
	{name: "test_error_handling", description: "An error of the tool",
		call: func(context.Context, *call) (json.RawMessage, error) {
			return toolError("This tool intentionally returns an error for testing"), nil
		}},
	{name: "json_schema_2020_12_tool", description: "A schema that must arrive as it is", schema: schema202012,
		call: func(_ context.Context, c *call) (json.RawMessage, error) {
			return content(text("JSON Schema 2020-12 tool called with: " + string(c.arguments))), nil
		}},
	{name: "test_x_mcp_header", description: "An argument that is repeated in a header", schema: `{
		"type":"object",
		"properties":{
			"region":{"type":"string","x-mcp-header":"Region"},
			"level":{"type":"integer"}
		}}`,
		call: func(_ context.Context, c *call) (json.RawMessage, error) {
			return content(text("region=" + c.argument("region"))), nil
		}},
}

const schema202012 = `{
	"$schema":"https://json-schema.org/draft/2020-12/schema",
	"type":"object",
	"$defs":{"address":{
		"$anchor":"addressDef",
		"type":"object",
		"properties":{"street":{"type":"string"},"city":{"type":"string"}}
	}},
	"properties":{
		"name":{"type":"string"},
		"address":{"$ref":"#/$defs/address"},
		"contactMethod":{"type":"string","enum":["phone","email"]},
		"phone":{"type":"string"},
		"email":{"type":"string"}
	},
	"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
	"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},
	"then":{"required":["phone"]},
	"else":{"required":["email"]},
	"additionalProperties":false
}`

func answer(blocks ...string) func(context.Context, *call) (json.RawMessage, error) {
	return func(context.Context, *call) (json.RawMessage, error) { return content(blocks...), nil }
}

const (
	resourceList = `{"resources":[
		{"uri":"test://static-text","name":"static-text","description":"A text","mimeType":"text/plain"},
		{"uri":"test://static-binary","name":"static-binary","description":"An image","mimeType":"image/png"},
		{"uri":"test://watched-resource","name":"watched-resource","description":"It changes every three seconds","mimeType":"text/plain"}
	]}`
	templateList = `{"resourceTemplates":[
		{"uriTemplate":"test://template/{id}/data","name":"template","description":"One resource for each id","mimeType":"application/json"}
	]}`
)

func readResource(r *wire.Request) (json.RawMessage, error) {
	uri, _ := wire.StringMember(r.Params, "uri")
	contents := func(rest string) (json.RawMessage, error) {
		return json.RawMessage(`{"contents":[{"uri":` + quote(uri) + `,` + rest + `}]}`), nil
	}
	switch uri {
	case "test://static-text":
		return contents(`"mimeType":"text/plain","text":"This is the content of the static text resource."`)
	case "test://static-binary":
		return contents(`"mimeType":"image/png","blob":"` + redPixel + `"`)
	case "test://watched-resource":
		return contents(`"mimeType":"text/plain","text":"Watched resource content"`)
	}
	if id, ok := strings.CutPrefix(uri, "test://template/"); ok {
		if id, ok = strings.CutSuffix(id, "/data"); ok {
			data := `{"id":` + quote(id) + `,"templateTest":true,"data":` + quote("Data for ID: "+id) + `}`
			return contents(`"mimeType":"application/json","text":` + quote(data))
		}
	}
	err := wire.Errorf(wire.CodeInvalidParams, "Resource not found")
	if r.Session.Era == wire.Legacy {
		err.Code = wire.CodeResourceNotFound
	}
	err.Data = json.RawMessage(`{"uri":` + quote(uri) + `}`)
	return nil, err
}

// A prompt is one entry of prompts/list and what it gives.
type prompt struct {
	name, description string
	arguments         string // as prompts/list shows them
	get               func(ctx context.Context, r *wire.Request) (json.RawMessage, error)
}

var prompts = []prompt{
	{name: "test_simple_prompt", description: "A text", get: func(context.Context, *wire.Request) (json.RawMessage, error) {
		return messages(text("This is a simple prompt for testing.")), nil
	}},
	{name: "test_prompt_with_arguments", description: "A text with arguments in it",
		arguments: `[{"name":"arg1","required":true},{"name":"arg2","required":true}]`,
		get: func(_ context.Context, r *wire.Request) (json.RawMessage, error) {
			arg1, _ := wire.StringMember(r.Params, "arguments", "arg1")
			arg2, _ := wire.StringMember(r.Params, "arguments", "arg2")
			return messages(text("Prompt with arguments: arg1='" + arg1 + "', arg2='" + arg2 + "'")), nil
		}},
	{name: "test_prompt_with_embedded_resource", description: "A resource",
		arguments: `[{"name":"resourceUri","required":true}]`,
		get: func(_ context.Context, r *wire.Request) (json.RawMessage, error) {
			uri, _ := wire.StringMember(r.Params, "arguments", "resourceUri")
			resource := `{"type":"resource","resource":{"uri":` + quote(uri) + `,"mimeType":"text/plain","text":"Embedded resource content for testing."}}`
			return messages(resource, text("Please process the embedded resource above.")), nil
		}},
	{name: "test_prompt_with_image", description: "An image", get: func(context.Context, *wire.Request) (json.RawMessage, error) {
		return messages(image, text("Please analyze the image above.")), nil
	}},
	{name: "test_input_required_result_prompt", description: "It asks the client for a part of itself", get: promptThatAsks},
}

// messages is the result of prompts/get with one message for each content.
func messages(contents ...string) json.RawMessage {
	var all []string
	for _, c := range contents {
		all = append(all, `{"role":"user","content":`+c+`}`)
	}
	return json.RawMessage(`{"messages":[` + strings.Join(all, ",") + `]}`)
}

func (f *fixture) getPrompt(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	name, _ := wire.StringMember(r.Params, "name")
	f.mu.Lock()
	p, ok := f.prompts[name]
	f.mu.Unlock()
	if !ok {
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown prompt %q", name)
	}
	return p.get(ctx, r)
}
