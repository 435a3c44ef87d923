//go:build soak

package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Two hundred callers share one link, which is cut at random, in the middle of
// messages too, and made again. Each call has exactly one outcome: its own
// answer, the end of the link, or the caller's own.
func TestSoakLink(t *testing.T) {
	defer goleak.VerifyNone(t)
	duration := time.Minute
	if text := os.Getenv("PATCHBAY_SOAK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), duration)
	defer stop()

	var link atomic.Pointer[Peer]
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			ours, theirs := net.Pipe()
			server := NewPeer(NewStreamConn(theirs, theirs, nil), echo{}, nil)
			client := NewPeer(NewStreamConn(ours, ours, nil), nil, nil)
			link.Store(client)
			select {
			case <-time.After(rand.N(200 * time.Millisecond)):
			case <-ctx.Done():
			}
			[]func(){func() { ours.Close() }, func() { theirs.Close() }, func() { client.Close() }, func() { server.Close() }}[rand.IntN(4)]()
			client.Close()
			server.Close()
		}
	})
	var answered, ended, cancelled atomic.Int64
	for i := range 200 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p := link.Load()
				if p == nil || p.Err() != nil {
					runtime.Gosched() // the next link is being made
					continue
				}
				params := json.RawMessage(fmt.Sprintf(`{"id":"%d-%d"}`, i, n))
				patience := time.Minute // an answer that takes longer is lost
				if n%20 == 0 {
					patience = rand.N(2 * time.Millisecond)
				}
				mine, done := context.WithTimeout(context.Background(), patience)
				result, err := p.Call(mine, Call{Method: "echo", Params: params})
				refusal, _ := errors.AsType[*Error](err)
				switch {
				case err == nil && string(result) == string(params):
					answered.Add(1)
				case errors.Is(err, ErrClosed), refusal != nil && refusal.Code == CodeOverloaded: // it was not begun any more
					ended.Add(1)
				case n%20 == 0 && errors.Is(err, context.DeadlineExceeded):
					cancelled.Add(1)
				default:
					t.Errorf("%s: %s, %v", params, result, err)
				}
				done()
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls answered, %d cut off, %d cancelled", answered.Load(), ended.Load(), cancelled.Load())
	if answered.Load() == 0 || ended.Load() == 0 || cancelled.Load() == 0 {
		t.Error("not everything that should happen did")
	}
}
