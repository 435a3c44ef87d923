package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		if _, err := a.CallTool(t.Context(), "open", json.RawMessage(`{}`)); !needsVisit(err) {
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
