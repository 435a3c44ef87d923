package wire

import (
	"context"
	"errors"
	"fmt"
)

// Conn moves whole messages over one stream. One goroutine at a time reads;
// any number may write and close.
type Conn interface {
	// Read returns the next message. A *Garbage error stands for something
	// that was skipped: the next Read goes on behind it. Every other error is
	// the end; io.EOF is the clean one.
	Read() (Message, error)

	// Write puts a message on its way and returns. The context bounds the wait
	// for room, so a message is sent whole or not at all. After an error it was
	// not sent, unless that wraps perhapsSent.
	Write(ctx context.Context, m Message) error

	// Close ends the conn, and with it every Read and Write that waits. It may
	// be called twice.
	Close() error
}

// ErrClosed is wrapped by every error about a link or conn that has ended.
var ErrClosed = errors.New("connection closed")

// ErrNotSent is wrapped by the error of a call that was not sent because the
// link had ended: the other side knows nothing of it.
var ErrNotSent = errors.New("not sent")

// perhapsSent is the error of a Write after which the other side may have got the
// message.
type perhapsSent struct{ error }

func (p perhapsSent) Unwrap() error { return p.error }

// ErrNoise ends a conn whose other side sends garbage and no messages.
var ErrNoise = errors.New("too much output that is not protocol")

// ErrTooLong is why a message over the size limit was skipped.
var ErrTooLong = errors.New("message is over the size limit")

// Garbage is something on a stream that is no message and was skipped: a
// banner, a log line, broken JSON, a message over the limit.
type Garbage struct {
	Text []byte // how it begins, at most garbageShown bytes
	Size int    // bytes in all
	Err  error  // a *ParseError, or ErrTooLong

	// Asks is its id if it was meant to be a request, Answers the request to
	// which it was meant to be the answer; zero if that cannot be told.
	Asks, Answers ID
}

// garbageShown is how much of skipped text is kept for a diagnosis.
const garbageShown = 1 << 10

// newGarbage makes garbage of text that begins and ends like this.
func newGarbage(head, ending []byte, size int, err error) *Garbage {
	g := glanceAt(head, ending)
	return &Garbage{Text: append([]byte(nil), head[:min(len(head), garbageShown)]...), Size: size, Err: err, Asks: g.asks, Answers: g.answers}
}

func (g *Garbage) Error() string {
	return fmt.Sprintf("skipped %d bytes of input: %v", g.Size, g.Err)
}

func (g *Garbage) Unwrap() error { return g.Err }

// badAnswer is the error of the call that it was meant to answer.
func (g *Garbage) badAnswer() error {
	if errors.Is(g.Err, ErrTooLong) {
		return fmt.Errorf("the answer of %d bytes: %w", g.Size, g.Err)
	}
	return fmt.Errorf("the answer is invalid: %w", g.Err)
}

// reply is the response that tells the sender.
func (g *Garbage) reply() Message {
	bad, ok := errors.AsType[*ParseError](g.Err)
	if !ok {
		bad = &ParseError{Code: CodeInvalidRequest, Reason: g.Err.Error()}
	}
	m := bad.Reply()
	if !g.Asks.IsZero() {
		m.ID = g.Asks
	}
	return m
}
