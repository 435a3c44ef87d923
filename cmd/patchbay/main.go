// Command patchbay is a patch bay for agents' tools: every MCP server plugs in
// on one side, every agent on the other.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return cli.Main(ctx, cli.Process())
}
