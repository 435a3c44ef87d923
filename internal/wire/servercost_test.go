package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// cannedHandler answers every request with the same result.
type cannedHandler struct{ result json.RawMessage }

func (h cannedHandler) HandleRequest(context.Context, *Request) (json.RawMessage, error) {
	return h.result, nil
}

func (cannedHandler) HandleNotification(context.Context, *Notification) {}

// A sink is a ResponseWriter that counts, and allocates nothing.
type sink struct {
	header http.Header
	status int
	size   int
	keep   *bytes.Buffer // nil drops the body
}

func (s *sink) Header() http.Header              { return s.header }
func (s *sink) WriteHeader(status int)           { s.status = status }
func (s *sink) FlushError() error                { return nil }
func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }
func (s *sink) Write(data []byte) (n int, e error) {
	s.size += len(data)
	if s.keep != nil {
		return s.keep.Write(data)
	}
	return len(data), nil
}

// reset makes the sink ready for another response.
func (s *sink) reset() {
	clear(s.header)
	s.status, s.size = 0, 0
}

// servedCall returns a function that has the handler of a server answer one
// tools/call with result, and the sink in which the response arrives. kind is
// "json", "stream" or "modern".
func servedCall(t *testing.T, kind, params string, result json.RawMessage) (func(), *sink) {
	t.Helper()
	srv := newTestServer(t, func(o *ServerOptions) { o.Handler = cannedHandler{result} })
	h := NewHTTPHandler(srv, HTTPOptions{})
	body := new(bytes.Reader)
	request := func(text string) *http.Request {
		r, err := http.NewRequest(http.MethodPost, "http://localhost", io.NopCloser(body))
		if err != nil {
			t.Fatal(err)
		}
		body.Reset([]byte(text))
		r.ContentLength = int64(len(text))
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		return r
	}
	w := &sink{header: http.Header{}}
	session := ""
	if kind != "modern" {
		h.ServeHTTP(w, request(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`))
		session = w.header.Get(headerSession)
	}
	text := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	r := request(text)
	switch kind {
	case "modern":
		r.Header.Set(headerVersion, Version20260728)
		setMirror(r.Header, "tools/call", json.RawMessage(params))
	case "stream":
		r.Header.Set("Accept", "text/event-stream")
		fallthrough
	default:
		r.Header.Set(headerVersion, Version20251125)
		r.Header.Set(headerSession, session)
	}
	raw := []byte(text)
	return func() {
		w.reset()
		body.Reset(raw)
		h.ServeHTTP(w, r)
		if w.status != http.StatusOK || w.size < len(result) {
			t.Fatalf("%s: %d, %d bytes", kind, w.status, w.size)
		}
	}, w
}

func callParams(text string) string {
	return fmt.Sprintf(`{"name":"echo","arguments":{"text":%q},"_meta":{%q:%q,%q:{}}}`, text, MetaProtocolVersion, Version20260728, MetaClientCapabilities)
}

// What a small call costs the server. net/http is not in it.
func TestHTTPServerAllocations(t *testing.T) {
	result := textResult(strings.Repeat("x", 100))
	for _, guard := range []struct {
		kind string
		most float64
	}{{"json", 13}, {"stream", 20}, {"modern", 11}} {
		params := callParams("x")
		if guard.kind != "modern" {
			params = `{"name":"echo","arguments":{"text":"x"}}`
		}
		call, _ := servedCall(t, guard.kind, params, result)
		if n := testing.AllocsPerRun(200, call); n > guard.most {
			t.Errorf("%s: %v allocations", guard.kind, n)
		}
	}
}

// A large request is allocated once and a large result, which the handler made,
// not at all, whatever the answer looks like.
func TestHTTPServerBytes(t *testing.T) {
	const size = 1 << 20
	large := strings.Repeat("x", size)
	for _, kind := range []string{"json", "stream", "modern"} {
		for _, direction := range []string{"argument", "result"} {
			argument, result, payload := large, textResult("x"), size
			if direction == "result" {
				argument, result, payload = "x", textResult(large), size/16
			}
			params := callParams(argument)
			if kind != "modern" {
				params = `{"name":"echo","arguments":{"text":"` + argument + `"}}`
			}
			call, _ := servedCall(t, kind, params, result)
			t.Run(kind+" "+direction, func(t *testing.T) { checkPayloadBytes(t, payload, bytesPerRun(call)) })
		}
	}
}

// A result too large to be copied into its event arrives all the same, also if
// it has line breaks, which no event may have.
func TestLargeEvent(t *testing.T) {
	long := strings.Repeat("x", maxUnsent)
	for _, result := range []string{`{"a":"` + long + `"}`, "{\"a\":\r\n\"" + long + "\"\n}"} {
		call, w := servedCall(t, "stream", `{}`, json.RawMessage(result))
		w.keep = new(bytes.Buffer)
		call()
		r := newSSEReader(w.keep, 1<<20, new(blockPool))
		r.next() // the first event has only an id
		event, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		m, err := Parse(event.Data, Limits{})
		if text, _ := StringMember(m.Result, "a"); err != nil || text != long || m.ID != NumberID(1) {
			t.Errorf("%.100s, %v", event.Data, err)
		}
		if _, err := r.next(); err != io.EOF {
			t.Errorf("after the last event: %v", err)
		}
	}
}
