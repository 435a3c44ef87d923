//go:build linux

package main

import (
	"context"
	"net/http"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveSDK is the proxy that one writes with the official SDK: the tools of the
// upstream are added to a server, and each passes its call on. It answers with
// plain JSON, which costs it less than the streams that are its default.
func serveSDK(program string, args []string) error {
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	upstream, err := client.Connect(ctx, &mcp.CommandTransport{Command: exec.Command(program, args...)}, nil)
	if err != nil {
		return err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	for tool, err := range upstream.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		theirs := tool.Name
		ours := *tool
		ours.Name = rawPrefix + theirs
		server.AddTool(&ours, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return upstream.CallTool(ctx, &mcp.CallToolParams{Name: theirs, Arguments: r.Params.Arguments})
		})
	}
	mux := http.NewServeMux()
	for path, stateless := range map[string]bool{"/mcp": false, modernPath: true} { // the SDK serves the modern era only without state
		mux.Handle(path, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{Stateless: stateless, JSONResponse: true}))
	}
	return serveHTTP(mux)
}
