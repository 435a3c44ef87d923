package patchbay

import (
	"context"
	"iter"
	"sync"
)

// news tells any number of waiters that something changed. Waiters see the
// latest state, not each step on the way to it.
type news struct {
	mu   sync.Mutex
	seq  uint64
	next chan struct{} // closed by the next change
}

// announce says that something changed.
func (n *news) announce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// latest returns the number of the last change and a channel that is closed by
// the next.
func (n *news) latest() (seq uint64, next <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.seq, n.next
}

// Watch yields the host's snapshot now and after every change, until ctx or the
// host ends. Changes that come faster than they are taken are seen as one.
func (h *Host) Watch(ctx context.Context) iter.Seq[Snapshot] {
	return func(yield func(Snapshot) bool) {
		for {
			_, next := h.news.latest()
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
