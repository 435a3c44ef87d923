package patchbay

import (
	"context"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// LocalServer is an MCP server of the embedding program. Serve speaks newline
// JSON-RPC on rw until it ends or ctx does; it is called anew for every
// connection.
type LocalServer interface {
	Serve(ctx context.Context, rw io.ReadWriteCloser) error
}

// FromSDK makes a server of the official Go SDK a LocalServer.
func FromSDK(s *mcp.Server) LocalServer { return sdkServer{s} }

type sdkServer struct{ server *mcp.Server }

func (s sdkServer) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return wire.ServeSDK(ctx, s.server, wire.NewStreamConn(rw, rw, nil))
}
