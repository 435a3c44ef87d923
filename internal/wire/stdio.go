package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// StreamConn carries messages over a pair of byte streams, one message to a
// line: the stdio transport, for either side. It reads what real servers write:
// lines that are no messages, over-long lines, blank lines, carriage returns and
// a byte order mark do not end it.
type StreamConn struct {
	opts  StreamOptions
	src   io.Reader // what Close closes, if it can be
	pump  *pump     // nil if closing src is enough
	lines *lineReader
	w     io.WriteCloser

	// For the one goroutine that reads.
	begun bool      // the first line has been read
	batch []Message // the rest of a batch
	noise noise

	now *nowWriter // nil if every write might wait

	mu      sync.Mutex
	err     error         // why nothing more is written
	deaf    bool          // nothing more is read
	writing bool          // somebody is
	out     []byte        // what waits to be written; a line may have been begun
	queued  int           // how many
	spare   []byte        // the other buffer
	large   sync.Pool     // *[]byte, buffers that are too large to be the spare
	wake    sync.Cond     // there is something in out and nobody writes, or err is set
	room    chan struct{} // closed and replaced when there is room in out
	waiting int           // for room

	written chan struct{} // closed when the goroutine that writes has ended
	close   func() error
}

var _ Conn = (*StreamConn)(nil)

// StreamOptions are the limits of a StreamConn.
type StreamOptions struct {
	MaxMessage int // bytes of one incoming message; 0 means DefaultMaxMessage
	MaxDepth   int // nesting of an incoming message; 0 means DefaultMaxDepth

	// MaxBatch is how many messages an incoming batch may have, which revision
	// 2025-03-26 allows; they are read one by one. 0 means batches are garbage.
	MaxBatch int

	// Control lets the other side say something that is no message: Read
	// returns its control lines as *ControlLine errors. Else they are garbage.
	Control bool
}

// Output waiting to be written. A longer message passes when it is alone, so
// that large ones reuse one buffer of their size instead of growing a larger.
const (
	maxQueuedLines = 64
	maxQueuedBytes = 1 << 20
)

// keptBuffer is the size up to which an idle conn keeps a buffer for output.
const keptBuffer = 64 << 10

// flushTime is how long Close waits for output that is on its way.
const flushTime = time.Second

// NewStreamConn returns a conn that reads from r and writes to w, and closes
// both (r if it is an io.Closer) in the end. They may be the same value: one
// io.ReadWriteCloser is enough.
func NewStreamConn(r io.Reader, w io.WriteCloser, opts *StreamOptions) *StreamConn {
	c := &StreamConn{src: r, w: w, now: newNowWriter(w), room: make(chan struct{}), written: make(chan struct{})}
	if opts != nil {
		c.opts = *opts
	}
	c.wake.L = &c.mu
	if !interruptible(r) {
		c.pump = newPump(r)
		r = c.pump
	}
	c.lines = newLineReader(r, c.limits().size())
	c.close = sync.OnceValue(c.shut)
	go c.write()
	return c
}

func (c *StreamConn) limits() Limits { return Limits{Size: c.opts.MaxMessage, Depth: c.opts.MaxDepth} }

// Read returns the next message, or a *Garbage error for what it skipped.
func (c *StreamConn) Read() (Message, error) {
	for len(c.batch) == 0 {
		line, size, err := c.lines.next()
		switch {
		case errors.Is(err, ErrTooLong):
			// Its size is not held against it: it may well have been a message.
			return Message{}, c.noise.skip(newGarbage(line, c.lines.ending, size, err), 0)
		case err != nil:
			return Message{}, c.ended(err)
		}
		if !c.begun {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
			c.begun = true
		}
		if skipSpace(line, 0) == len(line) {
			continue
		}
		if c.opts.Control && line[0] == controlMark {
			return Message{}, &ControlLine{Text: string(line[1:])}
		}
		m, err := Parse(line, c.limits())
		if err == nil {
			c.noise.paid()
			return m, nil
		}
		if c.opts.MaxBatch > 0 && IsBatch(line) {
			err = c.readBatch(line)
		}
		if err != nil {
			return Message{}, c.noise.skip(newGarbage(line, line, size, err), size)
		}
		c.noise.paid()
	}
	m := c.batch[0]
	c.batch = c.batch[1:]
	return m, nil
}

// readBatch reads the messages of a batch. If one is invalid none is read: the
// sender cannot know which of them arrived.
func (c *StreamConn) readBatch(line []byte) error {
	messages, errs, err := ParseBatch(line, c.limits(), c.opts.MaxBatch)
	if err != nil {
		return err
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	c.batch = messages
	return nil
}

// ended says why there is no more input. That the conn was closed, or could not
// write any more, is the better reason.
func (c *StreamConn) ended(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.deaf:
		return io.EOF
	}
	return err
}

// Write sends a message if that is possible at once, and queues it otherwise.
func (c *StreamConn) Write(ctx context.Context, m Message) error {
	size := m.size()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.makeRoom(ctx, size); err != nil {
		return err
	}
	start := len(c.out)
	c.out = m.AppendTo(c.grown(size))
	c.endLine(start)
	return nil
}

// controlMark begins a control line. No message begins so.
const controlMark = '!'

// A ControlLine is what the program at the other end of a stream says itself,
// beside the messages that it carries for others: those are JSON objects, each
// on a line of its own, and so can never be taken for one.
type ControlLine struct{ Text string }

func (c *ControlLine) Error() string { return "control line: " + c.Text }

// WriteControl sends a control line, in order with the messages before and after
// it. The other side must have StreamOptions.Control.
func (c *StreamConn) WriteControl(ctx context.Context, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.makeRoom(ctx, len(text)); err != nil {
		return err
	}
	start := len(c.out)
	c.out = append(append(c.out, controlMark), text...)
	c.endLine(start)
	return nil
}

// makeRoom waits until size more bytes can be queued; c.mu is held.
func (c *StreamConn) makeRoom(ctx context.Context, size int) error {
	for c.err == nil && len(c.out) > 0 && (c.queued >= maxQueuedLines || len(c.out)+size > maxQueuedBytes) {
		if err := c.awaitRoom(ctx); err != nil {
			return err
		}
	}
	return c.err
}

// endLine makes one line of what was queued from start on, and has it written;
// c.mu is held.
func (c *StreamConn) endLine(start int) {
	oneLine(c.out[start:])
	c.out = append(c.out, '\n')
	c.queued++
	switch {
	case c.writing: // whoever does will go on with this
	case c.now != nil && len(c.out) <= maxAtOnce:
		c.writeNow()
	default:
		c.wake.Signal()
	}
}

// maxAtOnce is more than what a pipe takes at once.
const maxAtOnce = 64 << 10

// writeNow writes what is queued, as far as nobody has to wait, and leaves the
// rest to the goroutine that can; c.mu is held before and after.
func (c *StreamConn) writeNow() {
	c.writing = true
	for range 4 { // others may add to it, but not for ever
		lines := c.takeOut()
		c.mu.Unlock()
		n, err := c.now.write(lines)
		c.mu.Lock()
		if n < len(lines) || err != nil {
			// The goroutine will see what is wrong, if something is.
			c.out = append(lines[n:len(lines):len(lines)], c.out...)
			break
		}
		c.reuse(lines)
		if len(c.out) == 0 {
			break
		}
	}
	c.writing = false
	if len(c.out) > 0 || c.err != nil {
		c.wake.Signal()
	}
}

// grown returns c.out with room for size more bytes; c.mu is held.
func (c *StreamConn) grown(size int) []byte {
	if need := len(c.out) + size; need > keptBuffer && need > cap(c.out) {
		if large, ok := c.large.Get().(*[]byte); ok && cap(*large) >= need {
			return append((*large)[:0], c.out...)
		}
	}
	return slices.Grow(c.out, size)
}

// reuse makes a buffer that was written available again; c.mu is held.
func (c *StreamConn) reuse(buf []byte) {
	if cap(buf) > keptBuffer {
		large := buf // so that only these cost an allocation
		c.large.Put(&large)
		return
	}
	c.spare = buf[:0]
}

// awaitRoom waits without c.mu, which is held before and after.
func (c *StreamConn) awaitRoom(ctx context.Context) error {
	room := c.room
	c.waiting++
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// oneLine makes a frame of JSON text: line ends in it can only be white space
// between tokens.
func oneLine(text []byte) {
	for _, end := range [...]byte{'\n', '\r'} {
		for rest := text; ; {
			i := bytes.IndexByte(rest, end)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}

// write writes what is queued, all of it at a time, until the conn ends.
func (c *StreamConn) write() {
	defer close(c.written)
	for {
		lines := c.takeQueued()
		if len(lines) == 0 {
			return
		}
		if _, err := c.w.Write(lines); err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrClosed, err))
			c.stopReading()
			return
		}
		c.mu.Lock()
		c.writing = false
		c.reuse(lines)
		c.mu.Unlock()
	}
}

// takeQueued waits for output and returns it; nothing when there will be none.
func (c *StreamConn) takeQueued() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing || len(c.out) == 0 && c.err == nil {
		c.wake.Wait()
	}
	c.writing = true
	return c.takeOut()
}

// takeOut empties the queue; c.mu is held.
func (c *StreamConn) takeOut() []byte {
	lines := c.out
	c.out, c.spare, c.queued = c.spare, nil, 0
	c.notifyRoom()
	return lines
}

// notifyRoom wakes those who wait for room; c.mu is held.
func (c *StreamConn) notifyRoom() {
	if c.waiting > 0 {
		close(c.room)
		c.room, c.waiting = make(chan struct{}), 0
	}
}

// fail makes every Write fail from now on. What is queued is still written if
// that is possible.
func (c *StreamConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.wake.Signal()
	c.notifyRoom()
}

// stopReading makes Read return.
func (c *StreamConn) stopReading() {
	if c.pump != nil {
		c.pump.stop()
	}
	if closer, ok := c.src.(io.Closer); ok {
		closer.Close() // it may be the same as c.w, and closed already
	}
}

// CloseWrite writes what is queued, if it can be written within a second, and
// closes the stream that is written to. The other side sees the end of its input
// and can still answer. It is of use if the two streams are closed one by one.
func (c *StreamConn) CloseWrite() error {
	c.fail(ErrClosed)
	c.awaitWritten()
	return c.w.Close()
}

// CloseRead ends the input: Read returns io.EOF, as if the other side had closed
// its stream. What is written still arrives, if the two streams are not one.
func (c *StreamConn) CloseRead() {
	c.mu.Lock()
	c.deaf = true
	c.mu.Unlock()
	c.stopReading()
}

// Close writes what is queued, if it can be written within a second, and closes
// both streams.
func (c *StreamConn) Close() error { return c.close() }

func (c *StreamConn) shut() error {
	c.fail(ErrClosed)
	c.awaitWritten()
	err := c.w.Close()
	c.stopReading()
	c.awaitWritten() // a write that even this does not end is left to its fate
	return err
}

func (c *StreamConn) awaitWritten() {
	patience := time.NewTimer(flushTime)
	defer patience.Stop()
	select {
	case <-c.written:
	case <-patience.C:
	}
}

// noise decides when a stream that carries garbage is to be given up: after more
// than maxNoiseLines or maxNoiseBytes of it within noiseWindow and without a
// message. Who speaks the protocol may print as well; who never did is hardly a
// server, and who waits for it is told so soon.
type noise struct {
	spoke        bool // there was a message
	since        time.Time
	lines, bytes int
}

const (
	noiseWindow      = 10 * time.Second
	maxNoiseLines    = 1000
	maxStrangerLines = 100 // of one that never sent a message
	maxNoiseBytes    = 1 << 20
)

// paid takes note of a message.
func (n *noise) paid() { n.spoke, n.lines, n.bytes = true, 0, 0 }

// skip counts garbage, of which so many bytes count, and returns it, or ErrNoise
// if it is too much. An answer that cannot be read is not noise.
func (n *noise) skip(g *Garbage, bytes int) error {
	if !g.Answers.IsZero() {
		n.paid()
		return g
	}
	if now := time.Now(); now.Sub(n.since) > noiseWindow {
		*n = noise{spoke: n.spoke, since: now}
	}
	n.lines++
	n.bytes += bytes
	most := maxNoiseLines
	if !n.spoke {
		most = maxStrangerLines
	}
	if n.lines > most || n.bytes > maxNoiseBytes {
		return fmt.Errorf("%w: %d bad lines, %d bytes within %v", ErrNoise, n.lines, n.bytes, noiseWindow)
	}
	return g
}
