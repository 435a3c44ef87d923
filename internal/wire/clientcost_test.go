package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A small call must stay cheap. The count is what is ours: net/http is not in it.
func TestHTTPCallAllocations(t *testing.T) {
	const maxAllocs = 32
	h, call := smallCall(t)
	got := testing.AllocsPerRun(100, func() {
		if _, err := h.Call(context.Background(), call); err != nil {
			t.Fatal(err)
		}
	})
	if got > maxAllocs {
		t.Errorf("%v allocations per call, more than %d", got, maxAllocs)
	}
}

func BenchmarkHTTPCall(b *testing.B) {
	h, call := smallCall(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Call(context.Background(), call); err != nil {
			b.Fatal(err)
		}
	}
}

// cannedTransport answers each request with the same result.
type cannedTransport struct{ result string }

func (c cannedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := make([]byte, r.ContentLength)
	if _, err := r.Body.Read(body); err != nil && err.Error() != "EOF" {
		return nil, err
	}
	m, err := Parse(body, Limits{})
	if err != nil {
		return nil, err
	}
	answer := Message{ID: m.ID, Result: json.RawMessage(c.result)}.AppendTo(nil)
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(answer)),
		Body: nopCloser{bytes.NewReader(answer)},
	}, nil
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

func smallCall(t testing.TB) (*HTTPClient, Call) {
	h, err := newHTTPClient("http://server.example", &recorder{}, HTTPClientOptions{
		Transport: cannedTransport{`{"content":[{"type":"text","text":"` + strings.Repeat("x", 100) + `"}]}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, Call{Method: "tools/call", Params: json.RawMessage(`{"name":"echo","arguments":{"text":"x"}}`), Timeout: time.Minute}
}

// A small request leaves in one piece, headers and all.
func TestHTTPCallWritesOnce(t *testing.T) {
	var writes atomic.Int64
	tr := httpScript(func(w http.ResponseWriter, _ *http.Request, m Message) { respondJSON(w, m, `{}`) }).inMemory(t).(*http.Transport)
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return countingConn{conn, &writes}, err
	}
	h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: tr})
	for n := int64(1); n <= 3; n++ {
		if _, err := h.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(`{"name":"x"}`)}); err != nil {
			t.Fatal(err)
		}
		if got := writes.Load(); got != n {
			t.Fatalf("%d writes for %d requests", got, n)
		}
	}
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// A 1 MiB answer is allocated once, and a 1 MiB request not at all, however they
// come.
func TestHTTPCallBytes(t *testing.T) {
	const size = 1 << 20
	big := json.RawMessage(`{"text":"` + strings.Repeat("x", size) + `"}`)
	for _, kind := range []string{"length", "chunks", "stream", "request"} {
		t.Run(kind, func(t *testing.T) {
			rt := &bigTransport{kind: kind, result: big}
			h := link(t, "http://server.example", nil, HTTPClientOptions{Transport: rt})
			call := Call{Method: "x"}
			if kind == "request" {
				call.Params, rt.result = big, json.RawMessage(`{}`)
			}
			checkPayloadBytes(t, size, bytesPerRun(func() {
				if _, err := h.Call(context.Background(), call); err != nil {
					t.Fatal(err)
				}
				h.wg.Wait()
			}))
		})
	}
}

// bigTransport answers with the same large result each time, without
// allocating anything of its size.
type bigTransport struct {
	kind   string
	result json.RawMessage
	calls  int
}

func (b *bigTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	b.calls++
	head := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":`, b.calls)
	tail, contentType := "}", "application/json"
	if b.kind == "stream" {
		head, tail, contentType = "data: "+head, tail+"\n\n", "text/event-stream"
	}
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, ContentLength: -1}
	if b.kind == "length" {
		resp.ContentLength = int64(len(head) + len(b.result) + len(tail))
	}
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(head), bytes.NewReader(b.result), strings.NewReader(tail)))
	return resp, nil
}
