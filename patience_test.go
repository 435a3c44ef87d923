package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// gate is an in-process server whose one tool wants a URL visited first, of
// which it never hears.
type gate struct{}

func (g gate) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	p := wire.NewPeer(wire.NewStreamConn(rw, rw, nil), g, nil)
	defer p.Close()
	select {
	case <-ctx.Done():
	case <-p.Done():
	}
	return nil
}

func (gate) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"gate","version":"1"}}`), nil
	case "tools/list":
		return json.RawMessage(`{"tools":[{"name":"open","inputSchema":{"type":"object"}}]}`), nil
	case "tools/call":
		return nil, &wire.Error{Code: -32042, Message: "visit first", Data: json.RawMessage(`{"elicitations":[{"mode":"url","elicitationId":"1","url":"https://example.com/","message":"Go"}]}`)}
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (gate) HandleNotification(context.Context, *wire.Notification) {}

// Nobody waits for ever: not for a person who does not answer, nor for one who
// does not come back from a URL.
func TestPatience(t *testing.T) {
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"gate": gate{}}
	c.opts.UI = &patchbay.UI{
		Confirm: func(ctx context.Context, _ patchbay.ConfirmRequest) (bool, error) {
			<-ctx.Done()
			return true, ctx.Err()
		},
		Elicit: func(context.Context, patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
			return patchbay.ElicitResult{Action: patchbay.ElicitAccept}, nil
		},
	}
	synctest.Test(t, func(t *testing.T) {
		h, err := patchbay.Open(t.Context(), c.opts)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if err := h.Connect(t.Context(), "gate"); err != nil {
			t.Fatal(err)
		}
		for standard, want := range map[patchbay.Effect]func(error) bool{
			patchbay.Ask: func(err error) bool {
				return kindOf(err) == patchbay.KindDenied && err.Error() == "mcp__gate__open was not permitted: nobody answered in time."
			},
			patchbay.Allow: func(err error) bool {
				e, ok := errors.AsType[*patchbay.RPCError](err)
				return ok && e.Code == -32042
			},
		} {
			s, err := h.NewSession(patchbay.SessionOptions{Default: standard})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, err = s.Call(t.Context(), patchbay.Call{Tool: "gate.open"})
			if took := time.Since(start); !want(err) || took != 10*time.Minute {
				t.Errorf("%s: %v after %v", standard, err, took)
			}
			s.Close()
		}
	})
}

// late is a server that takes a while to start.
type late struct{ by time.Duration }

func (l late) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	time.Sleep(l.by)
	return gate{}.Serve(ctx, rw)
}

// When many servers come one after another a session is told of the first at
// once, and half a second later of all the others.
func TestToldOfMany(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy, c.opts.InProcess = false, map[string]patchbay.LocalServer{}
	for i := range 10 {
		c.opts.InProcess[fmt.Sprint("late", i)] = late{time.Duration(i+1) * 20 * time.Millisecond}
	}
	synctest.Test(t, func(t *testing.T) {
		h, err := patchbay.Open(t.Context(), c.opts)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		var told []time.Duration
		start := time.Now()
		s, err := h.NewSession(patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{Changed: func(patchbay.Lists) {
			told = append(told, time.Since(start))
		}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []time.Duration{20 * time.Millisecond, 520 * time.Millisecond}; !slices.Equal(told, want) || len(s.Tools()) != 10 {
			t.Errorf("told after %v, want %v; %d tools", told, want, len(s.Tools()))
		}
	})
}
