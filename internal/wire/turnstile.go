package wire

import (
	"context"
	"slices"
	"sync"
)

// A turnstile bounds how many calls run at once for one principal, and how many
// more may wait for their turn, first come first served.
type turnstile struct {
	running, waiting int // for each principal

	mu   sync.Mutex
	used map[string]*turns
}

type turns struct {
	running int
	queue   []chan struct{}
}

// principalsKept is how many idle principals a turnstile remembers, so that one
// who calls again and again costs nothing.
const principalsKept = 64

func newTurnstile(running, waiting int) *turnstile {
	return &turnstile{running: running, waiting: waiting, used: map[string]*turns{}}
}

// acquire waits for a turn, which release must give back.
func (t *turnstile) acquire(ctx context.Context, principal string) error {
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
	if len(own.queue) >= t.waiting {
		t.mu.Unlock()
		return ErrOverloaded
	}
	turn := make(chan struct{})
	own.queue = append(own.queue, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.leave(principal, turn)
		return context.Cause(ctx)
	}
}

// leave gives up waiting. If the turn came in the same moment it is passed on.
func (t *turnstile) leave(principal string, turn chan struct{}) {
	t.mu.Lock()
	own := t.used[principal]
	if i := slices.Index(own.queue, turn); i >= 0 {
		own.queue = slices.Delete(own.queue, i, i+1)
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
	if len(own.queue) > 0 {
		close(own.queue[0]) // the turn goes from hand to hand
		own.queue = own.queue[1:]
		return
	}
	own.running--
	if own.running == 0 && len(t.used) > principalsKept {
		delete(t.used, principal)
	}
}
