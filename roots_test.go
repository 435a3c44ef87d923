package patchbay

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// A connection whose roots have changed is not for those who have what they were.
// That is remembered as long as the connection is there, and not any longer.
func TestRootsThatWere(t *testing.T) {
	h, err := Open(t.Context(), Options{Home: t.TempDir(), Dir: t.TempDir(), SystemRoot: t.TempDir(), StrictConfig: true, InProcess: map[string]LocalServer{"p": pinging{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	rooted := func(root string) (*Session, *atomic.Value) {
		var roots atomic.Value
		roots.Store(root)
		s, err := h.NewSession(SessionOptions{Client: &Client{Roots: func(context.Context) (json.RawMessage, error) {
			return json.RawMessage(fmt.Sprintf(`{"roots":[{"uri":%q}]}`, roots.Load())), nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Forward(t.Context(), "p", "custom/hello", nil); err != nil {
			t.Fatal(err)
		}
		return s, &roots
	}
	first, roots := rooted("file:///first")
	was := first.profile().Key
	roots.Store("file:///other")
	first.RootsChanged(t.Context())
	if first.profile().Key != was {
		t.Error("a session that is alone with its connection has left it")
	}
	first.Close() // the connection stays
	second, _ := rooted("file:///first")
	if second.profile().Key == was {
		t.Error("a session uses a connection whose server was told of other roots")
	}
	second.Close()
	for i := range 50 {
		s, roots := rooted(fmt.Sprintf("file:///%d", i))
		roots.Store("file:///other")
		s.RootsChanged(t.Context())
		s.Close()
	}
	if n := len(h.common.drifted); n > 2 {
		t.Errorf("%d connections are remembered", n)
	}
	third, _ := rooted("file:///first")
	defer third.Close()
	if third.profile().Key != was {
		t.Error("a connection that is gone still counts")
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
