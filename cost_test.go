package patchbay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// lean is an in-process server that costs next to nothing, so that what a call
// costs is the road to it.
type lean struct{ tools json.RawMessage }

func newLean(tools int) *lean {
	list := []byte(`{"tools":[`)
	for i := range tools {
		if i > 0 {
			list = append(list, ',')
		}
		list = fmt.Appendf(list, `{"name":"tool_%d","description":"Does the thing.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`, i)
	}
	return &lean{append(list, `]}`...)}
}

func (l *lean) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return mcptest.ServeLocal(ctx, rw, l)
}

var leanResult = json.RawMessage(`{"content":[{"type":"text","text":"hello"}]}`)

func (l *lean) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/list":
		return l.tools, nil
	case "tools/call":
		return leanResult, nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (l *lean) HandleNotification(context.Context, *wire.Notification) {}

// leanFleet is a session on fifty servers of twenty tools each, with rules.
func leanFleet(tb testing.TB) *patchbay.Session {
	tb.Helper()
	c := newComputer(tb)
	c.opts.Lazy = false
	c.opts.InProcess = map[string]patchbay.LocalServer{}
	for i := range 50 {
		c.opts.InProcess[fmt.Sprintf("server%d", i)] = newLean(20)
	}
	c.opts.Observe = func(patchbay.CallRecord) {}
	h := c.open()
	if err := h.Wait(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	s, err := h.NewSession(patchbay.SessionOptions{
		Default: patchbay.Allow, AllowedTools: []string{"mcp__server7__*", "mcp__server8__tool_1"}, DisallowedTools: []string{"mcp__*__tool_19"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// leanConn is the same road without a host: one connection to one such server.
func leanConn(tb testing.TB) *conn.Server {
	tb.Helper()
	m := conn.NewManager(conn.Options{})
	tb.Cleanup(func() { m.Close() })
	m.Apply(map[string]conn.Target{"server": {Local: newLean(20).Serve}})
	s, _ := m.Server("server", conn.Profile{})
	if err := s.Wait(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

var leanCall = wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"tool_3","arguments":{"text":"hello"}}`)}

// road is one way to call a tool.
type road struct {
	name string
	call func(context.Context) error
}

func leanRoads(s *patchbay.Session, direct *conn.Server) []road {
	return []road{
		{"conn", func(ctx context.Context) error {
			_, err := direct.Call(ctx, leanCall)
			return err
		}},
		{"Call", func(ctx context.Context) error {
			_, err := s.Call(ctx, patchbay.Call{Tool: "mcp__server42__tool_3", Arguments: json.RawMessage(`{"text":"hello"}`)})
			return err
		}},
		{"Forward", func(ctx context.Context) error {
			_, err := s.Forward(ctx, "server42", leanCall.Method, leanCall.Params)
			return err
		}},
	}
}

// What a session costs beyond its connection.
func BenchmarkCall(b *testing.B) {
	for _, road := range leanRoads(leanFleet(b), leanConn(b)) {
		b.Run(road.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := road.call(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A session may cost a call its params, its result and little else, however
// many servers, tools and rules there are. What it costs more is a mistake that
// a gateway with many clients would pay for.
func TestCallCost(t *testing.T) {
	s, direct := leanFleet(t), leanConn(t)
	allocations := func(call func(context.Context) error) float64 {
		return mcptest.Allocations(200, func() {
			if err := call(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
	roads := leanRoads(s, direct)
	base := allocations(roads[0].call)
	for _, road := range roads[1:] {
		if n := allocations(road.call); n > base+6 {
			t.Errorf("%s allocates %v times, its connection %v times", road.name, n, base)
		}
	}
}

// What a snapshot costs does not depend on how many tools there are: what is
// known of a catalog is made once and shared.
func TestSnapshotCost(t *testing.T) {
	var counts []float64
	for _, tools := range []int{1, 512} {
		c := newComputer(t)
		c.opts.Lazy = false
		c.opts.InProcess = map[string]patchbay.LocalServer{"one": newLean(tools), "two": newLean(tools)}
		h := c.open()
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		counts = append(counts, mcptest.Allocations(50, func() {
			if got := h.Servers(); len(got) != 2 || len(got[0].Tools) != tools || len(got[1].Tools) != tools {
				t.Fatalf("%+v", got)
			}
		}))
	}
	if counts[0] != counts[1] {
		t.Errorf("a snapshot allocates %v times with one tool, %v with 512", counts[0], counts[1])
	}
}
