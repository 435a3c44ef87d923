package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Link is one live connection seen from one side: the road on which requests
// and notifications go out. A Peer is one, and so is an HTTPClient.
type Link interface {
	// Call sends a request and waits for its answer. The context bounds the
	// wait only: when it ends, the other side is told to cancel and the link
	// lives on. A JSON-RPC error comes back as *Error.
	Call(ctx context.Context, c Call) (json.RawMessage, error)

	// Notify sends a notification and returns when it is on its way.
	Notify(ctx context.Context, method string, params json.RawMessage) error

	// Done is closed when the link has ended; Err then says why.
	Done() <-chan struct{}
	Err() error

	// Close ends the link and waits for what it started. Pending calls fail
	// with ErrClosed. It may be called twice.
	Close() error
}

// Call is one outgoing request.
type Call struct {
	Method string
	Params json.RawMessage // nil sends none

	// Timeout is the silence allowed before the call is given up and the other
	// side told to cancel; progress renews it, and so does the answer to what a
	// client is asked meanwhile, up to MaxTimeout in all.
	Timeout    time.Duration // 0 means none
	MaxTimeout time.Duration // 0 means ten minutes when Timeout is set

	// Progress receives the params of each progress notification of this call,
	// in order, before Call returns. nil means no progress token is requested;
	// a token already present in params is kept and routed all the same.
	Progress func(params json.RawMessage)

	// ComeBack is told that the server has ended the stream that carries this
	// call and wants its client back for the rest after that time, as revision
	// 2025-11-25 has it. The client comes back by itself: it is for those who
	// pass on what servers ask. It must not block. nil means nobody is told.
	ComeBack func(after time.Duration)

	// Repeats counts how often the call is made again, here and by whoever makes
	// it. nil means that nobody else counts.
	Repeats *Repeats

	// Sender is who makes the call. Where calls have to wait, those of different
	// senders take turns.
	Sender string

	// Tag is handed back in Request.Tag and Notification.Tag of whatever
	// arrives on the stream that carries this call's answer, where the
	// transport has such streams.
	Tag any

	// Header is sent along by HTTP transports and ignored by others.
	Header http.Header

	// KeepInputRequired makes a Client return a result that asks for input as
	// it is, instead of asking its Handler and trying again.
	KeepInputRequired bool

	// AskTogether has the Handler of a Client be asked all that one such result
	// asks at once, so that it can pass it on together. Otherwise it is asked one
	// after the other, as people had best be.
	AskTogether bool

	meta *requestMeta // what a Peer adds to params that have no _meta
}

// Handler answers what the other side sends on its own account.
type Handler interface {
	// HandleRequest answers one request. Its context ends when the caller
	// cancels or the link closes. A returned *Error goes out as it is, any
	// other error as an internal error that does not show its text.
	HandleRequest(ctx context.Context, r *Request) (json.RawMessage, error)

	// HandleNotification is called in the order of arrival, one at a time for
	// each link, and must not block for long.
	HandleNotification(ctx context.Context, n *Notification)
}

// hearer is a Handler that learns of notifications as soon as they are read:
// before the answers that come after them, and however many are waiting to be
// handled. hear must return at once.
type hearer interface{ hear(method string) }

// tellAtOnce tells a handler of a notification, if it is a hearer.
func tellAtOnce(h Handler, method string) {
	if h, ok := h.(hearer); ok {
		h.hear(method)
	}
}

// Request is one incoming request.
type Request struct {
	ID     ID
	Method string
	Params json.RawMessage

	// Link leads back to the sender. What is sent on it while the request is
	// being handled travels with the request where the transport has streams.
	Link Link

	// Tag is Call.Tag of the call whose stream carried the request, nil where
	// the transport cannot tell.
	Tag any

	// Session is what a Server knows of the client that asked; nil on the
	// client side.
	Session *Session

	lead []byte // Message.lead of the answer, for a Server to set
}

// Notification is one incoming notification.
type Notification struct {
	Method  string
	Params  json.RawMessage
	Link    Link
	Tag     any
	Session *Session

	told chan struct{} // of one that only marks a place in the queue
}
