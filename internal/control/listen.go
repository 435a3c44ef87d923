package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

const (
	listenPath  = "/v1/listen"
	listenProto = "patchbay-listen/1" // what a connection is upgraded to that a listener lives as long as
)

// ListenOptions is where a daemon is asked to serve MCP clients over HTTP, and how.
type ListenOptions struct {
	Address  string `json:"address,omitempty"` // empty means that of the settings
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	Insecure bool   `json:"insecure,omitempty"` // other machines may connect without TLS
	NoAuth   bool   `json:"noAuth,omitempty"`
}

// Listener is an address on which a daemon serves the clients of a `serve`.
type Listener struct {
	URL   string    `json:"url"`
	PID   int       `json:"pid,omitempty"` // of the one who asked for it
	Dir   string    `json:"dir"`
	Since time.Time `json:"since"`
}

// Listening is a listener of a daemon, as the one who asked for it has it.
type Listening struct {
	URL  string
	conn *net.UnixConn
	r    *bufio.Reader
}

// Listen has the daemon serve clients over HTTP, as those of the caller. It does
// so until Wait has returned, or this process has ended. The error is ErrNoDaemon
// if the daemon has ended.
func (c *Client) Listen(ctx context.Context, o ListenOptions) (*Listening, error) {
	conn, err := reach(ctx, c.socket, c.caller, c.unlike)
	if err != nil {
		return nil, orGone(err)
	}
	l := &Listening{conn: conn}
	if err := l.ask(ctx, o); err != nil {
		conn.Close()
		return nil, orGone(err)
	}
	return l, nil
}

func (l *Listening) ask(ctx context.Context, o ListenOptions) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if l.r, err = upgrade(ctx, l.conn, listenProto, listenPath, bytes.NewReader(body)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })()
	line, err := readLine(l.r, maxResponse)
	if err != nil {
		return err
	}
	var opened Listener
	err = json.Unmarshal(line, &opened)
	l.URL = opened.URL
	return err
}

// Wait waits until ctx has ended, and then until the daemon has let calls in
// flight finish and serves no longer. The error is ErrNoDaemon if the daemon has
// ended before.
func (l *Listening) Wait(ctx context.Context) error {
	defer l.conn.Close()
	defer context.AfterFunc(ctx, func() {
		_ = l.conn.CloseWrite() // or it has gone
		_ = l.conn.SetReadDeadline(time.Now().Add(drainTime + 5*time.Second))
	})()
	_, err := io.Copy(io.Discard, l.r)
	switch {
	case ctx.Err() == nil:
		return ErrNoDaemon
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("the daemon still serves")
	}
	return nil
}

// listen serves MCP clients over HTTP until the one who asked for it has gone, or
// the daemon begins to end.
func (d *run) listen(w http.ResponseWriter, r *http.Request) {
	if !speaks(w, r, listenProto) {
		return
	}
	o, err := decode[ListenOptions](r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	v, err := d.view(r)
	if err != nil {
		d.refuse(w, err)
		return
	}
	defer d.Views.release(v)
	if v.Listen == nil {
		answer(w, nil, &patchbay.Error{Kind: patchbay.KindDenied, Message: "This process does not serve MCP clients."})
		return
	}
	ctx, stop := context.WithCancel(d.ctx)
	defer stop()
	pid, _ := strconv.Atoi(r.Header.Get(pidHeader)) // it need not say
	l := &Listener{PID: pid, Dir: v.caller.Dir, Since: time.Now()}
	var conn net.Conn
	err = v.Listen(ctx, o, func(url string) error {
		l.URL = url
		opened, err := json.Marshal(l)
		if err != nil {
			return err
		}
		var rest *bufio.Reader
		if conn, rest, err = takeOver(w, listenProto); conn == nil {
			return err
		}
		d.serves(l, true)
		if err == nil {
			_, err = conn.Write(append(opened, '\n'))
		}
		d.attached.Go(func() {
			_, _ = io.Copy(io.Discard, rest) // until it has gone
			stop()
		})
		return err
	})
	if conn == nil {
		d.refuse(w, err)
		return
	}
	d.serves(l, false)
	if err != nil {
		d.Logger.Warn("listener", "url", l.URL, "error", err)
	}
	_ = conn.Close() // it may have gone
}

// serves takes note of a listener that comes or goes.
func (d *run) serves(l *Listener, here bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if here {
		d.listeners[l] = true
	} else {
		delete(d.listeners, l)
	}
}
