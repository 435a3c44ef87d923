package wire

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxUnsent is how many bytes may wait in a stream for its reader. One event
// that is larger still passes, alone.
const maxUnsent = 256 << 10

var (
	errStalled = errors.New("the client does not read its stream")
	errGone    = errors.New("the client has gone")
)

// An outStream is what is on its way to a client over an HTTP response: what a call
// sends before its answer and the answer, what a legacy session sends on its
// own account, or what a subscription delivers. Whoever sends pushes events,
// and the goroutine that serves the response, the reader, takes them.
//
// A resumable stream (legacy era) numbers its events and keeps those already
// taken, as far as its session has room, for a client that comes back with
// Last-Event-ID after it lost the connection.
type outStream struct {
	resumable bool
	prime     bool   // open with an empty event, so that the client has an id from the start
	number    uint64 // within its session

	mu     sync.Mutex
	events []segments // framed; those before taken are kept for a client that comes back
	taken  int
	first  uint64        // number of events[0]
	unsent int           // bytes in events[taken:]
	kept   int           // bytes in events
	opened bool          // it will be a stream, even if nothing is in it yet
	ended  bool          // nothing more will come
	lost   bool          // something did not fit: only a new stream helps
	reader reader        // the present one; nil if there is none
	last   reader        // the one there is or was; nil if there never was
	hangUp time.Duration // > 0: the reader shall ask the client to come back
	budget *Budget       // in which unread is counted, both of the present reader; nil if there is none
	unread *holding      // what it has not got
	writes int           // bytes it has taken and may still be writing
	opener streamOpener  // is told when it becomes a stream; nil if nobody wants to know
	room   chan struct{} // closed when a reader has taken or gone; nil if nobody waits
}

// A streamOpener starts whoever takes the events of a stream. It is called
// under mu.
type streamOpener interface{ streamOpens() }

// A reader is told, on a channel of capacity 1 that is its own, when there is
// something for it to look at.
type reader chan struct{}

func (r reader) wake() {
	select {
	case r <- struct{}{}:
	default: // it is awake, or nobody is there
	}
}

// isRead reports whether there is a reader.
func (st *outStream) isRead() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.reader != nil
}

// push adds a message. If the reader is behind by more than maxUnsent, push
// waits for it when wait is true, and otherwise gives the stream up.
func (st *outStream) push(ctx context.Context, m Message, wait bool) error {
	if wait {
		st.mu.Lock()
		b := st.budget
		st.mu.Unlock()
		b.ease(ctx)
	}
	for {
		st.mu.Lock()
		switch {
		case st.ended || st.lost:
			st.mu.Unlock()
			return errGone
		case st.reader == nil && st.last != nil && !st.resumable:
			st.mu.Unlock()
			return errGone
		case st.unsent == 0 || st.unsent+m.size() <= maxUnsent || st.resumable && st.reader == nil:
			st.add(m)
			st.reader.wake()
			st.mu.Unlock()
			return nil
		case !wait && st.resumable:
			st.dismiss() // it may come back for what it missed
			st.mu.Unlock()
			continue
		case !wait:
			st.lost = true
			st.reader.wake()
			st.mu.Unlock()
			return errStalled
		}
		if st.room == nil {
			st.room = make(chan struct{})
		}
		room := st.room
		st.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// end adds the last message, if it is not zero, and ends the stream. A stream
// that has ended stays as it is.
func (st *outStream) end(m Message) {
	st.mu.Lock()
	if !st.ended {
		if m.Method != "" || !m.ID.IsZero() {
			st.add(m)
		}
		st.ended = true
	}
	st.reader.wake()
	st.mu.Unlock()
}

// add frames a message and puts it in the queue. Under mu.
func (st *outStream) add(m Message) {
	if !st.opened {
		st.open()
	}
	st.addEvent(st.frame(m))
	// With nobody there to take them, the oldest make room for the newest.
	for st.reader == nil && st.unsent > maxUnsent && st.taken < len(st.events)-1 {
		st.unsent -= st.events[st.taken].length()
		st.taken++
	}
	st.forget(maxUnsent)
}

// start makes the stream one before there is anything in it.
func (st *outStream) start() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.opened && !st.ended {
		st.open()
		st.reader.wake()
	}
}

// open makes the stream one, with its first event where the revision wants it.
func (st *outStream) open() {
	st.opened = true
	if st.opener != nil {
		st.opener.streamOpens()
	}
	if st.prime {
		st.addEvent(segments{append(st.beginEvent(0), "\n\n"...)})
	}
}

func (st *outStream) addEvent(e segments) {
	st.events = append(st.events, e)
	if st.unread != nil && st.unsent+st.writes == 0 {
		st.unread.moves() // from now on it has something to read
	}
	st.unsent += e.length()
	st.kept += e.length()
	st.recount()
}

// count makes what the reader has not got a holding of its own.
func (st *outStream) count(b *Budget, unread *holding) {
	st.mu.Lock()
	defer st.mu.Unlock()
	unread.moves()
	st.budget, st.unread, st.writes = b, unread, 0
	st.recount()
}

// uncount is for a reader that stops.
func (st *outStream) uncount(b *Budget, unread *holding) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.unread == unread {
		st.budget, st.unread, st.writes = nil, nil, 0
	}
	b.set(unread, 0)
}

// counted is for a reader that has written what it has taken.
func (st *outStream) counted(unread *holding) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.unread == unread {
		st.writes = 0
		st.recount()
	}
}

func (st *outStream) recount() {
	if st.unread != nil {
		st.budget.set(st.unread, st.unsent+st.writes)
	}
}

// beginEvent returns the beginning of an event, with room for its data.
func (st *outStream) beginEvent(size int) []byte {
	event := make([]byte, 0, size+48)
	if st.resumable {
		event = append(event, "id: "...)
		event = strconv.AppendUint(event, st.number, 10)
		event = append(event, '-')
		event = strconv.AppendUint(event, st.first+uint64(len(st.events)), 10)
		event = append(event, '\n')
	}
	return append(event, "data: "...)
}

// frame makes an event of a message. A result that is too large to be kept for a
// client that comes back is not copied.
func (st *outStream) frame(m Message) segments {
	large := m.Result
	if len(large) <= maxUnsent || lineEnd(large) >= 0 {
		event := st.beginEvent(m.size())
		start := len(event)
		event = m.AppendTo(event)
		oneLine(event[start:]) // a line break would end the event
		return segments{append(event, "\n\n"...)}
	}
	m.Result = json.RawMessage("0") // stands for the large one
	event := m.AppendTo(st.beginEvent(m.size()))
	return segments{event[:len(event)-len("0}")], large, []byte("}\n\n")}
}

// forget drops events that were taken until at most limit bytes are kept. Under mu.
func (st *outStream) forget(limit int) {
	n := 0
	for n < st.taken && (!st.resumable || st.kept > limit) {
		st.kept -= st.events[n].length()
		n++
	}
	if n > 0 {
		rest := copy(st.events, st.events[n:])
		clear(st.events[rest:])
		st.events = st.events[:rest]
		st.taken -= n
		st.first += uint64(n)
	}
}

// attach makes the caller the reader, in place of another if there is one: that
// one's connection may have broken without anybody noticing.
func (st *outStream) attach() reader {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.reader != nil {
		st.dismiss()
	}
	return st.newReader()
}

func (st *outStream) newReader() reader {
	st.reader, st.hangUp = make(reader, 1), 0
	st.last = st.reader
	return st.reader
}

// resume makes the caller the reader, in place of another if there is one. It
// has seen the events up to and with number seen; those that are no longer kept
// are lost to it.
func (st *outStream) resume(seen uint64) reader {
	st.mu.Lock()
	defer st.mu.Unlock()
	next := min(max(seen+1, st.first), st.first+uint64(len(st.events)))
	st.taken = int(next - st.first)
	st.unsent = 0
	for _, e := range st.events[st.taken:] {
		st.unsent += e.length()
	}
	st.dismiss()
	return st.newReader()
}

// detach is for a reader that stops. It reports whether it was the reader still.
func (st *outStream) detach(r reader) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.reader != r {
		return false
	}
	st.dismiss()
	return true
}

// dismiss leaves the stream without a reader; the one there was will notice.
// Under mu.
func (st *outStream) dismiss() {
	st.reader.wake()
	st.reader = nil
	st.makeRoom()
}

func (st *outStream) makeRoom() {
	if st.room != nil {
		close(st.room)
		st.room = nil
	}
}

// What a reader finds.
type streamState uint8

const (
	streamWaits    streamState = iota // nothing for now
	streamEnded                       // what was taken is the last of it
	streamLost                        // it must break off
	streamReplaced                    // it is not the reader any more
	streamHangsUp                     // the client shall come back later
)

// take appends to batch the events that the reader has not seen.
func (st *outStream) take(r reader, batch []segments) ([]segments, streamState, time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.reader != r:
		return batch, streamReplaced, 0
	case st.lost:
		return batch, streamLost, 0
	}
	batch = append(batch, st.events[st.taken:]...)
	st.taken, st.writes, st.unsent = len(st.events), st.unsent, 0
	st.forget(maxUnsent)
	st.makeRoom()
	switch {
	case st.ended:
		return batch, streamEnded, 0
	case st.hangUp > 0:
		return batch, streamHangsUp, st.hangUp
	}
	return batch, streamWaits, 0
}

// askBack makes the reader end its response and ask the client to come back for
// the rest. It reports false where that cannot be.
func (st *outStream) askBack(after time.Duration) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.prime || st.reader == nil || st.ended {
		return false
	}
	if !st.opened {
		st.open()
	}
	st.hangUp = max(after, time.Millisecond)
	st.reader.wake()
	return true
}

// spare is how many bytes are kept only for a client that comes back.
func (st *outStream) spare() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.reader == nil {
		return st.kept
	}
	return st.kept - st.unsent
}

// drop forgets what is kept for a client that comes back. It reports false if a
// client is there.
func (st *outStream) drop() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.reader != nil {
		st.forget(0)
		return false
	}
	st.taken, st.unsent = len(st.events), 0
	st.forget(0)
	return true
}

// remains says how many bytes of a stream that has ended are kept.
func (st *outStream) remains() (bytes int, ended bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.kept, st.ended
}

// left reports whether nobody has come since this reader stopped.
func (st *outStream) left(r reader) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.reader == nil && st.last == r
}

// parseEventID reads what addEvent wrote.
func parseEventID(id string) (stream, event uint64, ok bool) {
	s, e, ok := strings.Cut(id, "-")
	if !ok {
		return 0, 0, false
	}
	stream, err1 := strconv.ParseUint(s, 10, 64)
	event, err2 := strconv.ParseUint(e, 10, 64)
	return stream, event, err1 == nil && err2 == nil
}
