package wire

import (
	"context"
	"sync"
)

// A turnstile bounds how many calls run at once for one principal, and how many
// more may wait for their turn. Those of one sender come in their order, and
// senders take turns.
type turnstile struct {
	running, waiting int // for each principal

	mu   sync.Mutex
	used map[string]*turns
}

type turns struct {
	running int
	queue   fairQueue[*turn]
}

// A turn is waited for until came is closed.
type turn struct {
	came  chan struct{}
	place *queuePlace[*turn] // nil once it came
}

// principalsKept is how many idle principals a turnstile remembers, so that one
// who calls again and again costs nothing.
const principalsKept = 64

func newTurnstile(running, waiting int) *turnstile {
	return &turnstile{running: running, waiting: waiting, used: map[string]*turns{}}
}

// acquire waits for a turn, which release must give back.
func (t *turnstile) acquire(ctx context.Context, principal string, sender []byte) error {
	t.mu.Lock()
	own := t.used[principal]
	if own == nil {
		own = &turns{}
		t.used[principal] = own
	}
	if own.running < t.running {
		own.running++
		t.mu.Unlock()
		return nil
	}
	if own.queue.full(sender, t.waiting) {
		t.mu.Unlock()
		return ErrOverloaded
	}
	w := &turn{came: make(chan struct{})}
	w.place = own.queue.push(sender, w)
	t.mu.Unlock()
	select {
	case <-w.came:
		return nil
	case <-ctx.Done():
		t.leave(principal, w)
		return context.Cause(ctx)
	}
}

// leave gives up waiting. If the turn came in the same moment it is passed on.
func (t *turnstile) leave(principal string, w *turn) {
	t.mu.Lock()
	if w.place != nil {
		t.used[principal].queue.remove(w.place)
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	t.release(principal)
}

func (t *turnstile) release(principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.used[principal]
	if own.queue.size > 0 {
		w := own.queue.pop() // the turn goes from hand to hand
		w.place = nil
		close(w.came)
		return
	}
	own.running--
	if own.running == 0 && len(t.used) > principalsKept {
		delete(t.used, principal)
	}
}
