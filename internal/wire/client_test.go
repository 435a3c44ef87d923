package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// modernServer is a scripted modern server over HTTP: it answers
// server/discover, rest gets the other requests.
func modernServer(capabilities string, rest httpScript) httpScript {
	return func(w http.ResponseWriter, r *http.Request, m Message) {
		if m.Method == "server/discover" {
			respondJSON(w, m, strings.Replace(newServer, `"capabilities":{}`, `"capabilities":`+capabilities, 1))
			return
		}
		rest(w, r, m)
	}
}

func connect(t *testing.T, tr Transport, o *ClientOptions) *Client {
	t.Helper()
	c, err := Connect(t.Context(), tr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Every modern request says who asks. What the caller says already stays, and
// nothing else changes.
func TestClientMeta(t *testing.T) {
	const (
		info = `{"name":"t","version":"1"}`
		caps = `{"roots":{}}`
		ours = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` + info + `,"io.modelcontextprotocol/clientCapabilities":` + caps
	)
	var got string
	url := modernServer(`{}`, func(w http.ResponseWriter, r *http.Request, m Message) {
		got = string(m.Params)
		respondJSON(w, m, `{"resultType":"complete"}`)
	}).listen(t)
	c := connect(t, HTTP(url, nil), &ClientOptions{Info: json.RawMessage(info), Capabilities: json.RawMessage(caps)})
	for _, tt := range []struct{ params, want string }{
		{``, `{"_meta":{` + ours + `}}`},
		{`{}`, `{"_meta":{` + ours + `}}`},
		{`{"b": 1.0, "a":[ ]}`, `{"b": 1.0, "a":[ ],"_meta":{` + ours + `}}`},
		{`{"_meta":null,"x":1}`, `{"_meta":{` + ours + `},"x":1}`},
		{`{"_meta":{"traceparent":"00"},"x":1}`, `{"_meta":{"traceparent":"00",` + ours + `},"x":1}`},
		{`{"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/protocolVersion":"1"}}`,
			`{"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` + info + `}}`},
	} {
		if _, err := c.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(tt.params)}); err != nil {
			t.Fatal(err)
		}
		if got != tt.want {
			t.Errorf("%s became\n%s, want\n%s", tt.params, got, tt.want)
		}
	}
	if err := c.SetLevel(t.Context(), "warning"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), Call{Method: "x"}); err != nil || !strings.Contains(got, `"io.modelcontextprotocol/logLevel":"warning"`) {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := c.Call(t.Context(), Call{Method: "x", Params: json.RawMessage(`[1]`)}); err == nil {
		t.Error("params without a place for _meta were sent")
	}
}

// A modern server that needs input gets it from the Handler, with a new
// request, the state as it was, and a new id.
func TestClientProvidesInput(t *testing.T) {
	const state = `"st\u0061te/ü\n"`
	var seen []string
	ids := make(map[string]bool)
	url := modernServer(`{}`, func(w http.ResponseWriter, r *http.Request, m Message) {
		if ids[m.ID.String()] {
			t.Errorf("id %s again", m.ID)
		}
		ids[m.ID.String()] = true
		p := string(DeleteMember(m.Params, "_meta"))
		seen = append(seen, p)
		switch len(seen) {
		case 1:
			respondJSON(w, m, `{"resultType":"input_required","inputRequests":{"a/b":{"method":"elicitation/create","params":{"message":"m"}},"r":{"method":"roots/list"}},"requestState":`+state+`}`)
		case 2:
			respondJSON(w, m, `{"resultType":"input_required","inputRequests":{"c":{"method":"sampling/createMessage","params":{}}}}`)
		default:
			respondJSON(w, m, `{"resultType":"task","taskId":"7","x":1.0}`)
		}
	}).listen(t)
	handler := &recorder{answer: func(_ context.Context, r *Request) (json.RawMessage, error) {
		if r.Tag != "tag" {
			t.Errorf("tag %v", r.Tag)
		}
		return json.RawMessage(fmt.Sprintf(`{"for":%s,"m":%q,"p":%d}`, r.ID, r.Method, len(r.Params))), nil
	}}
	c := connect(t, HTTP(url, nil), &ClientOptions{Handler: handler, Capabilities: json.RawMessage(`{"elicitation":{},"roots":{},"sampling":{}}`)})
	out, err := c.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(`{"name":"x","z":1.0}`), Tag: "tag"})
	if err != nil || string(out) != `{"resultType":"task","taskId":"7","x":1.0}` {
		t.Fatalf("%s, %v", out, err)
	}
	want := []string{
		`{"name":"x","z":1.0}`,
		`{"name":"x","z":1.0,"inputResponses":{"a/b":{"for":"a/b","m":"elicitation/create","p":15},"r":{"for":"r","m":"roots/list","p":0}},"requestState":` + state + `}`,
		`{"name":"x","z":1.0,"inputResponses":{"c":{"for":"c","m":"sampling/createMessage","p":2}}}`,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The ways in which it does not come to an end.
func TestClientInputRefused(t *testing.T) {
	const ask = `{"resultType":"input_required","inputRequests":{"q":{"method":%q}},"requestState":"s"}`
	tests := []struct {
		name, method string
		result       string
		requests     int
		want         string
	}{
		{"not offered", "tools/call", fmt.Sprintf(ask, "sampling/createMessage"), 1, "asks for sampling/createMessage, which this client does not offer"},
		{"no such method", "tools/call", fmt.Sprintf(ask, "tools/call"), 1, "does not offer"},
		{"for ever", "tools/call", fmt.Sprintf(ask, "elicitation/create"), maxInputRounds, "more than 10 times"},
		{"put off for ever", "prompts/get", `{"resultType":"input_required","requestState":"s"}`, maxLoadSheds + 1, "put the call off more than 3 times"},
		{"says nothing", "resources/read", `{"resultType":"input_required"}`, 1, "does not say which"},
		{"handler fails", "tools/call", fmt.Sprintf(ask, "roots/list"), 1, "roots/list: no roots today (code 5)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				rt := modernServer(`{}`, func(w http.ResponseWriter, r *http.Request, m Message) {
					requests++
					respondJSON(w, m, tt.result)
				}).inMemory(t)
				handler := &recorder{answer: func(_ context.Context, r *Request) (json.RawMessage, error) {
					if r.Method == "roots/list" {
						return nil, Errorf(5, "no roots today")
					}
					return json.RawMessage(`{}`), nil
				}}
				c := connect(t, HTTP("http://server.example", &HTTPClientOptions{Transport: rt}), &ClientOptions{
					Handler: handler, Capabilities: json.RawMessage(`{"elicitation":{},"roots":{}}`),
				})
				_, err := c.Call(t.Context(), Call{Method: tt.method, Params: json.RawMessage(`{"name":"x","uri":"x"}`)})
				if err == nil || !strings.Contains(err.Error(), tt.want) || requests != tt.requests {
					t.Errorf("%v after %d requests", err, requests)
				}
				// A gateway may want to see the question itself.
				out, err := c.Call(t.Context(), Call{Method: tt.method, Params: json.RawMessage(`{"name":"x","uri":"x"}`), KeepInputRequired: true})
				if err != nil || string(out) != tt.result {
					t.Errorf("%s, %v", out, err)
				}
			})
		})
	}
}

// Arguments are mirrored as the tool's annotations say; if the server finds
// that they are not, the list may be outdated.
func TestClientMirrorsArguments(t *testing.T) {
	header := "Region"
	var seen []string
	url := modernServer(`{}`, func(w http.ResponseWriter, r *http.Request, m Message) {
		seen = append(seen, m.Method+" "+r.Header.Get(headerName)+" "+r.Header.Get("Mcp-Param-"+header)+" "+r.Header.Get("X-Mine"))
		switch {
		case m.Method == "tools/list":
			respondJSON(w, m, `{"tools":[
				{"name":"sql","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"`+header+`"}}}},
				{"name":"bad","inputSchema":{"properties":{"r":{"type":"number","x-mcp-header":"R"}}}},
				{"name":"plain","inputSchema":{"type":"object"}}]}`)
		case r.Header.Get("Mcp-Param-"+header) == "":
			respondError(w, m, http.StatusBadRequest, Errorf(CodeHeaderMismatch, "header missing"))
		default:
			respondJSON(w, m, `{}`)
		}
	}).listen(t)
	c := connect(t, HTTP(url, nil), nil)
	call := Call{Method: "tools/call", Params: json.RawMessage(`{"name":"sql","arguments":{"r":"ü"}}`), Header: http.Header{"X-Mine": {"1"}}}
	for range 2 {
		if _, err := c.Call(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	header = "Zone"
	if _, err := c.Call(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"tools/call sql  1", "tools/list   ", "tools/call sql =?base64?w7w=?= 1", // nothing was known
		"tools/call sql =?base64?w7w=?= 1",                                       // now it is
		"tools/call sql  1", "tools/list   ", "tools/call sql =?base64?w7w=?= 1", // and then it was wrong
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	l, err := c.ListTools(t.Context())
	if err != nil || len(l.Items) != 2 || l.Invalid["bad"] == nil || len(l.Invalid) != 1 {
		t.Errorf("%v, %v", l, err)
	}
}

func TestClientLists(t *testing.T) {
	page := func(n int, next string) string {
		return fmt.Sprintf(`{"tools":[{"name":"t%d","n":1.0}],"nextCursor":%s}`, n, next)
	}
	tests := []struct {
		name       string
		answer     func(cursor string, n int) string
		items      int
		incomplete error
		cache      CacheHint
		err        string
	}{
		{"one page", func(string, int) string {
			return `{"tools":[{"name":"a"},{"name":"b"}],"ttlMs":5000,"cacheScope":"public"}`
		}, 2, nil, CacheHint{5000, true}, ""},
		{"three pages", func(c string, n int) string {
			return []string{`{"tools":[{"name":"a"}],"nextCursor":"x","ttlMs":5000,"cacheScope":"public"}`,
				`{"tools":[{"name":"b"}],"nextCursor":"y","ttlMs":1000,"cacheScope":"private"}`, `{"tools":[],"nextCursor":null,"ttlMs":9e3}`}[n]
		}, 2, nil, CacheHint{1000, false}, ""},
		{"repeats", func(c string, n int) string { return page(n, `"same"`) }, 2, errRepeatedCursor, CacheHint{}, ""},
		{"endless", func(c string, n int) string { return page(n, fmt.Sprintf(`"%d"`, n)) }, maxPages, errTooManyPages, CacheHint{}, ""},
		{"no list", func(string, int) string { return `{}` }, 0, nil, CacheHint{}, "has no tools"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			tr, _ := streamServer(t, func(c Conn, m Message) {
				switch m.Method {
				case "server/discover":
					answerWith(c, m, newServer)
				case "tools/list":
					cursor, _ := StringMember(m.Params, "cursor")
					answerWith(c, m, tt.answer(cursor, n))
					n++
				}
			})
			l, err := connect(t, tr, nil).ListTools(t.Context())
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || len(l.Items) != tt.items || l.Incomplete != tt.incomplete || l.Cache != tt.cache {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
	if ttl := (CacheHint{TTLMillis: 1 << 62}).TTL(); ttl != 365*24*time.Hour {
		t.Errorf("%v", ttl)
	}
}

// A subscription that breaks is opened again, with growing pauses; what may
// have been missed counts as changed.
func TestClientListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		var filters []string
		rt := modernServer(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{}}`, func(w http.ResponseWriter, r *http.Request, m Message) {
			at = append(at, time.Since(start))
			filters = append(filters, string(DeleteMember(m.Params, "_meta")))
			ack := func() {
				sseMessage(w, Message{Method: "notifications/subscriptions/acknowledged", Params: json.RawMessage(`{"notifications":{"toolsListChanged":true}}`)})
			}
			switch len(at) {
			case 1:
				ack()
				time.Sleep(time.Second)
				sseMessage(w, Message{Method: "notifications/tools/list_changed"})
				abort(w)
			case 2, 3:
				w.WriteHeader(http.StatusBadGateway)
			case 4:
				ack()
				sseMessage(w, Message{ID: m.ID}) // a graceful end
			default:
				respondError(w, m, http.StatusNotFound, MethodNotFound(m.Method))
			}
		}).inMemory(t)
		var changed []List
		notes := make(chan *Notification, 9)
		c := connect(t, HTTP("http://server.example", &HTTPClientOptions{Transport: rt}), &ClientOptions{
			Changed: func(l List) { changed = append(changed, l) }, Handler: &recorder{notes: notes},
		})
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if got := c.Announced(); !slices.Equal(got, []List{Tools}) {
			t.Errorf("announced: %v", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(at) != 5 || !slices.Equal(changed, []List{Tools, Tools}) || len(notes) != 1 {
			t.Fatalf("requests at %v, changed %v, %d notifications", at, changed, len(notes))
		}
		for i, bounds := range [][2]float64{{2, 2.3}, {2, 2.6}, {4, 5.1}, {1, 1.3}} {
			if gap := (at[i+1] - at[i]).Seconds(); gap < bounds[0] || gap > bounds[1] {
				t.Errorf("gap %d: %v", i, gap)
			}
		}
		for _, f := range filters {
			if f != `{"notifications":{"toolsListChanged":true,"promptsListChanged":true}}` {
				t.Errorf("filter %s", f)
			}
		}
	})
}

// Subscriptions to resources, in both eras and over both kinds of transport,
// against our own server.
func TestClientSubscribes(t *testing.T) {
	for _, version := range []string{Version20251125, Version20260728} {
		for _, overHTTP := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s http=%v", version, overHTTP), func(t *testing.T) {
				noLeaks(t)
				server := newTestServer(t)
				var tr Transport
				if overHTTP {
					tr = HTTP(newSite(t, server, HTTPOptions{}).url, nil)
				} else {
					ours, theirs := Pipe()
					run(t, func(ctx context.Context) error { return server.Serve(ctx, theirs) })
					tr = Stream(ours, nil)
				}
				var mu sync.Mutex
				heard := make(map[string]int)
				hear := func(what string) { mu.Lock(); heard[what]++; mu.Unlock() }
				c := connect(t, tr, &ClientOptions{
					ProtocolVersion: version,
					Changed:         func(l List) { hear(string(l)) },
					Handler: handlerFunc(func(_ context.Context, n *Notification) {
						if uri, ok := StringMember(n.Params, "uri"); ok {
							hear(uri)
						}
					}),
				})
				// A stream may not be open yet, so the server says it until it is heard.
				await := func(method, params, what string) {
					t.Helper()
					waitFor(t, func() bool {
						for s := range server.Sessions() {
							s.Notify(t.Context(), method, json.RawMessage(params))
						}
						mu.Lock()
						defer mu.Unlock()
						return heard[what] > 0
					})
				}
				await("notifications/tools/list_changed", ``, "tools")
				for _, uri := range []string{"test://a", "test://b"} {
					if err := c.Subscribe(t.Context(), uri); err != nil {
						t.Fatal(err)
					}
					await("notifications/resources/updated", `{"uri":"`+uri+`"}`, uri)
				}
				if err := c.Unsubscribe(t.Context(), "test://a"); err != nil {
					t.Fatal(err)
				}
				// On a shared stream the server may hear of it a little later.
				waitFor(t, func() bool {
					mu.Lock()
					clear(heard)
					mu.Unlock()
					for s := range server.Sessions() {
						s.Notify(t.Context(), "notifications/resources/updated", json.RawMessage(`{"uri":"test://a"}`))
					}
					await("notifications/resources/updated", `{"uri":"test://b"}`, "test://b")
					mu.Lock()
					defer mu.Unlock()
					return heard["test://a"] == 0
				})
			})
		}
	}
}

// A subscription that the caller makes itself is the caller's, acknowledgement
// and all.
func TestClientRawSubscription(t *testing.T) {
	url := modernServer(`{"tools":{"listChanged":true}}`, func(w http.ResponseWriter, r *http.Request, m Message) {
		sseMessage(w, Message{Method: "notifications/subscriptions/acknowledged", Params: json.RawMessage(`{"notifications":{"promptsListChanged":true}}`)})
		sseMessage(w, Message{Method: "notifications/prompts/list_changed"})
		sseMessage(w, Message{ID: m.ID, Result: json.RawMessage(`{"resultType":"complete"}`)})
	}).listen(t)
	notes := make(chan *Notification, 9)
	c := connect(t, HTTP(url, nil), &ClientOptions{Handler: &recorder{notes: notes}})
	_, err := c.Call(t.Context(), Call{Method: "subscriptions/listen", Params: json.RawMessage(`{"notifications":{"promptsListChanged":true}}`), Tag: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"notifications/subscriptions/acknowledged", "notifications/prompts/list_changed"} {
		if n := <-notes; n.Method != want || n.Tag != "mine" || n.Link != Link(c) {
			t.Errorf("%+v, want %s", n, want)
		}
	}
	if got := c.Announced(); got != nil {
		t.Errorf("announced: %v", got)
	}
}

// What a legacy server asks for goes to the Handler with the Client as its way
// back, a ping does not, and a modern server may ask for nothing.
func TestClientHandlesRequests(t *testing.T) {
	for _, version := range []string{Version20250618, Version20260728} {
		t.Run(version, func(t *testing.T) {
			answers := make(chan Message, 3)
			tr, _ := streamServer(t, func(c Conn, m Message) {
				switch m.Method {
				case "server/discover":
					answerWith(c, m, newServer)
				case "initialize":
					answerWith(c, m, oldServer)
				case "":
					answers <- m
				case "tools/call":
					for i, method := range []string{"ping", "roots/list", "nope"} {
						c.Write(context.Background(), Message{ID: NumberID(int64(i)), Method: method})
					}
					answerWith(c, m, `{}`)
				}
			})
			var client *Client
			handler := &recorder{answer: func(_ context.Context, r *Request) (json.RawMessage, error) {
				if r.Method == "roots/list" && r.Link == Link(client) {
					return json.RawMessage(`{"roots":[]}`), nil
				}
				return nil, MethodNotFound(r.Method)
			}}
			client = connect(t, tr, &ClientOptions{ProtocolVersion: version, Handler: handler, Capabilities: json.RawMessage(`{"roots":{}}`)})
			if _, err := client.CallTool(t.Context(), "x", nil); err != nil {
				t.Fatal(err)
			}
			got := make(map[string]string)
			for range 3 {
				m := <-answers
				got[m.ID.String()] = string(m.Result)
				if m.Error != nil {
					got[m.ID.String()] = fmt.Sprint(m.Error.Code)
				}
			}
			want := map[string]string{"0": `{}`, "1": `{"roots":[]}`, "2": "-32601"}
			if version == Version20260728 {
				want["1"] = "-32601"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestClientOptionsInvalid(t *testing.T) {
	for _, o := range []ClientOptions{{Info: json.RawMessage(`"x"`)}, {Capabilities: json.RawMessage(`{"a":1,"a":2}`)}} {
		if _, err := Connect(t.Context(), HTTP("http://server.example", nil), &o); err == nil {
			t.Errorf("%s %s accepted", o.Info, o.Capabilities)
		}
	}
	for _, url := range []string{"", "server.example", "ftp://server.example", "http://", "http://user:pa/ss@host", "http://a b", "://"} {
		_, err := Connect(t.Context(), HTTP(url, nil), nil)
		if err == nil || strings.Contains(err.Error(), "pa/ss") || strings.Contains(err.Error(), "user") || errors.Is(err, ErrClosed) {
			t.Errorf("%q: %v", url, err)
		}
	}
}
