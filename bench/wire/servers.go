//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// The servers that are measured have the same tools, each of which returns a
// text of its size and does not look at its arguments.

// serve starts the server that the spec asks for, on this process' standard
// input and output or on the URL that it returns.
func (s spec) serve() (url string, err error) {
	if s.Maker == sdk {
		return s.serveSDK()
	}
	return s.serveWire()
}

// fillers are tools that only make the list longer, up to n in all.
func fillers(n int) []*mcp.Tool {
	var tools []*mcp.Tool
	for i := len(toolTexts()); i < n; i++ {
		schema := `{"type":"object","properties":{`
		for p := 0; len(schema) < schemaSize-80; p++ {
			schema += fmt.Sprintf(`"property_%d":{"type":"string","description":"what the tool is told, part %d"},`, p, p)
		}
		schema += `"last":{"type":"integer","minimum":0}},"required":["last"]}`
		tools = append(tools, &mcp.Tool{Name: fmt.Sprintf("tool_%04d", i), Description: "does one of many things", InputSchema: json.RawMessage(schema)})
	}
	return tools
}

// wireTools is the handler of our server.
type wireTools struct {
	texts map[string]string
	lists map[wire.Era]json.RawMessage // written once
}

func newWireTools(n int) (*wireTools, error) {
	t := &wireTools{texts: map[string]string{}, lists: map[wire.Era]json.RawMessage{}}
	tools := fillers(n)
	for name, size := range toolTexts() {
		t.texts[name] = strings.Repeat("x", size)
		tools = append(tools, &mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)})
	}
	list, err := json.Marshal(map[string]any{"tools": tools})
	t.lists[wire.Legacy] = list
	return t, err
}

func (t *wireTools) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/list":
		return t.lists[r.Session.Era], nil
	case "tools/call":
		name, _ := wire.StringMember(r.Params, "name")
		text, ok := t.texts[name]
		if !ok {
			return nil, wire.Errorf(wire.CodeInvalidParams, "unknown tool %q", name)
		}
		result := append(make([]byte, 0, len(text)+64), `{"content":[{"type":"text","text":`...)
		return append(wire.AppendString(result, text), "}]}"...), nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (t *wireTools) HandleNotification(context.Context, *wire.Notification) {}

func (s spec) serveWire() (url string, err error) {
	tools, err := newWireTools(s.Tools)
	if err != nil {
		return "", err
	}
	srv, err := wire.NewServer(wire.ServerOptions{
		Info:         json.RawMessage(`{"name":"bench","version":"1"}`),
		Capabilities: json.RawMessage(`{"tools":{}}`),
		Handler:      tools,
	})
	if err != nil {
		return "", err
	}
	tools.lists[wire.Modern] = srv.Dress("tools/list", tools.lists[wire.Legacy])
	if s.Transport.HTTP {
		return listen(wire.NewHTTPServer(context.Background(), wire.NewHTTPHandler(srv, wire.HTTPOptions{})))
	}
	go srv.Serve(context.Background(), wire.NewStreamConn(os.Stdin, os.Stdout, nil))
	return "", nil
}

func (s spec) serveSDK() (url string, err error) {
	srv := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	for _, tool := range fillers(s.Tools) {
		srv.AddTool(tool, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	}
	for name, size := range toolTexts() {
		text := strings.Repeat("x", size)
		tool := &mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}
		srv.AddTool(tool, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
		})
	}
	if s.Transport.HTTP {
		return serveHTTP(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{
			Stateless:    s.Transport.modern(), // the SDK serves the modern era only so
			JSONResponse: !s.Transport.SSE,
		}))
	}
	go srv.Run(context.Background(), &mcp.StdioTransport{})
	return "", nil
}
