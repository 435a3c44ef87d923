package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
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

// callKind is how a call is made and answered over HTTP.
type callKind struct {
	name           string
	modern, stream bool
}

func callKinds() []callKind {
	return []callKind{{name: "legacy"}, {name: "legacy stream", stream: true}, {name: "modern", modern: true}, {"modern stream", true, true}}
}

// callText is a tools/call with one argument.
func callText(modern bool, argument string) string {
	params := `{"name":"echo","arguments":{"text":"` + argument + `"}`
	if modern {
		params += fmt.Sprintf(`,"_meta":{%q:%q,%q:{}}`, MetaProtocolVersion, Version20260728, MetaClientCapabilities)
	}
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}}`
}

const initializeText = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`

// servedCall returns a function that has the HTTP handler of a server answer a
// call with result, and the sink in which the response arrives.
func servedCall(t *testing.T, kind callKind, argument string, result json.RawMessage) (func(), *sink) {
	t.Helper()
	srv := newTestServer(t, func(o *ServerOptions) { o.Handler = cannedHandler{result} })
	h := NewHTTPHandler(srv, HTTPOptions{})
	w, body := &sink{header: http.Header{}}, new(bytes.Reader)
	request := func(text []byte) *http.Request {
		r, err := http.NewRequest(http.MethodPost, "http://localhost", io.NopCloser(body))
		if err != nil {
			t.Fatal(err)
		}
		body.Reset(text)
		r.ContentLength = int64(len(text))
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		return r
	}
	text := []byte(callText(kind.modern, argument))
	r := request(text)
	if kind.modern {
		r.Header.Set(headerVersion, Version20260728)
		r.Header.Set(headerMethod, "tools/call")
		r.Header.Set(headerName, "echo")
	} else {
		h.ServeHTTP(w, request([]byte(initializeText)))
		r.Header.Set(headerVersion, Version20251125)
		r.Header.Set(headerSession, w.header.Get(headerSession))
	}
	if kind.stream {
		r.Header.Set("Accept", "text/event-stream")
	}
	return func() {
		w.reset()
		body.Reset(text)
		h.ServeHTTP(w, r)
		if w.status != http.StatusOK || w.size < len(result) {
			t.Fatalf("%s: %d, %d bytes", kind.name, w.status, w.size)
		}
	}, w
}

// What a small call costs the server. net/http is not in it.
func TestHTTPServerAllocations(t *testing.T) {
	most := map[string]float64{"legacy": 13, "legacy stream": 21, "modern": 11, "modern stream": 19}
	for _, kind := range callKinds() {
		call, _ := servedCall(t, kind, "x", textResult(strings.Repeat("x", 100)))
		if n := testing.AllocsPerRun(200, call); n > most[kind.name] {
			t.Errorf("%s: %v allocations", kind.name, n)
		}
	}
}

// A large argument is allocated once, and a large result, which the handler
// made, not at all.
func TestHTTPServerBytes(t *testing.T) {
	const size = 1 << 20
	large := strings.Repeat("x", size)
	for _, kind := range callKinds() {
		t.Run(kind.name, func(t *testing.T) {
			call, _ := servedCall(t, kind, large, textResult("x"))
			checkPayloadBytes(t, size, bytesPerRun(call))
			call, _ = servedCall(t, kind, "x", textResult(large))
			checkPayloadBytes(t, size/16, bytesPerRun(call))
		})
	}
}

// A result too large to be copied into its event arrives all the same, also if
// it has line breaks, which no event may have.
func TestLargeEvent(t *testing.T) {
	long := strings.Repeat("x", maxUnsent)
	for _, kind := range callKinds() {
		for _, result := range []string{`{"a":"` + long + `"}`, "{\"a\":\r\n\"" + long + "\"\n}"} {
			if !kind.stream {
				continue
			}
			call, w := servedCall(t, kind, "x", json.RawMessage(result))
			w.keep = new(bytes.Buffer)
			call()
			r := newSSEReader(w.keep, 1<<20, new(blockPool))
			event, err := r.next()
			if len(event.Data) == 0 {
				event, err = r.next() // the first of a legacy stream has only an id
			}
			if err != nil {
				t.Fatal(err)
			}
			m, err := Parse(event.Data, Limits{})
			if text, _ := StringMember(m.Result, "a"); err != nil || text != long || m.ID != NumberID(1) {
				t.Errorf("%s: %.100s, %v", kind.name, event.Data, err)
			}
			if complete, _ := StringMember(m.Result, "resultType"); (complete == "complete") != kind.modern {
				t.Errorf("%s: %.100s", kind.name, event.Data)
			}
			if _, err := r.next(); err != io.EOF {
				t.Errorf("%s: after the last event: %v", kind.name, err)
			}
		}
	}
}

// servedLine returns a function that has a server on a pair of pipes answer a
// call with result, and returns the line that comes back.
func servedLine(t *testing.T, modern bool, argument string, result json.RawMessage) func() []byte {
	t.Helper()
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	srv := newTestServer(t, func(o *ServerOptions) { o.Handler = cannedHandler{result} })
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background(), NewStreamConn(theirIn, theirOut, nil)) }()
	t.Cleanup(func() {
		ourOut.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		ourIn.Close()
	})
	lines := bufio.NewReaderSize(ourIn, 2<<20)
	exchange := func(request []byte) []byte {
		if _, err := ourOut.Write(request); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadSlice('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	if !modern {
		exchange([]byte(initializeText + "\n"))
	}
	text := []byte(callText(modern, argument) + "\n")
	return func() []byte { return exchange(text) }
}

// The same on a connection. What the modern era adds to a result does not make
// a copy of it either.
func TestServeBytes(t *testing.T) {
	const size = 1 << 20
	large := strings.Repeat("x", size)
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern=%v", modern), func(t *testing.T) {
			call := servedLine(t, modern, large, textResult("x"))
			checkPayloadBytes(t, size, bytesPerRun(func() { call() }))
			call = servedLine(t, modern, "x", textResult(large))
			checkPayloadBytes(t, size/2, bytesPerRun(func() { call() })) // the buffer for output is pooled
		})
	}
}

// A result and what the server puts in front of it arrive as one.
func TestServeDresses(t *testing.T) {
	for modern, want := range map[bool]string{
		false: `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hi"}]}}`,
		true: `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}},` +
			`"content":[{"type":"text","text":"hi"}]}}`,
	} {
		if got := servedLine(t, modern, "x", textResult("hi"))(); string(got) != want+"\n" {
			t.Errorf("modern=%v: %s", modern, got)
		}
	}
}
