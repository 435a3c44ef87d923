package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// sloth is an in-process server that never answers a call: the tool silent says
// nothing, the tool busy reports progress every 20 seconds. It takes a while to
// start.
type sloth struct{ start time.Duration }

func (s sloth) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	p := wire.NewPeer(wire.NewStreamConn(rw, rw, nil), s, nil)
	defer p.Close()
	select {
	case <-ctx.Done():
	case <-p.Done():
	}
	return nil
}

func (s sloth) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		select {
		case <-time.After(s.start):
		case <-ctx.Done():
		}
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true},"prompts":{}},"serverInfo":{"name":"sloth","version":"1"}}`), nil
	case "server/discover":
		return nil, wire.MethodNotFound(r.Method)
	case "tools/list":
		return json.RawMessage(`{"tools":[{"name":"silent","inputSchema":{"type":"object"}},{"name":"busy","inputSchema":{"type":"object"}}]}`), nil
	case "resources/list", "resources/templates/list", "prompts/list":
		return json.RawMessage(`{"resources":[],"resourceTemplates":[],"prompts":[]}`), nil
	}
	token, wanted := wire.Member(r.Params, "_meta", wire.MetaProgressToken)
	name, _ := wire.StringMember(r.Params, "name")
	for n := 1; wanted && name == "busy"; n++ {
		select {
		case <-time.After(20 * time.Second):
			_ = r.Link.Notify(ctx, "notifications/progress", fmt.Appendf(nil, `{"progressToken":%s,"progress":%d}`, token, n))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (sloth) HandleNotification(context.Context, *wire.Notification) {}

// What a program asks for itself has a limit, which the settings can change; what
// it passes on has none, whatever the method is; WithTimeout counts in place of
// all.
func TestTimeLimits(t *testing.T) {
	const day = 24 * time.Hour // when the caller gives up
	call := func(tool string) func(context.Context, *patchbay.Session) error {
		return func(ctx context.Context, s *patchbay.Session) error {
			_, err := s.Call(ctx, patchbay.Call{Tool: "sloth." + tool})
			return err
		}
	}
	forward := func(method, params string) func(context.Context, *patchbay.Session) error {
		return func(ctx context.Context, s *patchbay.Session) error {
			_, err := s.Forward(ctx, "sloth", method, json.RawMessage(params))
			return err
		}
	}
	explicit := func(limit time.Duration, use func(context.Context, *patchbay.Session) error) func(context.Context, *patchbay.Session) error {
		return func(ctx context.Context, s *patchbay.Session) error {
			ctx, stop := patchbay.WithTimeout(ctx, limit)
			defer stop()
			return use(ctx, s)
		}
	}
	for _, tt := range []struct {
		name     string
		settings string
		use      func(context.Context, *patchbay.Session) error
		want     time.Duration
	}{
		{"a call", `{}`, call("silent"), 30 * time.Second},
		{"a call with progress", `{}`, call("busy"), 10 * time.Minute},
		{"a longer silence", `{"limits": {"callTimeout": 90000}}`, call("silent"), 90 * time.Second},
		{"a silence beyond all progress", `{"limits": {"callTimeout": 3600000}}`, call("busy"), time.Hour},
		{"any silence", `{"limits": {"callTimeout": 0}}`, call("silent"), day},
		{"a read", `{}`, func(ctx context.Context, s *patchbay.Session) error {
			_, err := s.ReadResource(ctx, "sloth", "x://y")
			return err
		}, 30 * time.Second},
		{"a subscription", `{}`, func(ctx context.Context, s *patchbay.Session) error {
			return s.Subscribe(ctx, "sloth", "x://y")
		}, 30 * time.Second},
		{"more than that", `{}`, explicit(time.Minute, call("silent")), time.Minute},
		{"less than that", `{}`, explicit(time.Second, call("silent")), time.Second},
		{"a call passed on", `{}`, forward("tools/call", `{"name":"silent"}`), day},
		{"one whose sender wants progress", `{}`, forward("tools/call", `{"name":"busy","_meta":{"progressToken":1}}`), day},
		{"the result of a task", `{}`, forward("tasks/result", `{"taskId":"1"}`), day},
		{"a subscription passed on", `{}`, forward("resources/subscribe", `{"uri":"x://y"}`), day},
		{"anything else", `{}`, forward("x/y", `{}`), day},
	} {
		c := newComputer(t)
		c.opts.InProcess = map[string]patchbay.LocalServer{"sloth": sloth{}}
		c.write(c.home+"/.config/patchbay/settings.json", tt.settings)
		synctest.Test(t, func(t *testing.T) {
			h, err := patchbay.Open(t.Context(), c.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if err := h.Connect(t.Context(), "sloth"); err != nil {
				t.Fatal(err)
			}
			s := anyone(t, h)
			ctx, stop := context.WithTimeout(t.Context(), day)
			defer stop()
			start := time.Now()
			err = tt.use(ctx, s)
			if took := time.Since(start); took != tt.want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v, want %v", tt.name, err, took, tt.want)
			}
			if e, ok := errors.AsType[*patchbay.Error](err); ok && !strings.Contains(e.Hint, `"timeout"`) {
				t.Errorf("%s: the hint is %q", tt.name, e.Hint)
			}
		})
	}
}

// The timeout of an entry is the whole limit, for what is passed on too, and
// progress does not extend it.
func TestTimeoutOfAnEntry(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := wire.Parse(body, wire.Limits{})
		if err != nil || m.Kind() != wire.KindRequest {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		token, _ := wire.Member(m.Params, "_meta", wire.MetaProgressToken)
		switch m.Method {
		case "initialize":
			m.Result, m.Method, m.Params = json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`), "", nil
		case "tools/list":
			m.Result, m.Method, m.Params = json.RawMessage(`{"tools":[{"name":"busy","inputSchema":{"type":"object"}}]}`), "", nil
		case "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			for n := 1; r.Context().Err() == nil; n++ {
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d}}\n\n", token, n)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(10 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
			return
		default:
			m.Error, m.Method, m.Params = wire.MethodNotFound(m.Method), "", nil
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(m.AppendTo(nil))
	}))
	defer server.Close()
	h := withServers(t, map[string]config.Server{"srv": {Type: config.HTTP, URL: server.URL, Timeout: new(int64(300))}}, nil)
	if err := h.Connect(t.Context(), "srv"); err != nil {
		t.Fatal(err)
	}
	s := anyone(t, h)
	for name, use := range map[string]func() error{
		"call": func() error { _, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.busy"}); return err },
		"forward": func() error {
			_, err := s.Forward(t.Context(), "srv", "tools/call", json.RawMessage(`{"name":"busy","_meta":{"progressToken":"p"}}`))
			return err
		},
	} {
		e := asError(t, use())
		if e.Kind != patchbay.KindTimeout || !strings.HasSuffix(e.Message, "no answer to tools/call within 300ms") || !strings.Contains(e.Hint, `"timeout"`) {
			t.Errorf("%s: %#v", name, e)
		}
	}
	ctx, stop := patchbay.WithTimeout(t.Context(), 600*time.Millisecond)
	defer stop()
	if _, err := s.Call(ctx, patchbay.Call{Tool: "srv.busy"}); err == nil || !strings.Contains(err.Error(), "no answer within 600ms") {
		t.Errorf("one who is more patient: %v", err)
	}
}

// Whoever says how long to wait waits that long for the start, too, be it longer
// or shorter than the limit, and also if the start was begun for somebody else.
func TestPatientStart(t *testing.T) {
	for _, tt := range []struct {
		lazy           bool
		start, timeout time.Duration
		after          time.Duration // the end
		hint           string        // "" if it succeeds
	}{
		{true, 45 * time.Second, time.Minute, 45 * time.Second, ""},
		{false, 45 * time.Second, time.Minute, 45 * time.Second, ""},
		{true, 45 * time.Second, 40 * time.Second, 40 * time.Second, "The server may be slow or unresponsive."},
		{true, 45 * time.Second, 0, 30 * time.Second, `The server may be slow or unresponsive. Try increasing the timeout: "connectTimeout" of its entry, in milliseconds.`},
	} {
		c := newComputer(t)
		c.opts.InProcess, c.opts.Lazy = map[string]patchbay.LocalServer{"sloth": sloth{tt.start}}, tt.lazy
		synctest.Test(t, func(t *testing.T) {
			h, err := patchbay.Open(t.Context(), c.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			synctest.Wait() // it is being started, if it is not lazy
			ctx, stop := t.Context(), context.CancelFunc(func() {})
			if tt.timeout > 0 {
				ctx, stop = patchbay.WithTimeout(ctx, tt.timeout)
			}
			defer stop()
			start := time.Now()
			err = h.Connect(ctx, "sloth")
			if took := time.Since(start); took != tt.after || (err == nil) != (tt.hint == "") {
				t.Fatalf("%+v: %v after %v", tt, err, took)
			}
			if err != nil && asError(t, err).Hint != tt.hint {
				t.Errorf("%+v: the hint is %q", tt, asError(t, err).Hint)
			}
		})
	}
}
