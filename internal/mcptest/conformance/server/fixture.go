package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// fixture answers what the suite sends.
type fixture struct {
	server  *wire.Server
	tools   map[string]tool
	headers map[string]wire.ParamHeaders // by tool
	prompts map[string]prompt
	tasks   *taskStore

	versions atomic.Int32 // of what was added meanwhile

	mu         sync.Mutex
	toolList   []json.RawMessage
	promptList []json.RawMessage
}

// A tool is one entry of tools/list and what it does.
type tool struct {
	name, description string
	schema            string // of its arguments; empty means any object
	call              func(context.Context, *call) (json.RawMessage, error)
	task              *taskTool // in place of call
}

// A call is one tools/call.
type call struct {
	*wire.Request
	fixture   *fixture
	arguments json.RawMessage
}

func newFixture() *fixture {
	f := &fixture{
		tools:   map[string]tool{},
		headers: map[string]wire.ParamHeaders{},
		prompts: map[string]prompt{},
		tasks:   newTaskStore(),
	}
	for _, list := range [][]tool{contentTools, callbackTools, statelessTools, inputTools, taskTools} {
		for _, t := range list {
			f.addTool(t)
		}
	}
	for _, p := range prompts {
		f.addPrompt(p)
	}
	return f
}

// addTool offers a tool, in place of one with its name.
func (f *fixture) addTool(t tool) {
	schema := t.schema
	if schema == "" {
		schema = `{"type":"object"}`
	}
	headers, err := wire.ParseParamHeaders(json.RawMessage(schema))
	if err != nil {
		panic("tool " + t.name + ": " + err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.toolList = put(f.toolList, t.name, fmt.Appendf(nil, `{"name":%s,"description":%s,"inputSchema":%s}`, quote(t.name), quote(t.description), schema))
	f.tools[t.name], f.headers[t.name] = t, headers
}

func (f *fixture) addPrompt(p prompt) {
	arguments := p.arguments
	if arguments == "" {
		arguments = `[]`
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.promptList = put(f.promptList, p.name, fmt.Appendf(nil, `{"name":%s,"description":%s,"arguments":%s}`, quote(p.name), quote(p.description), arguments))
	f.prompts[p.name] = p
}

// put adds a definition to a list, in place of one with its name.
func put(list []json.RawMessage, name string, definition json.RawMessage) []json.RawMessage {
	for i, d := range list {
		if known, _ := wire.StringMember(d, "name"); known == name {
			list[i] = definition
			return list
		}
	}
	return append(list, definition)
}

// nextVersion describes what is different whenever it is added.
func (f *fixture) nextVersion() string { return fmt.Sprintf("Version %d", f.versions.Add(1)) }

func (f *fixture) paramHeaders(_ *wire.Session, tool string) wire.ParamHeaders {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.headers[tool]
}

// start gives the fixture its server and keeps the watched resource changing
// until ctx ends.
func (f *fixture) start(ctx context.Context, server *wire.Server) {
	f.server = server
	go func() {
		for tick := time.NewTicker(3 * time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				f.broadcast("notifications/resources/updated", `{"uri":"test://watched-resource"}`)
			}
		}
	}()
}

// broadcast tells every client that wants to know.
func (f *fixture) broadcast(method, params string) {
	for session := range f.server.Sessions() {
		// A client that is gone has no use for it.
		_ = session.Notify(context.Background(), method, json.RawMessage(params))
	}
}

// HandleRequest implements wire.Handler.
func (f *fixture) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/list":
		f.mu.Lock()
		defer f.mu.Unlock()
		return list("tools", f.toolList), nil
	case "tools/call":
		return f.callTool(ctx, r)
	case "resources/list":
		return json.RawMessage(resourceList), nil
	case "resources/templates/list":
		return json.RawMessage(templateList), nil
	case "resources/read":
		return readResource(r)
	case "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		return json.RawMessage(`{}`), nil // wire has taken note
	case "prompts/list":
		f.mu.Lock()
		defer f.mu.Unlock()
		return list("prompts", f.promptList), nil
	case "prompts/get":
		return f.getPrompt(ctx, r)
	case "completion/complete":
		return json.RawMessage(`{"completion":{"values":[],"total":0,"hasMore":false}}`), nil
	case "tasks/get", "tasks/update", "tasks/cancel":
		return f.handleTask(r)
	}
	return nil, wire.MethodNotFound(r.Method)
}

// HandleNotification implements wire.Handler. None matters here.
func (f *fixture) HandleNotification(context.Context, *wire.Notification) {}

func (f *fixture) callTool(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	name, _ := wire.StringMember(r.Params, "name")
	f.mu.Lock()
	t, ok := f.tools[name]
	f.mu.Unlock()
	if !ok {
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown tool %q", name)
	}
	c := &call{Request: r, fixture: f}
	c.arguments, _ = wire.Member(r.Params, "arguments")
	if t.task != nil {
		return f.callTaskTool(ctx, c, t.task)
	}
	return t.call(ctx, c)
}

// argument is a string among the arguments.
func (c *call) argument(name string) string {
	s, _ := wire.StringMember(c.arguments, name)
	return s
}

// asker puts a question to the client: a request within its call, or a task.
type asker func(ctx context.Context, method, params string) (json.RawMessage, error)

func (c *call) ask(ctx context.Context, method, params string) (json.RawMessage, error) {
	return c.Ask(ctx, method, json.RawMessage(params))
}

// The parts of results.

func quote(s string) string { return string(wire.AppendString(nil, s)) }

func text(s string) string { return `{"type":"text","text":` + quote(s) + `}` }

func content(blocks ...string) json.RawMessage {
	return json.RawMessage(`{"content":[` + strings.Join(blocks, ",") + `]}`)
}

func toolError(s string) json.RawMessage {
	return json.RawMessage(`{"content":[` + text(s) + `],"isError":true}`)
}

func list(name string, entries []json.RawMessage) json.RawMessage {
	out := []byte(`{"` + name + `":[`)
	for i, e := range entries {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, "]}"...)
}
