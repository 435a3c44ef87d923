package lane

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Over TLS the lane and net/http serve the same connection, and both know of it.
func TestTLS(t *testing.T) {
	ts := httptest.NewUnstartedServer(nil) // has a certificate
	ts.StartTLS()
	ts.Close()
	lanes, began, left := make(chan bool, 4), make(chan struct{}), make(chan struct{})
	server, _ := settings(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lanes <- inLane(w)
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/long" {
			began <- struct{}{}
			<-r.Context().Done()
			close(left)
			return
		}
		if r.TLS == nil || !r.TLS.HandshakeComplete || r.TLS.NegotiatedProtocol != "http/1.1" {
			t.Errorf("%+v", r.TLS)
		}
	}))
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, served := New(server), make(chan error)
	go func() {
		served <- s.Serve(tls.NewListener(inner, &tls.Config{Certificates: ts.TLS.Certificates, NextProtos: []string{"http/1.1"}}))
	}()
	roots := x509.NewCertPool()
	roots.AddCert(ts.Certificate())
	dial := func() *client {
		c, err := tls.Dial("tcp", inner.Addr().String(), &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		return newClient(t, c)
	}
	c := dial()
	c.send(post("/", "x"))
	c.receive()
	c.send(post("/", strings.Repeat("x", 100000)) + request("GET / HTTP/1.1", "Host: a"))
	c.receive()
	c.receive()
	if a, b, beside := <-lanes, <-lanes, <-lanes; !a || !b || beside {
		t.Errorf("in the lane: %v, %v, %v", a, b, beside)
	}
	c = dial()
	c.send(post("/long", "x"))
	<-began
	c.Close()
	<-left
	conn, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c = newClient(t, conn)
	c.send("GET / HTTP/1.1\r\n\r\n")
	if resp, _ := http.ReadResponse(c.in, nil); resp == nil || resp.StatusCode != 400 {
		t.Errorf("%v", resp)
	}
	s.Close()
	<-served
	<-s.drained
}
