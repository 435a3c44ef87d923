package lane

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// aside is the listener through which net/http gets the connections that have
// left the lane.
type aside struct {
	addr   net.Addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// hand gives a connection to net/http.
func (a *aside) hand(c net.Conn) {
	select {
	case a.conns <- c:
	case <-a.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (a *aside) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (a *aside) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// Addr implements net.Listener.
func (a *aside) Addr() net.Addr { return a.addr }

// handOver returns the connection as net/http gets it: with what was read and not
// consumed, and no deadlines.
func (c *conn) handOver() net.Conn {
	_ = c.SetDeadline(time.Time{})
	rest := &handed{Conn: c.Conn, rest: c.buf[c.start:c.end]}
	if c.tls != nil {
		return handedTLS{rest, c.tls}
	}
	return rest
}

// handed is a connection of which some bytes were read.
type handed struct {
	net.Conn
	rest []byte
}

// Read implements net.Conn.
func (c *handed) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil // and with it the buffer
	}
	return n, nil
}

// NetConn returns the connection as it was accepted.
func (c *handed) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is written, where the connection can do that: net/http
// does it before it closes one whose request it has not read.
func (c *handed) CloseWrite() error {
	if t, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return nil
}

// handedTLS tells net/http what it asks of a TLS connection.
type handedTLS struct {
	*handed
	state *tls.ConnectionState
}

// ConnectionState returns what the handshake found.
func (c handedTLS) ConnectionState() tls.ConnectionState { return *c.state }
