package wire

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// NewListener returns l with connections on which it costs little to set
// deadlines. An HTTP server sets some ten of them for every request, nearly all
// of which only move on what was set before, and each of them has the runtime
// arrange its timers anew.
func NewListener(l net.Listener) net.Listener { return lazyListener{l} }

type lazyListener struct{ net.Listener }

// Accept implements net.Listener.
func (l lazyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lazyConn{Conn: c}, nil
}

// A lazyConn passes a deadline on to its conn only if it is earlier than the one
// that the conn has. When that one is reached too early it is moved on.
type lazyConn struct {
	net.Conn
	read, write lazyDeadline
}

// Read implements net.Conn.
func (c *lazyConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if n > 0 || err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !c.read.early(c.Conn.SetReadDeadline) {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *lazyConn) Write(p []byte) (n int, err error) {
	for {
		k, err := c.Conn.Write(p[n:])
		if n += k; err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !c.write.early(c.Conn.SetWriteDeadline) {
			return n, err
		}
	}
}

// SetReadDeadline implements net.Conn.
func (c *lazyConn) SetReadDeadline(t time.Time) error { return c.read.set(t, c.Conn.SetReadDeadline) }

// SetWriteDeadline implements net.Conn.
func (c *lazyConn) SetWriteDeadline(t time.Time) error {
	return c.write.set(t, c.Conn.SetWriteDeadline)
}

// SetDeadline implements net.Conn.
func (c *lazyConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// lazyDeadline is one of the two deadlines of a lazyConn.
type lazyDeadline struct {
	mu    sync.Mutex
	want  time.Time // zero means none
	armed time.Time // that of the conn, never later than want; zero means none
}

// lazyStep is how far ahead a deadline is moved at most: less than the time that
// is usually asked for, so that the next one need not be passed on.
const lazyStep = 4 * time.Second

// set sets the deadline. Only an earlier one has to be told at once, to who is
// waiting already.
func (d *lazyDeadline) set(t time.Time, arm func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = t
	if t.IsZero() || !d.armed.IsZero() && !d.armed.After(t) {
		return nil
	}
	d.armed = t
	return arm(t)
}

// early reports whether the conn's deadline has passed and the wanted one has
// not, after moving the former on.
func (d *lazyDeadline) early(arm func(time.Time) error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if !d.want.IsZero() && !now.Before(d.want) {
		return false
	}
	d.armed = now.Add(lazyStep)
	if !d.want.IsZero() && d.want.Before(d.armed) {
		d.armed = d.want
	}
	return arm(d.armed) == nil
}
