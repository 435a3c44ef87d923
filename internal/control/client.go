package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// Client calls a host through its handler. Its zero value is not usable: make
// one with InProcess or Dial.
type Client struct {
	transport http.RoundTripper

	// Of a daemon's client.
	socket string
	caller Caller
	unlike func(Identity) string // says why a daemon must not be used
	daemon *Identity
}

// ErrNoDaemon is the error of Dial if there is no daemon.
var ErrNoDaemon = errors.New("no daemon is running")

// helloTime is how long a daemon may take to say who it is.
const helloTime = 3 * time.Second

// Dial returns a client of the daemon that serves the control socket at path, for
// work on behalf of a caller. It fails with ErrNoDaemon if there is none; any
// other error says why the one there is must not be used by somebody who is self.
func Dial(ctx context.Context, path string, caller Caller, self Identity) (*Client, error) {
	return dialLike(ctx, path, caller, self.unlike)
}

// DialAny is Dial for a client that asks a daemon about itself, whichever build
// it is.
func DialAny(ctx context.Context, path string, caller Caller, self Identity) (*Client, error) {
	return dialLike(ctx, path, caller, self.apart)
}

// dialLike is Dial for a client that has its own opinion of which daemons must
// not be used: unlike says why.
func dialLike(ctx context.Context, path string, caller Caller, unlike func(Identity) string) (*Client, error) {
	c := &Client{socket: path, caller: caller, unlike: unlike}
	c.transport = patient{&http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return reach(ctx, path, caller, unlike) },
		DisableCompression: true,
		MaxIdleConns:       4,
	}}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	patience := time.AfterFunc(helloTime, func() { stop(silent(path)) })
	defer patience.Stop()
	var other Identity
	if err := c.call(ctx, "GET", "/v1/hello", nil, &other); err != nil {
		err = orGone(err)
		c.Close()
		return nil, err
	}
	c.daemon = &other
	return c, nil
}

// silent is the error of a daemon that does not answer.
func silent(socket string) error {
	who, err := os.ReadFile(filepath.Join(filepath.Dir(socket), lockName)) // which nobody else can write
	if err != nil || len(who) > 100 {
		return errors.New("it does not answer")
	}
	return fmt.Errorf("it does not answer (%s)", who)
}

// orGone returns ErrNoDaemon for an error that means that there is none, or that
// it is about to end.
func orGone(err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	if is(errEnding) || is(io.EOF) || is(io.ErrUnexpectedEOF) || slices.ContainsFunc(gone, is) {
		return ErrNoDaemon
	}
	return err
}

// Daemon returns who answers; false if that is this process.
func (c *Client) Daemon() (Identity, bool) {
	if c.daemon == nil {
		return Identity{}, false
	}
	return *c.daemon, true
}

// Close lets go of the daemon.
func (c *Client) Close() {
	if t, ok := c.transport.(patient); ok {
		t.CloseIdleConnections()
	}
}

func newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, method, "http://"+hostName+path, body)
}

// send sends a request and returns the answer, whose body is to be closed. What
// is no answer to a good request is an error.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

// errEnding is the answer of a daemon that is about to end.
var errEnding = errors.New("the daemon is shutting down")

// refusal is the error in an answer.
func refusal(resp *http.Response) error {
	if resp.StatusCode == http.StatusServiceUnavailable {
		return errEnding
	}
	e := &patchbay.Error{}
	if json.NewDecoder(io.LimitReader(resp.Body, maxResponse)).Decode(e) != nil {
		return fmt.Errorf("control: %s", resp.Status)
	}
	return e
}

// call sends one request and decodes the answer into result.
func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	var content io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	req, err := newRequest(ctx, method, path, content)
	if err != nil {
		return err
	}
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(io.LimitReader(resp.Body, maxResponse)).Decode(result)
}
