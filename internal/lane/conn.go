package lane

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// A conn is a connection in the lane. One goroutine serves it, request by
// request; another one reads from it only while it watches.
type conn struct {
	net.Conn
	server *Server
	ctx    context.Context
	cancel context.CancelFunc
	remote string
	tls    *tls.ConnectionState // nil if it is none of TLS
	head   head
	header http.Header // of the response

	// What was read and not consumed is in buf[start:end].
	buf        []byte
	start, end int

	mu       sync.Mutex
	current  *response     // to the request that is being served; nil if idle
	old      bool          // the last sweep has seen it
	watching chan struct{} // closed when the watcher is done; nil if there was none
}

func newConn(s *Server, c net.Conn) *conn {
	return &conn{Conn: c, server: s, header: http.Header{}}
}

// serve serves the connection to its end, or until it leaves the lane.
func (c *conn) serve() {
	c.remote = c.RemoteAddr().String()
	c.ctx = context.WithValue(c.server.ctx, http.LocalAddrContextKey, c.LocalAddr())
	if in := c.server.http.ConnContext; in != nil {
		c.ctx = in(c.ctx, c.Conn)
	}
	c.ctx, c.cancel = context.WithCancel(c.ctx)
	context.AfterFunc(c.ctx, c.leave)
	var leaves net.Conn // what net/http is to have
	defer func() {
		if reason := recover(); reason != nil && reason != http.ErrAbortHandler {
			c.server.logf("http: panic serving %v: %v\n%s", c.remote, reason, debug.Stack())
		}
		c.cancel()
		if leaves == nil {
			_ = c.Close()
			c.finish()
		}
		c.server.remove(c) // first, or it could be closed as an idle one of ours
		if leaves != nil {
			c.server.aside.hand(leaves)
		}
	}()
	if !c.handshake() {
		leaves = c.Conn // net/http will meet the same error, and knows what to say
		return
	}
	c.buf = make([]byte, c.server.maxHead())
	for first := true; ; first = false {
		k, err := c.next(first)
		if err != nil {
			return
		}
		if k == other {
			leaves = c.handOver()
			return
		}
		if !c.exchange() {
			return
		}
	}
}

// handshake does that of TLS.
func (c *conn) handshake() bool {
	t, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	var limit time.Duration
	for _, d := range []time.Duration{c.server.http.ReadHeaderTimeout, c.server.http.ReadTimeout, c.server.http.WriteTimeout} {
		if d > 0 && (limit == 0 || d < limit) {
			limit = d
		}
	}
	_ = c.SetDeadline(after(limit)) // here and below: of a broken connection the next read tells
	if err := t.HandshakeContext(c.ctx); err != nil {
		return false
	}
	_ = c.SetDeadline(time.Time{})
	state := t.ConnectionState()
	c.tls = &state
	return true
}

// after is the deadline for a limit, of which zero means none.
func after(limit time.Duration) time.Time {
	if limit <= 0 {
		return time.Time{}
	}
	return time.Now().Add(limit)
}

// next waits for the head of a request. Its time counts from the first byte, or
// from the beginning of the connection. An error means that there is no request.
func (c *conn) next(first bool) (kind, error) {
	settings := c.server.http
	headTime := cmp.Or(settings.ReadHeaderTimeout, settings.ReadTimeout)
	idleTime := cmp.Or(settings.IdleTimeout, settings.ReadTimeout)
	begun, idle := first, false
	if first {
		_ = c.SetReadDeadline(after(headTime))
	}
	blank := 0
	for {
		// net/http puts up with empty lines behind a body, and so must who
		// is to give it the rest.
		for !first && c.start < c.end && blank < 4 && (c.buf[c.start] == '\r' || c.buf[c.start] == '\n') {
			c.start++
			blank++
		}
		if k := c.head.read(c.buf[c.start:c.end]); k != partial {
			return k, nil
		}
		if c.end-c.start == len(c.buf) {
			return other, nil
		}
		switch {
		case begun:
		case c.start < c.end:
			begun = true
			_ = c.SetReadDeadline(after(headTime))
		case !idle: // empty lines that come meanwhile do not prolong it
			idle = true
			_ = c.SetReadDeadline(after(idleTime))
		}
		if err := c.fill(); err != nil {
			if c.start == c.end || errors.Is(err, os.ErrDeadlineExceeded) {
				return other, err
			}
			return other, nil // half a head
		}
	}
}

// fill reads more into the buffer, in which there is room.
func (c *conn) fill() error {
	c.makeRoom()
	n, err := c.Read(c.buf[c.end:])
	c.end += n
	if n > 0 {
		return nil
	}
	return err
}

func (c *conn) makeRoom() {
	if c.start > 0 {
		c.end = copy(c.buf, c.buf[c.start:c.end])
		c.start = 0
	}
}

// take reads what follows the head.
func (c *conn) take(p []byte) (int, error) {
	if c.start == c.end {
		if len(p) >= len(c.buf) {
			return c.Read(p)
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.buf[c.start:c.end])
	c.start += n
	return n, nil
}

// Write implements net.Conn. Who cannot be written to has gone.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.cancel()
		c.leave() // before the handler goes on
	}
	return n, err
}

// exchange has the request answered whose head was read. It reports whether
// there may be another.
func (c *conn) exchange() (again bool) {
	h := &c.head
	c.start += h.size
	settings := c.server.http
	if int64(c.end-c.start) < h.length {
		_ = c.SetReadDeadline(after(settings.ReadTimeout))
	}
	_ = c.SetWriteDeadline(after(settings.WriteTimeout))
	w := &response{
		conn: c, header: c.header, length: unknown,
		url: url.URL{Path: h.path},
	}
	w.ctx.Context = c.ctx
	w.body.of, w.body.left = w, h.length
	r := (&http.Request{
		Method:        http.MethodPost,
		URL:           &w.url,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        h.header,
		Body:          &w.body,
		ContentLength: h.length,
		Host:          h.host,
		RemoteAddr:    c.remote,
		RequestURI:    h.path,
		TLS:           c.tls,
	}).WithContext(&w.ctx)
	if !c.begin(w) {
		return false
	}
	defer w.ctx.end(context.Canceled)
	c.server.handler().ServeHTTP(w, r)
	again = w.finish()
	c.finish()
	clear(c.header)
	return again && !c.server.ending.Load()
}

// begin makes the connection an active one, unless that is too late.
func (c *conn) begin(w *response) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.ending.Load() {
		return false
	}
	c.current, c.old = w, false
	if err := c.ctx.Err(); err != nil {
		w.ctx.end(err)
	}
	c.server.expectSweep()
	return true
}

// leave ends the context of the request that is being served: that of the
// connection has ended.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.ctx.end(c.ctx.Err())
	}
}

// finish makes it idle again.
func (c *conn) finish() {
	c.mu.Lock()
	c.current = nil
	watching := c.watching
	c.watching = nil
	c.mu.Unlock()
	if watching != nil {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // wakes the watcher
		<-watching
		_ = c.SetReadDeadline(time.Time{})
	}
}

// closeIdle closes the connection if no request is being served.
func (c *conn) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		_ = c.Close()
	}
}
