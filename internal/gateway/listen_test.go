package gateway

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func TestListen(t *testing.T) {
	cert := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(cert, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		opts ListenOptions
		url  string // empty: refused
		kind patchbay.Kind
		said string
	}{
		{"this machine", ListenOptions{Address: "127.0.0.1:0"}, "http://127.0.0.1:", "", ""},
		{"by name", ListenOptions{Address: "localhost:0"}, "http://localhost:", "", ""},
		{"a port alone", ListenOptions{Address: "0"}, "http://127.0.0.1:", "", ""},
		{"without tokens", ListenOptions{Address: "127.0.0.1:0", NoAuth: true}, "http://127.0.0.1:", "", ""},

		{"everybody", ListenOptions{Address: "0.0.0.0:0"}, "", patchbay.KindDenied, "--insecure-bind"},
		{"everybody, in short", ListenOptions{Address: ":0"}, "", patchbay.KindDenied, "--insecure-bind"},
		{"everybody, six", ListenOptions{Address: "[::]:0"}, "", patchbay.KindDenied, "--insecure-bind"},
		{"everybody without tokens", ListenOptions{Address: "0.0.0.0:0", Insecure: true, NoAuth: true}, "", patchbay.KindDenied, "--no-auth"},
		{"half of TLS", ListenOptions{Address: "127.0.0.1:0", CertFile: cert}, "", patchbay.KindConfigInvalid, "--tls-key"},
		{"no certificate", ListenOptions{Address: "127.0.0.1:0", CertFile: cert, KeyFile: cert}, "", patchbay.KindConfigInvalid, "certificate"},
		{"no port", ListenOptions{Address: "127.0.0.1"}, "", patchbay.KindConfigInvalid, "127.0.0.1:7332"},
		{"no such port", ListenOptions{Address: "127.0.0.1:70000"}, "", patchbay.KindConfigInvalid, "127.0.0.1:7332"},
	} {
		l, err := Listen(t.Context(), tt.opts)
		if err == nil {
			l.Close()
			if tt.url == "" || !strings.HasPrefix(l.URL, tt.url) || strings.HasSuffix(l.URL, ":0") {
				t.Errorf("%s: listens on %s", tt.name, l.URL)
			}
			if !l.Loopback {
				t.Errorf("%s: other machines can connect", tt.name)
			}
			continue
		}
		e, ok := errors.AsType[*patchbay.Error](err)
		if !ok || tt.url != "" || e.Kind != tt.kind || !strings.Contains(e.Message+e.Hint, tt.said) {
			t.Errorf("%s: %+v", tt.name, err)
		}
	}
}

// Who says so may let other machines connect.
func TestListenKnowingly(t *testing.T) {
	for _, o := range []ListenOptions{{Insecure: true}, {CertFile: "cert.pem", KeyFile: "key.pem"}} {
		if err := o.check(false); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A call that does not finish in time is cancelled, and everything ends.
func TestSiteGivesUp(t *testing.T) {
	home := t.TempDir()
	began, ended := make(chan struct{}), make(chan error, 1)
	h, err := patchbay.Open(t.Context(), patchbay.Options{
		Dir: home, Home: home, Environ: []string{},
		InProcess: map[string]patchbay.LocalServer{"held": heldServer{began, ended}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Wait(t.Context()); err != nil { // or its tool would not be known
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), ListenOptions{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	site := &Site{Gateway: New(h, Options{}), patience: 1}
	served := make(chan error, 1)
	go func() { served <- site.Serve(ctx, l) }()
	answered := make(chan string, 1)
	go func() {
		req, _ := http.NewRequest(http.MethodPost, l.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"held__hold","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"held__hold"}}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answered <- string(body)
	}()
	select {
	case <-began:
	case a := <-answered:
		t.Fatalf("answered %s", a)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("the call was not cancelled")
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if a := <-answered; strings.Contains(a, `"result"`) && !strings.Contains(a, `"isError":true`) {
		t.Errorf("answered %s", a)
	}
}

// A site whose listener fails leaves no connections behind that nobody serves.
func TestSiteListenerFails(t *testing.T) {
	home := t.TempDir()
	h, err := patchbay.Open(t.Context(), patchbay.Options{Dir: home, Home: home, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	l, err := Listen(t.Context(), ListenOptions{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- (&Site{Gateway: New(h, Options{})}).Serve(t.Context(), l) }()
	var conns []net.Conn
	for _, request := range []string{
		"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx",
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		conns = append(conns, c)
	}
	l.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	for _, c := range conns {
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a connection: %v", err)
		}
	}
}

// heldServer has a tool that ends with its context.
type heldServer struct {
	began chan struct{}
	ended chan error
}

func (s heldServer) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return mcptest.ServeLocal(ctx, rw, s)
}

func (heldServer) HandleNotification(context.Context, *wire.Notification) {}

func (s heldServer) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	if r.Method == "tools/list" {
		return json.RawMessage(`{"tools":[{"name":"hold","inputSchema":{"type":"object"}}]}`), nil
	}
	close(s.began)
	<-ctx.Done()
	s.ended <- ctx.Err()
	return nil, ctx.Err()
}

// A certificate that is renewed is shown without a restart, and one that is
// being written is not.
func TestCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	store := func(file, kind string, der []byte, at int64) {
		t.Helper()
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
	}
	issue := func(serial int64) {
		t.Helper()
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		store(certFile, "CERTIFICATE", der, serial)
	}
	store(keyFile, "PRIVATE KEY", private, 1)
	issue(1)
	l, err := Listen(t.Context(), ListenOptions{Address: "127.0.0.1:0", CertFile: certFile, KeyFile: keyFile})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	shown := func() int64 {
		t.Helper()
		go func() {
			c, err := l.Accept()
			if err == nil {
				_ = c.(*tls.Conn).Handshake() // the client says how it went
				c.Close()
			}
		}()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	for _, step := range []struct {
		change func()
		want   int64
	}{
		{func() {}, 1},
		{func() { issue(2) }, 2},
		{func() { store(certFile, "CERTIFICATE", []byte("half"), 3) }, 2},
		{func() { issue(4) }, 4},
	} {
		step.change()
		if got := shown(); got != step.want {
			t.Errorf("certificate %d is shown, want %d", got, step.want)
		}
	}
}
