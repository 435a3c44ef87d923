package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// No answer is lost: whatever a server writes in place of one, its caller gets it,
// or hears at once what was wrong with it, and nobody else notices.

// soon bounds how long a caller may be left in the dark. Machines that run many
// tests at once are slow.
const soon = 30 * time.Second

// rawCall has the scripted server print a line where its answer should be.
func rawCall(t *testing.T, a *agent, tool, line string) (json.RawMessage, error) {
	t.Helper()
	arguments, err := json.Marshal(map[string]string{"text": line})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	return a.CallTool(ctx, tool, arguments)
}

func TestEveryAnswerArrives(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 990) + "1" + strings.Repeat("}", 990)
	results := map[string]string{
		"a lone surrogate":    `{"content":[{"type":"text","text":"a\ud83cb\udc00"}],"resultType":"complete"}`,
		"a name twice":        `{"content":[],"structuredContent":{"a":1,"a":2,"\u0061":3},"resultType":"complete"}`,
		"our own name twice":  `{"content":[],"x":1,"x":2,"structuredContent":{"_meta":1,"_meta":2},"resultType":"complete"}`,
		"depth":               `{"content":[],"structuredContent":` + deep + `,"resultType":"complete"}`,
		"large and not plain": `{"content":[{"type":"text","text":"` + strings.Repeat("x", 2<<20) + `\ud800"}],"a":{"a":1,"a":2},"resultType":"complete"}`,
	}
	invalid := map[string]string{
		"NaN":               `{"jsonrpc":"2.0","id":$id,"result":{"content":[],"structuredContent":{"n":NaN}}}`,
		"the id at the end": `{"result":{"content":[],"structuredContent":{"n":-Infinity}},"jsonrpc":"2.0","id":$id}`,
		"a large NaN":       `{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 2<<20) + `"}],"n":NaN}}`,
		"too deep":          `{"jsonrpc":"2.0","id":$id,"result":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
		"a line break":      `{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"a` + "\n" + `b"}]}}`,
		"no result":         `{"jsonrpc":"2.0","id":$id,"result":{},"error":{"code":1,"message":"both"}}`,
		"contradictory":     `{"jsonrpc":"2.0","id":$id,"result":{"content":[],"resultType":"complete","resultType":"input_required"}}`,
	}
	for _, discover := range []string{"answer", "unknown"} {
		w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t, "-discover", discover)}, nil)
		for _, over := range []string{"http", "stdio"} {
			for _, version := range []string{wire.Version20251125, wire.Version20260728} {
				for endpoint, tool := range map[string]string{"": "mcp__srv__raw", "srv": "raw"} {
					t.Run(fmt.Sprintf("%s %s %s %s", discover, over, version, tool), func(t *testing.T) {
						a := w.connect(t, over, version, endpoint, `{}`)
						pid := strings.Replace(tool, "raw", "pid", 1)
						before := a.call(t, pid, `{}`)
						for name, result := range results {
							raw, err := rawCall(t, a, tool, `{"jsonrpc":"2.0","id":$id,"result":`+result+`}`)
							if err != nil || !strings.Contains(string(raw), strings.TrimPrefix(result, "{")) {
								t.Errorf("%s: got %.200s, %v", name, raw, err)
							}
						}
						raw, err := rawCall(t, a, tool, `{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"fine"}],"resultType":"complete"},"error":null}`)
						if err != nil || textOf(raw) != "fine" {
							t.Errorf("error null: got %s, %v", raw, err)
						}
						for name, line := range invalid {
							raw, err := rawCall(t, a, tool, line)
							failed, _ := wire.Member(raw, "isError")
							if err != nil || string(failed) != "true" || !strings.Contains(textOf(raw), "the answer is invalid: not ") {
								t.Errorf("%s: got %.300s, %v", name, raw, err)
							}
						}
						if after := a.call(t, pid, `{}`); after != before {
							t.Errorf("the server was started again: %s, then %s", before, after)
						}
					})
				}
			}
		}
	}
}

// A server that writes its log to standard output as well lives on as long as it
// answers.
func TestLogLinesBesideAnswers(t *testing.T) {
	w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t)}, nil)
	a := w.connect(t, "http", wire.Version20251125, "srv", `{}`)
	before := a.call(t, "pid", `{}`)
	for i := range 300 {
		if got := a.call(t, "noise", `{"count":10,"bytes":40}`); got != "noisy" {
			t.Fatalf("call %d: got %q", i, got)
		}
	}
	if after := a.call(t, "pid", `{}`); after != before {
		t.Errorf("the server was started again: %s, then %s", before, after)
	}
}

// An error of a server is its own word, whatever its code: no status of ours puts
// it aside.
func TestServersOwnError(t *testing.T) {
	w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t)}, nil)
	for _, over := range []string{"http", "stdio"} {
		for _, version := range []string{wire.Version20251125, wire.Version20260728} {
			a := w.connect(t, over, version, "srv", `{}`)
			_, err := rawCall(t, a, "raw", `{"jsonrpc":"2.0","id":$id,"error":{"code":-32000,"message":"the database is locked","data":{"a":1,"a":2}}}`)
			e, ok := errors.AsType[*wire.Error](err)
			if !ok || e.Code != -32000 || e.Message != "the database is locked" || string(e.Data) != `{"a":1,"a":2}` {
				t.Errorf("%s %s: %v", over, version, err)
			}
			if status, ok := errors.AsType[*wire.HTTPError](err); ok {
				t.Errorf("%s: with status %d", version, status.Status)
			}
		}
	}
}

// shaky is a server over HTTP whose first streams of announcements fail as the
// test says. From then on it has a second tool.
type shaky struct {
	version string
	fail    []http.HandlerFunc
	streams atomic.Int32
}

func (s *shaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m wire.Message
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if m, err = wire.Parse(body, wire.Limits{}); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(wire.Message{ID: m.ID, Result: json.RawMessage(result)}.AppendTo(nil))
	}
	const capabilities = `"capabilities":{"tools":{"listChanged":true}}`
	switch {
	case m.Method == "server/discover" && s.version == wire.Version20260728:
		answer(`{"resultType":"complete","supportedVersions":["2026-07-28"],` + capabilities + `}`)
	case m.Method == "initialize" && s.version != wire.Version20260728:
		w.Header().Set("Mcp-Session-Id", "one")
		answer(`{"protocolVersion":"` + s.version + `",` + capabilities + `,"serverInfo":{"name":"shaky","version":"1"}}`)
	case m.Method == "tools/list":
		list := `{"name":"first","inputSchema":{"type":"object"}}`
		if int(s.streams.Load()) > len(s.fail) {
			list += `,{"name":"second","inputSchema":{"type":"object"}}`
		}
		answer(`{"resultType":"complete","tools":[` + list + `]}`)
	case m.Method == "subscriptions/listen", r.Method == http.MethodGet && s.version != wire.Version20260728:
		if n := int(s.streams.Add(1)); n <= len(s.fail) {
			r.Header.Set("X-Id", m.ID.String())
			s.fail[n-1](w, r)
			return
		}
		announce(w, m.ID.String())
		<-r.Context().Done()
	case m.ID.IsZero():
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// announce opens a stream, of the request if there is one.
func announce(w http.ResponseWriter, id string) {
	w.Header().Set("Content-Type", "text/event-stream")
	if id == "" {
		fmt.Fprint(w, ": here\n\n")
	} else {
		fmt.Fprintf(w, `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{%q:%s},"notifications":{"toolsListChanged":true}}}`+"\n\n", wire.MetaSubscriptionID, id)
	}
	w.(http.Flusher).Flush()
}

// A change that happens while a server's announcements are interrupted is heard
// all the same.
func TestChangesAreNeverLost(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			id := r.Header.Get("X-Id")
			if id == "" {
				id = "null"
			}
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"not now"}}`, id)
		}
	}
	tornDown := func(w http.ResponseWriter, r *http.Request) {
		announce(w, r.Header.Get("X-Id"))
		fmt.Fprintf(w, `data: {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`+"\n\n", r.Header.Get("X-Id"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for name, s := range map[string]*shaky{
		"listen 503":       {version: wire.Version20260728, fail: []http.HandlerFunc{status(503)}},
		"listen 429":       {version: wire.Version20260728, fail: []http.HandlerFunc{status(429)}},
		"listen torn down": {version: wire.Version20260728, fail: []http.HandlerFunc{tornDown}},
		"GET 409":          {version: wire.Version20251125, fail: []http.HandlerFunc{status(409)}},
		"GET 429":          {version: wire.Version20251125, fail: []http.HandlerFunc{status(429)}},
		"GET 503":          {version: wire.Version20251125, fail: []http.HandlerFunc{status(503)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(s)
			t.Cleanup(srv.Close)
			w := newWorld(t, nil, map[string]config.Server{"srv": {Type: config.HTTP, URL: srv.URL}}, nil)
			a := w.connect(t, "stdio", wire.Version20251125, "", `{}`)
			for {
				list, err := a.ListTools(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(list.Items) == 2 {
					return
				}
				a.await(t, "changed tools")
			}
		})
	}
}

// What a client cannot do is said in the words of whoever hears it.
func TestMissingCapabilityInEachEra(t *testing.T) {
	const url = `{"mode":"url","elicitationId":"1","url":"https://example.com/","message":"m"}`
	w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t, "-discover", "unknown")}, nil)
	forms := `{"elicitation":{"form":{}}}`
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		a := w.connect(t, "stdio", version, "srv", forms)
		arguments, err := json.Marshal(map[string]string{"text": url})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.call(t, "elicit", string(arguments)); got != "error -32602" {
			t.Errorf("%s client: a URL for a client with forms: %s", version, got)
		}
		_, err = a.CallTool(t.Context(), "gated", json.RawMessage(`{"text":"1"}`))
		e, ok := errors.AsType[*wire.Error](err)
		if !ok {
			t.Fatalf("%s client: %v", version, err)
		}
		legacy := version == wire.Version20251125
		if legacy && e.Code != wire.CodeURLElicitationRequired || !legacy && (e.Code != wire.CodeMissingClientCapability || string(e.Data) != `{"requiredCapabilities":{"elicitation":{"url":{}}}}`) {
			t.Errorf("%s client: %v %s", version, e, e.Data)
		}
	}
}

// Headers for arguments that Patchbay does not know of go on to the server.
func TestUnknownParamHeaders(t *testing.T) {
	seen := make(chan http.Header, 1)
	u := newUpstream(t, "up", wire.Version20260728)
	h := wire.NewHTTPHandler(u.server, wire.HTTPOptions{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/call" {
			seen <- r.Header.Clone()
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	w := newWorld(t, nil, map[string]config.Server{"up": {Type: config.HTTP, URL: srv.URL}}, nil)
	for _, endpoint := range []string{"", "up"} {
		tool := "echo"
		if endpoint == "" {
			tool = "up__echo"
		}
		b := w.browse(t, wire.Version20260728, endpoint)
		answer, _ := b.send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{"a":1},"_meta":{"`+wire.MetaProtocolVersion+`":"2026-07-28","`+wire.MetaClientCapabilities+`":{}}}}`,
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool, "Mcp-Param-Region", "eu", "X-Other", "x")
		if !strings.Contains(answer, `"result"`) {
			t.Fatal(answer)
		}
		got := <-seen
		if got.Get("Mcp-Param-Region") != "eu" || got.Get("X-Other") != "" || got.Get("Mcp-Name") != "echo" {
			t.Errorf("%q: %v", endpoint, got)
		}
	}
}
