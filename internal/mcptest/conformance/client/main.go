// Command client is what the official conformance suite tests as a client: it
// connects to the server at the URL in its argument through internal/wire and
// does what the scenario named in the environment needs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: client URL")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second) // the suite gives it 30
	defer cancel()
	if err := run(ctx, os.Args[1], os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Getenv("MCP_CONFORMANCE_CONTEXT")); err != nil {
		fmt.Fprintln(os.Stderr, "conformance client:", err)
		os.Exit(1)
	}
}

// A scenario is what the client does once it is connected. hints is what the
// suite has to say about it.
type scenario func(ctx context.Context, c *wire.Client, hints json.RawMessage) error

// scenarios are those that need more than a connection and a list of the tools.
var scenarios = map[string]scenario{
	"tools_call":                          callTool("add_numbers", `{"a":5,"b":3}`),
	"elicitation-sep1034-client-defaults": callTool("test_client_elicitation_defaults", `{}`),
	"sse-retry":                           callTool("test_reconnection", `{}`),
	"json-schema-2020-12-preservation":    echoSchema,
	"sep-2322-client-request-state":       callMultiRound,
	"http-standard-headers":               useEverything,
	"http-custom-headers":                 callAsHinted,
	"http-invalid-tool-headers":           callEveryTool,
}

func run(ctx context.Context, url, name, hints string) error {
	c, err := wire.Connect(ctx, wire.HTTP(url, nil), &wire.ClientOptions{
		Info:         json.RawMessage(`{"name":"patchbay-conformance","version":"1.0.0"}`),
		Capabilities: json.RawMessage(`{"elicitation":{"form":{"applyDefaults":true}}}`),
		Handler:      user{},
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		ProbeTimeout: 20 * time.Second, // the suite starts all its servers at once: a silence of three says nothing
	})
	if err != nil {
		return err
	}
	do, ok := scenarios[name]
	if !ok {
		do = listTools
	}
	return errors.Join(do(ctx, c, json.RawMessage(hints)), c.Close())
}

// user is the one behind the client: it accepts whatever it is asked to, with
// the defaults of the form and a confirmation.
type user struct{}

func (user) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	if r.Method != "elicitation/create" {
		return nil, wire.MethodNotFound(r.Method)
	}
	form := map[string]json.RawMessage{}
	properties, _ := wire.Member(r.Params, "requestedSchema", "properties")
	for name, schema := range wire.Members(properties) {
		if value, ok := wire.Member(schema, "default"); ok {
			form[name] = value
		} else if name == "confirmed" {
			form[name] = json.RawMessage("true")
		}
	}
	content, err := json.Marshal(form)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(`{"action":"accept","content":` + string(content) + `}`), nil
}

func (user) HandleNotification(context.Context, *wire.Notification) {}

func listTools(ctx context.Context, c *wire.Client, _ json.RawMessage) error {
	_, err := c.ListTools(ctx)
	return err
}

// call calls a tool. An error that the server answers with is part of some
// scenarios; only a client that cannot call is at fault.
func call(ctx context.Context, c *wire.Client, name string, arguments json.RawMessage) error {
	_, err := c.CallTool(ctx, name, arguments)
	if e, ok := errors.AsType[*wire.Error](err); ok {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, e)
		return nil
	}
	return err
}

func callTool(name, arguments string) scenario {
	return func(ctx context.Context, c *wire.Client, _ json.RawMessage) error {
		if _, err := find(ctx, c, name); err != nil {
			return err
		}
		_, err := c.CallTool(ctx, name, json.RawMessage(arguments))
		return err
	}
}

// find returns the definition of a tool.
func find(ctx context.Context, c *wire.Client, name string) (json.RawMessage, error) {
	tools, err := c.ListTools(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(tools.Items, func(t json.RawMessage) bool { return nameOf(t) == name })
	if i < 0 {
		return nil, fmt.Errorf("the server has no tool %s", name)
	}
	return tools.Items[i], nil
}

func nameOf(definition json.RawMessage) string {
	name, _ := wire.StringMember(definition, "name")
	return name
}

func echoSchema(ctx context.Context, c *wire.Client, _ json.RawMessage) error {
	tool, err := find(ctx, c, "json_schema_2020_12_tool")
	if err != nil {
		return err
	}
	schema, _ := wire.Member(tool, "inputSchema")
	return call(ctx, c, "json_schema_echo", json.RawMessage(`{"schema":`+string(schema)+`}`))
}

func callMultiRound(ctx context.Context, c *wire.Client, _ json.RawMessage) error {
	for _, name := range []string{"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"} {
		if err := call(ctx, c, name, json.RawMessage(`{}`)); err != nil {
			return err
		}
	}
	return nil
}

func callEveryTool(ctx context.Context, c *wire.Client, _ json.RawMessage) error {
	tools, err := c.ListTools(ctx)
	if err != nil {
		return err
	}
	for _, tool := range tools.Items {
		if err := call(ctx, c, nameOf(tool), json.RawMessage(`{"region":"us-west1"}`)); err != nil {
			return err
		}
	}
	return nil
}

func callAsHinted(ctx context.Context, c *wire.Client, hints json.RawMessage) error {
	var wanted struct {
		ToolCalls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if err := json.Unmarshal(hints, &wanted); err != nil {
		return fmt.Errorf("MCP_CONFORMANCE_CONTEXT: %w", err)
	}
	if err := listTools(ctx, c, nil); err != nil {
		return err
	}
	for _, w := range wanted.ToolCalls {
		if err := call(ctx, c, w.Name, w.Arguments); err != nil {
			return err
		}
	}
	return nil
}

// useEverything makes one request of every kind.
func useEverything(ctx context.Context, c *wire.Client, _ json.RawMessage) error {
	if err := callEveryTool(ctx, c, nil); err != nil {
		return err
	}
	resources, err := c.ListResources(ctx)
	if err != nil {
		return err
	}
	for _, r := range resources.Items {
		uri, _ := wire.StringMember(r, "uri")
		if _, err := c.ReadResource(ctx, uri); err != nil {
			return err
		}
	}
	prompts, err := c.ListPrompts(ctx)
	if err != nil {
		return err
	}
	for _, p := range prompts.Items {
		if _, err := c.GetPrompt(ctx, nameOf(p), nil); err != nil {
			return err
		}
	}
	return nil
}
