package wire

import (
	"bytes"
	"io"
	"time"
)

// A stream may ask for how long to wait before it is resumed. Below minRetry
// that is taken for carelessness (many servers write 0) and becomes
// defaultRetry; above maxRetry it becomes maxRetry.
const (
	minRetry     = 100 * time.Millisecond
	defaultRetry = time.Second
	maxRetry     = time.Minute
)

const (
	maxEventID   = 1 << 10  // bytes; a longer id is ignored like a malformed one
	maxEventName = 1 << 8   // bytes; the rest of a longer name is cut off
	sseWindow    = 16 << 10 // bytes read at a time
)

// sseReader reads server-sent events as the WHATWG specification of HTML
// interprets them. It holds one event at most, and no event whose data exceeds
// the limit. It is not safe for concurrent use.
type sseReader struct {
	src        io.Reader
	window     []byte // window[start:end] has been read and not yet consumed
	start, end int
	skipLF     bool // the last line ended in CR: a LF right after belongs to it
	begun      bool // the place of a byte order mark is behind us

	lastID string        // of the last complete event that had one
	retry  time.Duration // 0 until the stream asks for one

	// The event being received.
	name    []byte
	id      []byte
	hasID   bool
	hasData bool
	data    spool
}

// sseEvent is an event that carried data.
type sseEvent struct {
	Name string // "" stands for "message"
	Data []byte // belongs to the receiver
}

func newSSEReader(src io.Reader, limit int, pool *blockPool) *sseReader {
	return &sseReader{src: src, window: make([]byte, sseWindow), data: spool{pool: pool, limit: limit}}
}

// reset makes the reader ready for another stream; it keeps its buffers.
func (r *sseReader) reset(src io.Reader) {
	r.data.clear()
	*r = sseReader{src: src, window: r.window, name: r.name[:0], id: r.id[:0], data: r.data}
}

// next returns the next event that has data. When the stream ends the event
// being received is dropped, as the specification asks, and the error is that
// of the stream, io.EOF for a regular end. ErrTooLong means that the event
// exceeds the limit; the stream is of no use after that.
func (r *sseReader) next() (sseEvent, error) {
	r.clearEvent()
	for {
		line, whole, err := r.linePart()
		if err != nil {
			return sseEvent{}, err
		}
		if len(line) > 0 || !whole {
			if err := r.field(line, whole); err != nil {
				return sseEvent{}, err
			}
			continue
		}
		if r.hasID {
			r.lastID = string(r.id)
		}
		if r.hasData {
			return sseEvent{Name: eventName(r.name), Data: r.data.take()}, nil
		}
		r.clearEvent()
	}
}

func (r *sseReader) clearEvent() {
	r.name, r.id, r.hasID, r.hasData = r.name[:0], r.id[:0], false, false
	r.data.clear()
}

func eventName(name []byte) string {
	if string(name) == "message" {
		return ""
	}
	return string(name)
}

// field interprets one line. line is its beginning, which holds the name of
// every field there is, and whole says that it is all of it.
func (r *sseReader) field(line []byte, whole bool) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		if r.hasData {
			if err := r.data.write([]byte{'\n'}); err != nil {
				return err
			}
		}
		r.hasData = true
		for {
			if err := r.data.write(value); err != nil {
				return err
			}
			if whole {
				return nil
			}
			var err error
			if value, whole, err = r.linePart(); err != nil {
				return err
			}
		}
	case "event":
		r.name = append(r.name[:0], value[:min(len(value), maxEventName)]...)
	case "id":
		if whole && validEventID(value) {
			r.id, r.hasID = append(r.id[:0], value...), true
		}
	case "retry":
		if d, ok := parseRetry(value); ok && whole {
			r.retry = d
		}
	}
	for !whole {
		var err error
		if _, whole, err = r.linePart(); err != nil {
			return err
		}
	}
	return nil
}

// validEventID reports whether the id can be sent back in a header. The
// specification rules out NUL; other control characters no header can carry.
func validEventID(id []byte) bool {
	for _, c := range id {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return len(id) <= maxEventID
}

func parseRetry(value []byte) (time.Duration, bool) {
	var d time.Duration
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		d = min(d*10+time.Duration(c-'0')*time.Millisecond, maxRetry)
	}
	if d < minRetry {
		d = defaultRetry
	}
	return d, len(value) > 0
}

// linePart returns the next part of a line, and whether it is the last one of
// it. Only a line longer than the window comes in several parts.
func (r *sseReader) linePart() ([]byte, bool, error) {
	if !r.begun {
		if err := r.skipBOM(); err != nil {
			return nil, false, err
		}
	}
	for scanned := 0; ; {
		if r.skipLF && r.start < r.end {
			if r.window[r.start] == '\n' {
				r.start++
			}
			r.skipLF = false
		}
		unread := r.window[r.start:r.end]
		if n := lineEnd(unread[scanned:]); n >= 0 {
			n += scanned
			r.skipLF = unread[n] == '\r'
			r.start += n + 1
			return unread[:n], true, nil
		}
		if len(unread) == len(r.window) {
			r.start = r.end
			return unread, false, nil
		}
		scanned = len(unread)
		if err := r.fill(); err != nil {
			return nil, false, err
		}
	}
}

// lineEnd is the index of the first CR or LF, -1 if there is none.
func lineEnd(p []byte) int {
	lf := bytes.IndexByte(p, '\n')
	if lf >= 0 {
		p = p[:lf]
	}
	if cr := bytes.IndexByte(p, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

func (r *sseReader) skipBOM() error {
	const bom = "\xef\xbb\xbf"
	for {
		head := r.window[r.start:r.end]
		if len(head) >= len(bom) || !bytes.HasPrefix([]byte(bom), head) {
			if bytes.HasPrefix(head, []byte(bom)) {
				r.start += len(bom)
			}
			r.begun = true
			return nil
		}
		if err := r.fill(); err != nil {
			return err
		}
	}
}

// fill reads more behind what is unread, which it moves to the front if need be.
func (r *sseReader) fill() error {
	if r.start > 0 {
		r.end = copy(r.window, r.window[r.start:r.end])
		r.start = 0
	}
	for range 100 {
		n, err := r.src.Read(r.window[r.end:])
		r.end += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
