package conn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Of many servers only so many start at the same time, and one that hangs does
// not hold up the others for long.
func TestStartsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		m.Limit(Limits{Starts: 3})
		want := map[string]Target{}
		var all []*fake
		for i := range 9 {
			f := &fake{init: func(ctx context.Context) error {
				if i < 6 {
					return forever(ctx)
				}
				return nil
			}}
			all = append(all, f)
			want[fmt.Sprint(i)] = Target{ConnectHash: fmt.Sprint(i), Local: f.serve}
		}
		m.Apply(want)
		begun := func() (n int) {
			for _, f := range all {
				n += f.started()
			}
			return n
		}
		synctest.Wait()
		if n := begun(); n < 3 || n > 6 { // those that do not hang make room at once
			t.Errorf("%d servers have started at once", n)
		}
		connected := func() (n int) {
			for _, st := range statuses(m) {
				if st.State == config.Connected {
					n++
				}
			}
			return n
		}
		time.Sleep(2*startTime + time.Second)
		synctest.Wait()
		if n := connected(); n != 3 {
			t.Errorf("%d servers are connected, 3 can be", n)
		}
	})
}

// busy is a session of a kind of its own with a call under way.
func busy(t *testing.T, m *Manager, kind string) (*Server, context.CancelFunc) {
	t.Helper()
	s := held(t, m, Profile{Key: kind, Kind: kind, Capabilities: []byte(`{}`), Session: kind})
	ctx, cancel := context.WithCancel(t.Context())
	go call(ctx, s)
	synctest.Wait()
	return s, cancel
}

// Above the limit processes that nobody uses make room, and if there are none a
// session gets no further process of a server, with the reason; a server's first
// one is never refused.
func TestProcessesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{call: func(ctx context.Context, _ *wire.Request) (json.RawMessage, error) { return nil, forever(ctx) }}
		m := newManager(t, Options{})
		m.Limit(Limits{Processes: 2})
		m.Apply(map[string]Target{"srv": {ConnectHash: "1", Local: f.serve}})
		synctest.Wait()
		_, endFirst := busy(t, m, "a")
		defer endFirst()
		_, endSecond := busy(t, m, "b")
		third, endThird := busy(t, m, "c")
		endThird()
		synctest.Wait()
		soon, over := context.WithTimeout(t.Context(), time.Second)
		defer over()
		e := callError(t, call(soon, third))
		if !strings.Contains(e.Error(), "2 processes of servers run already") || !strings.Contains(e.Error(), "limits.processes") {
			t.Errorf("the third: %v", e)
		}
		// Another server's first is let in all the same.
		g := &fake{}
		m.Apply(map[string]Target{"srv": {ConnectHash: "1", Local: f.serve}, "other": {ConnectHash: "2", Local: g.serve}})
		other, _ := m.Server("other", Profile{})
		mustWait(t, other)
		mustCall(t, other)
		// One that nobody uses any more makes room.
		endSecond()
		synctest.Wait()
		time.Sleep(time.Minute) // until the third may be tried again
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if err := call(ctx, third); err == nil || strings.Contains(err.Error(), "limits.processes") {
			t.Errorf("with room made: %v", err)
		}
	})
}

// Of a server that runs in many directories at most eight processes are kept that
// nobody uses. The others are there again when they are wanted.
func TestIdleProcessesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		var all []*fake
		var servers []*Server
		want := map[string]Target{}
		for i := range 12 {
			f := &fake{}
			all = append(all, f)
			want[fmt.Sprintf("srv%02d", i)] = Target{ConnectHash: fmt.Sprint(i), CatalogKey: "one", Local: f.serve}
		}
		m.Apply(want)
		for i := range all {
			s, _ := m.Server(fmt.Sprintf("srv%02d", i), Profile{})
			mustWait(t, s)
			time.Sleep(time.Second)
			mustCall(t, s)
			servers = append(servers, s)
		}
		running := func() (n int) {
			for _, f := range all {
				if f.running() {
					n++
				}
			}
			return n
		}
		if n := running(); n != 12 {
			t.Fatalf("%d run", n)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := running(); n != 8 || all[3].running() || !all[4].running() {
			t.Errorf("after a while %d run", n)
		}
		mustCall(t, servers[0])
		if n := running(); n != 9 {
			t.Errorf("after a call %d run", n)
		}
	})
}
