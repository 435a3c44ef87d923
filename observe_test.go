package patchbay_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// recorder is a server that shows the params it gets and fails on demand, and
// the host that records calls of it.
type recorder struct {
	started chan bool // a call of wait is under way
	params  chan json.RawMessage
	records chan patchbay.CallRecord
}

func (r *recorder) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	server, err := wire.NewServer(wire.ServerOptions{Info: json.RawMessage(`{"name":"recorder","version":"1"}`), Capabilities: json.RawMessage(`{"tools":{"listChanged":true}}`), Handler: r})
	if err != nil {
		return err
	}
	return server.Serve(ctx, wire.NewStreamConn(rw, rw, nil))
}

func (r *recorder) HandleNotification(context.Context, *wire.Notification) {}

func (r *recorder) HandleRequest(ctx context.Context, q *wire.Request) (json.RawMessage, error) {
	if q.Method == "tools/list" {
		const one = `{"inputSchema":{"type":"object"},"name":`
		return json.RawMessage(`{"tools":[` + one + `"show"},` + one + `"fail"},` + one + `"refuse"},` + one + `"wait"},` + one + `"never"}]}`), nil
	}
	if q.Method != "tools/call" {
		return json.RawMessage(`{}`), nil
	}
	switch name, _ := wire.StringMember(q.Params, "name"); name {
	case "fail":
		return json.RawMessage(`{"content":[],"isError":true}`), nil
	case "refuse":
		return nil, &wire.Error{Code: -32000, Message: "no"}
	case "wait":
		r.started <- true
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.params <- q.Params
	return json.RawMessage(`{"content":[{"type":"text","text":"\"isError\":true"}]}`), nil
}

func newRecorder(t testing.TB, change func(*patchbay.Options)) (*recorder, *patchbay.Host) {
	t.Helper()
	r := &recorder{started: make(chan bool), params: make(chan json.RawMessage, 1), records: make(chan patchbay.CallRecord, 1)}
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"srv": r}
	c.opts.Observe = func(record patchbay.CallRecord) { r.records <- record }
	if change != nil {
		change(&c.opts)
	}
	h := c.open()
	if err := h.Connect(t.Context(), "srv"); err != nil {
		t.Fatal(err)
	}
	return r, h
}

// Every request of a session is recorded once, with what was decided about it
// and how it ended, and without what was said.
func TestCallRecords(t *testing.T) {
	r, h := newRecorder(t, func(o *patchbay.Options) {
		o.UI = &patchbay.UI{Confirm: func(_ context.Context, q patchbay.ConfirmRequest) (bool, error) { return q.Tool.Tool == "fail", nil }}
	})
	s := session(t, h, patchbay.SessionOptions{
		Name: "agent 7", AllowedTools: []string{"mcp__srv__show", "mcp__srv__wait"}, DisallowedTools: []string{"mcp__srv__never"},
		Rules: []patchbay.Rule{{Effect: patchbay.Allow, Pattern: "srv/refuse", Source: "the test"}},
	})
	call := func(tool string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Call(ctx, patchbay.Call{Tool: tool, Arguments: json.RawMessage(`{"secret":"hunter2"}`)})
			return err
		}
	}
	params := json.RawMessage(`{"name":"show","arguments":{"secret":"hunter2"},"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}}`)
	for _, tt := range []struct {
		what string
		do   func(context.Context) error
		want patchbay.CallRecord
	}{
		{"allowed", call("srv/show"), patchbay.CallRecord{Tool: "show", Decision: "allow", Rule: "mcp__srv__show", Source: "allowedTools", Outcome: "ok", BytesIn: 48}},
		{"asked, yes", call("srv/fail"), patchbay.CallRecord{Tool: "fail", Decision: "ask", Outcome: "tool_error", BytesIn: 48}},
		{"refused by the server", call("srv/refuse"), patchbay.CallRecord{Tool: "refuse", Decision: "allow", Rule: "srv/refuse", Source: "the test", Outcome: "server_error", BytesIn: 50}},
		{"denied: not there", call("srv/never"), patchbay.CallRecord{Server: "-", Tool: "srv/never", Outcome: "tool_not_found"}},
		{"a name too long", call(strings.Repeat("é", 200)), patchbay.CallRecord{Server: "-", Tool: strings.Repeat("é", 64), Outcome: "tool_not_found"}},
		{"cancelled", func(ctx context.Context) error {
			ctx, stop := context.WithCancel(ctx)
			go func() { <-r.started; stop() }()
			return call("srv/wait")(ctx)
		}, patchbay.CallRecord{Tool: "wait", Decision: "allow", Rule: "mcp__srv__wait", Source: "allowedTools", Outcome: "cancelled", BytesIn: 48}},
		{"too late", func(ctx context.Context) error {
			ctx, stop := context.WithDeadline(ctx, time.Now().Add(-time.Second))
			defer stop()
			return call("srv/wait")(ctx)
		}, patchbay.CallRecord{Tool: "wait", Decision: "allow", Rule: "mcp__srv__wait", Source: "allowedTools", Outcome: "timeout", BytesIn: 48}},
		{"forwarded", func(ctx context.Context) error {
			_, err := s.Forward(ctx, "srv", "tools/call", params)
			return err
		}, patchbay.CallRecord{Tool: "show", Decision: "allow", Rule: "mcp__srv__show", Source: "allowedTools", Outcome: "ok", BytesIn: len(params),
			TraceID: "0af7651916cd43dd8448eb211c80319c", ParentID: "b7ad6b7169203331"}},
		{"forwarded by its full name", func(ctx context.Context) error {
			_, _, err := s.ForwardCall(ctx, json.RawMessage(`{"name":"mcp__srv__fail"}`))
			return err
		}, patchbay.CallRecord{Tool: "fail", Decision: "ask", Outcome: "tool_error", BytesIn: 15}},
		{"forwarded, denied", func(ctx context.Context) error {
			_, _, err := s.ForwardCall(ctx, json.RawMessage(`{"name":"mcp__srv__never"}`))
			return err
		}, patchbay.CallRecord{Server: "-", Tool: "mcp__srv__never", Outcome: "tool_not_found"}},
		{"another method", func(ctx context.Context) error {
			_, err := s.Forward(ctx, "srv", "resources/list", nil)
			return err
		}, patchbay.CallRecord{Method: "resources/list", Outcome: "ok"}},
		{"a method without an end", func(ctx context.Context) error {
			_, err := s.Forward(ctx, "srv", strings.Repeat("x", 127)+strings.Repeat("é", 1<<20), nil)
			return err
		}, patchbay.CallRecord{Method: strings.Repeat("x", 127), Outcome: "ok"}},
	} {
		before := time.Now()
		err := tt.do(t.Context())
		got := <-r.records
		if answered := got.Outcome == "ok" || got.Outcome == "tool_error"; answered != (got.BytesOut > 0) {
			t.Errorf("%s: %d bytes", tt.what, got.BytesOut)
		}
		if got.Time.Before(before) || got.Duration <= 0 || got.Duration > time.Since(before) {
			t.Errorf("%s: at %v for %v", tt.what, got.Time, got.Duration)
		}
		want := tt.want
		want.Session = "agent 7"
		if want.Method == "" {
			want.Method = "tools/call"
		}
		if want.Server == "" {
			want.Server = "srv"
		}
		want.Server = strings.Trim(want.Server, "-")
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(patchbay.CallRecord{}, "Time", "Duration", "BytesOut")); d != "" {
			t.Errorf("%s (%v):\n%s", tt.what, err, d)
		}
		if text, _ := json.Marshal(got); strings.Contains(string(text), "hunter2") {
			t.Errorf("%s: %s", tt.what, text)
		}
		select {
		case sent := <-r.params:
			if tt.what == "forwarded" && !strings.HasPrefix(string(sent), strings.TrimSuffix(string(params), "}}")) {
				t.Errorf("the server got %s", sent)
			}
		default:
		}
	}
}

// With traces, the server's parent is our span and ours is the caller's; what is
// not recorded by the caller is left alone.
func TestTraces(t *testing.T) {
	r, h := newRecorder(t, func(o *patchbay.Options) { o.Traces = true })
	s := anyone(t, h)
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	call := func(meta string) (traceparent string, record patchbay.CallRecord) {
		t.Helper()
		_, err := s.Call(t.Context(), patchbay.Call{Tool: "srv/show", Meta: json.RawMessage(meta)})
		if err != nil {
			t.Fatal(err)
		}
		sent := <-r.params
		traceparent, _ = wire.StringMember(sent, "_meta", "traceparent")
		return traceparent, <-r.records
	}
	sent, record := call(`{"traceparent":"00-` + trace + `-` + span + `-01","tracestate":"a=b"}`)
	if record.TraceID != trace || record.ParentID != span || len(record.SpanID) != 16 || record.SpanID == span {
		t.Errorf("%+v", record)
	}
	if want := "00-" + trace + "-" + record.SpanID + "-01"; sent != want {
		t.Errorf("sent %s, want %s", sent, want)
	}
	for _, meta := range []string{``, `{"traceparent":"00-` + trace + `-0000000000000000-01"}`, `{"traceparent":7}`} {
		sent, record = call(meta)
		if len(record.TraceID) != 32 || record.TraceID == trace || record.ParentID != "" || len(record.SpanID) != 16 || sent != "00-"+record.TraceID+"-"+record.SpanID+"-01" {
			t.Errorf("a trace of our own: %s, %+v", sent, record)
		}
	}
	unsampled := "00-" + trace + "-" + span + "-00"
	if sent, record = call(`{"traceparent":"` + unsampled + `"}`); sent != unsampled || record.TraceID != trace || record.SpanID != "" {
		t.Errorf("not recorded by its caller: %s, %+v", sent, record)
	}
}

// A program that panics over a record harms no call.
func TestObserverPanics(t *testing.T) {
	r, h := newRecorder(t, func(o *patchbay.Options) { o.Observe = func(patchbay.CallRecord) { panic("oops") } })
	if _, err := anyone(t, h).Call(t.Context(), patchbay.Call{Tool: "srv/show"}); err != nil {
		t.Error(err)
	}
	<-r.params
}
