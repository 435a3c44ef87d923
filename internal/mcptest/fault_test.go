package mcptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// start connects a peer to a scripted server.
func start(t *testing.T, peer *wire.PeerOptions, stream *wire.StreamOptions, args ...string) (*wire.Peer, *Child) {
	t.Helper()
	child := Start(t, Command(args...), stream)
	p := wire.NewPeer(child.Conn, nil, peer)
	t.Cleanup(func() { p.Close() })
	return p, child
}

// tool calls one and returns its text.
func tool(ctx context.Context, p *wire.Peer, name, arguments string) (string, error) {
	return watched(ctx, p, name, arguments, nil)
}

// watched is tool with a function to call on progress. No call takes longer than
// the limit, which is far away unless the server is dead.
func watched(ctx context.Context, p *wire.Peer, name, arguments string, progress func(json.RawMessage)) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errHangs)
	defer cancel()
	result, err := p.Call(ctx, wire.Call{
		Method:   "tools/call",
		Params:   json.RawMessage(`{"name":"` + name + `","arguments":` + arguments + `}`),
		Progress: progress,
	})
	if err != nil {
		return "", err
	}
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(result, &r); err != nil || len(r.Content) != 1 {
		return "", fmt.Errorf("result %.100s", result)
	}
	return r.Content[0].Text, nil
}

var errHangs = errors.New("the call hangs")

// works fails the test unless the server still answers.
func works(t *testing.T, p *wire.Peer) {
	t.Helper()
	if got, err := tool(t.Context(), p, "echo", `{"text":"grüß dich"}`); err != nil || got != "grüß dich" {
		t.Errorf("echo gave %q, %v", got, err)
	}
}

// Row 7 of the fault matrix: an answer after the call was given up is dropped
// and counted, and disturbs nobody.
func TestLateAnswer(t *testing.T) {
	LeavesNothing(t)
	p, _ := start(t, nil, nil)
	for n := range uint64(10) {
		ctx, cancel := context.WithCancel(t.Context())
		arrived := func(json.RawMessage) { cancel() }
		if _, err := watched(ctx, p, "late", `{}`, arrived); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled call: %v", err)
		}
		works(t, p)
		// The cancellation goes out by itself, so others may overtake it.
		for range 1000 {
			if p.Stats().LateAnswers > n {
				break
			}
			works(t, p)
		}
		if got := p.Stats().LateAnswers; got != n+1 {
			t.Fatalf("%d late answers were counted, want %d", got, n+1)
		}
	}
}

// Row 8: garbage is skipped, counted and shown, up to a limit.
func TestNoise(t *testing.T) {
	LeavesNothing(t)
	var shown atomic.Int64
	p, _ := start(t, &wire.PeerOptions{OnGarbage: func(g *wire.Garbage) {
		if g.Size >= 40 && len(g.Text) == g.Size {
			shown.Add(1)
		}
	}}, nil, "-banner=20")
	works(t, p)
	for range 3 {
		if got, err := tool(t.Context(), p, "noise", `{"count":1000,"bytes":60}`); err != nil || got != "noisy" {
			t.Errorf("noise gave %q, %v", got, err)
		}
	}
	works(t, p)
	if n := p.Stats().Garbage; n != 3020 || shown.Load() != 3020 {
		t.Errorf("%d bad lines were counted and %d shown, want 3020", n, shown.Load())
	}

	// Without an answer in between one more is one too many.
	_, err := tool(t.Context(), p, "noise", `{"count":1001,"bytes":60}`)
	if !errors.Is(err, wire.ErrNoise) || !errors.Is(err, wire.ErrClosed) {
		t.Errorf("after too much noise: %v", err)
	}
	<-p.Done()
}

// Row 9: a line over the limit costs its call, not the session nor the memory.
func TestLongLine(t *testing.T) {
	LeavesNothing(t)
	const limit, size = 8 << 20, 100 << 20
	p, _ := start(t, nil, &wire.StreamOptions{MaxMessage: limit})
	works(t, p)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := tool(t.Context(), p, "long", fmt.Sprintf(`{"bytes":%d}`, size))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, wire.ErrTooLong) {
		t.Errorf("the call whose answer was too long: %v", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 2*limit {
		t.Errorf("%d bytes were allocated for a line of %d, want at most %d", got, size, 2*limit)
	}
	works(t, p)
	if got, err := tool(t.Context(), p, "long", fmt.Sprintf(`{"bytes":%d}`, limit/2)); err != nil || len(got) != limit/2 {
		t.Errorf("an answer under the limit gave %d bytes, %v", len(got), err)
	}
}

// Row 12: a server that does not read its input costs its callers their own
// deadlines, and nothing else.
func TestDeafServer(t *testing.T) {
	LeavesNothing(t)
	p, child := start(t, nil, nil)
	if _, err := tool(t.Context(), p, "deaf", `{}`); err != nil {
		t.Fatal(err)
	}
	big := `{"text":"` + strings.Repeat("x", 1<<20) + `"}`
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 32 { // more than pipe, queue and window hold
		wg.Go(func() {
			if _, err := tool(ctx, p, "echo", big); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call to a deaf server: %v", err)
			}
		})
	}
	wg.Wait()
	if err := p.Err(); err != nil {
		t.Errorf("the link ended: %v", err)
	}
	child.Kill()
	<-p.Done()
}

// Row 13: a server that closed its output has ended as far as we can tell, even
// if its process lives.
func TestMuteServer(t *testing.T) {
	LeavesNothing(t)
	p, child := start(t, nil, nil)
	for range 2 { // the call that did it, and one after
		if _, err := tool(t.Context(), p, "mute", `{}`); !errors.Is(err, wire.ErrClosed) {
			t.Errorf("call to a mute server: %v", err)
		}
	}
	<-p.Done()
	if err := child.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process is gone already: %v", err)
	}
}

// Row 14: a server that closed its input fails the next call, and does not kill
// us with a signal.
func TestServerHangsUp(t *testing.T) {
	LeavesNothing(t)
	p, child := start(t, nil, nil)
	if got, err := tool(t.Context(), p, "hangup", `{}`); err != nil || got != "gone" {
		t.Fatalf("hangup gave %q, %v", got, err)
	}
	_, err := tool(t.Context(), p, "echo", `{}`)
	if !errors.Is(err, wire.ErrClosed) || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("call to a server that does not listen: %v", err)
	}
	<-p.Done()
	child.Kill()
}

// A crash fails every call that was under way, at once and for the same reason.
func TestCrash(t *testing.T) {
	LeavesNothing(t)
	p, _ := start(t, nil, nil)
	var arrived, ended sync.WaitGroup
	for range 8 {
		arrived.Add(1)
		ended.Go(func() {
			_, err := watched(t.Context(), p, "late", `{}`, func(json.RawMessage) { arrived.Done() })
			if !errors.Is(err, wire.ErrClosed) {
				t.Errorf("call to a server that crashed: %v", err)
			}
		})
	}
	arrived.Wait()
	if _, err := tool(t.Context(), p, "crash", `{}`); !errors.Is(err, wire.ErrClosed) {
		t.Errorf("call that crashed the server: %v", err)
	}
	ended.Wait()
	<-p.Done()
}

// recorder counts notifications and checks their order.
type recorder struct {
	next     int
	disorder atomic.Int64
	count    atomic.Int64
}

func (*recorder) HandleRequest(context.Context, *wire.Request) (json.RawMessage, error) {
	return nil, errors.New("unexpected request")
}

func (r *recorder) HandleNotification(_ context.Context, n *wire.Notification) {
	var params struct{ Data int }
	if err := json.Unmarshal(n.Params, &params); err != nil || params.Data < r.next {
		r.disorder.Add(1)
	}
	r.next = params.Data + 1
	r.count.Add(1)
}

// A flood of notifications delays no answer and keeps its order; what is over
// the limit is dropped and counted.
func TestFlood(t *testing.T) {
	LeavesNothing(t)
	child := Start(t, Command(), nil)
	var r recorder
	p := wire.NewPeer(child.Conn, &r, nil)
	const count = 20_000
	if got, err := tool(t.Context(), p, "flood", fmt.Sprintf(`{"count":%d}`, count)); err != nil || got != "flooded" {
		t.Errorf("flood gave %q, %v", got, err)
	}
	works(t, p)
	p.Close() // waits for what is being handled
	if handled, dropped := r.count.Load(), int64(p.Stats().Dropped); handled+dropped != count || r.disorder.Load() > 0 {
		t.Errorf("%d handled and %d dropped of %d, %d out of order", handled, dropped, count, r.disorder.Load())
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{{"-nonsense"}, {"word"}} {
		var diagnostics strings.Builder
		if status := serve(args, nil, nil, &diagnostics); status != 2 || diagnostics.Len() == 0 {
			t.Errorf("%q: status %d, %q", args, status, diagnostics.String())
		}
	}
}
