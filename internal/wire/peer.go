package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Peer is one side of a connection on which both sides may ask and answer: it
// sends calls over a Conn and finds their answers (call.go), and has a Handler
// answer what the other side sends (handle.go).
type Peer struct {
	conn    Conn
	handler Handler
	opts    PeerOptions

	life context.Context // ends with the link; the parent of every handler's context
	stop context.CancelCauseFunc
	done chan struct{}

	work     sync.WaitGroup // every goroutine of the peer
	handlers sync.WaitGroup // the requests that are being handled
	crew     *crew          // handles them

	mu    sync.Mutex
	err   error // why no more calls are sent; set once
	stats PeerStats

	// Outgoing calls.
	lastID   int64            // ids are never used twice
	calls    map[int64]*call  // sent and not yet answered
	inFlight int              // calls sent, or about to be
	queue    fairQueue[*call] // waiting to be sent
	free     []*call          // for reuse
	outbox   mailbox[Message] // what must be sent without making anyone wait
	posted   chan struct{}    // closed when the outbox is empty; nil if it always was
	tasks    taskTokens

	// Incoming requests and notifications.
	requests map[ID]*incoming
	replied  time.Time   // when the last one had been handled
	draining bool        // no more are accepted
	running  int         // handlers at work
	beside   int         // those that do not count
	backlog  []*incoming // requests waiting for one
	flood    limiter
	notes    mailbox[*Notification]
}

var _ Link = (*Peer)(nil)

// PeerOptions are the limits and observers of a Peer.
type PeerOptions struct {
	Logger *slog.Logger // nil discards

	MaxInFlight int // calls sent and not answered; 0 means 64
	MaxQueued   int // calls waiting for that; 0 means 10000, after which they fail with ErrOverloaded
	MaxHandlers int // requests handled at the same time; 0 means 64
	MaxBacklog  int // requests waiting for that; 0 means 1000, after which they are answered with CodeOverloaded

	// RequestsPerSecond is how many requests the other side may send; more
	// are answered with CodeOverloaded. 0 means no limit.
	RequestsPerSecond int

	// AskedIsNotSilent lets the Timeout of a call begin anew when a request of
	// the other side has been handled: it may be our answer that the other side
	// waited for. It is for clients; a server is always being asked.
	AskedIsNotSilent bool

	// ReplyInvalid answers whatever is no message with a JSON-RPC error, as
	// servers do. A client answers only what was meant to be a request.
	ReplyInvalid bool

	// Drain is the time that running handlers get to finish and answer after
	// the other side has cleanly ended its half of the conn; then, or at once
	// if it is 0, their contexts end.
	Drain time.Duration

	// OnGarbage is told of whatever the conn skipped, on the goroutine that
	// reads: it must not block. nil means nobody is.
	OnGarbage func(*Garbage)
}

// PeerStats counts what a Peer had to throw away.
type PeerStats struct {
	Garbage     uint64 // pieces of input that were no messages
	LateAnswers uint64 // answers and progress for calls that had been given up
	BadAnswers  uint64 // answers to calls that were never made
	Refused     uint64 // requests over the limits
	Dropped     uint64 // notifications and error replies over the limits
}

// NewPeer starts a peer on conn, which it owns from now on. A nil handler
// refuses every request; nil options mean the defaults.
func NewPeer(conn Conn, h Handler, opts *PeerOptions) *Peer {
	p := &Peer{
		conn:     conn,
		handler:  h,
		done:     make(chan struct{}),
		calls:    make(map[int64]*call),
		requests: make(map[ID]*incoming),
	}
	if opts != nil {
		p.opts = *opts
	}
	if p.handler == nil {
		p.handler = refuser{}
	}
	if p.opts.Logger == nil {
		p.opts.Logger = slog.New(slog.DiscardHandler)
	}
	for option, standard := range map[*int]int{
		&p.opts.MaxInFlight: 64,
		&p.opts.MaxQueued:   10_000,
		&p.opts.MaxHandlers: 64,
		&p.opts.MaxBacklog:  1000,
	} {
		if *option <= 0 {
			*option = standard
		}
	}
	p.flood.perSecond = p.opts.RequestsPerSecond
	p.life, p.stop = context.WithCancelCause(context.Background())
	p.crew = newCrew(p.life.Done(), p.work.Go)
	p.work.Go(p.run)
	return p
}

// Done is closed when the link has ended.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Err says why the link has ended, or is about to; nil while it lives.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Stats returns what has been counted so far.
func (p *Peer) Stats() PeerStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close ends the link: pending calls fail, the contexts of handlers end, the
// conn is closed. It returns when all of them have, so a handler cannot call it.
func (p *Peer) Close() error {
	p.awaitPosts()
	p.end(ErrClosed)
	p.work.Wait()
	return nil
}

// awaitPosts waits, but not for long, until what was posted is on its way: a
// server should hear that its call was cancelled before it is left.
func (p *Peer) awaitPosts() {
	patience := time.NewTimer(flushTime)
	defer patience.Stop()
	select {
	case <-p.posts():
	case <-p.life.Done():
	case <-patience.C:
	}
}

// run reads until the conn ends and then ends the link.
func (p *Peer) run() {
	defer close(p.done)
	err := p.read()
	clean := errors.Is(err, io.EOF)
	if clean {
		err = fmt.Errorf("%w by the other side", ErrClosed)
	} else if !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	p.failCalls(err)
	if clean && p.opts.Drain > 0 {
		p.drain()
	}
	p.end(err)
}

func (p *Peer) read() error {
	for {
		m, err := p.conn.Read()
		if err != nil {
			garbage, ok := errors.AsType[*Garbage](err)
			if !ok {
				return err
			}
			p.skipped(garbage)
			continue
		}
		switch m.Kind() {
		case KindResponse:
			p.answered(m)
		case KindNotification:
			p.notified(m)
		case KindRequest:
			p.requested(m)
		}
	}
}

// drain accepts no more requests and waits until no handler runs, or for as
// long as they may.
func (p *Peer) drain() {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	idle := make(chan struct{})
	p.work.Go(func() {
		p.handlers.Wait()
		close(idle)
	})
	patience := time.NewTimer(p.opts.Drain)
	defer patience.Stop()
	for _, over := range []<-chan struct{}{idle, p.posts()} {
		select {
		case <-over:
		case <-patience.C:
			return
		case <-p.life.Done():
			return
		}
	}
}

// posts returns a channel that is closed when what was posted has been sent.
func (p *Peer) posts() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.posted == nil {
		p.posted = make(chan struct{})
		close(p.posted)
	}
	return p.posted
}

// end ends what is pending and running. Only the first reason counts.
func (p *Peer) end(err error) {
	p.failCalls(err)
	p.stop(p.Err())
	if err := p.conn.Close(); err != nil {
		p.opts.Logger.Debug("closing the connection", "error", err)
	}
}

// failCalls fails every call, now and from now on.
func (p *Peer) failCalls(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = err
	for id, k := range p.calls {
		delete(p.calls, id)
		k.answer <- outcome{err: err}
	}
	for p.queue.size > 0 {
		p.nextInQueue().signal <- struct{}{} // it will see p.err
	}
}

// post sends m without making the caller wait, in the order of the posts. It is
// for messages whose loss can be borne: when too many wait, m is dropped.
func (p *Peer) post(m Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	said := p.outbox.add(m, m.size())
	if said == mailUnattended {
		p.posted = make(chan struct{})
	}
	posted := p.posted
	p.put(said, func() {
		defer close(posted)
		drain(&p.mu, &p.outbox, func(m Message) {
			if err := p.conn.Write(p.life, m); err != nil {
				p.opts.Logger.Debug("sending", "error", err)
			}
		})
	})
}

// put acts on what mailbox.add said; p.mu is held.
func (p *Peer) put(said mail, worker func()) {
	switch said {
	case mailRefused:
		p.stats.Dropped++
	case mailUnattended:
		p.work.Go(worker)
	}
}

// A mailbox is a bounded queue that is emptied, in order, by one goroutine,
// which exists only while there is something in it.
type mailbox[T any] struct {
	items    []T
	bytes    int
	attended bool
}

const (
	mailboxItems = 4096
	mailboxBytes = 16 << 20
)

// mail is what became of an item.
type mail uint8

const (
	mailAccepted   mail = iota
	mailUnattended      // accepted, and someone must now start drain
	mailRefused
)

func (b *mailbox[T]) add(item T, size int) mail {
	if len(b.items) >= mailboxItems || b.bytes+size > mailboxBytes && b.bytes > 0 {
		return mailRefused
	}
	b.items = append(b.items, item)
	b.bytes += size
	if b.attended {
		return mailAccepted
	}
	b.attended = true
	return mailUnattended
}

// drain handles items until there are none. mu guards the mailbox.
func drain[T any](mu *sync.Mutex, b *mailbox[T], handle func(T)) {
	for {
		mu.Lock()
		items := b.items
		b.items, b.bytes = nil, 0
		if len(items) == 0 {
			b.attended = false
			mu.Unlock()
			return
		}
		mu.Unlock()
		for _, item := range items {
			handle(item)
		}
	}
}
