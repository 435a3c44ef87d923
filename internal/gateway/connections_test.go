package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// accepting is connections that a test dials and uses.
type accepting struct {
	*connections
	t *testing.T
}

func newAccepting(t *testing.T, most, strangers int) accepting {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := accepting{newConnections(inner, most, strangers), t}
	t.Cleanup(func() { a.Close() })
	return a
}

// dial opens a connection and returns its two ends.
func (a accepting) dial() (client net.Conn, c *connection) {
	a.t.Helper()
	client, err := net.Dial("tcp", a.Addr().String())
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { client.Close() })
	accepted, err := a.Accept()
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { accepted.Close() })
	return client, accepted.(*connection)
}

func isOpen(c *connection) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	_, open := c.of.all[c]
	return open
}

// At the limit the connection goes that can best be spared.
func TestConnectionLimit(t *testing.T) {
	a := newAccepting(t, 3, 9)
	_, busy := a.dial()
	busy.known.Store(true)
	busy.enter()
	_, idle := a.dial()
	idle.known.Store(true)
	_, stranger := a.dial()
	stranger.enter() // which does not help

	client, second := a.dial() // in place of the stranger
	if isOpen(stranger) || !isOpen(busy) || !isOpen(idle) {
		t.Error("the stranger's connection was not the first to go")
	}
	second.known.Store(true)
	second.enter()
	second.leave()
	client.Close()
	_, third := a.dial() // in place of the one that is idle for the longest time
	if isOpen(idle) || !isOpen(second) {
		t.Error("the longest idle connection was not the next to go")
	}
	third.known.Store(true)
	third.enter()
	second.enter()

	waits, err := net.Dial("tcp", a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Close()
	accepted := make(chan error, 1)
	accept := func() {
		_, err := a.Accept()
		accepted <- err
	}
	go accept()
	for !a.waiting.Load() {
		select {
		case err := <-accepted:
			t.Fatalf("accepted one too many: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	third.leave() // the moment it is idle it makes room
	if err := <-accepted; err != nil || isOpen(third) {
		t.Errorf("%v", err)
	}
	go accept()
	a.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the one who waits gets %v", err)
	}
}

// An address of another machine has only so many connections of strangers.
func TestStrangersOfOneAddress(t *testing.T) {
	a := newAccepting(t, 100, 2)
	from := netip.MustParseAddr("192.0.2.1")
	conns := make([]*connection, 3)
	for i := range conns {
		conns[i] = &connection{Conn: &net.TCPConn{}, of: a.connections, from: from}
		conns[i].used.Store(int64(i))
		conns[i].known.Store(i == 0)
		a.all[conns[i]] = struct{}{}
	}
	next := &connection{Conn: &net.TCPConn{}, of: a.connections, from: from}
	if !a.add(next) || !isOpen(conns[0]) || isOpen(conns[1]) || !isOpen(conns[2]) {
		t.Error("the oldest of the strangers did not make room")
	}
	other := &connection{Conn: &net.TCPConn{}, of: a.connections, from: netip.MustParseAddr("192.0.2.2")}
	if !a.add(other) || !isOpen(conns[2]) || !isOpen(next) {
		t.Error("another address took the room of the first")
	}
	for _, tt := range []struct{ addr, want string }{
		{"127.0.0.1", "invalid IP"}, {"::1", "invalid IP"}, {"::ffff:192.0.2.1", "192.0.2.1"}, {"2001:db8::1:2:3:4", "2001:db8::"},
	} {
		if got := origin(netip.MustParseAddr(tt.addr)).String(); got != tt.want {
			t.Errorf("origin of %s: got %s, want %s", tt.addr, got, tt.want)
		}
	}
}

// Strangers who hold every connection there may be keep nobody out, and who is
// refused is let go.
func TestStrangersKeepNobodyOut(t *testing.T) {
	t.Parallel() // it waits
	site := newAuthSite(t)
	hold := func(text string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", site.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, text)
		return c
	}
	call := func() *http.Request {
		r, _ := http.NewRequest(http.MethodPost, site.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + site.token}}
		return r
	}
	fresh := &http.Transport{DisableKeepAlives: true}
	for i := range 3 * site.most {
		hold([]string{"", "POST /mcp HTTP/1.1\r\nHost: localhost\r\n", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"}[i%3])
		if i%16 != 0 {
			continue
		}
		resp, err := (&http.Client{Timeout: time.Second, Transport: fresh}).Do(call())
		if err != nil {
			t.Fatalf("with %d connections of strangers: %v", i, err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("with %d connections of strangers: %s", i, resp.Status)
		}
	}

	for _, tt := range []struct {
		name, request string
		status        int
	}{
		{"no token", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 401},
		{"no token, by GET", "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", 401},
		{"another origin", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 403},
		{"another host", "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 421},
		{"nothing there", "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
	} {
		c := hold(tt.request)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if _, err := in.ReadByte(); resp.StatusCode != tt.status || !resp.Close || err != io.EOF {
			t.Errorf("%s: %s, Connection: close is %v, then %v", tt.name, resp.Status, resp.Close, err)
		}
	}
}

// authSite is a site with a token and few connections.
type authSite struct {
	listener   net.Listener
	url, token string
	most       int
}

func newAuthSite(t *testing.T) authSite {
	t.Helper()
	home := t.TempDir()
	h, err := patchbay.Open(t.Context(), patchbay.Options{Dir: home, Home: home, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := authSite{url: "http://" + inner.Addr().String(), token: "pbgw_right", most: 64}
	s.listener = newConnections(wire.NewListener(inner), s.most, maxStrangers)
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		served <- (&Site{Gateway: New(h, Options{}), Auth: NewAuth(AuthOptions{Token: fixedToken(s.token), URL: s.url})}).Serve(ctx, s.listener)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}
