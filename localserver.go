package patchbay

import (
	"context"
	"io"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// LocalServer is an MCP server of the embedding program. Serve speaks newline
// JSON-RPC on rw until that or ctx ends, and returns soon after: Close waits for
// it, but not for more than five seconds. It is called anew for every
// connection.
type LocalServer interface {
	Serve(ctx context.Context, rw io.ReadWriteCloser) error
}

// FromSDK makes a server of the official Go SDK a LocalServer. A handler of the
// server that panics fails its own request and nothing else.
func FromSDK(s *mcp.Server) LocalServer {
	local := &sdkServer{server: s}
	s.AddReceivingMiddleware(local.recoverPanics)
	return local
}

type sdkServer struct {
	server *mcp.Server
	log    atomic.Pointer[slog.Logger] // of the host that has it; nil before that
}

func (s *sdkServer) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return wire.ServeSDK(ctx, s.server, wire.NewStreamConn(rw, rw, nil))
}

// recoverPanics is middleware: handlers run on goroutines of the SDK, where
// nobody else could.
func (s *sdkServer) recoverPanics(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				if log := s.log.Load(); log != nil {
					log.Error("panic in a local server", "method", method, "panic", v, "stack", string(debug.Stack()))
				}
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the handler panicked"}
			}
		}()
		return next(ctx, method, r)
	}
}
