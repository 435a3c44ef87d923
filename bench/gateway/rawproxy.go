//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"sync"
)

// The raw proxy is the floor: what it costs to pass calls on if nothing is
// looked at that is not needed to find the way. It has a Streamable HTTP front
// with sessions, one upstream process that all clients share, and prefixed tool
// names. It replaces the id and the name in a call, and the id in its answer, as
// bytes; params and results are never decoded nor checked. A client that goes
// away cancels its call. There are no permissions, no progress, no requests of
// the server's own and no recovery.

const rawPrefix = "up__"

func serveRaw(program string, args []string) error {
	p, err := startRaw(program, args)
	if err != nil {
		return err
	}
	return serveHTTP(p)
}

type rawProxy struct {
	stdin       io.Writer
	sending     sync.Mutex
	initialized []byte // the result of the upstream's initialize
	list        []byte // that of tools/list, with our names

	mu       sync.Mutex
	last     uint64
	waiting  map[uint64]chan rawAnswer
	sessions map[string]bool
	err      error
}

// A rawAnswer is a line of the upstream, and where its id is.
type rawAnswer struct {
	line []byte
	id   span
}

func startRaw(program string, args []string) (*rawProxy, error) {
	cmd := exec.Command(program, args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &rawProxy{stdin: stdin, waiting: map[uint64]chan rawAnswer{}, sessions: map[string]bool{}}
	go func() {
		err := p.read(stdout)
		p.fail(errors.Join(err, cmd.Wait()))
	}()
	answer, err := p.call(context.Background(), []byte(initialize), openEnvelope([]byte(initialize)))
	if err != nil {
		return nil, err
	}
	var a struct{ Result json.RawMessage }
	if err := json.Unmarshal(answer.line, &a); err != nil {
		return nil, err
	}
	p.initialized = a.Result
	if err := p.send([]byte(initialized)); err != nil {
		return nil, err
	}
	return p, p.learn()
}

// learn asks for the tools, once.
func (p *rawProxy) learn() error {
	request := []byte(`{"jsonrpc":"2.0","id":0,"method":"tools/list"}`)
	answer, err := p.call(context.Background(), request, openEnvelope(request))
	if err != nil {
		return err
	}
	var a struct {
		Result struct{ Tools []map[string]any }
	}
	if err := json.Unmarshal(answer.line, &a); err != nil {
		return err
	}
	for _, tool := range a.Result.Tools {
		tool["name"] = rawPrefix + fmt.Sprint(tool["name"])
	}
	p.list, err = json.Marshal(map[string]any{"tools": a.Result.Tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
	return err
}

// send writes one line.
func (p *rawProxy) send(line []byte) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	_, err := p.stdin.Write(append(line, '\n'))
	return err
}

// read hands the lines of the upstream to those who wait for them.
func (p *rawProxy) read(from io.Reader) error {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		line = line[:len(line)-1]
		at := find(line, 0, "id")
		id, err := strconv.ParseUint(string(at.of(line)), 10, 64)
		if err != nil {
			continue // a notification
		}
		p.mu.Lock()
		to := p.waiting[id]
		delete(p.waiting, id)
		p.mu.Unlock()
		if to != nil {
			to <- rawAnswer{line, at}
		}
	}
}

func (p *rawProxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	for id, to := range p.waiting {
		delete(p.waiting, id)
		close(to)
	}
}

// call passes a request on, with an id of ours and without the prefix of the
// tool's name, and returns the answer.
func (p *rawProxy) call(ctx context.Context, body []byte, e envelope) (rawAnswer, error) {
	line := make([]byte, 0, len(body)+24)
	first, name := e.id, span{}
	if string(e.method.of(body)) == `"tools/call"` {
		name = find(body, e.params.start, "name")
		if !bytes.HasPrefix(name.of(body), []byte(`"`+rawPrefix)) {
			return rawAnswer{}, fmt.Errorf("no tool %s", name.of(body))
		}
		name = span{name.start + 1, name.start + 1 + len(rawPrefix)} // what goes
		if name.start < first.start {
			first = name
		}
	}
	to := make(chan rawAnswer, 1)
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return rawAnswer{}, p.err
	}
	p.last++
	id := p.last
	p.waiting[id] = to
	p.mu.Unlock()

	line = append(line, body[:first.start]...)
	switch {
	case name.end == 0:
		line = append(strconv.AppendUint(line, id, 10), body[e.id.end:]...)
	case first == name:
		line = append(line, body[name.end:e.id.start]...)
		line = append(strconv.AppendUint(line, id, 10), body[e.id.end:]...)
	default:
		line = strconv.AppendUint(line, id, 10)
		line = append(append(line, body[e.id.end:name.start]...), body[name.end:]...)
	}
	if err := p.send(line); err != nil {
		return rawAnswer{}, err
	}
	select {
	case answer, ok := <-to:
		if !ok {
			return rawAnswer{}, p.err
		}
		return answer, nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, id)
		p.mu.Unlock()
		p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
		return rawAnswer{}, ctx.Err()
	}
}

// ServeHTTP implements http.Handler.
func (p *rawProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.ContentLength < 0 || r.ContentLength > 64<<20 {
		http.Error(w, "only POST, with a length of at most 64 MiB", http.StatusBadRequest)
		return
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := openEnvelope(body)
	id, method := e.id.of(body), string(e.method.of(body))
	modern := r.Header.Get("Mcp-Protocol-Version") == versionModern
	if !modern && method != `"initialize"` && !p.knows(r.Header.Get("Mcp-Session-Id")) {
		http.Error(w, "unknown session", http.StatusNotFound)
		return
	}
	switch {
	case len(id) == 0:
		w.WriteHeader(http.StatusAccepted)
	case method == `"initialize"`:
		session := rand.Text()
		p.mu.Lock()
		p.sessions[session] = true
		p.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", session)
		writePieces(w, []byte(`{"jsonrpc":"2.0","result":`), p.initialized, []byte(`,"id":`), id, []byte(`}`))
	case method == `"tools/list"`:
		writePieces(w, []byte(`{"jsonrpc":"2.0","result":`), p.list, []byte(`,"id":`), id, []byte(`}`))
	default:
		answer, err := p.call(r.Context(), body, e)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		writePieces(w, answer.line[:answer.id.start], id, answer.line[answer.id.end:])
	}
}

func (p *rawProxy) knows(session string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[session]
}

// writePieces writes an answer that consists of pieces.
func writePieces(w http.ResponseWriter, pieces ...[]byte) {
	size := 0
	for _, piece := range pieces {
		size += len(piece)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(size))
	for _, piece := range pieces {
		w.Write(piece)
	}
}

// A span is where a value is in a text; zero if it is not there.
type span struct{ start, end int }

func (s span) of(text []byte) []byte { return text[s.start:s.end] }

// An envelope is what is needed of a message to pass it on.
type envelope struct{ id, method, params span }

// openEnvelope reads the top level of a message.
func openEnvelope(text []byte) (e envelope) {
	members(text, 0, func(name []byte, value span) bool {
		switch string(name) {
		case "id":
			e.id = value
		case "method":
			e.method = value
		case "params":
			e.params = value
		}
		return e.params.end == 0 || e.id.end == 0 || e.method.end == 0
	})
	return e
}

// find returns the value of a member of the object at start.
func find(text []byte, start int, wanted string) (found span) {
	members(text, start, func(name []byte, value span) bool {
		if string(name) == wanted {
			found = value
		}
		return found.end == 0
	})
	return found
}

// members calls yield for each member of the object at i until it returns
// false. The text is trusted to be JSON, and names to be written without escapes.
func members(text []byte, i int, yield func(name []byte, value span) bool) {
	i = space(text, i) + 1
	for {
		i = space(text, i)
		if i >= len(text) || text[i] != '"' {
			return
		}
		end := skip(text, i)
		name := text[i+1 : end-1]
		i = space(text, space(text, end)+1) // behind the colon
		end = skip(text, i)
		if !yield(name, span{i, end}) {
			return
		}
		i = space(text, end) + 1 // behind the comma
	}
}

func space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n') {
		i++
	}
	return i
}

// skip returns where the value that begins at i ends.
func skip(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			if i = skipString(text, i); depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of what the value is in
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

func skipString(text []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			return len(text)
		}
		i += n
		escapes := 0
		for text[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}
