package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What announces changes is opened again whatever ends it, unless the server says
// that there is no such thing; and what may have changed meanwhile counts as
// changed.

func ackOf(m Message, filter string) Message {
	return Message{Method: methodAcknowledged, Params: json.RawMessage(`{"_meta":{"` + MetaSubscriptionID + `":` + m.ID.String() + `},"notifications":` + filter + `}`)}
}

func TestListenIsOpenedAgain(t *testing.T) {
	const tools = `{"toolsListChanged":true}`
	overloaded := Errorf(CodeOverloaded, "busy")
	cancelled := func(m Message) Message {
		return Message{Method: "notifications/cancelled", Params: json.RawMessage(`{"requestId":` + m.ID.String() + `}`)}
	}
	t.Run("http", func(t *testing.T) {
		for name, first := range map[string]httpScript{
			"503 with an error": func(w http.ResponseWriter, _ *http.Request, m Message) { respondError(w, m, 503, overloaded) },
			"429 with an error": func(w http.ResponseWriter, _ *http.Request, m Message) { respondError(w, m, 429, overloaded) },
			"500 with an error": func(w http.ResponseWriter, _ *http.Request, m Message) {
				respondError(w, m, 500, Errorf(CodeInternal, "x"))
			},
			"an error of its own": func(w http.ResponseWriter, _ *http.Request, m Message) { respondError(w, m, 200, Errorf(-32050, "x")) },
			"torn down": func(w http.ResponseWriter, r *http.Request, m Message) {
				sseMessage(w, ackOf(m, tools))
				sseMessage(w, cancelled(m))
				<-r.Context().Done() // it is the client who has to let go
			},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					listens := 0
					rt := modernServer(`{"tools":{"listChanged":true}}`, func(w http.ResponseWriter, r *http.Request, m Message) {
						if listens++; listens == 1 {
							first(w, r, m)
							return
						}
						sseMessage(w, ackOf(m, tools))
						<-r.Context().Done()
					}).inMemory(t)
					var changed []List
					c := connect(t, HTTP("http://server.example", &HTTPClientOptions{Transport: rt}), &ClientOptions{Changed: func(l List) { changed = append(changed, l) }})
					time.Sleep(3 * time.Second)
					synctest.Wait()
					if listens != 2 || !slices.Equal(changed, []List{Tools}) || len(c.Announced()) != 1 {
						t.Errorf("%d attempts, changed %v, announced %v", listens, changed, c.Announced())
					}
					c.Close()
				})
			})
		}
	})
	t.Run("stdio", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			listens := 0
			tr, _ := streamServer(t, func(c Conn, m Message) {
				switch m.Method {
				case "server/discover":
					answerWith(c, m, strings.Replace(newServer, `"capabilities":{}`, `"capabilities":{"tools":{"listChanged":true}}`, 1))
				case "subscriptions/listen":
					if listens++; listens == 1 {
						c.Write(t.Context(), Message{ID: m.ID, Error: overloaded})
						return
					}
					c.Write(t.Context(), ackOf(m, tools))
					if listens == 2 {
						c.Write(t.Context(), cancelled(m))
					}
				}
			})
			var changed []List
			c := connect(t, tr, &ClientOptions{Changed: func(l List) { changed = append(changed, l) }})
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if listens != 3 || !slices.Equal(changed, []List{Tools, Tools}) || len(c.Announced()) != 1 {
				t.Errorf("%d attempts, changed %v, announced %v", listens, changed, c.Announced())
			}
		})
	})
	t.Run("GET", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gets := 0
			server := &legacyServer{rest: func(w http.ResponseWriter, r *http.Request, m Message) {
				if r.Method != http.MethodGet {
					respondJSON(w, m, `{}`)
					return
				}
				if gets++; gets == 1 {
					http.Error(w, "there is a stream already", http.StatusConflict)
					return
				}
				sse(w, ": here\n\n")
				<-r.Context().Done()
			}}
			missed := 0
			h := link(t, "http://server.example", &recorder{}, HTTPClientOptions{Transport: httpScript(server.serve).inMemory(t)})
			h.missed = func() { missed++ }
			openSession(t, h)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if gets != 2 || missed != 1 {
				t.Errorf("%d attempts, %d times missed", gets, missed)
			}
			h.Close()
		})
	})
}

// An acknowledgement belongs to the subscription that it names: one that honours
// nothing answers who waits for it, and a late one answers nobody.
func TestAcknowledgementNamesItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last Message
		tr, _ := streamServer(t, func(c Conn, m Message) {
			switch m.Method {
			case "server/discover":
				answerWith(c, m, strings.Replace(newServer, `"capabilities":{}`, `"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}`, 1))
			case "subscriptions/listen":
				uris, _ := Member(m.Params, "notifications", "resourceSubscriptions")
				switch string(uris) {
				case ``:
					c.Write(t.Context(), ackOf(m, `{"toolsListChanged":true}`))
				case `["test://no"]`:
					c.Write(t.Context(), ackOf(m, `{}`))
					last = m
				case `["test://yes"]`:
					c.Write(t.Context(), ackOf(last, `{"resourceSubscriptions":["test://no"]}`)) // late
					m.ID = StringID(m.ID.String())                                               // as some write it
					c.Write(t.Context(), ackOf(m, `{"resourceSubscriptions":["test://yes"]}`))
				}
			}
		})
		c := connect(t, tr, &ClientOptions{Changed: func(List) {}})
		synctest.Wait()
		start := time.Now()
		if err := c.Subscribe(t.Context(), "test://no"); err == nil || !strings.Contains(err.Error(), "does not announce updates of test://no") {
			t.Errorf("not honoured: %v", err)
		}
		if err := c.Subscribe(t.Context(), "test://yes"); err != nil {
			t.Errorf("honoured: %v", err)
		}
		if took := time.Since(start); took > time.Second || !slices.Equal(c.Announced(), []List{Tools}) {
			t.Errorf("after %v announced: %v", took, c.Announced())
		}
	})
}

// Subscriptions hold nobody up, and a ping waits for nobody.
func TestSubscriptionsAndPingsWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newTestServer(t, func(o *ServerOptions) {
			o.MaxByOne = 500
			o.Handler = handlerFuncs{request: func(ctx context.Context, r *Request) (json.RawMessage, error) {
				if r.Method == "tools/list" {
					return json.RawMessage(`{"tools":[]}`), nil
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}}
		})
		near, far := streams()
		served := make(chan error, 1)
		go func() { served <- server.Serve(context.Background(), NewStreamConn(far, far, nil)) }()
		defer func() { near.Close(); <-served }()
		answers := newLineReader(near.r, 1<<20)
		next := func() string {
			for {
				line, _, err := answers.next()
				if err != nil {
					return err.Error()
				}
				if _, ok := Member(line, "id"); ok {
					return string(line)
				}
			}
		}
		for i := range 200 {
			fmt.Fprintf(near, "%s\n", Message{ID: NumberID(int64(i + 1)), Method: "subscriptions/listen", Params: withMeta(`{"notifications":{"toolsListChanged":true}}`, "{}")}.AppendTo(nil))
		}
		io.WriteString(near, initializeLine+"\n")
		if got := next(); !strings.Contains(got, `"id":"i","result"`) {
			t.Fatal(got)
		}
		io.WriteString(near, `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`+"\n")
		if got := next(); got != `{"jsonrpc":"2.0","id":"list","result":{"tools":[]}}` {
			t.Fatal(got)
		}
		for i := range 200 {
			fmt.Fprintf(near, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow"}}`+"\n", i+1001)
		}
		io.WriteString(near, `{"jsonrpc":"2.0","id":"ping","method":"ping"}`+"\n")
		if got := next(); got != `{"jsonrpc":"2.0","id":"ping","result":{}}` {
			t.Fatal(got)
		}
	})
}

// eagerConn is a client that sends its next message before an answer has been
// written to its end.
type eagerConn struct {
	Conn
	in     chan Message // what Read returns
	reads  int
	third  chan struct{} // closed when two messages have been taken in
	answer chan Message
}

func (c *eagerConn) Read() (Message, error) {
	if c.reads++; c.reads == 3 {
		close(c.third)
	}
	m, ok := <-c.in
	if !ok {
		return Message{}, io.EOF
	}
	return m, nil
}

func (c *eagerConn) Write(_ context.Context, m Message) error {
	if m.ID == NumberID(1) { // somebody reads it, and tries again
		c.in <- Message{ID: NumberID(2), Method: "initialize", Params: json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{}}`)}
		<-c.third
	}
	c.answer <- m
	return nil
}

func (c *eagerConn) Close() error { return nil }

// Who hears that initialize has failed may try again at once.
func TestInitializeAgainAtOnce(t *testing.T) {
	calls := 0
	d := mustDescribe(t, `{"name":"late"}`, "{}", "")
	server := newTestServer(t, func(o *ServerOptions) {
		o.Describe = func(context.Context, *Session) (*Description, error) {
			if calls++; calls == 1 {
				return nil, Errorf(CodeInternal, "not yet")
			}
			return d, nil
		}
	})
	c := &eagerConn{in: make(chan Message, 2), third: make(chan struct{}), answer: make(chan Message, 9)}
	c.in <- Message{ID: NumberID(1), Method: "initialize", Params: json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{}}`)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), c) }()
	for range 2 {
		switch m := <-c.answer; {
		case m.ID == NumberID(1) && m.Error != nil && m.Error.Message == "not yet":
		case m.ID == NumberID(2) && m.Error == nil:
		default:
			t.Errorf("%s", m.AppendTo(nil))
		}
	}
	close(c.in)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Progress of a call that is over is nobody's, and shows no token of ours.
func TestLateProgressOverHTTP(t *testing.T) {
	var first string
	server := &legacyServer{noGET: true, rest: func(w http.ResponseWriter, r *http.Request, m Message) {
		token, _ := Member(m.Params, "_meta", "progressToken")
		if first == "" {
			first = string(token)
		} else {
			sseMessage(w, Message{Method: "notifications/progress", Params: json.RawMessage(`{"progressToken":` + first + `,"progress":1}`)})
			sseMessage(w, Message{Method: "notifications/message", Params: json.RawMessage(`{}`)})
		}
		sseMessage(w, Message{ID: m.ID, Result: json.RawMessage(`{}`)})
	}}
	notes := make(chan *Notification, 10)
	h := link(t, httpScript(server.serve).listen(t), &recorder{notes: notes}, HTTPClientOptions{})
	openSession(t, h)
	for range 2 {
		if _, err := h.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(`{"_meta":{"progressToken":"mine"}}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := <-notes; n.Method != "notifications/message" {
		t.Errorf("%s %s", n.Method, n.Params)
	}
}

// A legacy server hears in its own words what a client cannot do.
func TestLegacyRefusal(t *testing.T) {
	for method, want := range map[string]int64{"elicitation/create": CodeInvalidParams, "sampling/createMessage": CodeMethodNotFound, "roots/list": CodeMethodNotFound} {
		answers := make(chan Message, 1)
		tr, _ := streamServer(t, func(c Conn, m Message) {
			switch m.Method {
			case "initialize":
				answerWith(c, m, oldServer)
			case "notifications/initialized":
				c.Write(t.Context(), Message{ID: StringID("q"), Method: method})
			case "":
				answers <- m
			}
		})
		connect(t, tr, &ClientOptions{ProtocolVersion: Version20251125, Handler: handlerFuncs{request: func(context.Context, *Request) (json.RawMessage, error) {
			return nil, (&Session{}).mayAsk(method, nil)
		}}})
		if m := <-answers; m.Error == nil || m.Error.Code != want || m.Error.Data != nil {
			t.Errorf("%s: %s", method, m.AppendTo(nil))
		}
	}
}
