package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// ErrOverloaded fails a call when too many are waiting for their turn already.
var ErrOverloaded = errors.New("overloaded: too many calls are waiting")

// TimeoutError fails a call that was given up because of its own Timeout or
// MaxTimeout. It is context.DeadlineExceeded to errors.Is.
type TimeoutError struct {
	Method string
	After  time.Duration // the limit that was hit
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("no answer to %s within %v", e.Method, e.After)
}

// Is reports that a timeout is an exceeded deadline.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

const defaultMaxTimeout = 10 * time.Minute

// A call is one outgoing request. It belongs to the goroutine in Peer.Call,
// except for what Peer.mu guards. Whoever takes it out of Peer.calls has the
// duty to put something into answer, or is its owner.
type call struct {
	Call
	id     int64
	answer chan outcome  // room for one
	signal chan struct{} // room for one: it has left the queue, or progress came

	end     time.Time    // of MaxTimeout; zero if there is no limit
	silence time.Time    // until then the other side may be silent
	timer   *time.Timer  // nil until a call needed one
	fires   time.Time    // when the timer does, which may be too early; zero if it does not
	sending *sendContext // for the next send; nil if somebody may have that of the last one

	// Guarded by Peer.mu.
	place    *queuePlace[*call] // in Peer.queue; nil once it has left it
	token    json.RawMessage    // the caller's own progress token, if it had one
	progress []json.RawMessage  // received, not yet handed over
}

type outcome struct {
	result json.RawMessage
	err    error
	told   <-chan struct{} // closed when the handler has had what came before; nil if that was nothing
}

// Call sends a request and waits for its answer.
func (p *Peer) Call(ctx context.Context, c Call) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	k, err := p.begin(c)
	if err != nil {
		return nil, err
	}
	k.start()
	if err = p.awaitTurn(ctx, k); err != nil {
		p.recycle(k)
		return nil, err
	}
	result, err := p.exchange(ctx, k)
	p.recycle(k)
	if err == nil {
		err = checkResult(c.Method, result)
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// Notify sends a notification.
func (p *Peer) Notify(ctx context.Context, method string, params json.RawMessage) error {
	if err := p.Err(); err != nil {
		return err
	}
	return p.conn.Write(ctx, Message{Method: method, Params: params})
}

// begin makes a call of c: one that may be sent, or one in the queue.
func (p *Peer) begin(c Call) (*call, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, notSent(p.err)
	}
	full := p.inFlight >= p.opts.MaxInFlight
	if full && p.queue.full([]byte(c.Sender), p.opts.MaxQueued) {
		return nil, ErrOverloaded
	}
	k := p.unused()
	k.Call = c
	if full {
		k.place = p.queue.push([]byte(c.Sender), k)
		return k, nil
	}
	p.inFlight++
	p.register(k)
	return k, nil
}

// unused returns a call to fill; p.mu is held.
func (p *Peer) unused() *call {
	if last := len(p.free) - 1; last >= 0 {
		k := p.free[last]
		p.free = p.free[:last]
		return k
	}
	return &call{answer: make(chan outcome, 1), signal: make(chan struct{}, 1)}
}

// register gives the call its id; p.mu is held.
func (p *Peer) register(k *call) {
	p.lastID++
	k.id = p.lastID
	p.calls[k.id] = k
	p.flood.called()
}

// recycle keeps the call for reuse. Nobody else refers to it any more.
func (p *Peer) recycle(k *call) {
	select {
	case <-k.signal:
	default:
	}
	k.Call, k.id, k.end, k.place, k.token, k.progress = Call{}, 0, time.Time{}, nil, nil, nil
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < p.opts.MaxInFlight {
		p.free = append(p.free, k)
	}
}

// awaitTurn returns when the call may be sent.
func (p *Peer) awaitTurn(ctx context.Context, k *call) error {
	if k.id != 0 {
		return nil
	}
	err := k.awaitSignal(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && k.place != nil:
		p.queue.remove(k.place)
	case err != nil:
		p.release() // its turn came at the same moment
	case p.err != nil:
		return notSent(p.err)
	default:
		k.arm() // it is not the other side that made it wait
		p.register(k)
	}
	return err
}

// awaitSignal waits for the signal that it is the call's turn.
func (k *call) awaitSignal(ctx context.Context) error {
	for {
		select {
		case <-k.signal:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-k.expired():
			if !k.tooEarly() {
				return k.timeout()
			}
		}
	}
}

// nextInQueue takes the call out of the queue whose turn it is; p.mu is held.
func (p *Peer) nextInQueue() *call {
	k := p.queue.pop()
	k.place = nil
	return k
}

// release hands the turn of a call that is over to the next; p.mu is held.
func (p *Peer) release() {
	if p.queue.size > 0 {
		p.nextInQueue().signal <- struct{}{}
		return
	}
	p.inFlight--
}

// take removes the call from the pending ones. It reports false if someone else
// has done so, who will put the outcome into k.answer.
func (p *Peer) take(k *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[k.id] != k {
		return false
	}
	delete(p.calls, k.id)
	p.release()
	return true
}

// exchange sends the request and waits for what becomes of it.
func (p *Peer) exchange(ctx context.Context, k *call) (json.RawMessage, error) {
	request := Message{ID: NumberID(k.id), Method: k.Method, Params: p.outgoingParams(k), repeats: k.Repeats}
	if err := p.send(ctx, k, request); err != nil {
		if !p.take(k) {
			o := <-k.answer // the link has ended: that is the better reason
			if o.err != nil && errors.Is(err, ErrNotSent) {
				o.err = notSent(o.err)
			}
			return o.result, o.err
		}
		return nil, err
	}
	for {
		select {
		case o := <-k.answer:
			k.report(k.progress) // nobody adds to it any more
			o.awaitNotifications(ctx)
			return o.result, o.err
		case <-k.signal:
			p.handOver(k)
			k.arm()
		case <-ctx.Done():
			return p.giveUp(k, context.Cause(ctx))
		case <-k.expired():
			if k.tooEarly() {
				continue
			}
			if time.Now().Before(k.end) {
				if len(k.signal) > 0 {
					continue // progress came at the same moment
				}
				if left := silenceLeft(p.lastAsked(), k.Timeout, k.end); left > 0 {
					k.silence = time.Now().Add(left)
					k.schedule()
					continue
				}
			}
			return p.giveUp(k, k.timeout())
		}
	}
}

// lastAsked is when the other side last waited for us, as far as that matters.
func (p *Peer) lastAsked() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.opts.AskedIsNotSilent:
		return time.Time{}
	case len(p.requests) > 0:
		return time.Now()
	}
	return p.replied
}

// send writes the request. Its wait is bounded by the caller's context and the
// limits of the call.
func (p *Peer) send(ctx context.Context, k *call, request Message) error {
	if k.end.IsZero() {
		return p.sent(ctx, k, ctx, p.conn.Write(ctx, request))
	}
	bound := k.sending
	if bound == nil {
		bound = &sendContext{}
	}
	bound.Context, bound.end = ctx, k.silence
	err := p.conn.Write(bound, request)
	if err = p.sent(ctx, k, bound, err); bound.release() {
		k.sending = bound
		return err
	}
	k.sending = nil
	if err == nil {
		k.arm() // the time it took to send is not silence
	}
	return err
}

// sent is the error of a send under bound, which is ctx with the call's limit.
func (*Peer) sent(ctx context.Context, k *call, bound context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case bound.Err() != nil:
		return k.timeout()
	}
	if _, ok := errors.AsType[perhapsSent](err); !ok {
		err = notSent(err)
	}
	return fmt.Errorf("sending %s: %w", k.Method, err)
}

func notSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }

// giveUp ends the wait for an answer, unless it has just come, and tells the
// other side. That an initialize is given up may not be told.
func (p *Peer) giveUp(k *call, reason error) (json.RawMessage, error) {
	if !p.take(k) {
		o := <-k.answer
		p.handOver(k)
		return o.result, o.err
	}
	p.handOver(k)
	if k.Method != "initialize" {
		params := []byte(`{"requestId":`)
		params = strconv.AppendInt(params, k.id, 10)
		params = append(params, `,"reason":`...)
		params = AppendString(params, cancelReason(reason))
		p.post(Message{Method: "notifications/cancelled", Params: append(params, '}')})
	}
	return nil, reason
}

// cancelReason says why without repeating an error text that may be private.
func cancelReason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "cancelled by the caller"
}

// answered passes a response to its call.
func (p *Peer) answered(m Message) {
	o := outcome{result: m.Result}
	if m.Error != nil {
		o.err = m.Error
	}
	p.settle(m.ID, o)
}

// notePatience is how long an answer waits for the handler of notifications,
// which must not block, but might make calls itself.
const notePatience = 250 * time.Millisecond

// awaitNotifications returns when the handler has had the notifications that
// came before the answer: what a server says during a call is part of it.
func (o outcome) awaitNotifications(ctx context.Context) {
	if o.told == nil {
		return
	}
	timer := time.NewTimer(notePatience)
	defer timer.Stop()
	select {
	case <-o.told:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *Peer) settle(id ID, o outcome) {
	n, ok := id.integer()
	p.mu.Lock()
	k := p.calls[n]
	if k == nil {
		if ok && 0 < n && n <= p.lastID {
			p.stats.LateAnswers++
		} else {
			p.stats.BadAnswers++
		}
		p.mu.Unlock()
		return
	}
	delete(p.calls, n)
	p.release()
	if (k.token != nil || k.Progress != nil) && isTask(o.result) {
		p.tasks.add(taskToken{k.id, k.token, k.Tag})
	}
	if p.notes.attended {
		told := make(chan struct{})
		if p.notes.add(&Notification{told: told}, 0) != mailRefused {
			o.told = told
		}
	}
	p.mu.Unlock()
	k.answer <- o
}

// integer returns the value of a number that is one; some peers answer the
// request 7 with the id 7.0, or with "7", and clients that ask them directly
// understand it.
func (id ID) integer() (int64, bool) {
	if id.kind == idInt {
		return id.num, true
	}
	if text, ok := Unquote([]byte(id.text)); ok {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	f, err := strconv.ParseFloat(id.text, 64)
	if err != nil || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}

// start begins to measure the time of the call.
func (k *call) start() {
	if k.Timeout <= 0 && k.MaxTimeout <= 0 {
		return
	}
	if k.MaxTimeout <= 0 {
		k.MaxTimeout = max(defaultMaxTimeout, k.Timeout)
	}
	if k.Timeout <= 0 {
		k.Timeout = k.MaxTimeout
	}
	now := time.Now()
	k.end = now.Add(k.MaxTimeout)
	k.armAt(now)
}

// arm lets the silence begin anew.
func (k *call) arm() {
	if !k.end.IsZero() {
		k.armAt(time.Now())
	}
}

func (k *call) armAt(now time.Time) {
	if k.silence = now.Add(k.Timeout); k.silence.After(k.end) {
		k.silence = k.end
	}
	k.schedule()
}

// schedule makes the timer fire at the end of the silence or before. One that
// was set for an earlier call is left as it is, since setting it costs more than
// that it fires once in a while for nothing.
func (k *call) schedule() {
	if !k.fires.IsZero() && !k.fires.After(k.silence) {
		return
	}
	k.fires = k.silence
	if k.timer == nil {
		k.timer = time.NewTimer(time.Until(k.silence))
	} else {
		k.timer.Reset(time.Until(k.silence))
	}
}

// tooEarly reports whether the timer has fired before the silence was too long,
// and if so sets it again.
func (k *call) tooEarly() bool {
	k.fires = time.Time{}
	if !time.Now().Before(k.silence) {
		return false
	}
	k.schedule()
	return true
}

// expired fires when the other side has been silent for too long, or too early.
func (k *call) expired() <-chan time.Time {
	if k.end.IsZero() {
		return nil
	}
	return k.timer.C
}

func (k *call) timeout() error {
	after := k.Timeout
	if !time.Now().Before(k.end) {
		after = k.MaxTimeout
	}
	return &TimeoutError{Method: k.Method, After: after}
}

// A sendContext is its parent with a deadline. Most sends never wait, so the
// timer behind it is made only when someone asks for Done.
type sendContext struct {
	context.Context
	end time.Time

	mu     sync.Mutex
	inner  context.Context
	cancel context.CancelFunc
}

func (c *sendContext) Deadline() (time.Time, bool) {
	if end, ok := c.Context.Deadline(); ok && end.Before(c.end) {
		return end, true
	}
	return c.end, true
}

func (c *sendContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(c.Context, c.end)
	}
	return c.inner.Done()
}

func (c *sendContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner.Err()
	}
	return c.Context.Err()
}

// release ends the context when the send is over, and reports whether it can be
// used for another one. Not if someone asked for Done: what was derived from it
// may look at it even later, as the transports of net/http do.
func (c *sendContext) release() (unused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
		return false
	}
	c.Context = context.Background()
	return true
}
