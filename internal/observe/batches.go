package observe

import (
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

const (
	// queueLength is how many records may wait to be written.
	queueLength = 8192

	// gathering is how long the first record of a batch waits for others, so
	// that a busy gateway does not wake a writer for each.
	gathering = 100 * time.Millisecond
)

// batches hands records to one goroutine, many at a time. Who adds one never
// waits: what there is no room for is dropped and counted.
type batches struct {
	handle func(records []patchbay.CallRecord, dropped int)

	mu      sync.Mutex
	waiting []patchbay.CallRecord
	dropped int
	closed  bool

	wake chan struct{} // something waits; has room for one
	full chan struct{} // it should not wait any longer; has room for one
	done chan struct{} // closed when the last batch was handled
}

func newBatches(handle func([]patchbay.CallRecord, int)) *batches {
	b := &batches{handle: handle, wake: make(chan struct{}, 1), full: make(chan struct{}, 1), done: make(chan struct{})}
	go b.run()
	return b
}

func (b *batches) add(r patchbay.CallRecord) {
	b.mu.Lock()
	if b.closed || len(b.waiting) == queueLength {
		b.dropped++
		b.mu.Unlock()
		return
	}
	b.waiting = append(b.waiting, r)
	n := len(b.waiting)
	b.mu.Unlock()
	switch n {
	case 1:
		signal(b.wake)
	case queueLength / 2:
		signal(b.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it was given already
	}
}

func (b *batches) run() {
	defer close(b.done)
	gather := time.NewTimer(gathering)
	var spare []patchbay.CallRecord // to be filled next, so that two are enough for ever
	for {
		<-b.wake
		gather.Reset(gathering)
		select {
		case <-gather.C:
		case <-b.full:
		}
		b.mu.Lock()
		batch, dropped, closed := b.waiting, b.dropped, b.closed
		b.waiting, b.dropped = spare[:0], 0
		b.mu.Unlock()
		if len(batch) > 0 || dropped > 0 {
			b.handle(batch, dropped)
		}
		clear(batch)
		spare = batch
		if closed {
			return
		}
	}
}

// close handles what waits and returns when that is done. What is added later
// is dropped.
func (b *batches) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	signal(b.wake)
	signal(b.full)
	<-b.done
}
