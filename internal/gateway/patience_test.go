package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/gateway"
	"github.com/patchbay-mcp/patchbay/internal/lane"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// snail is an in-process server whose tool takes its time, and never hears that
// it was cancelled.
type snail struct {
	takes   time.Duration
	started chan struct{} // has room for all
}

func (s *snail) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	p := wire.NewPeer(wire.NewStreamConn(rw, rw, nil), s, &wire.PeerOptions{MaxHandlers: 1000})
	defer p.Close()
	select {
	case <-ctx.Done():
	case <-p.Done():
	}
	return nil
}

func (s *snail) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		return json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"snail","version":"1"}}`), nil
	case "tools/list":
		return json.RawMessage(`{"tools":[{"name":"crawl","inputSchema":{"type":"object"}}]}`), nil
	case "tools/call":
		s.started <- struct{}{}
		time.Sleep(s.takes)
		return json.RawMessage(`{"content":[]}`), nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (*snail) HandleNotification(context.Context, *wire.Notification) {}

// bubble is a gateway over HTTP, with its lane, without sockets: so that it works
// with the time of synctest.
func bubble(t *testing.T, o patchbay.Options, server patchbay.LocalServer) *http.Client {
	t.Helper()
	o.InProcess = map[string]patchbay.LocalServer{"snail": server}
	h, err := patchbay.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), "snail"); err != nil {
		t.Fatal(err)
	}
	g := gateway.New(h, gateway.Options{Version: "test"})
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	web := lane.New(wire.NewHTTPServer(context.Background(), g.HTTP(wire.HTTPOptions{})))
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(l) })
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		l.conns <- far
		return near, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = g.Shutdown(ctx)
		web.Close()
		serving.Wait()
		h.Close()
	})
	return &http.Client{Transport: transport}
}

type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

const takesBoth = "application/json, text/event-stream"

// postCall sends the call of a client of a version; session is that of a legacy
// one, client the name of a modern one.
func postCall(ctx context.Context, c *http.Client, endpoint, version, session, client, accept string, id int) (*http.Response, error) {
	meta, tool := "", "crawl"
	if endpoint == "/mcp" {
		tool = "mcp__snail__crawl"
	}
	if version == wire.Version20260728 {
		meta = fmt.Sprintf(`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":%q,"version":"1"}}`, client)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q%s}}`, id, tool, meta)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+endpoint, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {accept}, "Mcp-Protocol-Version": {version}}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	} else {
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", tool)
	}
	return c.Do(r)
}

// openSession opens the session of a legacy client.
func openSession(t *testing.T, c *http.Client, endpoint, version string) string {
	t.Helper()
	if version == wire.Version20260728 {
		return ""
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, version)
	r, _ := http.NewRequest(http.MethodPost, "http://localhost"+endpoint, strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {takesBoth}}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Header.Get("Mcp-Session-Id")
}

// A call of which nothing is heard for 15 seconds gets a stream, and a comment on
// it every 15 seconds, if its client takes streams. Nothing else ends its wait.
func TestSlowCallShowsLife(t *testing.T) {
	const takes = 40*time.Minute + 5*time.Second
	for _, version := range []string{wire.Version20250618, wire.Version20251125, wire.Version20260728} {
		for _, endpoint := range []string{"/mcp", "/mcp/snail"} {
			for _, accept := range []string{takesBoth, "application/json"} {
				name := version + " " + endpoint + " " + accept
				o := patchbay.Options{Home: t.TempDir(), Dir: t.TempDir(), Environ: []string{}, Lazy: true}
				synctest.Test(t, func(t *testing.T) {
					c := bubble(t, o, &snail{takes: takes, started: make(chan struct{}, 1)})
					session := openSession(t, c, endpoint, version)
					start := time.Now()
					resp, err := postCall(t.Context(), c, endpoint, version, session, "c", accept, 1)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					streams := accept == takesBoth
					if took := time.Since(start); streams != (took == 15*time.Second) || !streams && took != takes || resp.StatusCode != http.StatusOK {
						t.Fatalf("%s: status %d after %v", name, resp.StatusCode, took)
					}
					comments, answer := 0, ""
					for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
						switch line := lines.Text(); {
						case line == ":":
							comments++
						case strings.Contains(line, `"result"`):
							answer = line
						}
					}
					if took := time.Since(start); !strings.Contains(answer, `"content":[]`) || took != takes {
						t.Errorf("%s: %q after %v", name, answer, took)
					}
					if want := 40 * 4; streams && (comments > want || comments < want-1) || !streams && comments > 0 { // a first event stands for the first comment
						t.Errorf("%s: %d comments", name, comments)
					}
				})
			}
		}
	}
}

// Where calls have to wait, sessions take turns: one that sends hundreds delays the
// call of another by one turn.
func TestSessionsTakeTurns(t *testing.T) {
	const takes = 10 * time.Second
	o := patchbay.Options{Home: t.TempDir(), Dir: t.TempDir(), Environ: []string{}, Lazy: true}
	synctest.Test(t, func(t *testing.T) {
		c := bubble(t, o, &snail{takes: takes, started: make(chan struct{}, 1000)})
		call := func(client string, id int) int {
			resp, err := postCall(t.Context(), c, "/mcp", wire.Version20260728, "", client, takesBoth, id)
			if err != nil {
				t.Error(err)
				return 0
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		var flood sync.WaitGroup
		defer flood.Wait()
		for i := range 320 { // as many as run and wait
			flood.Go(func() { call("busy", i+1) })
		}
		synctest.Wait()
		start := time.Now()
		var calls sync.WaitGroup
		for i := range 3 {
			calls.Go(func() {
				status := call("other", i+1)
				if took := time.Since(start); status != http.StatusOK || took > 2*takes {
					t.Errorf("call %d: status %d after %v", i+1, status, took)
				}
			})
		}
		calls.Wait()
	})
}
