package wire

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// Pipe returns the two ends of a conn in memory. Messages pass as they are:
// their bytes are neither copied nor parsed again, so nobody may change them.
func Pipe() (a, b Conn) {
	const room = 64
	ab, ba := make(chan Message, room), make(chan Message, room)
	aEnd, bEnd := make(chan struct{}), make(chan struct{})
	return &pipeEnd{in: ba, out: ab, closed: aEnd, gone: bEnd}, &pipeEnd{in: ab, out: ba, closed: bEnd, gone: aEnd}
}

type pipeEnd struct {
	in     <-chan Message
	out    chan<- Message
	once   sync.Once
	closed chan struct{}   // this end was closed
	gone   <-chan struct{} // the other end was
}

// Read returns what the other end wrote, also what it wrote before it closed.
func (e *pipeEnd) Read() (Message, error) {
	select {
	case <-e.closed:
		return Message{}, ErrClosed
	case m := <-e.in:
		return m, nil
	case <-e.gone:
		select {
		case m := <-e.in:
			return m, nil
		default:
			return Message{}, io.EOF
		}
	}
}

func (e *pipeEnd) Write(ctx context.Context, m Message) error {
	select {
	case <-e.closed:
		return ErrClosed
	case <-e.gone:
		return fmt.Errorf("%w by the other side", ErrClosed)
	default:
	}
	select {
	case e.out <- m:
		return nil
	case <-e.closed:
		return ErrClosed
	case <-e.gone:
		return fmt.Errorf("%w by the other side", ErrClosed)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *pipeEnd) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}
