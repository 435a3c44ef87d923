package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// curious is a server that asks, counts, waits and repeats.
type curious struct{ waiting chan<- string }

// Serve implements patchbay.LocalServer.
func (c curious) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return mcptest.ServeLocal(ctx, rw, c)
}

func (curious) HandleNotification(context.Context, *wire.Notification) {}

func (c curious) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	if r.Method == "tools/list" {
		return json.RawMessage(`{"tools":[{"name":"ask"},{"name":"count"},{"name":"wait"},{"name":"tell"}]}`), nil
	}
	arguments, _ := wire.Member(r.Params, "arguments")
	switch tool, _ := wire.StringMember(r.Params, "name"); tool {
	case "ask":
		answer, err := r.Link.Call(ctx, wire.Call{Method: "elicitation/create", Params: arguments})
		if err != nil {
			return nil, err
		}
		arguments = answer
	case "count":
		token, _ := wire.Member(r.Params, "_meta", wire.MetaProgressToken)
		for i := range 3 {
			if err := r.Link.Notify(ctx, "notifications/progress", json.RawMessage(fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, i))); err != nil {
				return nil, err
			}
		}
	case "wait":
		c.waiting <- "began"
		<-ctx.Done()
		c.waiting <- "ended"
		return nil, ctx.Err()
	}
	return json.RawMessage(`{"content":[], "<&>":  ` + string(arguments) + `}`), nil
}

// converse runs a test with a client of a host in this process, and with one of a
// daemon. Waiting hears of the tool that waits.
func converse(t *testing.T, test func(t *testing.T, c *control.Client, waiting <-chan string)) {
	for _, daemon := range []bool{false, true} {
		t.Run(fmt.Sprintf("daemon=%v", daemon), func(t *testing.T) {
			b := newBench(t)
			waiting := make(chan string, 2)
			b.servers = map[string]patchbay.LocalServer{"s": curious{waiting}}
			settings := filepath.Join(b.self.Config, "settings.json")
			if err := errors.Join(os.MkdirAll(filepath.Dir(settings), 0o700), os.WriteFile(settings, []byte(`{"permissions": {"ask": ["mcp__s__tell"]}}`), 0o600)); err != nil {
				t.Fatal(err)
			}
			var c *control.Client
			if daemon {
				b.start()
				c = b.dial("one")
			} else {
				o := b.opts
				o.InProcess, o.UI = b.servers, control.UI(true)
				h, err := patchbay.Open(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { h.Close() })
				c = control.InProcess(h)
			}
			if err := c.Connect(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			test(t, c, waiting)
		})
	}
}

func TestCallAsksAndTells(t *testing.T) {
	converse(t, func(t *testing.T, c *control.Client, _ <-chan string) {
		call := func(tool string, o control.CallOptions, progress func(json.RawMessage)) string {
			t.Helper()
			r, err := c.Call(t.Context(), patchbay.Call{Tool: "s." + tool, Arguments: json.RawMessage(`{"message":"Who?","requestedSchema":{"type":"object","properties":{"a":{"type":"integer"}}}}`), Progress: progress}, o)
			if err != nil {
				return "error: " + err.Error()
			}
			return string(r.Raw)
		}
		expect := func(got, want string) {
			t.Helper()
			if !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		var steps []string
		expect(call("count", control.CallOptions{}, func(p json.RawMessage) { steps = append(steps, string(p)) }), `"<&>":  {"message"`)
		if len(steps) != 3 || !strings.Contains(steps[2], `"progress":2`) {
			t.Errorf("progress: %v", steps)
		}
		answer := func(action, content string) control.CallOptions {
			return control.CallOptions{Elicit: func(_ context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
				if r.Server != "s" || !strings.Contains(string(r.Params), "Who?") {
					t.Errorf("asked %+v", r)
				}
				return patchbay.ElicitResult{Action: action, Content: json.RawMessage(content)}, nil
			}}
		}
		expect(call("ask", answer("accept", `{"a":1}`), nil), `{"action":"accept","content":{"a":1}}`)
		expect(call("ask", answer("decline", ""), nil), `{"action":"decline"}`)
		expect(call("ask", control.CallOptions{Elicit: func(context.Context, patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
			return patchbay.ElicitResult{}, errors.New("the person has gone")
		}}, nil), `{"action":"cancel"}`)

		consent := func(yes bool) control.CallOptions {
			return control.CallOptions{Confirm: func(_ context.Context, r patchbay.ConfirmRequest) (bool, error) {
				if r.Tool.Tool != "tell" || !strings.Contains(string(r.Arguments), "Who?") {
					t.Errorf("asked %+v", r)
				}
				return yes, nil
			}}
		}
		expect(call("tell", consent(true), nil), `"Who?"`)
		expect(call("tell", consent(false), nil), "error: mcp__s__tell was not permitted.")
		expect(call("tell", control.CallOptions{}, nil), "error: MCPTool requires permission.")
	})
}

// A question ends with the call that brought it up, and a call with its caller.
func TestCallIsGivenUp(t *testing.T) {
	converse(t, func(t *testing.T, c *control.Client, waiting <-chan string) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.Call(ctx, patchbay.Call{Tool: "s.ask", Arguments: json.RawMessage(`{"message":"?","requestedSchema":{"type":"object","properties":{}}}`)}, control.CallOptions{
			Elicit: func(ctx context.Context, _ patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
				cancel()
				<-ctx.Done()
				return patchbay.ElicitResult{}, ctx.Err()
			},
		})
		if err == nil {
			t.Error("a call that was given up succeeded")
		}
		ctx, cancel = context.WithCancel(t.Context())
		go func() {
			<-waiting
			cancel()
		}()
		if _, err := c.Call(ctx, patchbay.Call{Tool: "s.wait"}, control.CallOptions{}); err == nil {
			t.Error("a call that was given up succeeded")
		}
		<-waiting // the server has heard of it
	})
}

// The host says itself that a caller waited in vain, and the server hears of it.
func TestCallThatTakesTooLong(t *testing.T) {
	converse(t, func(t *testing.T, c *control.Client, waiting <-chan string) {
		ctx, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errTooLate)
		defer stop()
		_, err := c.Call(ctx, patchbay.Call{Tool: "s.wait"}, control.CallOptions{})
		if kindOf(err) != patchbay.KindTimeout {
			t.Errorf("got %v", err)
		}
		<-waiting
		<-waiting
	})
}

var errTooLate = fmt.Errorf("too late: %w", context.DeadlineExceeded)

func TestWatch(t *testing.T) {
	converse(t, func(t *testing.T, c *control.Client, _ <-chan string) {
		var last uint64
		for snap, err := range c.Watch(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if snap.Seq < last {
				t.Errorf("%d after %d", snap.Seq, last)
			}
			if last == 0 {
				if _, err := c.Add(t.Context(), patchbay.AddRequest{Name: "new", Server: json.RawMessage(`{"command":"x"}`)}); err != nil {
					t.Fatal(err)
				}
			}
			last = snap.Seq
			if len(snap.Servers) == 2 {
				return
			}
		}
		t.Error("the change was never seen")
	})
}

// What watches a daemon ends with it, and so does a call, in order.
func TestDaemonEndsWithItsClients(t *testing.T) {
	b := newBench(t)
	b.start()
	c := b.dial("one")
	ended := make(chan error, 1)
	for _, err := range c.Watch(t.Context()) {
		if err != nil {
			ended <- err
			break
		}
		b.stop()
	}
	close(ended)
	if err := <-ended; err != nil {
		t.Errorf("watching ended with %v", err)
	}
	if err := <-b.stopped; err != nil {
		t.Error(err)
	}
	b.stopped <- nil
	if _, err := c.Snapshot(t.Context(), false); err == nil {
		t.Error("a daemon that ended answered")
	}
}

// Clients that come and go leave nothing behind, whichever way they go.
func TestNothingIsLeftBehind(t *testing.T) {
	b := newBench(t)
	b.start()
	b.dial("one").Close()
	visit := func() {
		t.Helper()
		c := b.dial("one")
		conn, err := c.Attach(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Snapshot(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		for range c.Watch(t.Context()) {
			break
		}
		conn.Close()
		c.Close()
		raw, err := net.Dial("unix", b.socket) // and says nothing
		if err != nil {
			t.Fatal(err)
		}
		raw.Close()
	}
	visit()
	before := mcptest.Descriptors(t)
	for range 50 {
		visit()
	}
	b.stop()
	if err := <-b.stopped; err != nil { // everything the clients left has ended then
		t.Error(err)
	}
	b.stopped <- nil
	if after := mcptest.Descriptors(t); after > before {
		t.Errorf("%d files are open, after %d", after, before)
	}
}
