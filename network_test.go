package patchbay_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// elsewhere is a server that this machine can only reach through a proxy.
const elsewhere = "http://mcp.example.test/mcp"

// named makes the names the only ones that can be resolved. Each has one
// address of each family, of which either may be nil.
func named(t *testing.T, names map[string][2]net.IP) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := socket.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := answerDNS(buf[:n], names); answer != nil {
				_, _ = socket.WriteTo(answer, from) // the resolver may be gone
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: dialer(socket.LocalAddr())}
	t.Cleanup(func() {
		net.DefaultResolver = before
		socket.Close()
		<-done
	})
}

// dialer returns what connects to an address, whatever it is asked for.
func dialer(to net.Addr) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, to.Network(), to.String())
	}
}

func answerDNS(question []byte, names map[string][2]net.IP) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	addresses, known := names[strings.TrimSuffix(q.Name.String(), ".")]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60}
	switch {
	case q.Type == dnsmessage.TypeA && addresses[0] != nil:
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte(addresses[0].To4())}}}
	case q.Type == dnsmessage.TypeAAAA && addresses[1] != nil:
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: [16]byte(addresses[1].To16())}}}
	}
	answer, _ := m.Pack()
	return answer
}

// Row 29: a name that nobody knows is told as such.
func TestUnknownName(t *testing.T) {
	leavesNothing(t)
	named(t, nil)
	h := withServers(t, map[string]config.Server{"web": {Type: config.HTTP, URL: elsewhere}}, nil)
	e := asError(t, h.Connect(t.Context(), "web"))
	if e.Kind != patchbay.KindTransport || !strings.Contains(e.Message, "mcp.example.test: name not found") {
		t.Errorf("%#v", e)
	}
}

// greeter is the least a server may say.
var greeter = rpcServer(func(string) string {
	return `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"web","version":"1"}}`
})

// What a command printed and a server refused is obtained anew by a reload, with
// which the server is tried again.
func TestReloadRunsCommandsAgain(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("the command is for a shell")
		return
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		greeter.ServeHTTP(w, r)
	}))
	defer web.Close()
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bad")
	h := withServers(t, map[string]config.Server{"web": {
		Type: config.HTTP, URL: web.URL, Auth: &config.Auth{Mode: config.AuthAPIKey, Key: config.NewSecret("!cat '" + token + "'"), ValuePrefix: "Bearer "},
	}}, nil)
	state := func() (config.State, patchbay.Kind) {
		t.Helper()
		if err := h.Wait(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		st, err := h.Server("web")
		if err != nil {
			t.Fatal(err)
		}
		return st.State, st.Kind
	}
	if got, kind := state(); got != config.NeedsAuth || kind != patchbay.KindAuthUnavailable {
		t.Fatal(got, kind)
	}
	write("good")
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, kind := state(); got != config.Connected || kind != "" {
		t.Error(got, kind)
	}
}

// Proxies are those of the environment the host was opened with, and of nothing
// else: not of this process, and least of all of a project.
func TestProxies(t *testing.T) {
	named(t, nil)
	var requests atomic.Int32
	var seen atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		seen.Store(r.URL.String() + " " + r.Header.Get("Proxy-Authorization"))
		greeter.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	address := "http://user:hunter2@" + strings.TrimPrefix(proxy.URL, "http://")
	for _, name := range []string{"HTTP_PROXY", "http_proxy"} {
		h := withServers(t, map[string]config.Server{"web": {Type: config.HTTP, URL: elsewhere}}, func(o *patchbay.Options) {
			o.Environ = []string{name + "=" + address}
		})
		if err := h.Connect(t.Context(), "web"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := seen.Load(); got != elsewhere+" Basic dXNlcjpodW50ZXIy" {
			t.Errorf("%s: the proxy got %q", name, got)
		}
	}

	requests.Store(0)
	t.Setenv("HTTP_PROXY", address)
	t.Setenv("http_proxy", address)
	direct := map[string]func(*computer){
		"of this process": func(*computer) {},
		"excepted":        func(c *computer) { c.opts.Environ = []string{"HTTP_PROXY=" + address, "NO_PROXY=.example.test"} },
		"of a project": func(c *computer) {
			c.write(filepath.Join(c.project, ".env"), "HTTP_PROXY="+address+"\n")
		},
	}
	for name, prepare := range direct {
		c := newComputer(t)
		prepare(c)
		c.write(filepath.Join(c.project, ".patchbay", "mcp.json"),
			fmt.Sprintf(`{"mcpServers": {"web": {"type": "http", "url": %q, "env": {"HTTP_PROXY": %q}}}}`, elsewhere, address))
		h := c.open()
		asked, err := h.Approval("web")
		if err == nil {
			_, err = h.Approve(t.Context(), "web", asked.Hash)
		}
		if err != nil {
			t.Fatal(err)
		}
		if e := asError(t, h.Connect(t.Context(), "web")); !strings.Contains(e.Message, "name not found") || requests.Load() != 0 {
			t.Errorf("%s: %v, after %d requests to the proxy", name, e, requests.Load())
		}
	}
}

// Row 29: a proxy that does not let us pass is named, and what it was given is
// not.
func TestProxyRefuses(t *testing.T) {
	leavesNothing(t)
	named(t, nil)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "who is hunter2?", http.StatusProxyAuthRequired)
	}))
	t.Cleanup(proxy.Close)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	at := strings.TrimPrefix(proxy.URL, "http://")
	tests := map[string]struct{ url, proxy, want string }{
		"http":     {elsewhere, "http://user:hunter2@" + at, "proxy " + at + " answered 407 Proxy Authentication Required"},
		"https":    {"https://mcp.example.test/mcp", "http://user:hunter2@" + at, "proxy " + at + " answered 407 Proxy Authentication Required"},
		"gone":     {elsewhere, "http://user:hunter2@" + gone.Addr().String(), "dial tcp " + gone.Addr().String()},
		"no url":   {elsewhere, "http://user:hunter2@proxy.example.test:port", "the address of the proxy for http is malformed"},
		"no proxy": {elsewhere, "gopher://user:hunter2@" + at, `proxy ` + at + ` is of an unknown kind: "gopher"`},
	}
	for name, tt := range tests {
		h := withServers(t, map[string]config.Server{"web": {Type: config.HTTP, URL: tt.url}}, func(o *patchbay.Options) {
			o.Environ = []string{"HTTP_PROXY=" + tt.proxy, "HTTPS_PROXY=" + tt.proxy}
		})
		e := asError(t, h.Connect(t.Context(), "web"))
		if e.Kind != patchbay.KindTransport || !strings.Contains(e.Message, "mcp.example.test: not reached through the proxy: ") || !strings.Contains(e.Message, tt.want) {
			t.Errorf("%s: %v", name, e)
		}
		if e.Hint != "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the environment." || strings.Contains(fmt.Sprintf("%#v %+v", e, h.Servers()[0]), "hunter2") {
			t.Errorf("%s: %#v", name, e)
		}
	}
}

// What goes through a proxy to an https server is a matter between the two ends:
// the certificate is the server's, and so is what is wrong with it.
func TestProxyTunnel(t *testing.T) {
	leavesNothing(t)
	named(t, nil)
	web := httptest.NewUnstartedServer(greeter)
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshake fails
	web.StartTLS()
	t.Cleanup(web.Close)
	var asked atomic.Value
	var tunnels sync.WaitGroup
	t.Cleanup(tunnels.Wait)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnels.Add(1)
		defer tunnels.Done()
		asked.Store(r.Method + " " + r.Host)
		far, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer far.Close()
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer near.Close()
		_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n") // if the client is gone, so is what follows
		carry := func(to, from net.Conn) {                     // without splice, which keeps pipes
			_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
			to.Close()
		}
		tunnels.Go(func() { carry(far, near) })
		carry(near, far)
	}))
	t.Cleanup(proxy.Close)
	h := withServers(t, map[string]config.Server{"web": {Type: config.HTTP, URL: "https://mcp.example.test/mcp"}}, func(o *patchbay.Options) {
		o.Environ = []string{"https_proxy=" + proxy.URL}
	})
	e := asError(t, h.Connect(t.Context(), "web"))
	if asked.Load() != "CONNECT mcp.example.test:443" || !strings.Contains(e.Message, "mcp.example.test: certificate") {
		t.Errorf("asked for %v: %v", asked.Load(), e)
	}
}
