//go:build soak

package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// soakTime is how long a soak test runs.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PATCHBAY_SOAK")
	if text == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// lostAfter is how long a call may take before its answer counts as lost: far
// longer than any restart.
const lostAfter = time.Minute

// soak is what many callers do to one host while its servers die.
type soak struct {
	t       *testing.T
	host    *patchbay.Host
	servers []string
	journal string

	answered, failed, cancelled, killed atomic.Int64

	mu   sync.Mutex
	done []string // texts of calls that were answered
}

// Two hundred callers share one host whose servers are killed at random. Each
// call has exactly one outcome: its own answer, one error that says that the
// server died, or the caller's own cancellation. No call is carried out twice,
// none that was answered is missing, and nothing is left in the end.
func TestSoakCallsAndCrashes(t *testing.T) {
	const callers, sessions = 200, 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	leavesNothing(t)
	k := &soak{t: t, journal: filepath.Join(t.TempDir(), "journal")}
	declared := map[string]config.Server{}
	for i := range 6 {
		name := fmt.Sprintf("srv%d", i)
		k.servers = append(k.servers, name)
		era := []string{"answer", "unknown"}[i%2]
		declared[name] = scripted("-journal="+k.journal, "-discover="+era)
	}
	k.host = withServers(t, declared, func(o *patchbay.Options) { o.Guard = self(t, "guard") })
	if err := k.host.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithTimeout(t.Context(), soakTime(t))
	defer stop()
	var wg sync.WaitGroup
	for i := range sessions {
		o := patchbay.SessionOptions{Name: fmt.Sprint("session ", i), Default: patchbay.Allow}
		if i == 0 { // which has connections of its own
			o.Client = &patchbay.Client{Roots: func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{"roots":[]}`), nil }}
		}
		s := session(t, k.host, o)
		for j := range callers / sessions {
			r := rand.New(rand.NewPCG(seed, uint64(i*callers+j)))
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					k.call(s, r, fmt.Sprintf("%d-%d-%d", i, j, n))
				}
			})
		}
		wg.Go(func() { k.crash(ctx, s, rand.New(rand.NewPCG(seed, uint64(1e6+i)))) })
	}
	wg.Go(func() {
		for range k.host.Watch(ctx) {
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := k.host.Reload(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			pause(ctx, 100*time.Millisecond)
		}
	})
	wg.Wait()
	t.Logf("%d calls answered, %d failed, %d cancelled; %d crashes", k.answered.Load(), k.failed.Load(), k.cancelled.Load(), k.killed.Load())
	if k.answered.Load() == 0 || k.failed.Load() == 0 || k.cancelled.Load() == 0 {
		t.Error("not everything that should happen did")
	}
	k.checkJournal()
	if err := k.host.Close(); err != nil {
		t.Error(err)
	}
}

// call makes one call and looks at what becomes of it.
func (k *soak) call(s *patchbay.Session, r *rand.Rand, text string) {
	ctx, stop := context.WithTimeoutCause(context.Background(), lostAfter, errLost)
	defer stop()
	impatient := r.IntN(20) == 0
	if impatient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(5))*time.Millisecond)
		defer cancel()
	}
	tool := k.servers[r.IntN(len(k.servers))] + ".note"
	result, err := s.Call(ctx, patchbay.Call{Tool: tool, Arguments: json.RawMessage(fmt.Sprintf(`{"text":%q}`, text))})
	e, ours := errors.AsType[*patchbay.Error](err)
	switch {
	case err == nil:
		k.answered.Add(1)
		if m, err := result.ForModel(); err != nil || m.Text != text {
			k.t.Errorf("the answer to %s is %q, %v", text, m.Text, err)
		}
		k.mu.Lock()
		k.done = append(k.done, text)
		k.mu.Unlock()
	case errors.Is(context.Cause(ctx), errLost):
		k.t.Errorf("the answer to %s is lost: %v", text, err)
	case impatient && ctx.Err() != nil:
		k.cancelled.Add(1)
	case ours && e.Kind == patchbay.KindTransport && e.Hint != "":
		k.failed.Add(1)
	default:
		k.t.Errorf("%s: %v (%#v)", text, err, err)
	}
}

var errLost = errors.New("lost")

// crash kills servers at random, until ctx ends.
func (k *soak) crash(ctx context.Context, s *patchbay.Session, r *rand.Rand) {
	for pause(ctx, time.Duration(100+r.IntN(900))*time.Millisecond) {
		// The call cannot be answered; what is left of it is one error.
		limited, stop := context.WithTimeoutCause(context.Background(), lostAfter, errLost)
		_, err := s.Call(limited, patchbay.Call{Tool: k.servers[r.IntN(len(k.servers))] + ".crash"})
		if kindOf(err) != patchbay.KindTransport {
			k.t.Errorf("a crash gives %v", err)
		}
		stop()
		k.killed.Add(1)
	}
}

// checkJournal compares what was answered with what was carried out.
func (k *soak) checkJournal() {
	data, err := os.ReadFile(k.journal)
	if err != nil {
		k.t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(data)) {
		times[strings.TrimSpace(line)]++
	}
	for text, n := range times {
		if n > 1 {
			k.t.Errorf("%s was carried out %d times", text, n)
		}
	}
	for _, text := range k.done {
		if times[text] != 1 {
			k.t.Errorf("%s was answered and carried out %d times", text, times[text])
		}
	}
}

// pause waits, and reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
