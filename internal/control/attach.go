package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
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

// upgraded is a connection of which something has been read already.
type upgraded struct {
	net.Conn
	r *bufio.Reader
}

func (u *upgraded) Read(p []byte) (int, error) { return u.r.Read(p) }

// half is the writing half of a connection: what is closed is that alone, so
// that the other side sees the end and can still answer.
type half struct{ *net.UnixConn }

// Close implements io.Closer.
func (h half) Close() error { return h.CloseWrite() }
