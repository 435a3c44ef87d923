package wire

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// A lineReader cuts a stream into lines. A line costs one allocation of its own
// size, whatever its length: short ones pass through a small buffer, long ones
// through chunks that all readers share, and what is over the limit is read and
// thrown away.
type lineReader struct {
	src io.Reader
	max int // bytes of one line

	small      []byte   // the reader's own buffer
	cur        []byte   // where to read into: small or a chunk
	start, end int      // cur[start:end] has been read and not yet returned
	full       [][]byte // buffers that the current line has filled up before cur
	first      int      // where it begins in the first of them
	err        error    // of src, once it had one
}

const (
	smallBuffer = 8 << 10
	chunkSize   = 64 << 10
)

// chunks are the buffers for long lines.
var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

func newLineReader(src io.Reader, max int) *lineReader {
	small := make([]byte, smallBuffer)
	return &lineReader{src: src, max: max, small: small, cur: small}
}

// next returns the next line, without its end, in memory of its own, and the
// number of its bytes. If they are too many it returns ErrTooLong with the
// beginning of the line; the next call goes on behind it.
func (l *lineReader) next() (line []byte, size int, err error) {
	scanned := l.start
	for {
		if i := bytes.IndexByte(l.cur[scanned:l.end], '\n'); i >= 0 {
			return l.take(scanned + i)
		}
		scanned = l.end
		size = l.length(l.end)
		switch {
		case size > l.max:
			return l.discard()
		case l.err != nil && size > 0: // the last line may lack its end
			return l.take(l.end)
		case l.err != nil:
			return nil, 0, l.err
		}
		if l.end == len(l.cur) {
			l.makeRoom()
			scanned = l.end
		}
		l.fill()
	}
}

func (l *lineReader) fill() {
	n, err := l.src.Read(l.cur[l.end:])
	l.end += n
	l.err = err
}

// length is that of the line if it ended at cur[end].
func (l *lineReader) length(end int) int {
	n := end - l.start
	for _, buf := range l.full {
		n += len(buf)
	}
	return n - l.first
}

// makeRoom goes on to a fresh buffer, or moves what is in the current one to its
// beginning if that helps.
func (l *lineReader) makeRoom() {
	if len(l.full) == 0 && l.start > len(l.cur)/2 {
		l.end = copy(l.cur, l.cur[l.start:l.end])
		l.start = 0
		return
	}
	if len(l.full) == 0 {
		l.first = l.start
	}
	l.full = append(l.full, l.cur)
	l.cur = chunks.Get().(*[chunkSize]byte)[:]
	l.start, l.end = 0, 0
}

// take returns the line that ends before cur[end].
func (l *lineReader) take(end int) ([]byte, int, error) {
	size := l.length(end)
	keep, err := size, error(nil)
	if size > l.max {
		keep, err = min(size, garbageShown), ErrTooLong
	}
	line := make([]byte, 0, keep)
	for i, buf := range l.full {
		if i == 0 {
			buf = buf[l.first:]
		}
		line = append(line, buf[:min(len(buf), keep-len(line))]...)
	}
	line = append(line, l.cur[l.start:l.start+keep-len(line)]...)
	l.drop(end + 1)
	return line, size, err
}

// drop forgets what is before cur[next] and the buffers that are not needed.
func (l *lineReader) drop(next int) {
	for _, buf := range l.full {
		l.reuse(buf)
	}
	l.full, l.first = l.full[:0], 0
	if next < l.end {
		l.start = next
		return
	}
	l.reuse(l.cur)
	l.cur, l.start, l.end = l.small, 0, 0
}

func (l *lineReader) reuse(buf []byte) {
	if len(buf) == chunkSize {
		chunks.Put((*[chunkSize]byte)(buf))
	}
}

// discard reads on to the end of a line that is too long and returns its
// beginning. A line that does not even end then is no line at all.
func (l *lineReader) discard() (head []byte, size int, err error) {
	size = l.length(l.end)
	head, _, _ = l.take(l.end)
	l.cur = chunks.Get().(*[chunkSize]byte)[:]
	for l.err == nil {
		if size/16 > l.max {
			l.err = ErrNoise
			break
		}
		l.fill()
		i := bytes.IndexByte(l.cur[:l.end], '\n')
		if i >= 0 {
			size += i
			l.drop(i + 1)
			break
		}
		size += l.end
		l.end = 0
	}
	return head, size, ErrTooLong
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
	buf := make([]byte, chunkSize)
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
