//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	versionLegacy = wire.Version20251125
	versionModern = wire.Version20260728

	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + versionLegacy + `","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

	modernMeta = `"_meta":{"` + wire.MetaProtocolVersion + `":"` + versionModern + `","` + wire.MetaClientCapabilities + `":{},"` +
		wire.MetaClientInfo + `":{"name":"load","version":"1"}}`
)

// A front is an endpoint and how to talk to it.
type front struct {
	url       string
	token     string // empty if none is needed
	version   string
	transport *http.Transport
}

func newFront(url, token, version string) *front {
	return &front{url, token, version, &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
}

// A client is one session; in the modern era there is nothing to it.
type client struct {
	*front
	session string
	tools   map[string]string // the names of the upstream's tools as the front has them
	listed  int               // how many tools the last list had
}

// connect begins a session and lists the tools.
func (f *front) connect(ctx context.Context) (*client, error) {
	c := &client{front: f}
	if f.version == versionLegacy {
		resp, err := c.post(ctx, "initialize", "", []byte(initialize))
		if err != nil {
			return nil, err
		}
		c.session = resp.Header.Get("Mcp-Session-Id")
		if _, err := read(resp); err != nil {
			return nil, err
		}
		if resp, err = c.post(ctx, "notifications/initialized", "", []byte(initialized)); err != nil {
			return nil, err
		}
		if _, err := read(resp); err != nil {
			return nil, err
		}
	}
	return c, c.list(ctx)
}

// list asks for the tools.
func (c *client) list(ctx context.Context) error {
	params := `{}`
	if c.version == versionModern {
		params = `{` + modernMeta + `}`
	}
	resp, err := c.post(ctx, "tools/list", "", []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`))
	if err != nil {
		return err
	}
	text, err := read(resp)
	if err != nil {
		return err
	}
	var answer struct {
		Result struct {
			Tools      []struct{ Name string }
			NextCursor string
		}
		Error *wire.Error
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
	}
	if answer.Result.NextCursor != "" {
		return fmt.Errorf("the list has more than one page")
	}
	c.tools, c.listed = map[string]string{}, len(answer.Result.Tools)
	for _, tool := range answer.Result.Tools {
		c.tools[tool.Name[strings.LastIndex("__"+tool.Name, "__"):]] = tool.Name
	}
	return nil
}

func (c *client) post(ctx context.Context, method, tool string, body []byte) (*http.Response, error) {
	return c.send(ctx, c.header(method, tool), body)
}

func (c *client) header(method, tool string) http.Header {
	h := http.Header{
		"Content-Type":         {"application/json"},
		"Accept":               {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {c.version},
	}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	if c.version == versionModern {
		h.Set("Mcp-Method", method)
		if tool != "" {
			h.Set("Mcp-Name", tool)
		}
	} else if c.session != "" {
		h.Set("Mcp-Session-Id", c.session)
	}
	return h
}

func (c *client) send(ctx context.Context, h http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = h
	resp, err := c.transport.RoundTrip(r)
	if err == nil && resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		resp.Body.Close()
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp, err
}

func read(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// A request is a call of a tool with everything but its id.
type request struct {
	header http.Header
	rest   string // of the body, behind the id
}

func (c *client) request(tool, arguments string) (request, error) {
	name, ok := c.tools[tool]
	if !ok {
		return request{}, fmt.Errorf("tool %s is not in the list", tool)
	}
	params := `{"name":"` + name + `","arguments":` + arguments
	if c.version == versionModern {
		params += `,` + modernMeta
	}
	return request{c.header("tools/call", name), `,"method":"tools/call","params":` + params + `}}`}, nil
}

func (r request) body(dst []byte, id int) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	return append(strconv.AppendInt(dst, int64(id), 10), r.rest...)
}

// echoText is what is echoed: 100 bytes.
var echoText = strings.Repeat("0123456789", 10)

func (c *client) echo() (request, error) { return c.request("echo", `{"text":"`+echoText+`"}`) }

// check makes one call and looks at the whole answer.
func (c *client) check(ctx context.Context) error {
	r, err := c.echo()
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, r.header, r.body(nil, 7))
	if err != nil {
		return err
	}
	text, err := read(resp)
	if err != nil {
		return err
	}
	var answer struct {
		ID     int
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	if answer.ID != 7 || len(answer.Result.Content) != 1 || answer.Result.Content[0].Text != echoText {
		return fmt.Errorf("the answer is another one: %.300s", text)
	}
	return nil
}

// A run is what came of a slice of time.
type run struct {
	calls int
	took  time.Duration
	times []time.Duration // of each call, sorted
}

func (r run) median() time.Duration { return r.times[len(r.times)/2] }

// drive has every client call, one call after the other, until the slice is
// over.
func drive(ctx context.Context, clients []*client, slice time.Duration) (run, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	start := time.Now()
	times := make([][]time.Duration, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		r, err := c.echo()
		if err != nil {
			return run{}, err
		}
		wg.Go(func() {
			var body []byte
			var answer bytes.Buffer
			for begun := start; time.Since(start) < slice; begun = time.Now() {
				body = r.body(body[:0], 10+len(times[i]))
				resp, err := c.send(ctx, r.header, body)
				if err == nil {
					answer.Reset()
					err = receive(&answer, resp)
				}
				if err != nil {
					stop(err)
					return
				}
				times[i] = append(times[i], time.Since(begun))
			}
		})
	}
	wg.Wait()
	r := run{took: time.Since(start), times: slices.Concat(times...)}
	r.calls = len(r.times)
	slices.Sort(r.times)
	return r, context.Cause(ctx)
}

// receive reads an answer, which must have the echo in it.
func receive(answer *bytes.Buffer, resp *http.Response) error {
	defer resp.Body.Close()
	if _, err := answer.ReadFrom(resp.Body); err != nil {
		return err
	}
	if !bytes.Contains(answer.Bytes(), []byte(echoText)) {
		return fmt.Errorf("the answer is another one: %.300s", answer.Bytes())
	}
	return nil
}
