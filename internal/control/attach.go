package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Attach makes an MCP connection to the daemon, on which the client's messages
// are served as the caller's. Endpoint is what to see, as in the path of a
// URL; empty means everything. It fails with ErrNoDaemon if the daemon has ended.
func (c *Client) Attach(ctx context.Context, endpoint string) (wire.Conn, error) {
	if c.daemon == nil {
		return nil, errors.New("there is no daemon to attach to")
	}
	conn, err := reach(ctx, c.socket, c.caller, c.unlike)
	if err != nil {
		return nil, orGone(err)
	}
	return attach(ctx, conn, endpoint)
}

// attach is Attach over a connection on which the caller is known.
func attach(ctx context.Context, conn *net.UnixConn, endpoint string) (wire.Conn, error) {
	r, err := upgrade(ctx, conn, attachProto, attachPath+"?endpoint="+url.QueryEscape(endpoint), http.NoBody)
	if err != nil {
		conn.Close()
		return nil, orGone(err)
	}
	return wire.NewStreamConn(&upgraded{Conn: conn, r: r}, half{conn}, &wire.StreamOptions{Control: true}), nil
}

// upgrade asks the daemon to take a connection for one of another protocol. What
// the daemon says in that is read from the reader.
func upgrade(ctx context.Context, conn *net.UnixConn, proto, path string, body io.Reader) (*bufio.Reader, error) {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	req, err := newRequest(ctx, "POST", path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", proto)
	req.Header.Set(pidHeader, strconv.Itoa(os.Getpid()))
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, refusal(resp)
	}
	return r, nil
}

// takeOver is the daemon's part of upgrade: the connection of a request is another
// protocol's from now on. The reader has what the client sent in that already.
func takeOver(w http.ResponseWriter, proto string) (net.Conn, *bufio.Reader, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{}) // those of the HTTP server
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+proto+"\r\n\r\n")
	return conn, buffered.Reader, err
}

// speaks reports whether a request asks for a protocol, and refuses it if not.
func speaks(w http.ResponseWriter, r *http.Request, proto string) bool {
	if r.Header.Get("Upgrade") == proto {
		return true
	}
	http.Error(w, "the upgrade to "+proto+" is missing", http.StatusUpgradeRequired)
	return false
}

// What a daemon itself says to a relay, as control lines: no message of a server
// that it passes on can be taken for one.
const (
	// wordRefused, with the id of a request behind it, comes in place of the
	// answer: the daemon is about to end, and nobody has seen the request.
	wordRefused = "refused "

	// wordFarewell is the last thing on a connection that ends in order: what
	// has not been answered has not been read.
	wordFarewell = "farewell"

	// wordSay has something behind it that the person at the client should know.
	wordSay = "say "

	// wordHere is the answer to wordThere, which is what a relay says to a daemon
	// that has been silent for a while.
	wordThere = "there?"
	wordHere  = "here"
)

// daemonConn is the daemon's end of a connection to a relay.
type daemonConn struct {
	*wire.StreamConn
	client *attachedClient // nil if nobody wants to know

	mu     sync.Mutex
	open   map[wire.ID]bool // requests that were read and not answered
	closed bool
}

func newDaemonConn(r io.Reader, w io.WriteCloser) *daemonConn {
	return &daemonConn{StreamConn: wire.NewStreamConn(r, w, &wire.StreamOptions{Control: true}), open: map[wire.ID]bool{}}
}

// PID is the process of the relay, so that its session is known by that.
func (c *daemonConn) PID() int {
	if c.client == nil {
		return 0
	}
	return c.client.known.PID // which does not change
}

// Read implements wire.Conn. What comes after the farewell is not read.
func (c *daemonConn) Read() (wire.Message, error) {
	m, err := c.StreamConn.Read()
	for errors.As(err, new(*wire.ControlLine)) { // there is only one that a relay says
		soon, stop := context.WithTimeout(context.Background(), time.Second)
		_ = c.WriteControl(soon, wordHere) // a relay that reads nothing has to wait
		stop()
		m, err = c.StreamConn.Read()
	}
	if err != nil {
		return m, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return wire.Message{}, wire.ErrClosed
	case m.Kind() == wire.KindRequest:
		c.open[m.ID] = true
		c.client.asked(m)
	case m.Method == "notifications/cancelled": // which may not be answered
		if id, ok := requestID(m.Params); ok {
			delete(c.open, id)
		}
	}
	return m, nil
}

// Write implements wire.Conn.
func (c *daemonConn) Write(ctx context.Context, m wire.Message) (err error) {
	if m.Error.Unhandled() {
		err = c.WriteControl(ctx, wordRefused+m.ID.String())
	} else {
		err = c.StreamConn.Write(ctx, m)
	}
	if err == nil && m.Kind() == wire.KindResponse {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, m.ID)
	}
	return err
}

// Close implements wire.Conn.
func (c *daemonConn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	answered := len(c.open) == 0
	c.mu.Unlock()
	if first && answered {
		soon, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = c.WriteControl(soon, wordFarewell) // the other side may be gone
	}
	return c.StreamConn.Close()
}

// upgraded is a connection of which something has been read already.
type upgraded struct {
	net.Conn
	r *bufio.Reader
}

func (u *upgraded) Read(p []byte) (int, error) { return u.r.Read(p) }

// half is the writing half of a connection: what is closed is that alone, so
// that the other side sees the end and can still answer.
type half struct{ *net.UnixConn }

// Write implements io.Writer. A daemon that takes nothing any more has gone, but
// what it said before that is still to be read: reading tells of its end.
func (h half) Write(p []byte) (int, error) {
	_, _ = h.UnixConn.Write(p)
	return len(p), nil
}

// Close implements io.Closer.
func (h half) Close() error { return h.CloseWrite() }
