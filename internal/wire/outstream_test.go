package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func event(n, size int) Message {
	return Message{Method: "m", Params: fmt.Appendf(nil, `{"n":%d,"pad":%q}`, n, strings.Repeat("x", size))}
}

// numbers are those of the events in a batch.
func numbers(batch []segments) (all []string) {
	for _, e := range batch {
		_, after, _ := bytes.Cut(bytes.Join(e[:], nil), []byte(`"n":`))
		n, _, _ := bytes.Cut(after, []byte(","))
		all = append(all, string(n))
	}
	return all
}

func taken(t *testing.T, st *outStream, reader reader, want streamState, events ...string) {
	t.Helper()
	batch, state, _ := st.take(reader, nil)
	if got := numbers(batch); state != want || strings.Join(got, ",") != strings.Join(events, ",") {
		t.Errorf("state %d, events %v; want %d, %v", state, got, want, events)
	}
}

// A sender that may wait does so when the reader is behind, and goes on when it
// has caught up, has gone, or the sender gives up.
func TestOutStreamBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &outStream{}
		reader := st.attach()
		push := func(ctx context.Context, n int) <-chan error {
			done := make(chan error, 1)
			go func() { done <- st.push(ctx, event(n, maxUnsent*2/3), true) }()
			synctest.Wait()
			return done
		}
		if err := <-push(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		second := push(t.Context(), 2)
		ctx, cancel := context.WithCancelCause(t.Context())
		third := push(ctx, 3)
		if len(second)+len(third) != 0 {
			t.Fatal("there was room for more than there is")
		}
		why := errors.New("why")
		cancel(why)
		if err := <-third; err != why {
			t.Errorf("given up: %v", err)
		}
		taken(t, st, reader, streamWaits, "1")
		if err := <-second; err != nil {
			t.Errorf("after there was room: %v", err)
		}
		fourth := push(t.Context(), 4)
		st.detach(reader)
		if err := <-fourth; err != errGone {
			t.Errorf("after the reader has gone: %v", err)
		}
	})
}

// A sender that must not wait breaks a stream off that nobody can resume, and
// takes the reader away from one that somebody can.
func TestOutStreamOverflow(t *testing.T) {
	st := &outStream{}
	reader := st.attach()
	push := func(n int) error { return st.push(t.Context(), event(n, maxUnsent*2/3), false) }
	if err := errors.Join(push(1), push(2)); !errors.Is(err, errStalled) {
		t.Errorf("%v", err)
	}
	taken(t, st, reader, streamLost)
	if err := push(3); err != errGone {
		t.Errorf("%v", err)
	}

	st = &outStream{}
	st.resumable = true
	reader = st.attach()
	for n := range 4 {
		if err := push(n); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
	taken(t, st, reader, streamReplaced)
	again := st.resume(0)
	taken(t, st, again, streamWaits, "3") // the older made room
}

// A reader that comes back gets what it has not seen, as far as it is kept.
func TestOutStreamResume(t *testing.T) {
	st := &outStream{}
	st.resumable, st.number = true, 7
	reader := st.attach()
	for n := range 5 {
		st.push(t.Context(), event(n, 10), false)
	}
	taken(t, st, reader, streamWaits, "0", "1", "2", "3", "4")
	again := st.resume(2)
	taken(t, st, reader, streamReplaced)
	if st.detach(reader) {
		t.Error("the reader that was replaced is the reader still")
	}
	taken(t, st, again, streamWaits, "3", "4")
	taken(t, st, st.resume(99), streamWaits)
	st.end(Message{})
	st.end(event(9, 1)) // too late
	taken(t, st, st.resume(3), streamEnded, "4")
	// What is kept is bounded, and an event of any size passes once.
	st = &outStream{}
	st.resumable = true
	reader = st.attach()
	st.push(t.Context(), event(0, 10), true)
	taken(t, st, reader, streamWaits, "0")
	st.push(t.Context(), event(1, 3*maxUnsent), true)
	taken(t, st, reader, streamWaits, "1")
	st.push(t.Context(), event(2, 10), true)
	taken(t, st, reader, streamWaits, "2")
	if st.kept > maxUnsent {
		t.Errorf("%d bytes are kept", st.kept)
	}
	taken(t, st, st.resume(0), streamWaits, "2")
}

func TestOutStreamAskBack(t *testing.T) {
	st := &outStream{}
	st.resumable = true
	reader := st.attach()
	if st.askBack(time.Second) {
		t.Error("a client that does not know of it was asked")
	}
	st.prime = true
	if !st.askBack(0) {
		t.Error("not asked")
	}
	if batch, state, after := st.take(reader, nil); state != streamHangsUp || after <= 0 || len(batch) != 1 {
		t.Errorf("%q %d %v", batch, state, after)
	}
	st.detach(reader)
	if st.askBack(time.Second) {
		t.Error("nobody was asked")
	}
}

// However a message is written, an event is one message on one line.
func FuzzEventFraming(f *testing.F) {
	f.Add("{\n\"a\" : 1 }\r\n", uint64(3))
	f.Add(`{"a":"\n"}`, uint64(0))
	f.Fuzz(func(t *testing.T, params string, number uint64) {
		if Valid([]byte(params), Limits{}) != nil || !IsObject([]byte(params)) {
			return
		}
		st := &outStream{}
		st.resumable, st.number = true, number
		reader := st.attach()
		if err := st.push(t.Context(), Message{Method: "m", Params: []byte(params)}, false); err != nil {
			t.Fatal(err)
		}
		batch, _, _ := st.take(reader, nil)
		lines := strings.Split(string(bytes.Join(batch[0][:], nil)), "\n")
		if len(lines) != 4 || lines[2] != "" || lines[3] != "" || strings.Contains(lines[1], "\r") {
			t.Fatalf("%q", batch[0])
		}
		id, ok := strings.CutPrefix(lines[0], "id: ")
		if got, n, valid := parseEventID(id); !ok || !valid || got != number || n != 0 {
			t.Fatalf("%q", lines[0])
		}
		data, ok := strings.CutPrefix(lines[1], "data: ")
		m, err := Parse([]byte(data), Limits{Depth: 1000})
		if !ok || err != nil || requestDigest("m", m.Params) != requestDigest("m", []byte(params)) {
			t.Fatalf("%q is not %q: %v", data, params, err)
		}
	})
}

// Nothing that a client can make up is taken for a sealed state.
func FuzzSeal(f *testing.F) {
	s, err := newSealer()
	if err != nil {
		f.Fatal(err)
	}
	good := s.seal(ticket{expires: time.Now()})
	f.Add(good)
	f.Add(sealPrefix)
	f.Add(good + "=")
	f.Fuzz(func(t *testing.T, state string) {
		if _, ok := s.open(state); ok && state != good {
			t.Fatalf("%q was opened", state)
		}
	})
}
