package conn

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// modern is a handler whose list grows with each change.
type modern struct{ tools atomic.Int64 }

func (h *modern) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/list":
		return fmt.Appendf(nil, `{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}]}`, h.tools.Load()), nil
	case "tools/call":
		return json.RawMessage(`{"content":[]}`), nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (h *modern) HandleNotification(context.Context, *wire.Notification) {}

// A server of the modern era is connected without a handshake, and its changes
// are heard on the stream that was asked for.
func TestModernServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &modern{}
		server, err := wire.NewServer(wire.ServerOptions{
			Info:         json.RawMessage(`{"name":"modern","version":"1"}`),
			Capabilities: json.RawMessage(`{"tools":{"listChanged":true}}`),
			Handler:      h,
		})
		if err != nil {
			t.Fatal(err)
		}
		m := newManager(t, Options{})
		s := one(t, m, Target{Local: func(ctx context.Context, rw io.ReadWriteCloser) error {
			return server.Serve(ctx, wire.NewStreamConn(rw, rw, nil))
		}})
		mustWait(t, s)
		if st := wantState(t, s, config.Connected, ""); st.Opening.Era != wire.Modern {
			t.Errorf("%+v", st.Opening)
		}
		mustCall(t, s)
		synctest.Wait()
		h.tools.Store(7)
		for session := range server.Sessions() {
			if err := session.Notify(t.Context(), toolsChanged, nil); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if c := s.Catalog(); c.tool("t7") == nil {
			t.Errorf("tools %s", c.Tools)
		}
	})
}
