package gateway

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Limits on connections. At the limit the one that can best be spared makes room
// for the next: nobody can keep others out by holding connections.
const (
	maxConnections = 2048

	// maxStrangers is how many connections one address, if it is not this
	// machine's, may have on which nobody has shown who they are. Those who have
	// may be many: behind a proxy all clients have one address.
	maxStrangers = 128
)

// connections accepts only so many connections at a time.
type connections struct {
	net.Listener
	most, strangers int
	end             context.CancelFunc
	ended           <-chan struct{}

	mu      sync.Mutex
	all     map[*connection]struct{}
	waiting atomic.Bool   // Accept waits for one that can be spared
	spared  chan struct{} // there may be one; has room for one
}

func newConnections(l net.Listener, most, strangers int) *connections {
	life, end := context.WithCancel(context.Background())
	return &connections{
		Listener: l, most: most, strangers: strangers, end: end, ended: life.Done(),
		all: map[*connection]struct{}{}, spared: make(chan struct{}, 1),
	}
}

// Accept implements net.Listener. If no connection can be spared the next one
// waits until one can.
func (l *connections) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: inner, of: l}
	c.used.Store(time.Now().UnixNano())
	if tcp, ok := inner.RemoteAddr().(*net.TCPAddr); ok {
		c.from = origin(tcp.AddrPort().Addr())
	}
	for !l.add(c) {
		select {
		case <-l.spared:
		case <-l.ended:
			_ = inner.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// origin is what counts as one address: nothing for this machine, and for IPv6
// the network that one customer has.
func origin(a netip.Addr) netip.Addr {
	a = a.Unmap()
	switch {
	case a.IsLoopback():
		return netip.Addr{}
	case a.Is6():
		network, _ := a.Prefix(64) // which such an address has
		return network.Addr()
	}
	return a
}

// add makes room for a connection. It reports false if there is none.
func (l *connections) add(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var spare *connection // of all
	var same *connection  // of the strangers from the same address
	strangers := 0
	for other := range l.all {
		if other.canBeSpared() && (spare == nil || other.before(spare)) {
			spare = other
		}
		if c.from.IsValid() && other.from == c.from && !other.known.Load() {
			if strangers++; same == nil || other.before(same) {
				same = other
			}
		}
	}
	switch full := len(l.all) >= l.most; {
	case strangers >= l.strangers:
		l.drop(same)
	case full && spare == nil:
		l.waiting.Store(true)
		return false
	case full:
		l.drop(spare)
	}
	l.waiting.Store(false)
	l.all[c] = struct{}{}
	return true
}

func (l *connections) drop(c *connection) {
	delete(l.all, c)
	_ = c.Conn.Close() // whoever serves it notices
}

// spare says that a connection may have become one that can be spared.
func (l *connections) spare() {
	if l.waiting.Load() {
		select {
		case l.spared <- struct{}{}:
		default: // it was said
		}
	}
}

// Close implements net.Listener.
func (l *connections) Close() error {
	l.end()
	return l.Listener.Close()
}

// connection is one that was accepted.
type connection struct {
	net.Conn
	of    *connections
	from  netip.Addr   // whose strangers it counts with; not valid for this machine
	known atomic.Bool  // a request on it was authenticated, or need not be
	busy  atomic.Int32 // requests under way
	used  atomic.Int64 // when it was accepted or its last request ended
}

// canBeSpared reports whether nothing of worth is lost with it.
func (c *connection) canBeSpared() bool { return !c.known.Load() || c.busy.Load() == 0 }

// before reports whether a connection is spared before another: that of a
// stranger first, then the one that is idle for longer.
func (c *connection) before(other *connection) bool {
	if known := c.known.Load(); known != other.known.Load() {
		return !known
	}
	return c.used.Load() < other.used.Load()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	c.of.spare()
	return c.Conn.Close()
}

// enter and leave are for a request on the connection.
func (c *connection) enter() { c.busy.Add(1) }

func (c *connection) leave() {
	c.used.Store(time.Now().UnixNano())
	if c.busy.Add(-1) == 0 {
		c.of.spare()
	}
}

type connectionKey struct{}

// withConnection is the ConnContext of a server on connections.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	for c != nil {
		if own, ok := c.(*connection); ok {
			return context.WithValue(ctx, connectionKey{}, own)
		}
		wrapped, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = wrapped.NetConn()
	}
	return ctx
}

// connectionOf is the connection that a request came on; nil if it is none of
// ours.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}
