package conn

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// What the road to a server costs beyond the wire: the same call through Server
// and directly on its client.
func BenchmarkCall(b *testing.B) {
	server, err := wire.NewServer(wire.ServerOptions{Info: json.RawMessage(`{"name":"s","version":"1"}`), Handler: &modern{}})
	if err != nil {
		b.Fatal(err)
	}
	m := NewManager(Options{})
	defer m.Close()
	m.Apply(map[string]Target{"srv": {Local: func(ctx context.Context, rw io.ReadWriteCloser) error {
		return server.Serve(ctx, wire.NewStreamConn(rw, rw, nil))
	}}})
	s, _ := m.Server("srv", Profile{})
	client, err := s.Client(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	c := wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"t","arguments":{"text":"hello"}}`)}
	for name, call := range map[string]func(context.Context, wire.Call) (json.RawMessage, error){"server": s.Call, "client": client.Call} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := call(b.Context(), c); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
