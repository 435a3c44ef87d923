package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// gate is a server of revision 2025-11-25 whose tool open wants a URL visited
// first, which the tool visited does.
type gate struct {
	mu   sync.Mutex
	open bool
}

func (g *gate) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	p := wire.NewPeer(wire.NewStreamConn(rw, rw, nil), g, nil)
	defer p.Close()
	select {
	case <-ctx.Done():
	case <-p.Done():
	}
	return nil
}

const gateData = `{"elicitations":[{"mode":"url","elicitationId":"g1","url":"https://example.com/visit","message":"Please visit"}]}`

func (g *gate) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"gate","version":"1"}}`), nil
	case "tools/list":
		return json.RawMessage(`{"tools":[{"name":"open","inputSchema":{"type":"object"}},{"name":"visited","inputSchema":{"type":"object"}}]}`), nil
	case "tools/call":
	default:
		return nil, wire.MethodNotFound(r.Method)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if name, _ := wire.StringMember(r.Params, "name"); name == "visited" {
		g.open = true
		if err := r.Link.Notify(ctx, "notifications/elicitation/complete", json.RawMessage(`{"elicitationId":"g1"}`)); err != nil {
			return nil, err
		}
	} else if !g.open {
		return nil, &wire.Error{Code: -32042, Message: "a visit is needed", Data: json.RawMessage(gateData)}
	}
	return json.RawMessage(`{"content":[{"type":"text","text":"open"}]}`), nil
}

func (*gate) HandleNotification(context.Context, *wire.Notification) {}

// everyClient runs a test with clients of both eras over both transports.
func everyClient(t *testing.T, test func(t *testing.T, over, version string)) {
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		for _, over := range []string{"stdio", "http"} {
			t.Run(fmt.Sprintf("%s %s client", version, over), func(t *testing.T) {
				t.Parallel()
				test(t, over, version)
			})
		}
	}
}

const ableToVisit = `{"elicitation":{"form":{},"url":{}}}`

// needsVisit reports whether an error is the server's own.
func needsVisit(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	return ok && e.Code == -32042 && e.Message == "a visit is needed" && string(e.Data) == gateData
}

// A client that can be sent to a URL is: one of the older era gets the server's
// error, and is told when the visit is over; one of the newer era, which does not
// know it, is asked, and its call goes on.
func TestURLsBeforeACall(t *testing.T) {
	everyClient(t, func(t *testing.T, over, version string) {
		w := newWorld(t, map[string]patchbay.LocalServer{"gate": &gate{}}, nil, nil)
		a := w.connect(t, over, version, "gate", ableToVisit)
		helper := w.connect(t, "stdio", wire.Version20251125, "gate", `{}`)
		asked := make(chan string, 1)
		a.mu.Lock()
		a.elicit = func(params json.RawMessage) string {
			asked <- string(params)
			return `{"action":"accept"}`
		}
		a.mu.Unlock()
		if version == wire.Version20251125 {
			if _, err := a.CallTool(t.Context(), "open", json.RawMessage(`{}`)); !needsVisit(err) {
				t.Fatalf("got %v", err)
			}
			a.call(t, "visited", `{}`)
			if got := a.await(t, "notifications/elicitation/complete"); got != `{"elicitationId":"g1"}` {
				t.Errorf("told %s", got)
			}
			if got := a.call(t, "open", `{}`); got != "open" {
				t.Errorf("got %s", got)
			}
			return
		}
		opened := make(chan error, 1)
		go func() {
			raw, err := a.CallTool(t.Context(), "open", json.RawMessage(`{}`))
			if err == nil && textOf(raw) != "open" {
				err = fmt.Errorf("answered %s", raw)
			}
			opened <- err
		}()
		if got := <-asked; !strings.Contains(got, `"url":"https://example.com/visit"`) {
			t.Errorf("asked %s", got)
		}
		helper.call(t, "visited", `{}`)
		if err := <-opened; err != nil {
			t.Error(err)
		}
	})
}

// For a client that cannot be sent anywhere the person at the gateway is, if
// there is one; else the client gets the error.
func TestURLsForOthers(t *testing.T) {
	everyClient(t, func(t *testing.T, over, version string) {
		w := newWorld(t, map[string]patchbay.LocalServer{"gate": &gate{}}, nil, nil)
		a := w.connect(t, over, version, "gate", able)
		_, err := a.CallTool(t.Context(), "open", json.RawMessage(`{}`))
		lacks, _ := errors.AsType[*wire.Error](err)
		if version == wire.Version20251125 && !needsVisit(err) || version == wire.Version20260728 && (lacks == nil || lacks.Code != wire.CodeMissingClientCapability) {
			t.Errorf("got %v", err)
		}
		asked := make(chan patchbay.ElicitRequest, 1)
		w = newWorld(t, map[string]patchbay.LocalServer{"gate": &gate{}}, nil, func(o *patchbay.Options) {
			o.UI = &patchbay.UI{Elicit: func(_ context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
				asked <- r
				return patchbay.ElicitResult{Action: patchbay.ElicitAccept}, nil
			}}
		})
		a = w.connect(t, over, version, "gate", able)
		helper := w.connect(t, "stdio", wire.Version20251125, "gate", `{}`)
		opened := make(chan error, 1)
		go func() {
			_, err := a.CallTool(t.Context(), "open", json.RawMessage(`{}`))
			opened <- err
		}()
		if r := <-asked; r.Host != "example.com" || r.ElicitationID != "g1" {
			t.Errorf("asked %+v", r)
		}
		helper.call(t, "visited", `{}`)
		if err := <-opened; err != nil {
			t.Error(err)
		}
	})
}

// A call that has to be asked about is asked about through the client.
func TestConsentOfAClient(t *testing.T) {
	everyClient(t, func(t *testing.T, over, version string) {
		w := newWorld(t, map[string]patchbay.LocalServer{"gate": &gate{open: true}}, nil, func(o *patchbay.Options) {
			o.Hooks = &patchbay.Hooks{BeforeCall: func(_ context.Context, c *patchbay.HookCall) error {
				c.Permission, c.Reason = patchbay.Ask, "it is a gate"
				return nil
			}}
		})
		a := w.connect(t, over, version, "gate", able)
		for _, decision := range []string{"allow once", "deny"} {
			a.mu.Lock()
			a.elicit = func(params json.RawMessage) string {
				message, _ := wire.StringMember(params, "message")
				if !strings.Contains(message, "open of the server gate") || !strings.Contains(message, "Why you are asked: it is a gate") {
					t.Errorf("asked %s", params)
				}
				return fmt.Sprintf(`{"action":"accept","content":{"decision":%q}}`, decision)
			}
			a.mu.Unlock()
			got := a.call(t, "open", `{}`)
			if decision == "allow once" && got != "open" || decision == "deny" && !strings.Contains(got, "was not permitted") {
				t.Errorf("%s: %q", decision, got)
			}
		}
		unable := w.connect(t, over, version, "gate", `{}`)
		if got := unable.call(t, "open", `{}`); !strings.Contains(got, "requires permission") {
			t.Errorf("nobody to ask: %q", got)
		}
	})
}

// answer is what became of a call.
type answer struct {
	text string
	err  error
}

// callAside makes a call beside others.
func (a *agent) callAside(t *testing.T, name, arguments string) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		raw, err := a.CallTool(t.Context(), name, json.RawMessage(arguments))
		done <- answer{textOf(raw), err}
	}()
	return done
}

// A server on stdio asks while two calls are under way, and nobody can tell which
// of them made it ask. An agent with a connection of its own is asked all the
// same, once, and both calls come to their end, even if the one in which it was
// asked was not the one.
func TestQuestionDuringTwoCalls(t *testing.T) {
	for _, early := range []bool{false, true} { // the other call ends before the answer
		for _, version := range []string{wire.Version20251125, wire.Version20260728} {
			t.Run(fmt.Sprintf("%s client, the other call ends early: %v", version, early), func(t *testing.T) {
				t.Parallel()
				u := newUpstream(t, "up", wire.Version20251125)
				w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, nil)
				a := w.connect(t, "stdio", version, "", able)
				asked, answers := make(chan struct{}), make(chan string)
				a.mu.Lock()
				a.elicit = func(json.RawMessage) string {
					asked <- struct{}{}
					return <-answers
				}
				a.mu.Unlock()
				other := a.callAside(t, "up__wait", `{}`)
				<-u.waiting
				asking := a.callAside(t, "up__elicit", `{"canary":"c"}`)
				<-asked
				if early {
					u.released <- struct{}{}
					a.call(t, "up__echo", `{}`) // by now the gateway has most likely heard
				}
				answers <- `{"action":"accept","content":{"name":"once"}}`
				if got := <-asking; got.err != nil || got.text != `{"action":"accept","content":{"name":"once"}}` {
					t.Errorf("the call that asks: %+v", got)
				}
				if !early {
					u.released <- struct{}{}
				}
				if got := <-other; got.err != nil || got.text != "released" {
					t.Errorf("the other call: %+v", got)
				}
				if st, err := w.host.Server("up"); err != nil || len(st.Problems) != 0 {
					t.Errorf("%+v, %v", st.Problems, err)
				}
			})
		}
	}
}

// journal is a log that can be read at any time.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Over HTTP an agent of revision 2026-07-28 has no session: what says the same of
// itself may be two programs. Where the settings say that it is, nobody is asked,
// and it is reported.
func TestQuestionDuringCallsOfSeveralPrograms(t *testing.T) {
	u := newUpstream(t, "up", wire.Version20251125)
	var log journal
	w := newWorld(t, map[string]patchbay.LocalServer{"up": u}, nil, func(o *patchbay.Options) {
		settings(t, o, `{"gateway":{"manyUsers":true}}`)
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	a, b := w.connect(t, "http", wire.Version20260728, "", able), w.connect(t, "http", wire.Version20260728, "", able)
	for _, c := range []*agent{a, b} {
		c.mu.Lock()
		c.elicit = func(params json.RawMessage) string {
			t.Errorf("asked %s", params)
			return `{"action":"accept"}`
		}
		c.mu.Unlock()
	}
	for range 2 { // each time
		other := a.callAside(t, "up__wait", `{}`)
		<-u.waiting
		if got := b.call(t, "up__elicit", `{"canary":"c"}`); got != `{"action":"cancel"}` {
			t.Errorf("got %s", got)
		}
		u.released <- struct{}{}
		if got := <-other; got.err != nil || got.text != "released" {
			t.Errorf("the other call: %+v", got)
		}
	}
	if n := strings.Count(log.String(), "2 calls of agent 1 were under way, which may be those of several programs"); n != 2 {
		t.Errorf("%d reports:\n%s", n, log.String())
	}
	b.mu.Lock()
	b.elicit = nil
	b.mu.Unlock()
	if got := b.call(t, "up__elicit", `{"canary":"c"}`); !strings.Contains(got, "who? c") {
		t.Errorf("alone: %s", got)
	}
}
