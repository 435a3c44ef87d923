package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// sseConn is the client side of HTTP+SSE, the transport of 2024-11-05: one
// event stream on which everything comes, and a URL, named by the first event,
// to which everything goes. The stream is the session: it cannot be resumed.
type sseConn struct {
	in, out endpoint
	body    io.Closer
	pending []Message // of a batch
	events  *sseReader
	cancel  context.CancelCauseFunc
	ctx     context.Context // ends with the conn
	wg      sync.WaitGroup  // of posts under way
	mu      sync.Mutex      // guards wg.Add against wg.Wait
	closed  bool
}

var _ Conn = (*sseConn)(nil)

// dialSSE opens the stream and waits until the server has said where to post.
// Only that is bounded by ctx.
func dialSSE(ctx context.Context, rawURL string, options HTTPClientOptions) (*sseConn, error) {
	c := &sseConn{}
	if err := c.in.init(rawURL, options); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	err := c.open()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *sseConn) open() error {
	resp, req, err := c.in.send(c.ctx, httpMessage{verb: http.MethodGet}, &clientSession{})
	if err != nil {
		return err
	}
	c.body = resp.Body
	if resp.StatusCode/100 != 2 {
		return newHTTPError(resp, req)
	}
	if kind := mediaType(resp.Header); kind != "text/event-stream" {
		return fmt.Errorf("%s answered GET with content type %q", req.URL.Host, kind)
	}
	c.events = newSSEReader(resp.Body, c.in.options.Limits.size(), new(blockPool))
	for {
		e, err := c.events.next()
		if err != nil {
			return c.ended(err)
		}
		if e.Name == "endpoint" {
			return c.postTo(string(e.Data), req)
		}
	}
}

// postTo takes the URL from the endpoint event. Whoever could name another
// origin there could have our credentials sent to it.
func (c *sseConn) postTo(ref string, req *http.Request) error {
	target, err := req.URL.Parse(ref)
	if err != nil {
		return errors.New("the endpoint event has no URL")
	}
	if origin(target) != origin(req.URL) {
		return fmt.Errorf("the endpoint event leads to another origin, %s", origin(target))
	}
	target.User, target.Fragment = nil, ""
	c.out.options, c.out.authorization, c.out.transport = c.in.options, c.in.authorization, c.in.transport
	c.out.url.Store(target)
	return nil
}

// Read implements Conn.
func (c *sseConn) Read() (Message, error) {
	for len(c.pending) == 0 {
		e, err := c.events.next()
		if err != nil {
			return Message{}, c.ended(err)
		}
		if e.Name != "" {
			continue
		}
		if c.pending, err = parseEvent(e.Data, c.in.options.Limits); err != nil {
			return Message{}, newGarbage(e.Data, e.Data, len(e.Data), err)
		}
	}
	m := c.pending[0]
	c.pending = c.pending[1:]
	return m, nil
}

// ended is why the stream is over.
func (c *sseConn) ended(err error) error {
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case err == io.EOF, errors.Is(err, ErrTooLong):
		return err
	}
	return &NetError{Reason: ReasonLost, Host: c.in.url.Load().Host, Err: err}
}

// Write implements Conn. It returns when the server has accepted the message.
func (c *sseConn) Write(ctx context.Context, m Message) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.wg.Add(1)
	c.mu.Unlock()
	defer c.wg.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	msg := httpMessage{verb: http.MethodPost, body: encodeRequest(m)}
	if m.Kind() == KindRequest && countsRepeats(m.Method) {
		if msg.repeats = m.repeats; msg.repeats == nil {
			msg.repeats = new(Repeats)
		}
	}
	resp, req, err := c.out.send(ctx, msg, &clientSession{})
	if e, ok := errors.AsType[*NetError](err); ok && e.Unsent {
		return err
	}
	if err != nil {
		return perhapsSent{err}
	}
	defer finish(resp.Body)
	if resp.StatusCode/100 != 2 {
		return perhapsSent{newHTTPError(resp, req)}
	}
	return nil
}

// Close implements Conn.
func (c *sseConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(ErrClosed)
	if c.body != nil {
		c.body.Close()
	}
	c.wg.Wait()
	c.in.closeIdle()
	return nil
}
