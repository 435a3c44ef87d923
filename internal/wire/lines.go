package wire

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"time"
)

// A lineReader cuts a stream into lines. A line costs one allocation of its own
// size, whatever its length: short ones pass through the window, long ones
// through a spool, and what is over the limit is read and thrown away.
type lineReader struct {
	src        io.Reader
	window     []byte // window[start:end] has been read and not yet consumed
	start, end int
	long       spool // the beginning of a line that does not fit into the window
	blocks     blockPool
	err        error  // of src, once it had one
	ending     []byte // the last bytes of the last line that was too long
	litter     int    // bytes of large lines since memory was last cleared
}

const (
	lineWindow = 16 << 10
	endingKept = 64 // bytes
)

func newLineReader(src io.Reader, limit int) *lineReader {
	l := &lineReader{src: src, window: make([]byte, lineWindow)}
	l.long = spool{pool: &l.blocks, limit: limit}
	return l
}

// next returns the next line, without its end, in memory of its own, and the
// number of its bytes. If they are too many it returns ErrTooLong with the
// beginning of the line; the next call goes on behind it.
func (l *lineReader) next() (line []byte, size int, err error) {
	for scanned := l.start; ; {
		i := bytes.IndexByte(l.window[scanned:l.end], '\n')
		switch {
		case i >= 0:
			end := scanned + i
			line, size, err = l.finish(l.window[l.start:end])
			l.start = end + 1
			return line, size, err
		case l.err != nil && l.start == l.end && l.long.size == 0:
			return nil, 0, l.err
		case l.err != nil: // the last line may lack its end
			line, size, err = l.finish(l.window[l.start:l.end])
			l.start = l.end
			return line, size, err
		case l.start > 0:
			l.end = copy(l.window, l.window[l.start:l.end])
			l.start = 0
		case l.end == len(l.window):
			if l.long.write(l.window) != nil {
				return l.discard()
			}
			l.end = 0
			if !l.readLong() {
				return l.discard()
			}
			scanned = 0
			continue
		}
		scanned = l.end
		l.fill()
	}
}

// readLong reads on in a line that does not fit into the window, up to the piece
// with its end, which it leaves in the window, or the end of the stream. It
// reports false if the line is too long.
func (l *lineReader) readLong() bool {
	for l.err == nil {
		tail := l.long.tail()
		n, err := l.src.Read(tail)
		l.err = err
		if bytes.IndexByte(tail[:n], '\n') >= 0 {
			if n > len(l.window) {
				l.window = make([]byte, blockSize)
			}
			l.end = copy(l.window, tail[:n])
			return true
		}
		if l.long.size += n; l.long.size > l.long.limit {
			return false
		}
	}
	return true
}

func (l *lineReader) fill() {
	n, err := l.src.Read(l.window[l.end:])
	l.end += n
	l.err = err
}

// finish returns the line of which rest is the last piece.
func (l *lineReader) finish(rest []byte) ([]byte, int, error) {
	size := l.long.size + len(rest)
	if size > l.long.limit {
		head := l.head(rest)
		l.endsWith(rest)
		return head, size, ErrTooLong
	}
	if l.long.size == 0 {
		return bytes.Clone(rest), size, nil
	}
	if err := l.long.write(rest); err != nil {
		return nil, size, err
	}
	l.clear(size)
	line := l.long.take()
	l.long.release()
	return line, size, nil
}

// maxLitter is how many bytes of large lines may pass before memory is cleared.
const maxLitter = 16 << 20

// clear makes room for a large line. Those before it are no longer needed as a
// rule, but the runtime would let a multiple of what is in use pile up before it
// looks.
func (l *lineReader) clear(size int) {
	if size < maxLitter/16 {
		return
	}
	if l.litter += size; l.litter > maxLitter {
		l.litter = size
		runtime.GC()
	}
}

// head returns the beginning of a line that is too long; rest is what comes
// after the spool, which it empties.
func (l *lineReader) head(rest []byte) []byte {
	l.ending = l.ending[:0]
	for i, b := range l.long.blocks {
		l.endsWith(b[:min(blockSize, l.long.size-i*blockSize)])
	}
	if l.long.size > 0 {
		rest = l.long.blocks[0][:min(l.long.size, garbageShown)]
	}
	head := bytes.Clone(rest[:min(len(rest), garbageShown)])
	l.long.release()
	return head
}

// endsWith takes note of the last piece so far of a line that is too long.
func (l *lineReader) endsWith(piece []byte) {
	l.ending = append(l.ending, piece[max(0, len(piece)-endingKept):]...)
	l.ending = append(l.ending[:0], l.ending[max(0, len(l.ending)-endingKept):]...)
}

// discard reads on to the end of a line that is too long and returns its
// beginning. A line that does not even end then is no line at all.
func (l *lineReader) discard() (head []byte, size int, err error) {
	size = l.long.size
	head = l.head(l.window)
	for {
		if i := bytes.IndexByte(l.window[:l.end], '\n'); i >= 0 {
			l.endsWith(l.window[:i])
			l.start = i + 1
			return head, size + i, ErrTooLong
		}
		l.endsWith(l.window[:l.end])
		size += l.end
		l.end = 0
		if size/16 > l.long.limit {
			l.err = ErrNoise
		}
		if l.err != nil {
			return head, size, ErrTooLong
		}
		l.fill()
	}
}

// A pump reads from a source whose Read cannot be interrupted, such as a
// blocking standard input, so that a Read from the pump can.
type pump struct {
	src   io.Reader
	out   chan gulp
	again chan struct{} // room for one: the consumer is done with the last gulp
	quit  chan struct{}
	stop  func() // makes Read return

	last     gulp // the consumer's
	borrowed bool // last.data is in the pump's buffer
}

type gulp struct {
	data []byte
	err  error
}

func newPump(src io.Reader) *pump {
	p := &pump{src: src, out: make(chan gulp), again: make(chan struct{}, 1), quit: make(chan struct{})}
	p.stop = sync.OnceFunc(func() { close(p.quit) })
	go p.run() // ends with the source, or after one more Read: nothing can end it before
	return p
}

func (p *pump) run() {
	buf := make([]byte, lineWindow)
	for {
		n, err := p.src.Read(buf)
		select {
		case p.out <- gulp{buf[:n], err}:
		case <-p.quit:
			return
		}
		if err != nil {
			return
		}
		select {
		case <-p.again:
		case <-p.quit:
			return
		}
	}
}

func (p *pump) Read(b []byte) (int, error) {
	if len(p.last.data) == 0 && p.last.err == nil {
		if p.borrowed {
			p.again <- struct{}{}
		}
		select {
		case p.last = <-p.out:
			p.borrowed = true
		case <-p.quit:
			return 0, ErrClosed
		}
	}
	n := copy(b, p.last.data)
	p.last.data = p.last.data[n:]
	if len(p.last.data) > 0 {
		return n, nil
	}
	return n, p.last.err
}

// interruptible reports whether closing r ends a Read that waits for input.
func interruptible(r io.Reader) bool {
	if _, ok := r.(io.Closer); !ok {
		return false
	}
	// A file that the runtime's poller does not watch has no deadlines, and a
	// Read of it cannot be ended.
	if file, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok {
		return file.SetReadDeadline(time.Time{}) == nil
	}
	return true
}
