package lane

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// FuzzConnection: whatever comes on a connection, in pieces of whatever size, a
// handler sees the same requests with the lane and without it.
func FuzzConnection(f *testing.F) {
	for name, text := range conversations() {
		if len(text) < 4000 { // large ones only keep the fuzzer busy
			f.Add([]byte(text), uint8(len(name)))
		}
	}
	for _, text := range otherHeads {
		f.Add([]byte(plainHeads[0]+"x"+text+"body"+plainHeads[0]+"x"), uint8(255))
	}
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		if len(data) > 4000 {
			return
		}
		ours := witness(data, int(piece)+1, func(s *http.Server, l net.Listener) (stop func()) {
			lane := New(s)
			return serving(lane.Serve, lane.Close, l, lane.drained)
		})
		theirs := witness(data, int(piece)+1, func(s *http.Server, l net.Listener) (stop func()) {
			done := make(chan struct{})
			close(done)
			return serving(s.Serve, s.Close, l, done)
		})
		if ours != theirs {
			t.Errorf("with the lane\n%s\nwithout\n%s", ours, theirs)
		}
	})
}

func serving(serve func(net.Listener) error, end func() error, l net.Listener, done <-chan struct{}) (stop func()) {
	served := make(chan error)
	go func() { served <- serve(l) }()
	return func() {
		end()
		<-served
		<-done
	}
}

// witness renders the requests that a handler sees of data.
func witness(data []byte, piece int, start func(*http.Server, net.Listener) func()) string {
	var mu sync.Mutex // the handler and the end of the connection are not one goroutine
	var seen bytes.Buffer
	server, _ := settings(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readSome(r)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&seen, "%s %s %s %s %s %q %d %q %v\n", r.Method, r.URL, r.RequestURI, r.Proto, r.Host, r.Header, r.ContentLength, body, err)
	}))
	l := newMemory()
	stop := start(server, l)
	c := &recital{rest: data, piece: piece, closed: make(chan struct{})}
	l.conns <- c
	<-c.closed
	stop()
	mu.Lock()
	defer mu.Unlock()
	return seen.String()
}

// readSome reads all of a request's body, a part of it or nothing: what a handler
// leaves is not the next request.
func readSome(r *http.Request) ([]byte, error) {
	switch len(r.URL.Path) % 4 {
	case 0:
		return io.ReadAll(io.LimitReader(r.Body, 2))
	case 1:
		return nil, nil
	case 2:
		r.Body.Close() // net/http says if it cannot skip the rest, the lane not before the response
		return nil, nil
	default:
		return io.ReadAll(r.Body)
	}
}

// A recital is a connection on which everything was said beforehand.
type recital struct {
	net.Conn
	mu     sync.Mutex
	rest   []byte
	piece  int
	once   sync.Once
	closed chan struct{}
}

func (c *recital) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:min(c.piece, len(c.rest))])
	c.rest = c.rest[n:]
	return n, nil
}

func (c *recital) Write(p []byte) (int, error)      { return len(p), nil }
func (c *recital) Close() error                     { c.once.Do(func() { close(c.closed) }); return nil }
func (c *recital) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *recital) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *recital) SetDeadline(time.Time) error      { return nil }
func (c *recital) SetReadDeadline(time.Time) error  { return nil }
func (c *recital) SetWriteDeadline(time.Time) error { return nil }
