package wire

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Budget bounds the bytes that HTTP handlers keep for their clients, all
// handlers that share it together: bodies that are being read or worked on,
// answers that wait for a slow reader, streams that are kept for clients that
// come back. Small answers and bodies cost a counter; what is large, or stays, is
// a holding, and can be given up for others.
//
// When the budget is used up, those who want more wait for a moment. Meanwhile
// what is only kept is dropped, the largest first, and then connections are
// broken off whose client has stopped reading or sending. Who still finds no room
// is refused.
type Budget struct {
	limit int64

	mu       sync.Mutex
	used     int64
	waiting  int64 // bytes of those who wait for room
	holdings map[*holding]struct{}
	room     chan struct{} // closed when bytes are given back; nil if nobody waits
}

// NewBudget returns a budget of so many bytes.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit, holdings: map[*holding]struct{}{}}
}

const (
	// largeSize is from where on something is a holding. What is smaller fits the
	// buffers of the system, and its reader cannot hold it up.
	largeSize = 64 << 10

	// stallTime is how long a client may let the other side wait while there is
	// no room for others.
	stallTime = 250 * time.Millisecond

	// roomTime is how long a request waits for room.
	roomTime = 900 * time.Millisecond
)

var errNoRoom = errors.New("no memory is left for it")

// mayUse is what a request for n bytes may bring the use to: the last quarter is
// for small ones, so that one can still ask what is going on.
func (b *Budget) mayUse(n int) int64 {
	if n > largeSize {
		return b.limit - b.limit/4
	}
	return b.limit
}

// take counts bytes in, if there is room. A nil Budget has no limit.
func (b *Budget) take(n int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeLocked(n)
}

func (b *Budget) takeLocked(n int) bool {
	if b.used+int64(n) > b.mayUse(n) {
		b.relieve(b.used + int64(n) - b.mayUse(n))
		return false
	}
	b.used += int64(n)
	return true
}

// has reports whether there is room.
func (b *Budget) has(n int) bool {
	ok := b.take(n)
	if ok {
		b.give(n)
	}
	return ok
}

// acquire counts bytes in, and waits a moment for room if there is none.
func (b *Budget) acquire(ctx context.Context, n int) error {
	if b.take(n) {
		return nil
	}
	b.mu.Lock()
	if int64(n) > b.mayUse(n) || b.waiting+int64(n) > b.limit/4 { // what waits may be in memory already
		b.mu.Unlock()
		return errNoRoom
	}
	b.waiting += int64(n)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.waiting -= int64(n)
		b.mu.Unlock()
	}()
	timeout := time.NewTimer(roomTime)
	defer timeout.Stop()
	look := time.NewTicker(stallTime / 2) // more may have stalled
	defer look.Stop()
	for {
		b.mu.Lock()
		if b.takeLocked(n) {
			b.mu.Unlock()
			return nil
		}
		room := b.awaited()
		b.mu.Unlock()
		select {
		case <-room:
		case <-look.C:
		case <-timeout.C:
			return errNoRoom
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaited returns what is closed when there is more room; mu is held.
func (b *Budget) awaited() <-chan struct{} {
	if b.room == nil {
		b.room = make(chan struct{})
	}
	return b.room
}

// ease makes who produces more wait while there is no room, for a moment: what it
// produces is bounded, and others may wait for it to end.
func (b *Budget) ease(ctx context.Context) {
	if b == nil {
		return
	}
	b.mu.Lock()
	if b.used <= b.limit {
		b.mu.Unlock()
		return
	}
	room := b.awaited()
	b.mu.Unlock()
	timeout := time.NewTimer(stallTime)
	defer timeout.Stop()
	select {
	case <-room:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// give counts bytes out.
func (b *Budget) give(n int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveLocked(int64(n))
}

func (b *Budget) giveLocked(n int64) {
	b.used -= n
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// A holding is something that can be given up for others. Its owner says how
// much it is; zero means that there is nothing.
type holding struct {
	idle bool // nobody is there for it: it can go at any time
	of   holder

	size     int64        // counted in; guarded by Budget.mu, as is the next
	going    bool         // it is being given up
	progress atomic.Int64 // when something of it was last read or written
}

// A holder gives up what it holds, or has somebody do so who will. It is asked
// on a goroutine of its own.
type holder interface{ giveUp() }

// moves says that a client is reading or sending.
func (h *holding) moves() { h.progress.Store(time.Now().UnixNano()) }

// set says how large a holding is now. That may be more than there is room for:
// others make room then.
func (b *Budget) set(h *holding, size int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	grown := int64(size) - h.size
	if grown == 0 {
		return
	}
	h.size = int64(size)
	if size == 0 {
		delete(b.holdings, h)
	} else {
		b.holdings[h] = struct{}{}
	}
	if grown < 0 {
		h.going = false
		b.giveLocked(-grown)
		return
	}
	if h.idle {
		h.moves() // it is as old as what came last
	}
	if b.used += grown; b.used > b.limit {
		b.relieve(b.used - b.limit)
	}
}

// list makes bytes that are counted in already a holding, unless they are few;
// unlist takes that back.
func (b *Budget) list(h *holding, size int) {
	if b == nil || size <= largeSize {
		return
	}
	h.moves()
	b.mu.Lock()
	defer b.mu.Unlock()
	h.size = int64(size)
	b.holdings[h] = struct{}{}
}

func (b *Budget) unlist(h *holding) {
	if b == nil || h == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holdings, h)
}

// relieve gives up holdings until that makes room for need bytes, or nothing is
// left that can go; mu is held.
func (b *Budget) relieve(need int64) {
	stalled := time.Now().Add(-stallTime).UnixNano()
	for h := range b.holdings {
		if h.going {
			need -= h.size // it is on its way
		}
	}
	for need > 0 {
		var most *holding
		for h := range b.holdings {
			switch {
			case h.going || !h.idle && h.progress.Load() > stalled:
			case most == nil || h.idle && !most.idle:
				most = h
			case h.idle == most.idle && (h.size > most.size || h.size == most.size && h.progress.Load() < most.progress.Load()):
				most = h
			}
		}
		if most == nil {
			return
		}
		most.going = true
		need -= most.size
		go most.of.giveUp()
	}
}

// noRoom is the answer to a request for which there is no memory.
func noRoom() *Refusal {
	return refuse(http.StatusServiceUnavailable, CodeOverloaded, "The gateway's memory is used up").retryAfter(time.Second)
}
