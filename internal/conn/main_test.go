package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func TestMain(m *testing.M) {
	mcptest.Main()
	os.Exit(m.Run())
}

// fake is a server in memory that does what a test wants. It is a Target.Local
// by its method serve. Once it runs it is changed with set.
type fake struct {
	refuse error                                                             // of serve, at once
	init   func(ctx context.Context) error                                   // before initialize is answered
	list   func(ctx context.Context, cursor string) (result string, e error) // tools/list; nil lists echo
	call   func(ctx context.Context, r *wire.Request) (json.RawMessage, error)
	read   func(ctx context.Context) (result string, e error) // resources/read
	pings  func(ctx context.Context) error
	other  func(ctx context.Context) error // before a request for anything else is refused

	mu       sync.Mutex
	starts   int
	requests map[string]int // by method
	peer     *wire.Peer     // of the last start
	crash    func()
}

func (f *fake) serve(ctx context.Context, rw io.ReadWriteCloser) error {
	f.mu.Lock()
	f.starts++
	if f.refuse != nil {
		f.mu.Unlock()
		return f.refuse
	}
	f.peer = wire.NewPeer(wire.NewStreamConn(rw, rw, nil), f, nil)
	p := f.peer
	ctx, stop := context.WithCancel(ctx)
	f.crash = func() {
		rw.Close() // before any handler can still answer
		stop()
	}
	f.mu.Unlock()
	defer p.Close()
	select {
	case <-ctx.Done():
	case <-p.Done():
	}
	return errors.New("gone")
}

func (f *fake) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	f.mu.Lock()
	if f.requests == nil {
		f.requests = map[string]int{}
	}
	f.requests[r.Method]++
	init, list, call, read, pings, other := f.init, f.list, f.call, f.read, f.pings, f.other
	f.mu.Unlock()
	defer context.AfterFunc(ctx, func() { f.set(func() { f.requests["cancelled"]++ }) })()
	switch r.Method {
	case "initialize":
		if init != nil {
			if err := init(ctx); err != nil {
				return nil, err
			}
		}
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"},"instructions":"be kind"}`), nil
	case "ping":
		if pings != nil {
			return json.RawMessage(`{}`), pings(ctx)
		}
		return json.RawMessage(`{}`), nil
	case "tools/list":
		result := `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
		if list != nil {
			cursor, _ := wire.StringMember(r.Params, "cursor")
			var err error
			if result, err = list(ctx, cursor); err != nil {
				return nil, err
			}
		}
		return json.RawMessage(result), nil
	case "tools/call":
		if call != nil {
			return call(ctx, r)
		}
		return json.RawMessage(`{"content":[]}`), nil
	case "resources/read":
		if read != nil {
			result, err := read(ctx)
			return json.RawMessage(result), err
		}
	case "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		return json.RawMessage(`{}`), nil
	}
	if other != nil {
		return nil, other(ctx)
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (f *fake) HandleNotification(_ context.Context, n *wire.Notification) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests == nil {
		f.requests = map[string]int{}
	}
	f.requests[n.Method]++
}

// count returns how often a method was asked for.
func (f *fake) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[method]
}

// set changes how the server behaves.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts
}

// running reports whether the server that was last started has not ended.
func (f *fake) running() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.peer == nil {
		return false
	}
	select {
	case <-f.peer.Done():
		return false
	default:
		return true
	}
}

// die ends the running server as a crash would.
func (f *fake) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crash()
}

// say sends a notification to the client.
func (f *fake) say(t *testing.T, method string) {
	t.Helper()
	f.mu.Lock()
	p := f.peer
	f.mu.Unlock()
	if err := p.Notify(t.Context(), method, nil); err != nil {
		t.Error(err)
	}
}

func local(f *fake) Target { return Target{ConnectHash: "1", Local: f.serve} }

// newManager returns a manager that is closed at the end of the test. Illegal
// moves fail the test.
func newManager(t *testing.T, o Options) *Manager {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(watchful{t, slog.DiscardHandler})
	}
	m := NewManager(o)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// watchful is a log handler that fails the test if the package logs an error.
type watchful struct {
	t *testing.T
	slog.Handler
}

func (w watchful) Enabled(context.Context, slog.Level) bool { return true }

func (w watchful) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w watchful) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	if r.Level >= slog.LevelError {
		w.t.Error(text)
	} else if testing.Verbose() {
		w.t.Log(r.Time.Format("15:04:05.000"), text)
	}
	return nil
}

// one applies a single target and returns its server.
func one(t *testing.T, m *Manager, target Target) *Server {
	t.Helper()
	m.Apply(map[string]Target{"srv": target})
	s, ok := m.Server("srv", Profile{})
	if !ok {
		t.Fatal("no server")
	}
	return s
}

// statuses tells how all servers stand.
func statuses(m *Manager) map[string]Status {
	all := map[string]Status{}
	m.pool.mu.Lock()
	names := slices.Collect(maps.Keys(m.seats))
	m.pool.mu.Unlock()
	for _, name := range names {
		s, _ := m.Server(name, Profile{})
		all[name] = s.Status()
	}
	return all
}

func call(ctx context.Context, s *Server) error {
	_, err := s.Call(ctx, wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"echo"}`)})
	return err
}

func mustCall(t *testing.T, s *Server) {
	t.Helper()
	if err := call(t.Context(), s); err != nil {
		t.Fatalf("call: %v (%+v)", err, s.Status())
	}
}

func mustWait(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantState(t *testing.T, s *Server, want config.State, reason string) Status {
	t.Helper()
	st := s.Status()
	if st.State != want || !strings.Contains(st.Reason, reason) {
		t.Fatalf("state %s (%s), want %s (%s)", st.State, st.Reason, want, reason)
	}
	return st
}

func callError(t *testing.T, err error) *CallError {
	t.Helper()
	e, ok := errors.AsType[*CallError](err)
	if !ok {
		t.Fatalf("error %v (%T) is no CallError", err, err)
	}
	return e
}

// forever waits for the end of ctx.
func forever(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// slowly answers a call after a time.
func slowly(d time.Duration) func(context.Context, *wire.Request) (json.RawMessage, error) {
	return func(ctx context.Context, _ *wire.Request) (json.RawMessage, error) {
		sleep(ctx, d)
		return json.RawMessage(`{"content":[]}`), nil
	}
}

const second = time.Second
