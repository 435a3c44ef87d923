package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// childRole, in the environment, makes the test binary one of the children
// below instead of running tests.
const childRole = "WIRE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		if err := child(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is a server on standard input and output.
func child(role string) error {
	switch role {
	case "wire": // a server of our own
		p := NewPeer(NewStreamConn(os.Stdin, os.Stdout, nil), echo{}, nil)
		<-p.Done()
		return p.Close()
	case "sdk": // a server of the official SDK
		return sdkServer().Run(context.Background(), &mcp.StdioTransport{})
	case "deaf": // reads nothing
		fmt.Println("not listening")
		select {}
	case "closes stdin":
		os.Stdin.Close()
		fmt.Println("closed")
		select {}
	case "closes stdout": // and stays alive
		bufio.NewReader(os.Stdin).ReadString('\n')
		os.Stdout.Close()
		io.Copy(io.Discard, os.Stdin)
		return nil
	default:
		return fmt.Errorf("unknown role %q", role)
	}
}

// startChild starts a child and connects a conn to it. The child is gone when
// the test ends.
func startChild(t testing.TB, role string) *StreamConn {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := NewStreamConn(stdout, stdin, nil)
	t.Cleanup(func() {
		conn.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return conn
}

// echo answers every request with its params.
type echo struct{}

func (echo) HandleRequest(_ context.Context, r *Request) (json.RawMessage, error) {
	return r.Params, nil
}

func (echo) HandleNotification(context.Context, *Notification) {}

// sdkServer has a tool that repeats its argument, and one that waits to be
// cancelled, reporting progress first.
func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args struct{ Text string }
		if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: args.Text}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "hang", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1}); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer.Action}}}, nil
	})
	return s
}
