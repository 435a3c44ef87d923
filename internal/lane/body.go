package lane

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A body is that of a request.
type body struct {
	of    *response
	ended atomic.Bool // nothing is left

	mu     sync.Mutex
	left   int64 // bytes to come
	closed bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

func (b *body) read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := b.of.conn.take(p[:min(int64(len(p)), b.left)])
	if b.left -= int64(n); b.left == 0 {
		b.ended.Store(true)
		return n, io.EOF
	}
	if err != nil {
		b.of.ctx.end(context.Canceled)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.close()
	return nil
}

// close says how much was left unread.
func (b *body) close() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.left
}

// drain reads what the handler has left, if that is not much, so that the
// connection can go on: it reports whether it can.
func (b *body) drain() bool {
	if b.ended.Load() {
		return true
	}
	if b.close() >= maxDrain {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.of.conn.SetReadDeadline(after(b.of.conn.server.http.ReadTimeout))
	scratch := make([]byte, 4<<10)
	for b.left > 0 {
		if _, err := b.read(scratch); err != nil && err != io.EOF {
			return false
		}
	}
	return true
}

// maxDrain is how many bytes of a body are read in vain at most.
const maxDrain = 256 << 10

// lingerTime is how long a client may go on sending what nobody reads.
const lingerTime = 500 * time.Millisecond

// linger lets a client that is still sending read the response, which a reset
// would take away from it.
func (c *conn) linger() {
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.Conn)
}
