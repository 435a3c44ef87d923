package wire

import (
	"net/http"
	"strconv"
	"sync"
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
	writeJSON(w, timeout, status, body, nil, "")
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
// no answer.
func writeJSON(w http.ResponseWriter, timeout time.Duration, status int, head, middle []byte, tail string) []byte {
	header := w.Header()
	setFixedHeaders(header)
	header["Content-Type"] = contentTypeJSON
	size := len(head) + len(middle) + len(tail)
	header["Content-Length"] = []string{strconv.Itoa(size)}
	control := http.NewResponseController(w)
	w.WriteHeader(status)
	if size <= smallAnswer {
		head = append(append(head, middle...), tail...)
		writePieces(w, control, timeout, head)
	} else if writePieces(w, control, timeout, head) && writePieces(w, control, timeout, middle) {
		writePieces(w, control, timeout, []byte(tail))
	}
	if control.Flush() == nil {
		control.SetWriteDeadline(time.Time{})
	}
	return head
}

// writePiece is how much is written under one deadline: a client that reads
// slowly but steadily is served, one that has stopped is dropped.
const writePiece = 256 << 10

func writePieces(w http.ResponseWriter, control *http.ResponseController, timeout time.Duration, data []byte) bool {
	for len(data) > 0 {
		n := min(len(data), writePiece)
		control.SetWriteDeadline(time.Now().Add(timeout))
		if _, err := w.Write(data[:n]); err != nil {
			return false
		}
		data = data[n:]
	}
	return true
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
}

// pump writes what is in the stream for this reader.
func (e *eventWriter) pump(st *outStream, r reader) streamState {
	if e.control == nil {
		e.begin()
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
	e.flush()
	if e.broken {
		return streamLost
	}
	return state
}

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
		e.broken = !writePieces(e.w, e.control, e.times.write, data)
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
	e.write([]byte(":\n\n"))
	e.flush()
}

// stop is for the end of the stream. The mark of that is still to be written,
// by the HTTP server, which then sets deadlines for the next response.
func (e *eventWriter) stop() {
	if e.timer != nil {
		e.timer.Stop()
		if !e.broken {
			e.control.SetWriteDeadline(time.Now().Add(e.times.write))
		}
	}
}
