package wire

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// buffers holds the memory of small answers.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, smallAnswer); return &b }}

// smallAnswer is up to which size an answer is copied together to be written at
// once.
const smallAnswer = 4 << 10

// keepBuffer gives a buffer back, unless it has grown too large to keep.
func keepBuffer(buf *[]byte, used []byte) {
	if cap(used) <= 64<<10 {
		*buf = used[:0]
		buffers.Put(buf)
	}
}

func writeMessage(w http.ResponseWriter, timeout time.Duration, status int, m Message) {
	buf := buffers.Get().(*[]byte)
	body := m.AppendTo((*buf)[:0])
	writeJSON(w, nil, timeout, status, body, nil, "")
	keepBuffer(buf, body)
}

// writeStatus writes a response without a body.
func writeStatus(w http.ResponseWriter, timeout time.Duration, status int) {
	header := w.Header()
	setFixedHeaders(header)
	if status != http.StatusNoContent {
		header["Content-Length"] = valueZero
	}
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Now().Add(timeout))
	w.WriteHeader(status)
	if control.Flush() == nil {
		control.SetWriteDeadline(time.Time{})
	}
}

// writeJSON writes a body in up to three pieces and returns the first, which it
// may have appended to. It flushes, so that nothing is left to be written when
// no deadline holds any more. That a client has gone is no error here: it needs
// no answer. What is counted in the budget may be given up.
func writeJSON(w http.ResponseWriter, counted *Budget, timeout time.Duration, status int, head, middle []byte, tail string) []byte {
	header := w.Header()
	setFixedHeaders(header)
	header["Content-Type"] = contentTypeJSON
	size := len(head) + len(middle) + len(tail)
	header["Content-Length"] = []string{strconv.Itoa(size)}
	control := http.NewResponseController(w)
	w.WriteHeader(status)
	if size <= smallAnswer {
		head = append(append(head, middle...), tail...)
		writePieces(w, control, timeout, head, nil)
	} else {
		var large *writing
		if size > largeSize && counted != nil {
			large = newWriting(http.NewResponseController(w))
			counted.list(&large.holding, size)
			defer counted.unlist(&large.holding)
		}
		if writePieces(w, control, timeout, head, large) && writePieces(w, control, timeout, middle, large) {
			writePieces(w, control, timeout, []byte(tail), large)
		}
	}
	if control.Flush() == nil {
		control.SetWriteDeadline(time.Time{})
	}
	return head
}

// writePiece is how much is written under one deadline: a client that reads
// slowly but steadily is served, one that has stopped is dropped.
const writePiece = 256 << 10

// large is what the data are counted as, nil if they are not.
func writePieces(w http.ResponseWriter, control *http.ResponseController, timeout time.Duration, data []byte, large *writing) bool {
	for len(data) > 0 {
		n := min(len(data), writePiece)
		control.SetWriteDeadline(time.Now().Add(timeout))
		if large != nil && large.given.Load() { // after the deadline, which is not to undo it
			return false
		}
		if _, err := w.Write(data[:n]); err != nil {
			return false
		}
		if large != nil {
			large.moves()
		}
		data = data[n:]
	}
	return true
}

// A writing is a holding of bytes that are being written. It is given up by
// breaking off the response.
type writing struct {
	holding
	control *http.ResponseController
	given   atomic.Bool // up
}

func newWriting(control *http.ResponseController) *writing {
	w := &writing{control: control}
	w.of = w
	return w
}

func (w *writing) giveUp() {
	w.given.Store(true)
	w.control.SetWriteDeadline(time.Unix(1, 0))
}

// An eventWriter is the writing side of a response that is a stream of events.
// The headers go out with the first pump; until then the response may still
// become another.
type eventWriter struct {
	w       http.ResponseWriter
	times   *httpTimes
	control *http.ResponseController // nil until the headers are out
	timer   *time.Timer
	batch   []segments
	broken  bool

	budget *Budget
	st     *outStream // nil until the headers are out
	unread *writing   // what of the stream the client has not got
}

// pump writes what is in the stream for this reader.
func (e *eventWriter) pump(st *outStream, r reader) streamState {
	first := e.control == nil
	if first {
		e.begin()
		e.st, e.unread = st, newWriting(e.control)
		st.count(e.budget, &e.unread.holding)
	}
	var state streamState
	var after time.Duration
	e.batch, state, after = st.take(r, e.batch[:0])
	for i, event := range e.batch {
		for _, part := range event {
			e.write(part)
		}
		e.batch[i] = segments{}
	}
	if state == streamHangsUp {
		e.write([]byte("retry: " + strconv.FormatInt(after.Milliseconds(), 10) + "\n\n"))
	}
	if first && len(e.batch) == 0 && state == streamWaits {
		e.write(comment) // some that are between wait for the first byte of a body
	}
	e.flush()
	if e.broken {
		return streamLost
	}
	st.counted(&e.unread.holding)
	return state
}

// comment is an event that says nothing.
var comment = []byte(":\n\n")

func (e *eventWriter) begin() {
	header := e.w.Header()
	setFixedHeaders(header)
	header["Content-Type"] = contentTypeSSE
	header["X-Accel-Buffering"] = valueNoBuffering
	e.control = http.NewResponseController(e.w)
	e.w.WriteHeader(http.StatusOK)
	e.timer = time.NewTimer(e.times.keepAlive)
}

func (e *eventWriter) write(data []byte) {
	if !e.broken {
		e.broken = !writePieces(e.w, e.control, e.times.write, data, e.unread)
	}
}

func (e *eventWriter) flush() {
	if e.broken {
		return
	}
	e.control.SetWriteDeadline(time.Now().Add(e.times.write))
	e.broken = e.control.Flush() != nil
	e.timer.Reset(e.times.keepAlive)
}

// quiet fires when nothing has been written for a while.
func (e *eventWriter) quiet() <-chan time.Time {
	if e.timer == nil {
		return nil
	}
	return e.timer.C
}

// comment shows the client, and what is between, that the stream lives.
func (e *eventWriter) comment() {
	e.write(comment)
	e.flush()
}

// stop is for the end of the stream. The mark of that is still to be written,
// by the HTTP server, which then sets deadlines for the next response.
func (e *eventWriter) stop() {
	if e.timer != nil {
		e.st.uncount(e.budget, &e.unread.holding)
		e.timer.Stop()
		if !e.broken {
			e.control.SetWriteDeadline(time.Now().Add(e.times.write))
		}
	}
}
