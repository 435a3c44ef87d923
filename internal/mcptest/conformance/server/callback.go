package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// callbackTools tell or ask the client something before they answer.
var callbackTools = []tool{
	{name: "test_tool_with_logging", description: "Three log messages", call: logThrice},
	{name: "test_tool_with_progress", description: "Three steps of progress", call: reportProgress},
	{name: "test_sampling", description: "Has the client's model say something", call: sample,
		schema: `{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`},
	{name: "test_elicitation", description: "Asks the user for a name", call: elicit,
		schema: `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`},
	{name: "test_elicitation_sep1034_defaults", description: "Asks with defaults", call: elicitWith("Test defaults for primitives", defaultsSchema)},
	{name: "test_elicitation_sep1330_enums", description: "Asks for choices", call: elicitWith("Test enum schemas", enumsSchema)},
	{name: "test_reconnection", description: "Has the client come back for the answer", call: reconnect},
}

func logThrice(ctx context.Context, c *call) (json.RawMessage, error) {
	for _, message := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if err := c.log(ctx, message); err != nil {
			return nil, err
		}
	}
	return content(text("Tool with logging executed successfully")), nil
}

func (c *call) log(ctx context.Context, message string) error {
	return c.Link.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"info","data":`+quote(message)+`}`))
}

func reportProgress(ctx context.Context, c *call) (json.RawMessage, error) {
	token, ok := wire.Member(c.Params, "_meta", wire.MetaProgressToken)
	if !ok {
		return content(text("No progress was asked for.")), nil
	}
	for _, step := range []int{0, 50, 100} {
		params := fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":100,"message":"Completed step %d of 100"}`, token, step, step)
		if err := c.Link.Notify(ctx, "notifications/progress", json.RawMessage(params)); err != nil {
			return nil, err
		}
	}
	return content(text(string(token))), nil
}

func sample(ctx context.Context, c *call) (json.RawMessage, error) {
	params := `{"messages":[{"role":"user","content":` + text(c.argument("prompt")) + `}],"maxTokens":100}`
	answer, err := c.ask(ctx, "sampling/createMessage", params)
	if err != nil {
		return nil, err
	}
	said, _ := wire.StringMember(answer, "content", "text")
	return content(text("LLM response: " + said)), nil
}

const usernameSchema = `{"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`

func elicit(ctx context.Context, c *call) (json.RawMessage, error) {
	return elicitWith(c.argument("message"), usernameSchema)(ctx, c)
}

func elicitWith(message, schema string) func(context.Context, *call) (json.RawMessage, error) {
	return func(ctx context.Context, c *call) (json.RawMessage, error) {
		answer, err := c.ask(ctx, "elicitation/create", elicitation(message, schema))
		if err != nil {
			return nil, err
		}
		action, _ := wire.StringMember(answer, "action")
		given, ok := wire.Member(answer, "content")
		if !ok {
			given = json.RawMessage(`{}`)
		}
		return content(text("Elicitation completed: action=" + action + ", content=" + string(given))), nil
	}
}

func elicitation(message, schema string) string {
	return `{"message":` + quote(message) + `,"requestedSchema":` + schema + `}`
}

const (
	defaultsSchema = `{"type":"object","properties":{
		"name":{"type":"string","description":"User name","default":"John Doe"},
		"age":{"type":"integer","description":"User age","default":30},
		"score":{"type":"number","description":"User score","default":95.5},
		"status":{"type":"string","description":"User status","enum":["active","inactive","pending"],"default":"active"},
		"verified":{"type":"boolean","description":"Verification status","default":true}
	},"required":[]}`

	choices     = `[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]`
	enumsSchema = `{"type":"object","properties":{
		"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
		"titledSingle":{"type":"string","oneOf":` + choices + `},
		"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
		"untitledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":` + choices + `}}
	},"required":[]}`
)

// reconnect answers only after its client has been sent away, so that the answer
// has to wait for it.
func reconnect(ctx context.Context, c *call) (json.RawMessage, error) {
	const away = 10 * time.Millisecond
	if c.ComeBack(away) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * away):
		}
	}
	return content(text("Reconnection test completed successfully. If you received this, the client properly reconnected after stream closure.")), nil
}

// statelessTools are for the rules of the modern era.
var statelessTools = []tool{
	{name: "test_missing_capability", description: "Needs a client that can sample", call: func(_ context.Context, c *call) (json.RawMessage, error) {
		if !c.Session.Supports("sampling") {
			return nil, missingCapability(`{"sampling":{}}`)
		}
		return content(text("The client can sample.")), nil
	}},
	{name: "test_streaming_elicitation", description: "Sends progress, and no request", call: func(ctx context.Context, c *call) (json.RawMessage, error) {
		if _, err := reportProgress(ctx, c); err != nil {
			return nil, err
		}
		return content(text("Nothing was asked.")), nil
	}},
	{name: "test_logging_tool", description: "Logs, whether the client wants it or not", call: func(ctx context.Context, c *call) (json.RawMessage, error) {
		if err := c.log(ctx, "test_logging_tool executed"); err != nil {
			return nil, err
		}
		return content(text("Logged.")), nil
	}},
	{name: "test_trigger_tool_change", description: "Changes the list of tools", call: func(_ context.Context, c *call) (json.RawMessage, error) {
		c.fixture.addTool(tool{name: "test_transient_tool", description: c.fixture.nextVersion(), call: answer(text("I am new."))})
		c.fixture.broadcast("notifications/tools/list_changed", `{}`)
		return content(text("The list of tools has changed.")), nil
	}},
	{name: "test_trigger_prompt_change", description: "Changes the list of prompts", call: func(_ context.Context, c *call) (json.RawMessage, error) {
		c.fixture.addPrompt(prompt{name: "test_transient_prompt", description: c.fixture.nextVersion(),
			get: func(context.Context, *wire.Request) (json.RawMessage, error) { return messages(text("I am new.")), nil }})
		c.fixture.broadcast("notifications/prompts/list_changed", `{}`)
		return content(text("The list of prompts has changed.")), nil
	}},
}

func missingCapability(required string) *wire.Error {
	return &wire.Error{
		Code:    wire.CodeMissingClientCapability,
		Message: "the client lacks a capability that this needs",
		Data:    json.RawMessage(`{"requiredCapabilities":` + required + `}`),
	}
}
