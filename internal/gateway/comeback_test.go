package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/gateway"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// sender is a server of revision 2025-11-25 whose tools send their client away,
// if it can go, and answer when it has come back.
type sender struct {
	server    *wire.Server
	back      chan struct{} // gets one whenever the client comes back
	goOn      chan struct{} // gets one for each call that may be answered; closed: all may
	cancelled chan error    // the causes of calls that were cancelled
}

func newSender(t *testing.T) *sender {
	s := &sender{back: make(chan struct{}, 100), goOn: make(chan struct{}, 100), cancelled: make(chan error, 100)}
	var err error
	s.server, err = wire.NewServer(wire.ServerOptions{
		Info:         json.RawMessage(`{"name":"sender","version":"1"}`),
		Capabilities: json.RawMessage(`{"tools":{}}`),
		Versions:     []string{wire.Version20251125},
		Handler:      s,
		ComeBack:     func(*wire.Session) bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithCancel(context.Background())
		stop()
		_ = s.server.Shutdown(ctx) // what is under way is cancelled
	})
	return s
}

// Serve makes it a patchbay.LocalServer.
func (s *sender) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return s.server.Serve(ctx, wire.NewStreamConn(rw, rw, nil))
}

// entry serves it over HTTP.
func (s *sender) entry(t *testing.T) config.Server {
	mcp := wire.NewHTTPHandler(s.server, wire.HTTPOptions{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-ID") != "" {
			s.back <- struct{}{}
		}
		mcp.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return config.Server{Type: config.HTTP, URL: srv.URL}
}

func (s *sender) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	if r.Method == "tools/list" {
		return json.RawMessage(`{"tools":[{"name":"slow","inputSchema":{"type":"object"}},{"name":"ask","inputSchema":{"type":"object"}}]}`), nil
	}
	sent := r.ComeBack(100 * time.Millisecond)
	if name, _ := wire.StringMember(r.Params, "name"); name == "ask" { // while the client is away
		answer, err := r.Ask(ctx, "elicitation/create", json.RawMessage(`{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`))
		return textResult(fmt.Sprintf("%v %s", sent, answer)), err
	}
	signals := []chan struct{}{s.back, s.goOn}
	if !sent {
		signals = signals[1:]
	}
	for _, signal := range signals {
		select {
		case <-signal:
		case <-ctx.Done():
			s.cancelled <- context.Cause(ctx)
			return nil, ctx.Err()
		}
	}
	return textResult(fmt.Sprintf("sent away: %v", sent)), nil
}

func (s *sender) HandleNotification(context.Context, *wire.Notification) {}

// browser sends what it is told to the gateway, and shows what comes.
type browser struct {
	t       *testing.T
	url     string
	session string
}

// browse serves an endpoint over HTTP.
func (w *world) browse(t *testing.T, version, endpoint string) *browser {
	t.Helper()
	srv := httptest.NewServer(w.gateway.HTTP(wire.HTTPOptions{}))
	t.Cleanup(srv.Close)
	return browse(t, version, strings.TrimSuffix(srv.URL+"/mcp/"+endpoint, "/"))
}

// browse opens a session if the revision has one.
func browse(t *testing.T, version, url string) *browser {
	t.Helper()
	b := &browser{t: t, url: url}
	if version != wire.Version20260728 {
		_, header := b.send(http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		b.session = header.Get("Mcp-Session-Id")
		b.send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return b
}

func (b *browser) send(method, body string, headers ...string) (string, http.Header) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if b.session != "" {
		req.Header.Set("Mcp-Session-Id", b.session)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(answer), resp.Header
}

func (b *browser) call(tool string, headers ...string) string {
	b.t.Helper()
	answer, _ := b.send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`, headers...)
	return answer
}

func (b *browser) callModern(tool string) string {
	b.t.Helper()
	answer, _ := b.send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{},"_meta":{"`+wire.MetaProtocolVersion+`":"2026-07-28","`+wire.MetaClientCapabilities+`":{}}}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
	return answer
}

const sentAway = "id: 1-0\ndata: \n\nretry: 100\n\n"

// A server that ends the stream of a call and has its client come back for the
// answer does so to the client of the gateway, if that can come back. Others have
// the answer when the gateway has it.
func TestServerSendsItsClientAway(t *testing.T) {
	for _, endpoint := range []string{"", "up"} {
		prefix := ""
		if endpoint == "" {
			prefix = "up__"
		}
		t.Run("endpoint "+endpoint, func(t *testing.T) {
			up := newSender(t)
			w := newWorld(t, nil, map[string]config.Server{"up": up.entry(t)}, nil)
			if err := w.host.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := w.browse(t, wire.Version20251125, endpoint)
			if got := b.call(prefix + "slow"); got != sentAway {
				t.Errorf("got %q", got)
			}
			up.goOn <- struct{}{}
			if got, _ := b.send(http.MethodGet, "", "Accept", "text/event-stream", "Last-Event-ID", "1-0"); !strings.Contains(got, "sent away: true") {
				t.Errorf("came back for %q", got)
			}
			close(up.goOn)
			for who, got := range map[string]string{
				"an older revision": w.browse(t, wire.Version20250618, endpoint).call(prefix + "slow"),
				"the next revision": w.browse(t, wire.Version20260728, endpoint).callModern(prefix + "slow"),
				"only JSON":         b.call(prefix+"slow", "Accept", "application/json"),
				"stdio":             w.connect(t, "stdio", wire.Version20251125, endpoint, `{}`).call(t, prefix+"slow", `{}`),
			} {
				if !strings.Contains(got, "sent away: true") || strings.Contains(got, "retry") {
					t.Errorf("%s: got %q", who, got)
				}
			}
			for _, version := range []string{wire.Version20251125, wire.Version20260728} {
				if got := w.connect(t, "http", version, endpoint, able).call(t, prefix+"ask", `{}`); !strings.HasPrefix(got, "true {") || !strings.Contains(got, "who?") {
					t.Errorf("%s: asked while away, got %q", version, got)
				}
			}
		})
	}
}

// Over stdio there is nothing to come back to, so nobody is sent away.
func TestStdioServerSendsNobodyAway(t *testing.T) {
	up := newSender(t)
	close(up.goOn)
	w := newWorld(t, map[string]patchbay.LocalServer{"up": up}, nil, nil)
	if err := w.host.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.browse(t, wire.Version20251125, "up").call("slow"); !strings.Contains(got, "sent away: false") || strings.Contains(got, "retry") {
		t.Errorf("got %q", got)
	}
}

// A client that was sent away can cancel its call.
func TestClientSentAwayCancels(t *testing.T) {
	up := newSender(t)
	w := newWorld(t, nil, map[string]config.Server{"up": up.entry(t)}, nil)
	if err := w.host.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := w.browse(t, wire.Version20251125, "up")
	if got := b.call("slow"); got != sentAway {
		t.Errorf("got %q", got)
	}
	b.send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	select {
	case <-up.cancelled:
	case <-time.After(20 * time.Second):
		t.Error("the server was not told")
	}
}

// A gateway that is asked to end waits for the clients that were sent away.
func TestSiteAwaitsClientSentAway(t *testing.T) {
	up := newSender(t)
	w := newWorld(t, nil, map[string]config.Server{"up": up.entry(t)}, nil)
	if err := w.host.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := gateway.Listen(t.Context(), gateway.ListenOptions{Address: "127.0.0.1:0", NoAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- (&gateway.Site{Gateway: w.gateway}).Serve(ctx, l) }()
	b := browse(t, wire.Version20251125, l.URL+"/mcp/up")
	if got := b.call("slow"); got != sentAway {
		t.Errorf("got %q", got)
	}
	stop()
	for got := ""; !strings.Contains(got, "shutting down"); {
		got, _ = b.send(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	}
	up.goOn <- struct{}{}
	if got, _ := b.send(http.MethodGet, "", "Accept", "text/event-stream", "Last-Event-ID", "1-0"); !strings.Contains(got, "sent away: true") {
		t.Errorf("came back for %q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
