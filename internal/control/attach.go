package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Attach makes an MCP connection to the daemon, on which the client's messages
// are served as in its directory. Endpoint is what to see, as in the path of a
// URL; empty means everything. It fails with ErrNoDaemon if the daemon has ended.
func (c *Client) Attach(ctx context.Context, endpoint string) (wire.Conn, error) {
	if c.daemon == nil {
		return nil, errors.New("there is no daemon to attach to")
	}
	conn, err := dial(ctx, c.socket)
	if err != nil {
		return nil, orGone(err)
	}
	r, err := c.upgrade(ctx, conn, endpoint)
	if err != nil {
		conn.Close()
		return nil, orGone(err)
	}
	return wire.NewStreamConn(&upgraded{Conn: conn, r: r}, half{conn}, nil), nil
}

// upgrade asks the daemon to take a connection for one of MCP.
func (c *Client) upgrade(ctx context.Context, conn *net.UnixConn, endpoint string) (*bufio.Reader, error) {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	req, err := c.request(ctx, "POST", "/v1/attach?endpoint="+url.QueryEscape(endpoint), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", attachProto)
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
		return nil, fmt.Errorf("attach: %w", refusal(resp))
	}
	return r, nil
}

// farewellMethod is the last thing a daemon says on a connection that it ends in order:
// what it has not answered it has not read. It is for the relay, not for MCP
// clients.
const farewellMethod = "notifications/patchbay/farewell"

// courteous is the daemon's end of a connection: it says farewell if it can.
type courteous struct {
	*wire.StreamConn

	mu     sync.Mutex
	open   map[wire.ID]bool // requests that were read and not answered
	closed bool
}

// Read implements wire.Conn. What comes after the farewell is not read.
func (c *courteous) Read() (wire.Message, error) {
	m, err := c.StreamConn.Read()
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
	case m.Method == "notifications/cancelled": // which may not be answered
		if id, ok := requestID(m.Params); ok {
			delete(c.open, id)
		}
	}
	return m, nil
}

// Write implements wire.Conn.
func (c *courteous) Write(ctx context.Context, m wire.Message) error {
	err := c.StreamConn.Write(ctx, m)
	if err == nil && m.Kind() == wire.KindResponse {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, m.ID)
	}
	return err
}

// Close implements wire.Conn.
func (c *courteous) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	answered := len(c.open) == 0
	c.mu.Unlock()
	if first && answered {
		soon, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = c.StreamConn.Write(soon, wire.Message{Method: farewellMethod}) // the other side may be gone
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
