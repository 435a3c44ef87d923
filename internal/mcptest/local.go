package mcptest

import (
	"context"
	"encoding/json"
	"io"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// ServeLocal serves what a handler answers, tools at the least, on one connection
// within this process, in these revisions of the protocol or all. It is what
// servers of a test do that a host is to have as its own.
func ServeLocal(ctx context.Context, rw io.ReadWriteCloser, h wire.Handler, versions ...string) error {
	s, err := wire.NewServer(wire.ServerOptions{
		Info: json.RawMessage(`{"name":"local","version":"1"}`), Capabilities: json.RawMessage(`{"tools":{}}`), Handler: h, Versions: versions,
	})
	if err != nil {
		return err
	}
	return s.Serve(ctx, wire.NewStreamConn(rw, rw, nil))
}
