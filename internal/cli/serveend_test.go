//go:build unix

package cli_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// holding starts a gateway with a call in flight that its server holds until
// told otherwise, and returns what that tells and what will be answered.
func holding(t *testing.T, flags ...string) (g *gatewayProcess, server net.Conn, told *bufio.Scanner, answered chan string) {
	t.Helper()
	home, project := machine(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	configure(t, home, mcptestEntry(append(flags, "-tell", l.Addr().String())...))
	g = startGateway(t, home, project)
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if err := server.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answered = make(chan string, 1)
	go func() {
		req, err := http.NewRequest(http.MethodPost, g.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + g.token},
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"s__slow"}}
		resp, err := g.client.Do(req)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		answered <- fmt.Sprint(string(body), err)
	}()
	told = bufio.NewScanner(server)
	if !told.Scan() || told.Text() != "began" {
		t.Fatalf("the server told %q, %v", told.Text(), told.Err())
	}
	return g, server, told, answered
}

// awaitDrain returns when the gateway takes no more requests.
func (g *gatewayProcess) awaitDrain() {
	g.t.Helper()
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for {
		resp, answer := g.request(http.MethodPost, "/mcp", list, "Authorization", "Bearer "+g.token, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
		switch resp.StatusCode {
		case http.StatusServiceUnavailable:
			return
		case http.StatusOK:
		default:
			g.t.Fatalf("status %d: %s", resp.StatusCode, answer)
		}
	}
}

// gone waits for the end of a server's process.
func gone(t *testing.T, told *bufio.Scanner) {
	t.Helper()
	for told.Scan() {
	}
	if err := told.Err(); err != nil && !strings.Contains(err.Error(), "reset by peer") {
		t.Errorf("the server lives: %v", err)
	}
}

// A gateway that is asked to end takes no more requests and lets the call in
// flight finish.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	g, server, told, answered := holding(t)
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	g.awaitDrain()
	select {
	case a := <-answered:
		t.Fatalf("answered %s", a)
	default:
	}
	if _, err := server.Write([]byte("go")); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; !strings.Contains(a, "released") {
		t.Errorf("answered %s", a)
	}
	if _, code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gone(t, told)
}

// A second signal ends it at once, and a killed one leaves no server behind.
func TestServeEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, signals := range [][]os.Signal{{syscall.SIGTERM, os.Interrupt}, {syscall.SIGKILL}} {
		g, _, told, answered := holding(t, "-linger")
		for _, sig := range signals {
			if err := g.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGTERM {
				g.awaitDrain()
			}
		}
		<-answered
		if _, code := g.wait(); code == 0 || len(signals) == 2 && code != 130 {
			t.Errorf("%v: exit code %d", signals, code)
		}
		gone(t, told)
	}
}
