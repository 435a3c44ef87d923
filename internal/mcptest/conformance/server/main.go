// Command server is what the official conformance suite tests: a server on
// internal/wire, in both eras on one URL, that offers the tools, resources and
// prompts the suite asks for and the tasks extension. The names and texts in it
// are the suite's, not ours.
//
// It prints its URL and serves until it is interrupted; with the argument stdio,
// in place of http, it serves one client over its standard streams. Further
// arguments are the revisions it speaks, if not all.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	serve := serveHTTP
	if len(os.Args) > 1 && os.Args[1] == "stdio" {
		serve = serveStdio
	}
	var versions []string // all
	if len(os.Args) > 2 {
		versions = os.Args[2:]
	}
	if err := run(ctx, serve, versions); err != nil {
		fmt.Fprintln(os.Stderr, "conformance server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, serve func(context.Context, *wire.Server) error, versions []string) error {
	fixture := newFixture()
	server, err := wire.NewServer(wire.ServerOptions{
		Info: json.RawMessage(`{"name":"patchbay-conformance","version":"1.0.0"}`),
		Capabilities: json.RawMessage(`{
			"tools":{"listChanged":true},
			"prompts":{"listChanged":true},
			"resources":{"subscribe":true,"listChanged":true},
			"completions":{},
			"logging":{},
			"extensions":{"io.modelcontextprotocol/tasks":{}}
		}`),
		Versions:     versions,
		Handler:      fixture,
		ParamHeaders: fixture.paramHeaders,
		ComeBack:     func(*wire.Session) bool { return true },
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	fixture.start(ctx, server)
	return serve(ctx, server)
}

func serveStdio(ctx context.Context, server *wire.Server) error {
	return server.Serve(ctx, wire.NewStreamConn(os.Stdin, os.Stdout, nil))
}

func serveHTTP(ctx context.Context, server *wire.Server) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", wire.NewHTTPHandler(server, wire.HTTPOptions{}))
	web := wire.NewHTTPServer(context.WithoutCancel(ctx), mux)
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	fmt.Printf("http://%s/mcp\n", listener.Addr())

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(patience), web.Shutdown(patience))
}
