package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// inputTools need input from the client. Most just ask, and wire does the rest:
// it answers with what is asked, seals the state and finds the call again. Two
// of them, of which the suite wants more than that, write such answers
// themselves, as a server without state does.
var inputTools = []tool{
	{name: "test_input_required_result_elicitation", description: "Asks for a name", call: greetByName},
	{name: "test_input_required_result_sampling", description: "Asks the client's model", call: capitalOfFrance},
	{name: "test_input_required_result_list_roots", description: "Asks for the roots", call: countRoots},
	{name: "test_input_required_result_request_state", description: "Asks for a confirmation", call: confirm},
	{name: "test_input_required_result_tampered_state", description: "Asks for a confirmation", call: confirm},
	{name: "test_input_required_result_multi_round", description: "Asks twice", call: askTwice},
	{name: "test_input_required_result_multiple_inputs", description: "Asks three things at once", call: askAll},
	{name: "test_input_required_result_capabilities", description: "Asks what the client can be asked", call: askAll},
}

const (
	nameSchema  = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`
	colorSchema = `{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}`
	okSchema    = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`
	whatSchema  = `{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}`

	greetingRequest = `{"messages":[{"role":"user","content":{"type":"text","text":"Generate a greeting"}}],"maxTokens":50}`
	capitalRequest  = `{"messages":[{"role":"user","content":{"type":"text","text":"What is the capital of France?"}}],"maxTokens":100}`
)

// accepted returns what the user entered under name, if the user did.
func accepted(elicited json.RawMessage, name string) (json.RawMessage, bool) {
	if action, _ := wire.StringMember(elicited, "action"); action != "accept" {
		return nil, false
	}
	return wire.Member(elicited, "content", name)
}

func acceptedString(elicited json.RawMessage, name string) (string, bool) {
	raw, _ := accepted(elicited, name)
	return wire.Unquote(raw)
}

// response is what the client sent for one question of an answer of ours.
func (c *call) response(key string) json.RawMessage {
	raw, _ := wire.Member(c.Params, "inputResponses", key)
	return raw
}

// inputRequired is the answer that asks.
func inputRequired(state string, requests ...string) json.RawMessage {
	out := `{"resultType":"input_required","inputRequests":{` + strings.Join(requests, ",") + `}`
	if state != "" {
		out += `,"requestState":` + quote(state)
	}
	return json.RawMessage(out + `}`)
}

func inputRequest(key, method, params string) string {
	return quote(key) + `:{"method":` + quote(method) + `,"params":` + params + `}`
}

func greetByName(_ context.Context, c *call) (json.RawMessage, error) {
	if name, ok := acceptedString(c.response("user_name"), "name"); ok {
		return content(text("Hello, " + name + "!")), nil
	}
	return inputRequired("", inputRequest("user_name", "elicitation/create", elicitation("What is your name?", nameSchema))), nil
}

func capitalOfFrance(ctx context.Context, c *call) (json.RawMessage, error) {
	answer, err := c.ask(ctx, "sampling/createMessage", capitalRequest)
	if err != nil {
		return nil, err
	}
	said, _ := wire.StringMember(answer, "content", "text")
	return content(text("Sampling response: " + said)), nil
}

func countRoots(ctx context.Context, c *call) (json.RawMessage, error) {
	answer, err := c.ask(ctx, "roots/list", `{}`)
	if err != nil {
		return nil, err
	}
	var result struct{ Roots []struct{ URI string } }
	if err := json.Unmarshal(answer, &result); err != nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "roots: %v", err)
	}
	out := fmt.Sprintf("%d roots:", len(result.Roots))
	for _, root := range result.Roots {
		out += " " + root.URI
	}
	return content(text(out)), nil
}

func confirm(ctx context.Context, c *call) (json.RawMessage, error) {
	answer, err := c.ask(ctx, "elicitation/create", elicitation("Please confirm", okSchema))
	if err != nil {
		return nil, err
	}
	if ok, _ := accepted(answer, "ok"); string(ok) != "true" {
		return toolError("not confirmed"), nil
	}
	return content(text("state-ok: the state came back as it was, and the user has confirmed")), nil
}

func askTwice(ctx context.Context, c *call) (json.RawMessage, error) {
	first, err := c.ask(ctx, "elicitation/create", elicitation("Step 1: What is your name?", nameSchema))
	if err != nil {
		return nil, err
	}
	second, err := c.ask(ctx, "elicitation/create", elicitation("Step 2: What is your favorite color?", colorSchema))
	if err != nil {
		return nil, err
	}
	name, _ := acceptedString(first, "name")
	color, _ := acceptedString(second, "color")
	return content(text(name + " likes " + color)), nil
}

// askAll asks everything that the client can answer, in one answer.
func askAll(_ context.Context, c *call) (json.RawMessage, error) {
	var open []string
	var got int
	for _, q := range []struct{ capability, key, method, params string }{
		{"elicitation", "user_name", "elicitation/create", elicitation("What is your name?", nameSchema)},
		{"sampling", "greeting", "sampling/createMessage", greetingRequest},
		{"roots", "client_roots", "roots/list", `{}`},
	} {
		switch {
		case wire.IsObject(c.response(q.key)):
			got++
		case c.Session.Supports(q.capability):
			open = append(open, inputRequest(q.key, q.method, q.params))
		}
	}
	if len(open) > 0 {
		return inputRequired("all", open...), nil
	}
	return content(text(fmt.Sprintf("%d answers", got))), nil
}

func promptThatAsks(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	params := json.RawMessage(elicitation("What context should the prompt use?", whatSchema))
	answer, err := r.Ask(ctx, "elicitation/create", params)
	if err != nil {
		return nil, err
	}
	given, _ := acceptedString(answer, "context")
	return messages(text("Context: " + given)), nil
}
