package patchbay

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
)

// news tells any number of waiters that something changed. Waiters see the
// latest state, not each step on the way to it.
type news struct {
	seq  atomic.Uint64 // changed with mu held
	mu   sync.Mutex
	next chan struct{} // closed by the next change
}

// announce says that something changed.
func (n *news) announce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq.Add(1)
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// number is that of the last change.
func (n *news) number() uint64 { return n.seq.Load() }

// following returns a channel that is closed by the next change.
func (n *news) following() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Watch yields the host's snapshot now and after every change, until ctx or the
// host ends. Changes that come faster than they are taken are seen as one.
func (h *Host) Watch(ctx context.Context) iter.Seq[Snapshot] {
	return func(yield func(Snapshot) bool) {
		for {
			next := h.news.following()
			if !yield(h.Snapshot()) {
				return
			}
			select {
			case <-next:
			case <-ctx.Done():
				return
			case <-h.life.Done():
				return
			}
		}
	}
}
