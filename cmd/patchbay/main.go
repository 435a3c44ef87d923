// Command patchbay is a patch bay for agents' tools: every MCP server plugs in
// on one side, every agent on the other.
package main

import (
	"context"
	"os"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

func main() {
	harden()
	os.Exit(run())
}

func run() int {
	ctx, stop := cli.Signals(context.Background())
	defer stop()
	return cli.Main(ctx, cli.Process())
}
