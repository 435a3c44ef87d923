package patchbay_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// mirror is an in-process server of the older era that keeps the params of every
// request as they came, reports progress if asked to, and answers in its own
// way of writing JSON.
type mirror struct {
	mu   sync.Mutex
	seen []string // method and params
}

const mirrored = `{ "content": [ ] , "n": 12345678901234567890, "x": {"b":1,"a":2} }`

func (m *mirror) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	p := wire.NewPeer(wire.NewStreamConn(rw, rw, nil), m, nil)
	defer p.Close()
	select {
	case <-ctx.Done():
	case <-p.Done():
	}
	return nil
}

func (m *mirror) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"mirror","version":"1"}}`), nil
	case "tools/list":
		return json.RawMessage(`{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`), nil
	case "server/discover":
		return nil, wire.MethodNotFound(r.Method)
	}
	m.mu.Lock()
	m.seen = append(m.seen, r.Method+" "+string(r.Params))
	m.mu.Unlock()
	if token, ok := wire.Member(r.Params, "_meta", "progressToken"); ok {
		for _, n := range []string{"1", "2"} {
			params := json.RawMessage(`{"progressToken":` + string(token) + `,"progress":` + n + `}`)
			if err := r.Link.Notify(ctx, "notifications/progress", params); err != nil {
				return nil, err
			}
		}
	}
	return json.RawMessage(mirrored), nil
}

func (m *mirror) HandleNotification(context.Context, *wire.Notification) {}

func (m *mirror) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[len(m.seen)-1]
}

// What a caller sends arrives as it is, but for the progress token, and what the
// server answers comes back as it is.
func TestBytesPassUnchanged(t *testing.T) {
	m := &mirror{}
	h := withNotes(t, func(o *patchbay.Options) { o.InProcess = map[string]patchbay.LocalServer{"m": m} })
	var progress []string // written before Forward returns
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		Progress: func(_ context.Context, server string, params json.RawMessage) {
			progress = append(progress, server+" "+string(params))
		},
	}})
	for name, tt := range map[string]struct {
		send func() (json.RawMessage, error)
		want string // what arrives, without _meta.progressToken
	}{
		"call": {
			func() (json.RawMessage, error) {
				r, err := s.Call(t.Context(), patchbay.Call{Tool: "m.t", Arguments: json.RawMessage(`{ "b": 1.50, "a": [] }`), Meta: json.RawMessage(`{ "k": 1 }`)})
				if err != nil {
					return nil, err
				}
				return r.Raw, nil
			},
			`tools/call {"name":"t","arguments":{ "b": 1.50, "a": [] },"_meta":{ "k": 1 }}`,
		},
		"forwarded call": {
			func() (json.RawMessage, error) {
				return s.Forward(t.Context(), "m", "tools/call", json.RawMessage(`{ "task" : {}, "arguments": { "z": 1e2 }, "name": "t" }`))
			},
			`tools/call { "task" : {}, "arguments": { "z": 1e2 }, "name": "t" }`,
		},
		"any method": {
			func() (json.RawMessage, error) {
				return s.Forward(t.Context(), "m", "x/y", json.RawMessage(`{ "b" : 2, "a" : 1 }`))
			},
			`x/y { "b" : 2, "a" : 1 }`,
		},
	} {
		raw, err := tt.send()
		if err != nil || string(raw) != mirrored {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
		if got := withoutToken(t, m.last()); got != tt.want {
			t.Errorf("%s: the server got\n%s\nwant\n%s", name, got, tt.want)
		}
	}
	if progress != nil {
		t.Errorf("progress that nobody asked for: %q", progress)
	}
	if _, err := s.Forward(t.Context(), "m", "tools/call", json.RawMessage(`{"name":"t","_meta":{"progressToken":"mine"}}`)); err != nil {
		t.Fatal(err)
	}
	want := []string{`m {"progressToken":"mine","progress":1}`, `m {"progressToken":"mine","progress":2}`}
	if !slices.Equal(progress, want) {
		t.Errorf("progress %q, want %q", progress, want)
	}
	for _, params := range []string{`[]`, `{"a":1,"a":2}`, `{`} {
		if _, err := s.Forward(t.Context(), "m", "x/y", json.RawMessage(params)); kindOf(err) != patchbay.KindConfigInvalid {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// withoutToken takes the progress token, which is the connection's own, out of a
// request.
func withoutToken(t *testing.T, request string) string {
	t.Helper()
	method, params, _ := strings.Cut(request, " ")
	return method + " " + string(wire.DeleteMember([]byte(params), "_meta", "progressToken"))
}
