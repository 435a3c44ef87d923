//lint:file-ignore SA1019 deprecated features are served as long as clients have them

package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// askTools are tools that ask the client, one for each thing that can be asked,
// and one that asks all at once.
func askTools(h *testHandler) {
	const (
		elicit = `{"message":"name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`
		sample = `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}],"maxTokens":5}`
	)
	question := func(method, params string, path ...string) func(context.Context, *Request) (json.RawMessage, error) {
		return func(ctx context.Context, r *Request) (json.RawMessage, error) {
			answer, err := r.Ask(ctx, method, json.RawMessage(params))
			if err != nil {
				return nil, err
			}
			text, _ := StringMember(answer, path...)
			return textResult(text), nil
		}
	}
	h.tools["elicit"] = question("elicitation/create", elicit, "content", "name")
	h.tools["sample"] = question("sampling/createMessage", sample, "content", "text")
	h.tools["roots"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		answer, err := r.Ask(ctx, "roots/list", nil)
		if err != nil {
			return nil, err
		}
		roots, _ := Member(answer, "roots")
		for root := range Elements(roots) {
			uri, _ := StringMember(root, "uri")
			return textResult(uri), nil
		}
		return textResult("none"), nil
	}
	h.tools["all"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		var texts [3]string
		var group sync.WaitGroup
		for i, name := range []string{"elicit", "sample", "roots"} {
			group.Go(func() {
				result, err := h.tools[name](ctx, r)
				if err != nil {
					texts[i] = err.Error()
				}
				content, _ := Member(result, "content")
				for c := range Elements(content) {
					texts[i], _ = StringMember(c, "text")
				}
			})
		}
		group.Wait()
		return textResult(strings.Join(texts[:], ",")), nil
	}
}

// sdkClient is a client of the SDK that answers whatever it is asked, and notes
// what it is told.
type sdkClient struct {
	*mcp.Client
	changed  chan struct{}
	progress chan float64
}

func newSDKClient() *sdkClient {
	c := &sdkClient{changed: make(chan struct{}, 16), progress: make(chan float64, 16)}
	c.Client = mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Content: &mcp.TextContent{Text: "sampled"}, Model: "m", Role: "assistant"}, nil
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.progress <- r.Params.Progress
		},
	})
	c.AddRoots(&mcp.Root{URI: "file:///root"})
	return c
}

func sdkText(t *testing.T, session *mcp.ClientSession, tool string, args any) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	if tool == "progress" {
		params.SetProgressToken("tok")
	}
	result, err := session.CallTool(t.Context(), params)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	text, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("%s: %v", tool, result.Content)
	}
	return text.Text
}

// The SDK's client speaks to our server in every revision, over both transports,
// and is asked everything that a client can be asked.
func TestInteropSDKClient(t *testing.T) {
	transports := map[string]func(*testing.T, *Server) mcp.Transport{
		"http": func(t *testing.T, s *Server) mcp.Transport {
			site := newSite(t, s, HTTPOptions{})
			return &mcp.StreamableClientTransport{Endpoint: site.url, HTTPClient: site.client}
		},
		"stdio": func(t *testing.T, s *Server) mcp.Transport {
			toServer, fromClient := io.Pipe()
			toClient, fromServer := io.Pipe()
			served := make(chan error, 1)
			go func() { served <- s.Serve(context.Background(), NewStreamConn(toServer, fromServer, nil)) }()
			t.Cleanup(func() {
				if err := <-served; err != nil {
					t.Errorf("Serve: %v", err)
				}
			})
			return &mcp.IOTransport{Reader: toClient, Writer: fromClient}
		},
	}
	for name, connect := range transports {
		for _, version := range Versions() {
			t.Run(name+"/"+version, func(t *testing.T) {
				h := newTestHandler()
				askTools(h)
				s := newTestServer(t, func(o *ServerOptions) { o.Handler = h })
				client := newSDKClient()
				session, err := client.Connect(t.Context(), connect(t, s), &mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				if got := session.InitializeResult().ProtocolVersion; got != version {
					t.Errorf("version %s", got)
				}
				interopCalls(t, session, client)
				interopCancel(t, session, h)
				if got := sdkText(t, session, "echo", map[string]any{"text": "still here"}); got != "still here" {
					t.Errorf("after a cancelled call: %q", got)
				}
			})
		}
	}
}

func interopCalls(t *testing.T, session *mcp.ClientSession, client *sdkClient) {
	t.Helper()
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "echo" {
		t.Errorf("tools: %v %v", tools, err)
	}
	for _, c := range []struct{ tool, want string }{
		{"echo", "hi"}, {"progress", "done"}, {"log", "logged"},
		{"elicit", "Ada"}, {"sample", "sampled"}, {"roots", "file:///root"}, {"all", "Ada,sampled,file:///root"},
		{"changed", "ok"},
	} {
		if got := sdkText(t, session, c.tool, map[string]any{"text": "hi"}); got != c.want {
			t.Errorf("%s: %q, want %q", c.tool, got, c.want)
		}
	}
	for want := range 3 {
		if got := <-client.progress; got != float64(want) {
			t.Errorf("progress %v, want %v", got, want)
		}
	}
	<-client.changed
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "nope"})
	if err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("unknown tool: %v", err)
	}
}

// interopCancel gives a call up once it is being handled.
func interopCancel(t *testing.T, session *mcp.ClientSession, h *testHandler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-h.entered
		cancel()
	}()
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "wait"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
	<-h.left // the handler has noticed
}
