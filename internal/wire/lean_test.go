package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// answerer answers each request that comes out of r with the same result. It
// allocates nothing, so that what is measured is the other side.
func answerer(r, w *os.File, result string) {
	defer w.Close()
	in, out := make([]byte, 2<<20), make([]byte, 0, 2<<20)
	for filled := 0; ; {
		n, err := r.Read(in[filled:])
		if err != nil {
			return
		}
		filled += n
		if in[filled-1] != '\n' {
			continue // one call at a time: a request ends where the input does
		}
		_, id, _ := bytes.Cut(in[:filled], []byte(`"id":`))
		id, _, _ = bytes.Cut(id, []byte(`,`))
		out = append(out[:0], `{"jsonrpc":"2.0","id":`...)
		out = append(out, id...)
		out = append(out, `,"result":`...)
		out = append(out, result...)
		out = append(out, '}', '\n')
		if _, err := w.Write(out); err != nil {
			return
		}
		filled = 0
	}
}

// leanPeer is a peer on pipes whose other side is an answerer.
func leanPeer(t *testing.T, result string) *Peer {
	t.Helper()
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		answerer(theirIn, theirOut, result)
	}()
	p := NewPeer(NewStreamConn(ourIn, ourOut, nil), nil, nil)
	t.Cleanup(func() {
		p.Close()
		<-ended
		theirIn.Close()
	})
	return p
}

// A small call costs the caller the memory of its answer and of its deadline.
func TestCallAllocations(t *testing.T) {
	p := leanPeer(t, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 100)+`"}]}`)
	c := Call{Method: "tools/call", Params: json.RawMessage(`{"name":"echo","arguments":{"text":"` + strings.Repeat("x", 100) + `"}}`)}
	for _, guard := range []struct {
		timeout time.Duration
		most    float64
	}{{0, 1}, {time.Minute, 2}} {
		c.Timeout = guard.timeout
		if n := testing.AllocsPerRun(200, func() {
			if _, err := p.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}); n > guard.most {
			t.Errorf("%v allocations with timeout %v", n, guard.timeout)
		}
	}
}

// A large payload is allocated once, whichever way it goes.
func TestCallBytes(t *testing.T) {
	const size = 1 << 20
	large, small := `"`+strings.Repeat("x", size)+`"`, `{}`
	for _, c := range []struct{ name, params, result string }{
		{"result", small, large},
		{"params", `{"x":` + large + `}`, small},
		{"both", `{"x":` + large + `}`, large},
	} {
		p := leanPeer(t, c.result)
		call := Call{Method: "m", Params: json.RawMessage(c.params), Timeout: time.Minute}
		checkPayloadBytes(t, size, bytesPerRun(func() {
			result, err := p.Call(t.Context(), call)
			if err != nil || len(result) != len(c.result) {
				t.Fatalf("%s: %d, %v", c.name, len(result), err)
			}
		}))
	}
}

// The whole way of a small request through two peers in memory.
func TestHandleAllocations(t *testing.T) {
	a, b := Pipe()
	server := NewPeer(b, echo{}, nil)
	defer server.Close()
	client := NewPeer(a, nil, nil)
	defer client.Close()
	c := Call{Method: "tools/call", Params: json.RawMessage(`{"name":"echo"}`)}
	if n := testing.AllocsPerRun(200, func() {
		if _, err := client.Call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}); n > 6 {
		t.Errorf("%v allocations", n)
	}
}
