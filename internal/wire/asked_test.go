package wire

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// thoughtful answers after a while, as people do.
func thoughtful(ctx context.Context, _ *Request) (json.RawMessage, error) {
	select {
	case <-time.After(2 * time.Minute):
		return json.RawMessage(`{"action":"accept"}`), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A server that waits for the answer to its own question is not silent. But a
// server's call is no shorter or longer for the calls that it is serving.
func TestAskedIsNotSilent(t *testing.T) {
	for _, client := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, other := scripted(t, handlerFuncs{request: thoughtful}, &PeerOptions{AskedIsNotSilent: client})
			start := time.Now()
			call := background(t.Context(), p, Call{Method: "tools/call", Timeout: 30 * time.Second})
			other.next()
			time.Sleep(10 * time.Second)
			other.send(`"id":"q","method":"elicitation/create","params":{}`)
			if !client {
				if o := <-call; !errors.Is(o.err, context.DeadlineExceeded) || time.Since(start) != 30*time.Second {
					t.Errorf("%v after %v", o.err, time.Since(start))
				}
				return
			}
			other.expect(`"id":"q","result":{"action":"accept"}`)
			o := <-call // after the answer the server is silent again
			if took := time.Since(start); !errors.Is(o.err, context.DeadlineExceeded) || took != 160*time.Second {
				t.Errorf("%v after %v", o.err, took)
			}
		})
	}
}

// A question that nobody answers does not keep a call longer than it may take in
// all.
func TestAskedForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := scripted(t, handlerFuncs{request: thoughtful}, &PeerOptions{AskedIsNotSilent: true})
		start := time.Now()
		call := background(t.Context(), p, Call{Method: "tools/call", Timeout: 30 * time.Second, MaxTimeout: time.Minute})
		other.next()
		other.send(`"id":"q","method":"elicitation/create","params":{}`)
		if o := <-call; !errors.Is(o.err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", o.err, time.Since(start))
		}
	})
}

func TestHTTPAskedIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan struct{}, 1)
		server := &legacyServer{noGET: true, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
			if m.Kind() == KindResponse {
				answered <- struct{}{}
				w.WriteHeader(http.StatusAccepted)
				return
			}
			sseMessage(w, Message{ID: StringID("q"), Method: "elicitation/create", Params: json.RawMessage(`{}`)})
			<-answered
			sseMessage(w, Message{ID: m.ID, Result: json.RawMessage(`{}`)})
		}}
		h := link(t, "http://server.example", handlerFuncs{request: thoughtful}, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
		openSession(t, h)
		if _, err := h.Call(t.Context(), Call{Method: "tools/call", Timeout: 30 * time.Second}); err != nil {
			t.Error(err)
		}
	})
}
