package wire

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Calls that wait to be sent on one connection: each sender's in order, and
// senders take turns. What leaves the queue takes no turn.
func TestSendersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string // one at a time
		near, far := Pipe()
		server := NewPeer(far, handlerFuncs{request: func(_ context.Context, r *Request) (json.RawMessage, error) {
			sent = append(sent, r.Method)
			time.Sleep(time.Second)
			return nil, nil
		}}, nil)
		defer server.Close()
		p := NewPeer(near, nil, &PeerOptions{MaxInFlight: 1, MaxQueued: 4})
		defer p.Close()
		var calls sync.WaitGroup
		call := func(ctx context.Context, sender, method string) {
			calls.Go(func() { _, _ = p.Call(ctx, Call{Method: method, Sender: sender}) })
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		for _, method := range []string{"a0", "a1", "a2", "a3"} {
			call(t.Context(), "a", method)
		}
		call(gone, "c", "c1")
		call(t.Context(), "b", "b1")
		call(t.Context(), "a", "a4") // one too many
		call(t.Context(), "d", "d1") // there is room for who has none
		leave()
		calls.Wait()
		if want := []string{"a0", "a1", "b1", "d1", "a2", "a3"}; !slices.Equal(sent, want) {
			t.Errorf("%q, want %q", sent, want)
		}
	})
}
