package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/gateway"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// What a call costs the gateway in memory, from the socket of its client to the
// pipe of its server and back, with records of it being kept. The server is
// another process, and this client allocates nothing.
func TestCallCost(t *testing.T) {
	w := newWorld(t, nil, map[string]config.Server{"files": scripted(t)}, func(o *patchbay.Options) { o.Observe = func(patchbay.CallRecord) {} })
	if err := w.host.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := gateway.Listen(t.Context(), gateway.ListenOptions{Address: "127.0.0.1:0", NoAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- (&gateway.Site{Gateway: w.gateway}).Serve(ctx, l) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	const most = 28
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		t.Run(version, func(t *testing.T) {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			answer := make([]byte, 64<<10)
			ask := func(request []byte) []byte {
				if _, err := conn.Write(request); err != nil {
					t.Fatal(err)
				}
				return readAnswer(t, conn, answer)
			}
			call := callRequest(version, "")
			if version == wire.Version20251125 {
				opened := ask(post(version, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
				_, rest, _ := bytes.Cut(opened, []byte("Mcp-Session-Id: "))
				session, _, _ := bytes.Cut(rest, []byte("\r\n"))
				call = callRequest(version, string(session))
			}
			n := mcptest.Allocations(200, func() {
				if got := ask(call); !bytes.Contains(got, []byte("what is sent comes back")) {
					t.Fatalf("%s", got)
				}
			})
			if n > most {
				t.Errorf("a call allocates %v times, want at most %v", n, most)
			}
		})
	}
}

// callRequest is a tools/call as bytes.
func callRequest(version, session string) []byte {
	params := `{"name":"files__echo","arguments":{"text":"what is sent comes back"}`
	headers := []string{"Mcp-Session-Id: " + session}
	if version == wire.Version20260728 {
		params += fmt.Sprintf(`,"_meta":{%q:%q,%q:{},%q:{"name":"c","version":"1"}}`, wire.MetaProtocolVersion, version, wire.MetaClientCapabilities, wire.MetaClientInfo)
		headers = []string{"Mcp-Method: tools/call", "Mcp-Name: files__echo"}
	}
	return post(version, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}}`, headers...)
}

// post is a request as bytes.
func post(version, body string, headers ...string) []byte {
	head := append([]string{
		"POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Accept: application/json, text/event-stream",
		"Mcp-Protocol-Version: " + version, fmt.Sprintf("Content-Length: %d", len(body)),
	}, headers...)
	return []byte(strings.Join(head, "\r\n") + "\r\n\r\n" + body)
}

// readAnswer reads a response of known length into a buffer.
func readAnswer(t *testing.T, from io.Reader, into []byte) []byte {
	for n, end := 0, -1; ; {
		k, err := from.Read(into[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
		if end < 0 {
			if head := bytes.Index(into[:n], []byte("\r\n\r\n")); head >= 0 {
				const name = "Content-Length: "
				at := bytes.Index(into[:head], []byte(name))
				if at < 0 {
					t.Fatalf("no length: %s", into[:n])
				}
				length := 0
				for _, digit := range into[at+len(name) : head] {
					if digit < '0' || digit > '9' {
						break
					}
					length = 10*length + int(digit-'0')
				}
				end = head + 4 + length
			}
		}
		if end >= 0 && n >= end {
			return into[:end]
		}
	}
}
