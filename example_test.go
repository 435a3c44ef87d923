package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// temporaryHome is an empty home for the examples; real programs leave Home and
// Dir empty.
func temporaryHome() (home string, remove func()) {
	home, err := os.MkdirTemp("", "patchbay")
	if err != nil {
		log.Fatal(err)
	}
	return home, func() { os.RemoveAll(home) }
}

// demoServer is a small MCP server with a tool that repeats what it is told. In a
// real program it would be something like
//
//	config.Server{Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-everything"}}
func demoServer() config.Server { return scripted() }

// A program opens a host, which finds the servers that its user has configured
// and connects to them; it may add some of its own. A session offers their tools.
func Example() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: home, Environ: []string{}})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close() // ends all servers and waits for them
	if err := h.Apply(ctx, map[string]config.Server{"demo": demoServer()}); err != nil {
		log.Fatal(err)
	}
	if err := h.Wait(ctx, "demo"); err != nil { // only to have something to show
		log.Fatal(err)
	}

	s, err := h.NewSession(patchbay.SessionOptions{AllowedTools: []string{"mcp__demo__echo"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, tool := range s.Tools() {
		if tool.Tool == "echo" {
			fmt.Println(tool.Name)
		}
	}
	result, err := s.Call(ctx, patchbay.Call{Tool: "mcp__demo__echo", Arguments: json.RawMessage(`{"text": "Hello"}`)})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := result.ForModel()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	// Output:
	// mcp__demo__echo
	// Hello
}

// A tool written in Go is a tool like any other: the SDK makes a schema of its
// arguments, and rules, hooks and names apply to it.
func ExampleFromSDK() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	type sum struct {
		Numbers []float64 `json:"numbers" jsonschema:"what to add up"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "calculator", Version: "1.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "sum", Description: "Adds numbers up."},
		func(_ context.Context, _ *mcp.CallToolRequest, in sum) (*mcp.CallToolResult, any, error) {
			total := 0.0
			for _, n := range in.Numbers {
				total += n
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(total)}}}, nil, nil
		})

	h, err := patchbay.Open(ctx, patchbay.Options{
		Home: home, Dir: home, Environ: []string{},
		InProcess: map[string]patchbay.LocalServer{"calculator": patchbay.FromSDK(server)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	s, err := h.NewSession(patchbay.SessionOptions{Default: patchbay.Allow})
	if err != nil {
		log.Fatal(err)
	}
	s.Load(ctx)
	result, err := s.Call(ctx, patchbay.Call{Tool: "mcp__calculator__sum", Arguments: json.RawMessage(`{"numbers": [1, 2, 3.5]}`)})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := result.ForModel()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	// Output: 6.5
}

// A call goes ahead if a rule allows it, or a person does. Deny wins over ask,
// and ask over allow.
func ExampleSession_Call_permissions() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{
		Home: home, Dir: home, Environ: []string{},
		UI: &patchbay.UI{
			Confirm: func(_ context.Context, r patchbay.ConfirmRequest) (bool, error) {
				fmt.Printf("May I call %s with %s? No.\n", r.Tool.Name, r.Arguments)
				return false, nil
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	if err := h.Apply(ctx, map[string]config.Server{"demo": demoServer()}); err != nil {
		log.Fatal(err)
	}
	s, err := h.NewSession(patchbay.SessionOptions{
		AllowedTools:    []string{"mcp__demo__echo"},
		DisallowedTools: []string{"mcp__demo__crash"},
	})
	if err != nil {
		log.Fatal(err)
	}
	s.Load(ctx)
	for _, tool := range []string{"echo", "pid", "crash"} {
		_, err := s.Call(ctx, patchbay.Call{Tool: "mcp__demo__" + tool})
		if e, ok := errors.AsType[*patchbay.Error](err); ok {
			fmt.Println(tool, e.Kind)
		} else {
			fmt.Println(tool, err)
		}
	}
	// Output:
	// echo <nil>
	// May I call mcp__demo__pid with {}? No.
	// pid denied
	// crash tool_not_found
}

// A program without a person waits for all servers and goes on with those that
// work.
func ExampleSession_Load() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: home, Environ: []string{}})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = h.Apply(ctx, map[string]config.Server{"demo": demoServer(), "broken": {Command: "no-such-program"}})
	if err != nil {
		log.Fatal(err)
	}
	s, err := h.NewSession(patchbay.SessionOptions{Tools: []string{"mcp__demo__echo", "mcp__demo__pid"}, Default: patchbay.Allow})
	if err != nil {
		log.Fatal(err)
	}
	tools, failed := s.Load(ctx)
	for _, tool := range tools {
		fmt.Println(tool.Name)
	}
	for _, err := range failed {
		fmt.Println(err)
	}
	// Output:
	// mcp__demo__echo
	// mcp__demo__pid
	// Failed to connect to "broken": command "no-such-program": not found in PATH: file does not exist
}

// The tools of a session can be handed to a model as they are.
func ExampleSession_Export() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: home, Environ: []string{}})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	if err := h.Apply(ctx, map[string]config.Server{"demo": demoServer()}); err != nil {
		log.Fatal(err)
	}
	s, err := h.NewSession(patchbay.SessionOptions{Tools: []string{"mcp__demo__echo"}})
	if err != nil {
		log.Fatal(err)
	}
	s.Load(ctx)
	for _, api := range []string{"anthropic", "openai", "gemini"} {
		tools, err := s.Export(api)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(tools))
	}
	// Output:
	// [{"name":"mcp__demo__echo","description":"answers with text","input_schema":{"type":"object","properties":{}}}]
	// [{"type":"function","function":{"name":"mcp__demo__echo","description":"answers with text","parameters":{"type":"object","properties":{}}}}]
	// [{"functionDeclarations":[{"name":"mcp__demo__echo","description":"answers with text","parametersJsonSchema":{"type":"object","properties":{}}}]}]
}

// Watch yields what the host knows after every change, as long as somebody
// looks.
func ExampleHost_Watch() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: home, Environ: []string{}})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	if err := h.Apply(ctx, map[string]config.Server{"demo": demoServer()}); err != nil {
		log.Fatal(err)
	}
	for snapshot := range h.Watch(ctx) {
		if s := snapshot.Servers[0]; s.State == config.Connected {
			fmt.Println(s.Name, s.State)
			break
		}
	}
	// Output: demo connected
}

// Add writes a server into one of Patchbay's own files. What is confidential in
// it is not shown.
func ExampleHost_Add() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: home, Environ: []string{}, Lazy: true})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	_, err = h.Add(ctx, patchbay.AddRequest{
		Name: "files", Scope: config.ScopeUser,
		Server: json.RawMessage(`{"command": "acme-files", "env": {"KEY": "hunter2"}}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range h.Servers() {
		fmt.Println(s.Name, s.State, s.Origin.Product, s.Target, string(s.Config))
	}
	// Output:
	// files pending Patchbay acme-files {"command":"acme-files","env":{"KEY":"[redacted]"}}
}

// A server from a project's files is not used before a person approved exactly
// what it would run.
func ExampleHost_Approve() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()
	project := filepath.Join(home, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		log.Fatal(err)
	}
	entry := []byte(`{"mcpServers": {"tool": {"type": "http", "url": "https://tool.example.test/mcp"}}}`)
	if err := os.WriteFile(filepath.Join(project, ".mcp.json"), entry, 0o644); err != nil {
		log.Fatal(err)
	}

	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: project, Environ: []string{}, Lazy: true})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	s, _ := h.Server("tool")
	fmt.Println(s.State)

	request, err := h.Approval("tool") // request.Text is what to show the person
	if err != nil {
		log.Fatal(err)
	}
	if _, err := h.Approve(ctx, "tool", request.Hash); err != nil {
		log.Fatal(err)
	}
	s, _ = h.Server("tool")
	fmt.Println(s.State)
	// Output:
	// needs-approval
	// pending
}

// Hooks see every call that no rule denies. What they decide may make a question
// unnecessary, or demand one.
func ExampleHooks() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{
		Home: home, Dir: home, Environ: []string{},
		Hooks: &patchbay.Hooks{
			BeforeCall: func(_ context.Context, c *patchbay.HookCall) error {
				if c.Tool == "crash" {
					return errors.New("not in working hours")
				}
				c.Permission = patchbay.Allow
				c.Arguments = json.RawMessage(`{"text": "hello from a hook"}`)
				return nil
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	if err := h.Apply(ctx, map[string]config.Server{"demo": demoServer()}); err != nil {
		log.Fatal(err)
	}
	s, err := h.NewSession(patchbay.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	s.Load(ctx)
	for _, tool := range []string{"echo", "crash"} {
		r, err := s.Call(ctx, patchbay.Call{Tool: "mcp__demo__" + tool})
		if err != nil {
			fmt.Println(err)
			continue
		}
		answer, err := r.ForModel()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Text)
	}
	// Output:
	// hello from a hook
	// mcp__demo__crash was refused: not in working hours
}

// A server may ask the person something while it serves a call. Fields that the
// person leaves out get their defaults.
func ExampleUI() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{
		Home: home, Dir: home, Environ: []string{},
		UI: &patchbay.UI{
			Elicit: func(_ context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
				fmt.Printf("%s asks: %s\n", r.Server, r.Message)
				return patchbay.ElicitResult{Action: patchbay.ElicitAccept, Content: json.RawMessage(`{"city": "Bern"}`)}, nil
			},
			ElicitFormsOnly: true,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	if err := h.Apply(ctx, map[string]config.Server{"demo": demoServer()}); err != nil {
		log.Fatal(err)
	}
	s, err := h.NewSession(patchbay.SessionOptions{Default: patchbay.Allow})
	if err != nil {
		log.Fatal(err)
	}
	s.Load(ctx)
	question, err := json.Marshal(map[string]string{"text": `{"message": "Where to?", "requestedSchema": {"type": "object", ` +
		`"properties": {"city": {"type": "string"}, "nights": {"type": "integer", "default": 2}}, "required": ["city"]}}`})
	if err != nil {
		log.Fatal(err)
	}
	r, err := s.Call(ctx, patchbay.Call{Tool: "mcp__demo__elicit", Arguments: question}) // a tool that asks, and says what it was told
	if err != nil {
		log.Fatal(err)
	}
	answer, err := r.ForModel()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	// Output:
	// demo asks: Where to?
	// {"action":"accept","content":{"city":"Bern","nights":2}}
}
