//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// The load is the client that asks both servers: it sends prepared bytes and
// looks only at how much comes back, except in the first answer of a round.

// A loader asks one server.
type loader interface {
	// open begins the session, if there is one.
	open(ctx context.Context) error
	// once makes one call and checks its answer.
	once(ctx context.Context, l load) error
	// run makes calls, some at a time, until the slice is over, and returns
	// how many there were.
	run(ctx context.Context, l load, callers int, slice time.Duration) (int, error)
}

// A request is the part of a JSON-RPC request behind the id.
type request string

const requestHead = `{"jsonrpc":"2.0","id":`

func (r request) appendTo(dst []byte, id int) []byte {
	return append(strconv.AppendInt(append(dst, requestHead...), int64(id), 10), r...)
}

func newRequest(l load, t transport) request {
	method, params := "tools/list", `{`
	if l.Tool != "" {
		method, params = "tools/call", `{"name":"`+l.Tool+`","arguments":`+arguments(l)
	}
	if t.modern() {
		if l.Tool != "" {
			params += `,`
		}
		params += `"_meta":{"` + wire.MetaProtocolVersion + `":"` + t.Version + `","` + wire.MetaClientCapabilities + `":{},"` +
			wire.MetaClientInfo + `":{"name":"load","version":"1"}}`
	}
	return request(`,"method":"` + method + `","params":` + params + `}}`)
}

const (
	initializeParams = `{"protocolVersion":"` + wire.Version20251125 + `","capabilities":{},"clientInfo":{"name":"load","version":"1"}}`
	initialize       = requestHead + `0,"method":"initialize","params":` + initializeParams + `}`
	initialized      = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// checkAnswer checks a whole answer.
func checkAnswer(l load, text []byte) error {
	m, err := wire.Parse(text, wire.Limits{})
	if err != nil {
		return err
	}
	if m.Error != nil {
		return m.Error
	}
	var result struct {
		Content []struct{ Text string }
		Tools   []json.RawMessage
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		return err
	}
	if l.Tool == "" && len(result.Tools) != listedTools {
		return fmt.Errorf("%d tools were listed", len(result.Tools))
	}
	if l.Tool != "" && (len(result.Content) != 1 || len(result.Content[0].Text) != l.Result) {
		return fmt.Errorf("the answer is another one: %.100s", m.Result)
	}
	return nil
}

// lineLoader asks a server on stdio.
type lineLoader struct {
	in   io.Writer
	out  *bufio.Reader
	t    transport
	id   int
	body []byte
}

func newLineLoader(p *process, t transport) *lineLoader {
	return &lineLoader{in: p.stdin, out: bufio.NewReaderSize(p.stdout, 4*mebibyte), t: t}
}

func (c *lineLoader) open(context.Context) error {
	if c.t.modern() {
		return nil
	}
	if _, err := io.WriteString(c.in, initialize+"\n"+initialized+"\n"); err != nil {
		return err
	}
	_, err := c.out.ReadSlice('\n')
	return err
}

func (c *lineLoader) send(r request) error {
	c.id++
	c.body = append(r.appendTo(c.body[:0], c.id), '\n')
	_, err := c.in.Write(c.body)
	return err
}

func (c *lineLoader) once(_ context.Context, l load) error {
	if err := c.send(newRequest(l, c.t)); err != nil {
		return err
	}
	line, err := c.out.ReadSlice('\n')
	if err != nil {
		return err
	}
	return checkAnswer(l, line)
}

// run keeps as many requests on their way as there are callers. They are
// written on a goroutine of their own: the server may want its answers read
// before it reads on.
func (c *lineLoader) run(_ context.Context, l load, callers int, slice time.Duration) (int, error) {
	r := newRequest(l, c.t)
	turns, sent := make(chan struct{}, callers), make(chan error, 1)
	go func() {
		for range turns {
			if err := c.send(r); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for range callers {
		turns <- struct{}{}
	}
	end := time.Now().Add(slice)
	calls, open := 0, callers
	var failure error
	for open > 0 && failure == nil {
		line, err := c.out.ReadSlice('\n')
		switch {
		case err != nil:
			failure = err
		case len(line) < l.Result || !bytes.Contains(line[:64], []byte(`"result":{`)):
			failure = fmt.Errorf("the answer is another one: %.100s", line)
		default:
			calls++
			if time.Now().Before(end) {
				turns <- struct{}{} // has room: an answer came
			} else {
				open--
			}
		}
	}
	close(turns)
	if err := <-sent; err != nil {
		return 0, err
	}
	return calls, failure
}

// httpLoader asks a server over HTTP.
type httpLoader struct {
	url       string
	t         transport
	transport *http.Transport
	session   string
}

func newHTTPLoader(url string, t transport) *httpLoader {
	return &httpLoader{url: url, t: t, transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
}

func (c *httpLoader) header(l load) http.Header {
	h := http.Header{
		"Content-Type":         {"application/json"},
		"Accept":               {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {c.t.Version},
	}
	if c.t.SSE {
		// Both servers read this as a wish for a stream: one because it heeds
		// the q, the other because it sends streams unless told otherwise.
		h.Set("Accept", "text/event-stream, application/json;q=0")
	}
	switch {
	case !c.t.modern():
		h.Set("Mcp-Session-Id", c.session)
	case l.Tool == "":
		h.Set("Mcp-Method", "tools/list")
	default:
		h.Set("Mcp-Method", "tools/call")
		h.Set("Mcp-Name", l.Tool)
	}
	return h
}

func (c *httpLoader) post(ctx context.Context, h http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = h
	resp, err := c.transport.RoundTrip(r)
	if err == nil && resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		resp.Body.Close()
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp, err
}

func (c *httpLoader) open(ctx context.Context) error {
	if c.t.modern() {
		return nil
	}
	h := c.header(load{})
	h.Del("Mcp-Session-Id")
	resp, err := c.post(ctx, h, []byte(initialize))
	if err != nil {
		return err
	}
	c.session = resp.Header.Get("Mcp-Session-Id")
	if err := discard(resp, 0); err != nil {
		return err
	}
	if resp, err = c.post(ctx, c.header(load{}), []byte(initialized)); err != nil {
		return err
	}
	return discard(resp, 0)
}

// discard reads a body, which must have that many bytes or more.
func discard(resp *http.Response, least int) error {
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && n < int64(least) {
		err = fmt.Errorf("%d bytes came back instead of %d", n, least)
	}
	return err
}

func (c *httpLoader) once(ctx context.Context, l load) error {
	r := newRequest(l, c.t)
	resp, err := c.post(ctx, c.header(l), r.appendTo(nil, 1))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if c.t.SSE {
		if i := bytes.Index(body, []byte("data: {")); i >= 0 {
			body = bytes.TrimSpace(body[i+len("data: "):])
		}
		if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
			return fmt.Errorf("the answer is %s instead of a stream", got)
		}
	}
	return checkAnswer(l, body)
}

func (c *httpLoader) run(ctx context.Context, l load, callers int, slice time.Duration) (int, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r, h, end := newRequest(l, c.t), c.header(l), time.Now().Add(slice)
	counts := make([]int, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			var body []byte
			for {
				body = r.appendTo(body[:0], counts[i]*callers+i+2) // the ids of a round are unique
				resp, err := c.post(ctx, h, body)
				if err == nil {
					err = discard(resp, l.Result)
				}
				if err != nil {
					stop(err)
					return
				}
				if counts[i]++; time.Now().After(end) {
					return
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, context.Cause(ctx)
}
