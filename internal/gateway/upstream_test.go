package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// upstream is a server that does all that servers can do to a client. Its tools
// say what they do.
type upstream struct {
	t      *testing.T
	name   string
	server *wire.Server

	mu        sync.Mutex
	grown     int
	bulk      int           // further tools, large ones
	told      chan string   // the methods of notifications
	cancelled chan string   // the tokens of waits that were cancelled
	stubborn  chan string   // what was answered to a question of a call that was given up
	waiting   chan struct{} // gets one for each wait that has begun
	released  chan struct{} // has one for each wait that is to be answered
	levels    chan string   // that were asked for

	subscribed, unsubscribed chan string // the URIs
}

func newUpstream(t *testing.T, name string, versions ...string) *upstream {
	u := &upstream{t: t, name: name, cancelled: make(chan string, 100), stubborn: make(chan string, 1), waiting: make(chan struct{}, 100), released: make(chan struct{}), told: make(chan string, 100), levels: make(chan string, 1000), subscribed: make(chan string, 100), unsubscribed: make(chan string, 100)}
	var err error
	u.server, err = wire.NewServer(wire.ServerOptions{
		Info: json.RawMessage(`{"name":"` + name + `","version":"1.2.3","icons":[ ]}`),
		Capabilities: json.RawMessage(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},
			"completions":{},"logging":{},"tasks":{"list":{},"requests":{"tools":{"call":{}}}},"experimental":{"x":{"y":1.50}}}`),
		Instructions: "Be kind to " + name + ".",
		Handler:      u,
		MaxByOne:     1000,
		Versions:     versions,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithCancel(context.Background())
		stop()
		_ = u.server.Shutdown(ctx) // what is under way is cancelled
	})
	return u
}

// Serve makes it a patchbay.LocalServer.
func (u *upstream) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return u.server.Serve(ctx, wire.NewStreamConn(rw, rw, nil))
}

// url serves it over HTTP.
func (u *upstream) url() string {
	srv := httptest.NewServer(wire.NewHTTPHandler(u.server, wire.HTTPOptions{}))
	u.t.Cleanup(srv.Close)
	return srv.URL
}

const echoDefinition = `{ "name": "echo",  "description": "says \u00e4 it again", "inputSchema": {"type":"object","x-big":12345678901234567890}, "_meta": {"b":1,"a":2} }`

func (u *upstream) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/list":
		return u.tools(), nil
	case "tools/call":
		return u.call(ctx, r)
	case "resources/list":
		return json.RawMessage(fmt.Sprintf(`{"resources":[{"uri":"shared://x","name":"shared","size":1.0},{"uri":"%s://own","name":"own"}]}`, u.name)), nil
	case "resources/templates/list":
		return json.RawMessage(fmt.Sprintf(`{"resourceTemplates":[{"uriTemplate":"%s://t/{id}","name":"t"}]}`, u.name)), nil
	case "resources/read":
		uri, _ := wire.StringMember(r.Params, "uri")
		if uri == "public://x" {
			return json.RawMessage(`{"contents":[],"ttlMs":60000,"cacheScope":"public"}`), nil
		}
		return json.RawMessage(fmt.Sprintf(`{"contents":[ {"uri":%q,"text":"%s"} ]}`, uri, u.name)), nil
	case "resources/unsubscribe":
		uri, _ := wire.StringMember(r.Params, "uri")
		u.unsubscribed <- uri
		return json.RawMessage(`{}`), nil
	case "resources/subscribe":
		uri, _ := wire.StringMember(r.Params, "uri")
		u.subscribed <- uri
		switch uri {
		case "x://hangs":
			<-ctx.Done()
		case "x://refused":
			return nil, wire.Errorf(wire.CodeInvalidParams, "no such resource")
		}
		return json.RawMessage(`{}`), nil
	case "prompts/list":
		return json.RawMessage(`{"prompts":[{"name":"greet","description":"d","arguments":[{"name":"who"}]}]}`), nil
	case "prompts/get":
		name, _ := wire.StringMember(r.Params, "name")
		return json.RawMessage(fmt.Sprintf(`{"messages":[{"role":"user","content":{"type":"text","text":"%s of %s"}}]}`, name, u.name)), nil
	case "completion/complete":
		ref, _ := wire.Member(r.Params, "ref")
		text, _ := json.Marshal(u.name + " " + string(ref))
		return json.RawMessage(`{"completion":{"values":[` + string(text) + `]}}`), nil
	case "logging/setLevel":
		level, _ := wire.StringMember(r.Params, "level")
		u.levels <- level
		return json.RawMessage(`{}`), nil
	case "tasks/get", "tasks/result", "tasks/cancel":
		id, _ := wire.StringMember(r.Params, "taskId")
		return json.RawMessage(fmt.Sprintf(`{"taskId":%q,"at":%q}`, id, u.name)), nil
	case "tasks/list":
		return json.RawMessage(fmt.Sprintf(`{"tasks":[{"taskId":"listed-%s"}]}`, u.name)), nil
	case "custom/method":
		return r.Params, nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (u *upstream) tools() json.RawMessage {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := `{"tools":[` + echoDefinition
	for _, name := range []string{"elicit", "sample", "roots", "progress", "log", "wait", "touch", "grow", "big", "fail", "refuse", "task", "meta", "secret", "stubborn"} {
		list += fmt.Sprintf(`,{"name":%q,"inputSchema":{"type":"object"}}`, name)
	}
	for i := range u.grown {
		list += fmt.Sprintf(`,{"name":"grown%d","inputSchema":{"type":"object"}}`, i)
	}
	for i := range u.bulk {
		list += fmt.Sprintf(`,{"name":"bulk%d","description":%q,"inputSchema":{"type":"object"}}`, i, strings.Repeat("x", 150<<10))
	}
	return json.RawMessage(list + `]}`)
}

func (u *upstream) call(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	name, _ := wire.StringMember(r.Params, "name")
	arguments, _ := wire.Member(r.Params, "arguments")
	ask := func(method, params string) (json.RawMessage, error) {
		answer, err := r.Ask(ctx, method, json.RawMessage(params))
		if err != nil {
			return textResult("refused: " + err.Error()), nil
		}
		return textResult(string(answer)), nil
	}
	switch name {
	case "echo":
		return json.RawMessage(`{ "content": [ {"type":"text","text":"\u00e4"} ], "structuredContent": ` + string(arguments) + `, "x": 12345678901234567890 }`), nil
	case "elicit":
		text, _ := wire.StringMember(arguments, "canary")
		return ask("elicitation/create", fmt.Sprintf(`{"mode":"form","message":"who? %s","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`, text))
	case "sample":
		return ask("sampling/createMessage", `{"messages":[],"maxTokens":1}`)
	case "roots":
		return ask("roots/list", `{}`)
	case "progress":
		token, ok := wire.Member(r.Params, "_meta", wire.MetaProgressToken)
		for i := range 3 {
			if ok {
				_ = r.Link.Notify(ctx, "notifications/progress", json.RawMessage(fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, i)))
			}
		}
		return textResult("done"), nil
	case "log":
		_ = r.Link.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"warning","data":{"b":1,"a":1.50}}`))
		return textResult("logged"), nil
	case "wait":
		u.waiting <- struct{}{}
		select {
		case <-u.released:
			return textResult("released"), nil
		case <-ctx.Done():
		}
		token, _ := wire.StringMember(arguments, "token")
		u.cancelled <- token
		return nil, ctx.Err()
	case "stubborn": // it asks although nobody waits for it any more
		u.waiting <- struct{}{}
		<-ctx.Done()
		answer, err := r.Session.Call(context.WithoutCancel(ctx), wire.Call{Method: "elicitation/create", Params: json.RawMessage(`{"message":"still?","requestedSchema":{"type":"object","properties":{}}}`)})
		u.stubborn <- fmt.Sprintf("%s%v", answer, err)
		return nil, ctx.Err()
	case "touch":
		uri, _ := wire.StringMember(arguments, "uri")
		for s := range u.server.Sessions() {
			_ = s.Notify(ctx, "notifications/resources/updated", json.RawMessage(fmt.Sprintf(`{"uri":%q}`, uri)))
		}
		return textResult("touched"), nil
	case "grow":
		u.mu.Lock()
		u.grown++
		u.mu.Unlock()
		for s := range u.server.Sessions() {
			_ = s.Notify(ctx, "notifications/tools/list_changed", nil)
		}
		return textResult("grown"), nil
	case "big":
		return textResult(strings.Repeat("x", 20<<20)), nil
	case "fail":
		return json.RawMessage(`{"content":[{"type":"text","text":"no"}],"isError":true}`), nil
	case "refuse":
		return nil, &wire.Error{Code: -32099, Message: "not today", Data: json.RawMessage(`{"why":1.50}`)}
	case "task":
		return json.RawMessage(fmt.Sprintf(`{"task":{"taskId":"t-%s","status":"working"}}`, u.name)), nil
	case "meta":
		meta, _ := wire.Member(r.Params, "_meta")
		return textResult(string(meta)), nil
	case "secret":
		return textResult(r.Header().Get("Authorization")), nil
	}
	if strings.HasPrefix(name, "grown") {
		return textResult("I am " + name), nil
	}
	return nil, wire.Errorf(wire.CodeInvalidParams, "no tool %s", name)
}

func (u *upstream) HandleNotification(_ context.Context, n *wire.Notification) {
	if n.Method != "notifications/initialized" {
		u.told <- n.Method
	}
}

func textResult(text string) json.RawMessage {
	return append(wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text), `}]}`...)
}
