//go:build unix

package wire

import (
	"errors"
	"io"
	"syscall"
	"time"
)

// A nowWriter writes to a pipe or socket as much as it takes at once, so that a
// message need not go through the goroutine that may wait.
type nowWriter struct {
	conn syscall.RawConn
	try  func(fd uintptr) bool

	p   []byte
	n   int
	err error
}

// newNowWriter returns nil if a write to w might wait.
func newNowWriter(w io.Writer) *nowWriter {
	file, ok := w.(interface {
		syscall.Conn
		SetWriteDeadline(time.Time) error
	})
	if !ok || file.SetWriteDeadline(time.Time{}) != nil { // it has deadlines if the poller watches it
		return nil
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	now := &nowWriter{conn: conn}
	now.try = func(fd uintptr) bool {
		for {
			now.n, now.err = syscall.Write(int(fd), now.p)
			if now.err != syscall.EINTR {
				return true
			}
		}
	}
	return now
}

// write returns how much of p was written. One call at a time.
func (w *nowWriter) write(p []byte) (int, error) {
	w.p = p
	err := w.conn.Write(w.try)
	w.p = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(w.err, syscall.EAGAIN):
		return 0, nil
	case w.err != nil:
		return 0, w.err
	}
	return w.n, nil
}
