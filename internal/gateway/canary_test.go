package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Two hundred clients of both eras, each with a word of its own that it sends and
// is asked about: no byte of another's word ever reaches one.
func TestNoClientHearsAnother(t *testing.T) { noClientHearsAnother(t, 200, 10) }

// noClientHearsAnother has that many clients make so many calls each.
func noClientHearsAnother(t *testing.T, number, calls int) {
	near, far := newUpstream(t, "near", wire.Version20251125), newUpstream(t, "far")
	w := newWorld(t, map[string]patchbay.LocalServer{"near": near}, map[string]config.Server{"far": {Type: config.HTTP, URL: far.url()}}, nil)
	if err := w.host.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	url := serveHTTP(t, w.gateway.HTTP(wire.HTTPOptions{}))
	var clients sync.WaitGroup
	for i := range number {
		clients.Go(func() {
			word := fmt.Sprintf("canary-%03d-%x", i, i*7919)
			version := []string{wire.Version20251125, wire.Version20260728}[i%2]
			ear := &eavesdropper{next: wire.NewRoundTripper(), own: word, t: t}
			defer ear.next.(*http.Transport).CloseIdleConnections()
			a := &agent{heard: make(chan heard, 1000), roots: `{"roots":[{"uri":"file:///` + word + `"}]}`}
			c, err := wire.Connect(t.Context(), wire.HTTP(url+"/mcp", &wire.HTTPClientOptions{Transport: ear}), &wire.ClientOptions{
				Info: json.RawMessage(`{"name":"` + word + `","version":"1"}`), Capabilities: json.RawMessage(`{"elicitation":{},"sampling":{}}`),
				Handler: a, ProtocolVersion: version,
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for n := range calls {
				tool := []string{"near__echo", "far__echo", "near__progress", "far__elicit", "near__elicit"}[n%5]
				raw, err := c.Call(t.Context(), wire.Call{Method: "tools/call", Params: json.RawMessage(fmt.Sprintf(`{"name":%q,"arguments":{"canary":%q}}`, tool, word)), Progress: func(json.RawMessage) {}})
				answered := strings.Contains(string(raw), word) || strings.HasSuffix(tool, "progress") ||
					tool == "near__elicit" && strings.Contains(string(raw), "cancel") // nobody could tell whose question it was
				if err != nil || !answered {
					t.Errorf("%s %s: %s, %v", word, tool, raw, err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// eavesdropper looks at every byte that a client gets.
type eavesdropper struct {
	next http.RoundTripper
	own  string
	t    *testing.T
}

func (e *eavesdropper) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(r)
	if err == nil {
		resp.Body = &overheard{ReadCloser: resp.Body, ear: e}
	}
	return resp, err
}

// overheard is a body that is looked at as it is read.
type overheard struct {
	io.ReadCloser
	ear  *eavesdropper
	tail []byte // of what was read, as long as a word may be
}

func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	text := append(o.tail, p[:n]...)
	for rest := text; ; {
		i := bytes.Index(rest, []byte("canary-"))
		if i < 0 || len(rest)-i < len(o.ear.own) {
			break
		}
		if !bytes.HasPrefix(rest[i:], []byte(o.ear.own)) {
			o.ear.t.Errorf("%s heard %.30s", o.ear.own, rest[i:])
		}
		rest = rest[i+1:]
	}
	o.tail = bytes.Clone(text[max(0, len(text)-len(o.ear.own)+1):])
	return n, err
}
