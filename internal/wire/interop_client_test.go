package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// fullSDKServer offers everything a client can use.
func fullSDKServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		Instructions: "be kind",
		PageSize:     2,
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"one", "two"}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	object := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","x-mcp-header":"Text"}}}`)
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args struct{ Text string }
		if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
			return nil, err
		}
		return text(args.Text), nil
	})
	s.AddTool(&mcp.Tool{Name: "progress", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			p := &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}
			if err := r.Session.NotifyProgress(ctx, p); err != nil {
				return nil, err
			}
		}
		return text("done"), nil
	})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if answer, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult); ok {
			return text(answer.Action + " " + r.Params.RequestState), nil
		}
		question := &mcp.ElicitParams{Message: "sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": question}, RequestState: "st\"ate ü"}, nil
	})
	s.AddResource(&mcp.Resource{URI: "test://a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "test://a", Text: "content"}}}, nil
	})
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "test://{x}", Name: "x"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}}, nil
	})
	return s
}

// sdkOverHTTP serves an SDK server over HTTP.
func sdkOverHTTP(t *testing.T, s *mcp.Server, options *mcp.StreamableHTTPOptions) string {
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, options))
	t.Cleanup(srv.Close)
	return srv.URL
}

// sdkCan is what the SDK's server can do on a transport beyond answering.
type sdkCan struct {
	asks     bool // it can ask the client
	progress bool // it can report progress before it answers
}

// Every revision, over every transport, against the SDK's server.
func TestClientInteroperates(t *testing.T) {
	overHTTP := func(options mcp.StreamableHTTPOptions) func(*testing.T, *mcp.Server) Transport {
		return func(t *testing.T, s *mcp.Server) Transport {
			return HTTP(sdkOverHTTP(t, s, &options), nil)
		}
	}
	for _, tr := range []struct {
		name   string
		dial   func(*testing.T, *mcp.Server) Transport
		modern bool // spoken on this transport
		can    sdkCan
	}{
		{"memory", func(t *testing.T, s *mcp.Server) Transport {
			a, b := Pipe()
			run(t, func(ctx context.Context) error { return ServeSDK(ctx, s, b) })
			return Stream(a, nil)
		}, true, sdkCan{asks: true, progress: true}},
		{"stdio", func(t *testing.T, s *mcp.Server) Transport {
			a, b := streams()
			run(t, func(ctx context.Context) error { return s.Run(ctx, &mcp.IOTransport{Reader: b.r, Writer: b.w}) })
			return Stream(NewStreamConn(a, a, nil), nil)
		}, true, sdkCan{asks: true, progress: true}},
		{"HTTP stateful SSE", overHTTP(mcp.StreamableHTTPOptions{}), false, sdkCan{asks: true, progress: true}},
		{"HTTP stateful SSE with event store", overHTTP(mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}), false, sdkCan{asks: true, progress: true}},
		{"HTTP stateful JSON", overHTTP(mcp.StreamableHTTPOptions{JSONResponse: true}), false, sdkCan{asks: true}},
		{"HTTP stateless SSE", overHTTP(mcp.StreamableHTTPOptions{Stateless: true}), true, sdkCan{progress: true}},
		{"HTTP stateless JSON", overHTTP(mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}), true, sdkCan{}},
		{"HTTP+SSE", func(t *testing.T, s *mcp.Server) Transport {
			srv := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil))
			t.Cleanup(srv.Close)
			return HTTP(srv.URL, &HTTPClientOptions{SSEFallback: true})
		}, false, sdkCan{asks: true, progress: true}},
	} {
		for _, version := range append(Versions(), "") {
			if EraOf(version) == Modern && !tr.modern {
				continue
			}
			t.Run(tr.name+" "+version, func(t *testing.T) {
				want := version
				switch {
				case want == "" && tr.modern:
					want = Version20260728
				case want == "":
					want = Version20251125
				}
				tr.can.asks = tr.can.asks || EraOf(want) == Modern
				testInterop(t, tr.dial(t, fullSDKServer()), version, want, tr.can)
			})
		}
	}
}

// testInterop uses everything the server of fullSDKServer offers.
func testInterop(t *testing.T, tr Transport, pinned, version string, can sdkCan) {
	noLeaks(t)
	handler := &recorder{answer: func(_ context.Context, r *Request) (json.RawMessage, error) {
		if r.Method != "elicitation/create" || !strings.Contains(string(r.Params), "sure?") {
			return nil, MethodNotFound(r.Method)
		}
		return json.RawMessage(`{"action":"decline"}`), nil
	}}
	c, err := Connect(t.Context(), tr, &ClientOptions{
		ProtocolVersion: pinned,
		Info:            json.RawMessage(`{"name":"test","version":"1"}`),
		Capabilities:    json.RawMessage(`{"elicitation":{"form":{}}}`),
		Handler:         handler,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	o := c.Opening()
	if o.Version != version || o.Era != EraOf(version) || o.Instructions != "be kind" || !strings.Contains(string(o.ServerInfo), `"sdk"`) ||
		!o.Has("tools", "listChanged") || !o.Has("completions") || o.Has("tasks") {
		t.Fatalf("%+v", o)
	}

	check := func(what string, out json.RawMessage, err error, want string) {
		t.Helper()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %.300s, %v; want %s", what, out, err, want)
		}
	}
	items := func(l *Listing, err error) (json.RawMessage, error) {
		if err != nil {
			return nil, err
		}
		return json.RawMessage(fmt.Sprintf("%d %s %v", len(l.Items), l.Items, l.Incomplete)), nil
	}
	out, err := items(c.ListTools(t.Context()))
	check("tools", out, err, "3 [{")
	out, err = items(c.ListResources(t.Context()))
	check("resources", out, err, "1 [{")
	out, err = items(c.ListResourceTemplates(t.Context()))
	check("templates", out, err, "1 [{")
	out, err = items(c.ListPrompts(t.Context()))
	check("prompts", out, err, "1 [{")
	out, err = c.CallTool(t.Context(), "echo", json.RawMessage(`{"text":"Grüße, 世界 "}`))
	check("echo", out, err, "Grüße, 世界 ")
	out, err = c.ReadResource(t.Context(), "test://a")
	check("read", out, err, `"content"`)
	out, err = c.GetPrompt(t.Context(), "hello", nil)
	check("prompt", out, err, `"hi"`)
	out, err = c.Complete(t.Context(), json.RawMessage(`{"ref":{"type":"ref/prompt","name":"hello"},"argument":{"name":"a","value":"o"}}`))
	check("complete", out, err, `"one"`)
	check("ping", nil, c.Ping(t.Context()), "")
	check("roots", nil, c.RootsChanged(t.Context()), "")

	if can.progress {
		progress := 0
		out, err = c.Call(t.Context(), Call{
			Method: "tools/call", Params: json.RawMessage(`{"name":"progress","arguments":{}}`),
			Progress: func(json.RawMessage) { progress++ },
		})
		check("progress", out, err, "done")
		if progress != 3 {
			t.Errorf("%d times progress", progress)
		}
	}
	if can.asks {
		out, err = c.CallTool(t.Context(), "ask", json.RawMessage(`{}`))
		check("ask", out, err, "decline")
	}
	_, err = c.Call(t.Context(), Call{Method: "no/such"})
	e, ok := errors.AsType[*Error](err)
	if h, overHTTP := errors.AsType[*HTTPError](err); (!ok || e.Code != CodeMethodNotFound) && (!overHTTP || h.Status != http.StatusBadRequest) {
		t.Errorf("no/such: %v", err)
	}
}
