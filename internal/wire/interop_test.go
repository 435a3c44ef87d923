package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// initialize opens a session by hand.
func initialize(t testing.TB, p *Peer) {
	t.Helper()
	params := json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}`)
	if _, err := p.Call(t.Context(), Call{Method: "initialize", Params: params}); err != nil {
		t.Fatal(err)
	}
	if err := p.Notify(t.Context(), "notifications/initialized", nil); err != nil {
		t.Fatal(err)
	}
}

func TestClientOfSDKServer(t *testing.T) {
	for _, c := range []struct {
		name    string
		connect func(t *testing.T) Conn
	}{
		{"in memory", func(t *testing.T) Conn {
			a, b := Pipe()
			serveSDK(t, b)
			return a
		}},
		{"over our stream", func(t *testing.T) Conn {
			a, b := streams()
			serveSDK(t, NewStreamConn(b, b, nil))
			return NewStreamConn(a, a, nil)
		}},
		{"over its stream", func(t *testing.T) Conn {
			a, b := streams()
			run(t, func(ctx context.Context) error {
				return sdkServer().Run(ctx, &mcp.IOTransport{Reader: b.r, Writer: b.w})
			})
			return NewStreamConn(a, a, nil)
		}},
		{"in a child", func(t *testing.T) Conn { return startChild(t, "sdk") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewPeer(c.connect(t), handlerFuncs{request: func(_ context.Context, r *Request) (json.RawMessage, error) {
				if r.Method != "elicitation/create" {
					return nil, MethodNotFound(r.Method)
				}
				return json.RawMessage(`{"action":"decline"}`), nil
			}}, nil)
			defer p.Close()
			initialize(t, p)

			text := strings.Repeat("é漢🎉\n", 50_000)
			arguments, err := json.Marshal(map[string]any{"name": "echo", "arguments": map[string]string{"text": text}})
			if err != nil {
				t.Fatal(err)
			}
			result, err := p.Call(t.Context(), Call{Method: "tools/call", Params: arguments})
			var tool struct{ Content []struct{ Text string } }
			if err != nil || json.Unmarshal(result, &tool) != nil || tool.Content[0].Text != text {
				t.Errorf("echo: %.100s, %v", result, err)
			}

			result, err = p.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(`{"name":"ask","arguments":{}}`)})
			if err != nil || !strings.Contains(string(result), "decline") {
				t.Errorf("ask: %s, %v", result, err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var progress string
			_, err = p.Call(ctx, Call{
				Method:   "tools/call",
				Params:   json.RawMessage(`{"name":"hang","arguments":{},"_meta":{"progressToken":"mine"}}`),
				Progress: func(params json.RawMessage) { progress, _ = StringMember(params, "progressToken"); cancel() },
			})
			if err != context.Canceled || progress != "mine" {
				t.Errorf("hang: %v, progress %s", err, progress)
			}

			_, err = p.Call(t.Context(), Call{Method: "no/such"})
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeMethodNotFound {
				t.Errorf("no/such: %v", err)
			}
		})
	}
}

// serveSDK runs an SDK server on conn until the test ends.
func serveSDK(t *testing.T, conn Conn) {
	run(t, func(ctx context.Context) error { return ServeSDK(ctx, sdkServer(), conn) })
}

// run runs a server until the test ends.
func run(t *testing.T, serve func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// duplex is one end of a pair of streams.
type duplex struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func streams() (a, b duplex) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	return duplex{ar, aw}, duplex{br, bw}
}

func (d duplex) Read(b []byte) (int, error)  { return d.r.Read(b) }
func (d duplex) Write(b []byte) (int, error) { return d.w.Write(b) }
func (d duplex) Close() error {
	d.w.Close()
	return d.r.Close()
}

// toolServer answers an SDK client by hand.
func toolServer(ctx context.Context, r *Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"ours","version":"1"}}`), nil
	case "tools/call":
		switch name, _ := StringMember(r.Params, "name"); name {
		case "echo":
			text, _ := Member(r.Params, "arguments", "text")
			return json.RawMessage(`{"content":[{"type":"text","text":` + string(text) + `}]}`), nil
		case "roots":
			roots, err := r.Link.Call(ctx, Call{Method: "roots/list"})
			if err != nil {
				return nil, err
			}
			return json.RawMessage(`{"content":[],"structuredContent":` + string(roots) + `}`), nil
		case "hang":
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	return nil, MethodNotFound(r.Method)
}

func TestServerOfSDKClient(t *testing.T) {
	for _, c := range []struct {
		name    string
		connect func() (ours Conn, theirs mcp.Transport)
	}{
		{"in memory", func() (Conn, mcp.Transport) {
			a, b := Pipe()
			return a, SDKTransport(b)
		}},
		{"over its stream", func() (Conn, mcp.Transport) {
			a, b := streams()
			return NewStreamConn(a, a, nil), &mcp.IOTransport{Reader: b.r, Writer: b.w}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, transport := c.connect()
			p := NewPeer(conn, handlerFuncs{request: toolServer}, nil)
			defer p.Close()
			client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
			//lint:ignore SA1019 legacy peers have roots, and it is a request of ours to answer
			client.AddRoots(&mcp.Root{URI: "file:///x"})
			session, err := client.Connect(t.Context(), transport, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "é\n"}})
			if err != nil || result.Content[0].(*mcp.TextContent).Text != "é\n" {
				t.Errorf("echo: %v, %v", result, err)
			}
			result, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "roots"})
			if err != nil {
				t.Fatal(err)
			}
			if text, err := json.Marshal(result.StructuredContent); err != nil || !strings.Contains(string(text), "file:///x") {
				t.Errorf("roots: %s, %v", text, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "hang"}); !errors.Is(err, context.Canceled) {
				t.Errorf("hang: %v", err)
			}
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "none"})
			if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != CodeMethodNotFound {
				t.Errorf("none: %v", err)
			}
		})
	}
}

// Ids that the SDK cannot represent come back as they were.
func TestSDKKeepsIDs(t *testing.T) {
	a, b := Pipe()
	serveSDK(t, b)
	other := script{t, a}
	defer other.Close()
	other.send(`"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	other.next()
	other.send(`"method":"notifications/initialized"`)
	for _, id := range []string{`1`, `-5`, `9007199254740992`, `9007199254740993`, `123456789012345678901234567890`, `1.5`, `1.0`, `1e2`, `"a"`, `""`, `"\u0061"`, `"\u0000x"`, `"null"`} {
		other.send(`"id":%s,"method":"ping"`, id)
		if m := other.next(); m.ID.String() != id || m.Error != nil {
			t.Errorf("%s was answered by %s", id, m.AppendTo(nil))
		}
		// A request with such an id can be cancelled: the answer says so.
		other.send(`"id":%s,"method":"tools/call","params":{"name":"hang","arguments":{},"_meta":{"progressToken":"t"}}`, id)
		if m := other.next(); m.Method != "notifications/progress" {
			t.Errorf("got %s", m.AppendTo(nil))
		}
		other.send(`"method":"notifications/cancelled","params":{"requestId":%s}`, id)
		if m := other.next(); m.ID.String() != id || m.Error == nil {
			t.Errorf("the cancelled %s was answered by %s", id, m.AppendTo(nil))
		}
	}
}

func TestFromSDK(t *testing.T) {
	id, err := jsonrpc.MakeID("a")
	if err != nil {
		t.Fatal(err)
	}
	m, err := fromSDK(&jsonrpc.Response{ID: id, Result: json.RawMessage(`{"a":NaN}`)})
	if err != nil || m.Error == nil || m.Error.Code != CodeInternal {
		t.Errorf("a result that is not JSON: %+v, %v", m, err)
	}
	m, err = fromSDK(&jsonrpc.Response{ID: id, Result: json.RawMessage(`{"a":1,"a":"\ud800"}`)})
	if err != nil || m.Error != nil || string(m.Result) != `{"a":1,"a":"\ud800"}` {
		t.Errorf("a result with a duplicate name: %+v, %v", m, err)
	}
	if m, err := fromSDK(&jsonrpc.Request{Method: "m", Params: json.RawMessage(`{"a":1,"a":2}`)}); err == nil {
		t.Errorf("params with a duplicate name: %+v", m)
	}
	m, err = fromSDK(&jsonrpc.Response{ID: id, Error: errors.New("plain")})
	if err != nil || m.Error == nil || m.Error.Message != "plain" {
		t.Errorf("a plain error: %+v, %v", m, err)
	}
}
