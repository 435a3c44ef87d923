//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// serverRole is the argument that makes this program a server.
const serverRole = "serve-bench"

// toolsEach is how many tools a server has.
const toolsEach = 12

// serve is a server on standard input and output with tools of ordinary size.
func serve() error {
	s, err := wire.NewServer(wire.ServerOptions{
		Info:         json.RawMessage(`{"name":"bench","version":"1"}`),
		Capabilities: json.RawMessage(`{"tools":{}}`),
		Handler:      lister(toolList()),
	})
	if err != nil {
		return err
	}
	return s.Serve(context.Background(), wire.NewStreamConn(os.Stdin, os.Stdout, nil))
}

func toolList() string {
	var list []string
	for i := range toolsEach {
		list = append(list, fmt.Sprintf(`{"name":"tool_%02d","description":%q,"inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"where"},"limit":{"type":"integer","minimum":1}},"required":["path"]}}`,
			i, strings.Repeat("It does what its name says. ", 12)))
	}
	return `{"tools":[` + strings.Join(list, ",") + `]}`
}

// lister answers with a list of tools.
type lister string

func (l lister) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	if r.Method == "tools/list" {
		return json.RawMessage(l), nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (lister) HandleNotification(context.Context, *wire.Notification) {}
