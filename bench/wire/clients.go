//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// patience is how long a call may take beyond the time in which calls are begun.
const patience = 10 * time.Second

// A caller is a client that is measured.
type caller interface {
	// call calls the load's tool and returns how much came back.
	call(ctx context.Context, l load) (size int, err error)
	close()
}

// drive has a number of goroutines make calls for a while.
func drive(c caller, o order) report {
	ctx, cancel := context.WithTimeout(context.Background(), o.Slice+patience)
	defer cancel()
	var calls atomic.Int64
	var failure atomic.Pointer[error]
	one := func() bool {
		size, err := c.call(ctx, o.Load)
		if err == nil && size < o.Load.Result {
			err = fmt.Errorf("%d bytes came back instead of %d", size, o.Load.Result)
		}
		if err != nil {
			failure.Store(&err)
			return false
		}
		return true
	}
	one() // fills pools and opens connections
	before, end := used(), time.Now().Add(o.Slice)
	var wg sync.WaitGroup
	for range o.Callers {
		wg.Go(func() {
			for one() {
				calls.Add(1)
				if time.Now().After(end) {
					return
				}
			}
		})
	}
	wg.Wait()
	r := report{Calls: int(calls.Load()), Used: used().since(before)}
	if err := failure.Load(); err != nil {
		r.Error = (*err).Error()
	}
	return r
}

// connect makes the client that the spec asks for.
func (s spec) connect() (caller, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.Maker == sdk {
		return s.connectSDK(ctx)
	}
	return s.connectWire(ctx)
}

// peerCommand is the peer on stdio, as a child of the client.
func (s spec) peerCommand() (*exec.Cmd, error) { return spec{Transport: s.Transport}.command() }

// wireClient is ours.
type wireClient struct {
	client *wire.Client
	peer   *exec.Cmd // nil over HTTP
	params sync.Map  // of a call, by load: callers send what they have
}

func (s spec) connectWire(ctx context.Context) (caller, error) {
	c := &wireClient{}
	var t wire.Transport
	if s.Transport.HTTP {
		t = wire.HTTP(s.URL, nil)
	} else {
		var err error
		if c.peer, err = s.peerCommand(); err != nil {
			return nil, err
		}
		stdin, err := c.peer.StdinPipe()
		if err != nil {
			return nil, err
		}
		stdout, err := c.peer.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := c.peer.Start(); err != nil {
			return nil, err
		}
		t = wire.Stream(wire.NewStreamConn(stdout, stdin, nil), nil)
	}
	var err error
	c.client, err = wire.Connect(ctx, t, &wire.ClientOptions{ProtocolVersion: s.Transport.Version})
	return c, err
}

func (c *wireClient) call(ctx context.Context, l load) (int, error) {
	params, ok := c.params.Load(l.Name)
	if !ok {
		text := json.RawMessage(`{"name":"` + l.Tool + `","arguments":` + arguments(l) + `}`)
		params, _ = c.params.LoadOrStore(l.Name, text)
	}
	result, err := c.client.Call(ctx, wire.Call{Method: "tools/call", Params: params.(json.RawMessage), Timeout: patience})
	return len(result), err
}

func (c *wireClient) close() {
	c.client.Close()
	if c.peer != nil {
		c.peer.Wait()
	}
}

// arguments of a tool call.
func arguments(l load) string { return `{"text":"` + strings.Repeat("x", l.Argument) + `"}` }

// sdkClient is the SDK's. It gets the same transport for HTTP as ours, which
// serves it better than the default one, and its arguments in JSON already,
// which is what costs it least.
type sdkClient struct {
	session   *mcp.ClientSession
	arguments sync.Map
}

func (s spec) connectSDK(ctx context.Context) (caller, error) {
	var t mcp.Transport
	if s.Transport.HTTP {
		t = &mcp.StreamableClientTransport{Endpoint: s.URL, HTTPClient: &http.Client{Transport: wire.NewRoundTripper()}}
	} else {
		peer, err := s.peerCommand()
		if err != nil {
			return nil, err
		}
		t = &mcp.CommandTransport{Command: peer}
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := c.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: s.Transport.Version})
	return &sdkClient{session: session}, err
}

func (c *sdkClient) call(ctx context.Context, l load) (int, error) {
	args, ok := c.arguments.Load(l.Name)
	if !ok {
		args, _ = c.arguments.LoadOrStore(l.Name, json.RawMessage(arguments(l)))
	}
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: l.Tool, Arguments: args})
	if err != nil {
		return 0, err
	}
	text, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		return 0, fmt.Errorf("content of type %T", result.Content[0])
	}
	return len(text.Text), nil
}

func (c *sdkClient) close() { c.session.Close() }
