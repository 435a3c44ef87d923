//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// The server behind every proxy: it echoes a text, returns a text of a given
// size, and has some more tools that make its list as long as those of ordinary
// servers.

// toolsEach is how many tools a server has.
const toolsEach = 12

func newUpstream() (*wire.Server, error) {
	list := []string{
		`{"name":"echo","description":"returns its text","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}`,
		`{"name":"big","description":"returns a text of a size","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer"}},"required":["bytes"]}}`,
	}
	for i := len(list); i < toolsEach; i++ {
		list = append(list, fmt.Sprintf(`{"name":"tool_%02d","description":%q,"inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"where"},"limit":{"type":"integer","minimum":1}},"required":["path"]}}`,
			i, strings.Repeat("It does what its name says. ", 12)))
	}
	return wire.NewServer(wire.ServerOptions{
		Info:         json.RawMessage(`{"name":"bench","version":"1"}`),
		Capabilities: json.RawMessage(`{"tools":{}}`),
		Handler:      upstream(`{"tools":[` + strings.Join(list, ",") + `]}`),
	})
}

// upstream answers with its list, or with what a tool returns.
type upstream string

func (u upstream) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/list":
		return json.RawMessage(u), nil
	case "tools/call":
		name, _ := wire.StringMember(r.Params, "name")
		arguments, _ := wire.Member(r.Params, "arguments")
		switch name {
		case "echo":
			text, _ := wire.Member(arguments, "text")
			result := append(make([]byte, 0, len(text)+64), `{"content":[{"type":"text","text":`...)
			return append(append(result, text...), "}]}"...), nil
		case "big":
			size, _ := wire.Member(arguments, "bytes")
			n, err := strconv.Atoi(string(size))
			if err != nil || n < 0 || n > wire.DefaultMaxMessage {
				return nil, wire.Errorf(wire.CodeInvalidParams, "not a size: %s", size)
			}
			return textResult(n), nil
		}
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown tool %q", name)
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (upstream) HandleNotification(context.Context, *wire.Notification) {}

// textResult is a result with a text of n bytes, as a log has them: words, and
// line breaks that JSON escapes.
func textResult(n int) json.RawMessage {
	const line = `0123456789 the quick brown fox jumps over the lazy dog\n`
	result := append(make([]byte, 0, n+64), `{"content":[{"type":"text","text":"`...)
	for len(result) < n {
		result = append(result, line...)
	}
	return append(result, `"}]}`...)
}

// serveStdio is the upstream of the proxies.
func serveStdio() error {
	s, err := newUpstream()
	if err != nil {
		return err
	}
	return s.Serve(context.Background(), wire.NewStreamConn(os.Stdin, os.Stdout, nil))
}

// serveDirect is the same server without a proxy.
func serveDirect() error {
	s, err := newUpstream()
	if err != nil {
		return err
	}
	return serveHTTP(wire.NewHTTPHandler(s, wire.HTTPOptions{}))
}
