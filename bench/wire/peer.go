//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// The peer is the server that both clients talk to: a loop that reads messages
// and answers from prepared bytes.

// answers holds what the peer says, by method, and by tool.
type answers struct {
	methods map[string]json.RawMessage
	tools   map[string]json.RawMessage
}

func newAnswers() answers {
	a := answers{
		methods: map[string]json.RawMessage{
			"initialize":      json.RawMessage(`{"protocolVersion":"` + wire.Version20251125 + `","capabilities":{"tools":{}},"serverInfo":{"name":"peer","version":"1"}}`),
			"server/discover": json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["` + wire.Version20260728 + `"],"capabilities":{"tools":{}}}`),
		},
		tools: map[string]json.RawMessage{},
	}
	for name, size := range toolTexts() {
		a.tools[name] = json.RawMessage(`{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}`)
	}
	return a
}

func (a answers) to(m wire.Message) wire.Message {
	result, ok := a.methods[m.Method]
	if m.Method == "tools/call" {
		name, _ := wire.StringMember(m.Params, "name")
		result, ok = a.tools[name]
	}
	if !ok {
		return wire.Message{ID: m.ID, Error: wire.MethodNotFound(m.Method)}
	}
	return wire.Message{ID: m.ID, Result: result}
}

// answerLines is the peer on stdio. It ends with its input.
func answerLines(in io.Reader, out io.Writer) {
	lines, a := bufio.NewReaderSize(in, 4*mebibyte), newAnswers()
	var buf []byte
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		m, err := wire.Parse(line, wire.Limits{})
		if err != nil || m.Kind() != wire.KindRequest {
			continue
		}
		buf = append(a.to(m).AppendTo(buf[:0]), '\n')
		if _, err := out.Write(buf); err != nil {
			return
		}
	}
}

// peerHandler is the peer over HTTP.
func peerHandler(t transport) http.Handler {
	a := newAnswers()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
			return
		}
		body := make([]byte, max(r.ContentLength, 0))
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return // the client has gone
		}
		m, err := wire.Parse(body, wire.Limits{})
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case m.Kind() != wire.KindRequest:
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "session")
		}
		answer := a.to(m)
		if !t.SSE {
			body := answer.AppendTo(nil)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			w.Write(body)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		event := answer.AppendTo([]byte("event: message\ndata: "))
		w.Write(append(event, "\n\n"...))
	})
}

// serveHTTP serves on a free port of loopback for the life of this process.
func serveHTTP(h http.Handler) (url string, err error) {
	return listen(&http.Server{Handler: h})
}

func listen(s *http.Server) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		s.Serve(l)
		os.Exit(1) // nobody ends it in order
	}()
	return "http://" + l.Addr().String(), nil
}
