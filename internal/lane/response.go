package lane

import (
	"bufio"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	writeBuffer = 8 << 10
	maxPending  = 2 << 10 // bytes of a body that may turn out to be all of it
	unknown     = -1
)

var errFinished = errors.New("the handler of this response has returned")

// A response is the http.ResponseWriter of one request; the request's context,
// body and URL are here to be allocated with it.
type response struct {
	conn   *conn
	ctx    requestContext
	body   body
	url    url.URL
	header http.Header // for the next response again

	out       *bufio.Writer // nil before WriteHeader and after finish
	status    int
	length    int64  // that of the body, as the handler said
	written   int64  // bytes of the body
	pending   []byte // those before it is decided how long it is
	typed     bool   // its type needs not to be found out
	committed bool   // the head is complete
	chunked   bool
	closing   bool // the connection ends with it
	finished  bool
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// SetReadDeadline is for http.ResponseController.
func (w *response) SetReadDeadline(t time.Time) error { return w.conn.SetReadDeadline(t) }

// SetWriteDeadline is for http.ResponseController.
func (w *response) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

// WriteHeader implements http.ResponseWriter. Afterwards there is no more of the
// request's body to read.
func (w *response) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic("invalid WriteHeader code " + strconv.Itoa(status))
	case status < 200 || w.finished:
		return
	case w.status != 0:
		w.conn.server.logf("http: superfluous response.WriteHeader call")
		return
	}
	w.status = status
	w.closing = w.conn.server.ending.Load() || strings.EqualFold(w.header.Get("Connection"), "close") || !w.body.drain()
	if values := w.header["Content-Length"]; len(values) > 0 {
		if n, err := strconv.ParseInt(values[0], 10, 64); err == nil && n >= 0 {
			w.length = n
		} else {
			w.conn.server.logf("http: invalid Content-Length of %q", values[0])
		}
	}
	_, typed := w.header["Content-Type"]
	w.typed = typed || w.header.Get("Content-Encoding") != ""

	w.out = w.conn.server.writers.Get().(*bufio.Writer)
	w.out.Reset(w.conn)
	line := append(w.out.AvailableBuffer(), "HTTP/1.1 "...)
	line = append(strconv.AppendInt(line, int64(status), 10), ' ')
	if text := http.StatusText(status); text != "" {
		line = append(line, text...)
	} else {
		line = strconv.AppendInt(append(line, "status code "...), int64(status), 10)
	}
	line = append(line, "\r\n"...)
	if _, ok := w.header["Date"]; !ok {
		line = append(append(append(line, "Date: "...), w.conn.server.now()...), "\r\n"...)
	}
	_, _ = w.out.Write(line) // here and below: the error stays until it is flushed
	w.writeHeader()
	if !w.bodyAllowed() {
		w.commit(nil)
	}
}

// writeHeader writes what the handler has set. What is no name is left out, and
// no value can end its line, as in net/http.
func (w *response) writeHeader() {
	for name, values := range w.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
			continue // these are for the lane to write
		}
		if !isToken(name) {
			continue
		}
		for _, value := range values {
			value = strings.Trim(lineEnds.Replace(value), " \t")
			line := append(append(w.out.AvailableBuffer(), name...), ": "...)
			_, _ = w.out.Write(append(append(line, value...), "\r\n"...))
		}
	}
}

var lineEnds = strings.NewReplacer("\n", " ", "\r", " ")

func (w *response) bodyAllowed() bool {
	return w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// commit completes the head. first is how the body begins.
func (w *response) commit(first []byte) {
	w.committed = true
	head := w.out.AvailableBuffer()
	if w.bodyAllowed() {
		if !w.typed && len(first) > 0 {
			head = append(append(append(head, "Content-Type: "...), http.DetectContentType(first)...), "\r\n"...)
		}
		if w.chunked = w.length == unknown; w.chunked {
			head = append(head, "Transfer-Encoding: chunked\r\n"...)
		} else {
			head = append(strconv.AppendInt(append(head, "Content-Length: "...), w.length, 10), "\r\n"...)
		}
	}
	if w.closing {
		head = append(head, "Connection: close\r\n"...)
	}
	_, _ = w.out.Write(append(head, "\r\n"...))
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	if w.finished {
		return 0, errFinished
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !w.bodyAllowed() {
		return 0, http.ErrBodyNotAllowed
	}
	w.written += int64(len(p))
	if w.length != unknown && w.written > w.length {
		return 0, http.ErrContentLength
	}
	if !w.committed {
		if w.length == unknown && w.written < maxPending {
			w.pending = append(w.pending, p...)
			return len(p), nil
		}
		w.commitPending(p)
	}
	return w.send(p)
}

// commitPending completes the head and sends what waited for that. next is what
// follows.
func (w *response) commitPending(next []byte) {
	if w.pending == nil {
		w.commit(next)
		return
	}
	w.commit(w.pending)
	_, _ = w.send(w.pending)
	w.pending = nil
}

// send writes bytes of the body.
func (w *response) send(p []byte) (int, error) {
	if !w.chunked {
		return w.out.Write(p)
	}
	_, _ = w.out.Write(append(strconv.AppendInt(w.out.AvailableBuffer(), int64(len(p)), 16), "\r\n"...))
	n, _ := w.out.Write(p)
	_, err := w.out.WriteString("\r\n")
	return n, err
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *response) FlushError() error {
	if w.finished {
		return errFinished
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.committed {
		w.commitPending(nil)
	}
	return w.out.Flush()
}

// finish sends the rest when the handler has returned. It reports whether the
// connection can go on.
func (w *response) finish() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.committed {
		if w.length == unknown {
			w.length = w.written
		}
		w.commitPending(nil)
	}
	if w.chunked {
		_, _ = w.out.WriteString("0\r\n\r\n")
	}
	err := w.out.Flush()
	w.finished = true
	w.out.Reset(nil)
	w.conn.server.writers.Put(w.out)
	w.out = nil
	left := w.body.close()
	if err == nil && left > 0 {
		w.conn.linger()
	}
	short := w.length != unknown && w.bodyAllowed() && w.written != w.length
	return err == nil && !w.closing && !short
}

// A date is the value of a Date header.
type date struct {
	second int64
	text   string
}

// now is the present time for a Date header.
func (s *Server) now() string {
	t := time.Now()
	d := s.date.Load()
	if d == nil || d.second != t.Unix() {
		d = &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
		s.date.Store(d)
	}
	return d.text
}
