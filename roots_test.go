package patchbay

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// pinging is a local server that answers everything with nothing.
type pinging struct{}

func (pinging) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return mcptest.ServeLocal(ctx, rw, pinging{})
}

func (pinging) HandleRequest(context.Context, *wire.Request) (json.RawMessage, error) {
	return json.RawMessage(`{}`), nil
}

func (pinging) HandleNotification(context.Context, *wire.Notification) {}

// nosy is a local server that asks its clients for roots, as often as it is asked
// to. It says which of its connections answered.
type nosy struct {
	version     string // empty means the older era
	connections atomic.Int32
}

func (n *nosy) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return mcptest.ServeLocal(ctx, rw, nosyConnection(n.connections.Add(1)), cmp.Or(n.version, wire.Version20251125))
}

type nosyConnection int32

func (n nosyConnection) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	var roots json.RawMessage
	if r.Method == "custom/roots" || r.Method == "tools/call" {
		var err error
		if roots, err = r.Ask(ctx, "roots/list", nil); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string]any{"connection": n, "roots": roots})
}

func (nosyConnection) HandleNotification(context.Context, *wire.Notification) {}

// rootedSession is a session whose roots are what root says.
func rootedSession(t *testing.T, h *Host, root *atomic.Value, tells bool) (s *Session, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	s, err := h.NewSession(SessionOptions{Client: &Client{
		Capabilities: json.RawMessage(fmt.Sprintf(`{"roots":{"listChanged":%v}}`, tells)),
		Roots: func(context.Context) (json.RawMessage, error) {
			asked.Add(1)
			return json.RawMessage(fmt.Sprintf(`{"roots":[{"uri":%q}]}`, root.Load())), nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, asked
}

// Roots make no difference for a server that never asks for them. One that does is
// shared by sessions with the same roots; a session that is alone with its
// connection keeps it when its roots change.
func TestRootsCountWhereTheyAreAskedFor(t *testing.T) {
	n := &nosy{}
	h, err := Open(t.Context(), Options{Home: t.TempDir(), Dir: t.TempDir(), SystemRoot: t.TempDir(), StrictConfig: true, InProcess: map[string]LocalServer{"p": n}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	at := func(root string) *atomic.Value {
		var v atomic.Value
		v.Store(root)
		return &v
	}
	ask := func(s *Session, method string) (connection int, root string) {
		t.Helper()
		raw, err := s.Forward(t.Context(), "p", method, nil)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Connection int
			Roots      struct{ Roots []struct{ URI string } }
		}
		if err := json.Unmarshal(raw, &answer); err != nil {
			t.Fatal(err)
		}
		for _, r := range answer.Roots.Roots {
			root += r.URI
		}
		return answer.Connection, root
	}
	rootA := at("a")
	a, askedA := rootedSession(t, h, rootA, true)
	b, askedB := rootedSession(t, h, at("b"), true)
	first, _ := ask(a, "custom/hello")
	if same, _ := ask(b, "custom/hello"); same != first || askedA.Load()+askedB.Load() != 0 {
		t.Errorf("for a server that does not ask: connections %d and %d, asked for roots %d and %d times", first, same, askedA.Load(), askedB.Load())
	}
	if c, root := ask(a, "custom/roots"); c != first || root != "a" {
		t.Errorf("connection %d was told %s", c, root)
	}
	other, root := ask(b, "custom/roots")
	if other == first || root != "b" {
		t.Errorf("other roots: connection %d was told %s", other, root)
	}
	b.Close()
	again, askedAgain := rootedSession(t, h, at("a"), true)
	if c, _ := ask(again, "custom/hello"); c != first || askedAgain.Load() != 1 {
		t.Errorf("the same roots: connection %d, asked %d times", c, askedAgain.Load())
	}
	again.Close()
	rootA.Store("elsewhere")
	a.RootsChanged(t.Context())
	if c, root := ask(a, "custom/roots"); c != first || root != "elsewhere" {
		t.Errorf("after a change: connection %d was told %s", c, root)
	}
	was, _ := rootedSession(t, h, at("a"), true)
	if c, root := ask(was, "custom/roots"); c == first || root != "a" {
		t.Errorf("roots that were another one's: connection %d was told %s", c, root)
	}
	ask(a, "custom/roots")
	if n := askedA.Load(); n != 2 {
		t.Errorf("asked %d times for roots that are told of when they change", n)
	}
}

// A server of the newer era asks in each call whose it is, and is shared whatever
// the roots.
func TestRootsOfNewerServersDoNotCount(t *testing.T) {
	n := &nosy{version: wire.Version20260728}
	h, err := Open(t.Context(), Options{Home: t.TempDir(), Dir: t.TempDir(), SystemRoot: t.TempDir(), StrictConfig: true, InProcess: map[string]LocalServer{"p": n}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var connections []string
	for _, want := range []string{"a", "b", "a"} {
		var root atomic.Value
		root.Store(want)
		s, _ := rootedSession(t, h, &root, true)
		// tools/call is one of the requests in which such a server may ask.
		raw, err := s.send(t.Context(), "p", wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"roots"}`)})
		if uris, _ := wire.Member(raw, "roots"); err != nil || string(uris) != fmt.Sprintf(`{"roots":[{"uri":%q}]}`, want) {
			t.Errorf("%s, %v, want %s", raw, err, want)
		}
		connection, _ := wire.Member(raw, "connection")
		connections = append(connections, string(connection))
	}
	if connections[0] != connections[1] || connections[1] != connections[2] {
		t.Errorf("connections %v", connections)
	}
}

// What a client does not tell of when it changes is not kept.
func TestRootsOfClientsThatDoNotTell(t *testing.T) {
	h, err := Open(t.Context(), Options{Home: t.TempDir(), Dir: t.TempDir(), SystemRoot: t.TempDir(), StrictConfig: true, InProcess: map[string]LocalServer{"p": &nosy{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var root atomic.Value
	root.Store("one")
	s, _ := rootedSession(t, h, &root, false)
	for _, want := range []string{"one", "two"} {
		root.Store(want)
		raw, err := s.Forward(t.Context(), "p", "custom/roots", nil)
		if uris, _ := wire.Member(raw, "roots"); err != nil || string(uris) != fmt.Sprintf(`{"roots":[{"uri":%q}]}`, want) {
			t.Errorf("%s, %v, want %s", raw, err, want)
		}
	}
}

// restless is a local server that asks for roots outside of all requests. It says
// which of its connections answered.
type restless struct {
	connections atomic.Int32
	ask         chan struct{} // when to ask
	told        chan string   // what it was answered
}

func (r *restless) Serve(_ context.Context, rw io.ReadWriteCloser) error {
	number := r.connections.Add(1)
	lines := bufio.NewScanner(rw)
	for lines.Scan() {
		m, err := wire.Parse(lines.Bytes(), wire.Limits{})
		if err != nil {
			return err
		}
		answer := fmt.Sprintf(`{"connection":%d}`, number)
		switch {
		case m.Kind() == wire.KindResponse:
			r.told <- lines.Text()
			continue
		case m.Kind() != wire.KindRequest:
			continue
		case m.Method == "initialize":
			answer = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"restless","version":"1"}}`
		case m.Method == "server/discover":
			fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
			continue
		}
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, answer)
		if m.Method == "custom/later" {
			<-r.ask // the request is over for its session, too
			fmt.Fprintln(rw, `{"jsonrpc":"2.0","id":"later","method":"roots/list"}`)
		}
	}
	return lines.Err()
}

// A server that asks for roots while nobody can tell whose, or whose client does
// not answer, is told so, and asks each session apart from the others from then
// on. That is in order: nobody is warned.
func TestRootsOfNobodyInParticular(t *testing.T) {
	for _, c := range []struct {
		name     string
		client   Client
		sessions int
		want     string
	}{
		{"several", Client{AskedInCalls: true}, 2, "nobody could tell"},
		{"silent", Client{}, 1, "does not say"},
		{"gone", Client{}, 1, "has left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &restless{ask: make(chan struct{}), told: make(chan string, 1)}
			var warnings bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
			h, err := Open(t.Context(), Options{Home: t.TempDir(), Dir: t.TempDir(), SystemRoot: t.TempDir(), StrictConfig: true, Logger: logger, InProcess: map[string]LocalServer{"p": r}})
			if err != nil {
				t.Fatal(err)
			}
			var sessions []*Session
			for range c.sessions {
				client := c.client
				client.Capabilities = json.RawMessage(`{"roots":{}}`)
				client.Roots = func(context.Context) (json.RawMessage, error) { return nil, errors.New("no answer") }
				s, err := h.NewSession(SessionOptions{Client: &client})
				if err != nil {
					t.Fatal(err)
				}
				sessions = append(sessions, s)
			}
			on := func(method string) map[string]bool {
				t.Helper()
				connections := map[string]bool{}
				for _, s := range sessions {
					answer, err := s.Forward(t.Context(), "p", method, nil)
					if err != nil {
						t.Fatal(err)
					}
					connections[string(answer)] = true
				}
				return connections
			}
			if used := on("custom/hello"); len(used) != 1 {
				t.Errorf("before, the sessions used %v", used)
			}
			if _, err := sessions[0].Forward(t.Context(), "p", "custom/later", nil); err != nil {
				t.Fatal(err)
			}
			if c.name == "gone" {
				sessions[0].Close()
				sessions = nil
			}
			close(r.ask)
			if told := <-r.told; !strings.Contains(told, c.want) {
				t.Errorf("the server was told %s", told)
			}
			if used := on("custom/hello"); len(used) != len(sessions) {
				t.Errorf("afterwards, the sessions used %v", used)
			}
			h.Close()
			if warnings.Len() > 0 {
				t.Errorf("%s", warnings.String())
			}
		})
	}
}

// A session that moves to other connections while it makes calls loses none.
func TestMoveDuringCalls(t *testing.T) {
	h, err := Open(t.Context(), Options{Home: t.TempDir(), Dir: t.TempDir(), SystemRoot: t.TempDir(), StrictConfig: true, InProcess: map[string]LocalServer{"p": pinging{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s, err := h.NewSession(SessionOptions{Client: &Client{
		Sample:   func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return nil, nil },
		ComeBack: func(context.Context, string, time.Duration) {},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 50 {
				if _, err := s.Forward(t.Context(), "p", "custom/hello", nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var moving sync.WaitGroup
	done := make(chan struct{})
	moving.Go(func() {
		for form := true; ; form = !form {
			select {
			case <-done:
				return
			default:
				h.redeclare(elicitModes{form: form})
			}
		}
	})
	callers.Wait()
	close(done)
	moving.Wait()
}
