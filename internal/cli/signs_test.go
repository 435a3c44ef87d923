package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A sign is a way to answer a call, or not to, on which somebody might make the
// call again. A server does one of them, over stdio or HTTP.
type sign struct {
	name   string
	modern bool // the server is
	most   int  // executions of one call of a client; 0 means one

	answer func(out io.Writer, id wire.ID) // nil ends the process

	http      func(c *httpSign, w http.ResponseWriter, m wire.Message) // nil means stdio
	noSession bool                                                     // the server gives out no session id
	sse       bool                                                     // it speaks HTTP+SSE
	entry     string                                                   // further members of the entry
}

func say(format string, args ...any) func(io.Writer, wire.ID) {
	return func(out io.Writer, id wire.ID) {
		fmt.Fprintln(out, strings.ReplaceAll(fmt.Sprintf(format, args...), "ID", id.String()))
	}
}

const (
	doneAnswer   = `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[]}}`
	someError    = `{"jsonrpc":"2.0","id":ID,"error":{"code":%d,"message":"%s"}}`
	inputAnswer  = `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}}}}`
	laterAnswer  = `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required","requestState":"s"}}`
	visitError   = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32042,"message":"go there","data":{"elicitations":[{"mode":"url","message":"go","elicitationId":"e","url":"https://example.test/"}]}}}`
	visited      = `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}`
	versionError = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28","2025-11-25"],"requested":"2026-07-28"}}}`
)

// changingKey is an entry whose credential is another one each time, fixedKey one
// whose is not.
const (
	changingKey = `, "headersHelper": "printf '{\"X-Key\":\"k%s\"}' $(date +%s%N)"`
	fixedKey    = `, "headersHelper": "printf '{\"X-Key\":\"k\"}'"`
)

// signs are what a server can think of.
var signs = []sign{
	{name: "shutting", answer: say(someError, -32000, "the server is shutting down")},
	{name: "ended", answer: say(someError, -32000, "shutting down")},
	{name: "farewell", answer: say(`{"jsonrpc":"2.0","method":"notifications/patchbay/farewell"}` + "\n" + doneAnswer)},
	{name: "refused", answer: say(`{"jsonrpc":"2.0","method":"notifications/patchbay/refused","params":{"requestId":ID}}` + "\n" + doneAnswer)},
	{name: "lines", answer: say("!farewell\n!refused ID\n" + doneAnswer)},
	{name: "gone"},
	{name: "gonemodern", modern: true},
	{name: "headers", modern: true, answer: say(someError, -32020, "header mismatch")},
	{name: "version", modern: true, answer: say(versionError)},
	{name: "session", answer: say(someError, -32001, "Session not found")},
	{name: "input", modern: true, answer: say(inputAnswer), most: 10},
	{name: "later", modern: true, answer: say(laterAnswer), most: 4},
	{name: "visit", answer: say(visitError), most: 2},

	{name: "http400", http: status(400, someError, -32000, "your session is unknown")},
	{name: "http400null", http: status(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: no valid session"}}`)},
	{name: "http401", http: status(401, "no session"), entry: `, "headers": {"Authorization": "Bearer fixed"}`},
	{name: "http401same", http: status(401, ""), entry: fixedKey},
	{name: "http401other", http: status(401, ""), entry: changingKey, most: 2},
	{name: "http403", http: status(403, ""), entry: changingKey},
	{name: "http404", http: status(404, someError, -32001, "Session not found"), most: 2},
	{name: "http404none", http: status(404, someError, -32001, "Session not found"), noSession: true},
	{name: "http404modern", modern: true, http: status(404, someError, -32001, "Session not found")},
	{name: "http307", http: status(307, ""), most: 2},
	{name: "http429", http: status(429, "")},
	{name: "http503", http: status(503, "shutting down")},
	{name: "httpshutting", http: status(200, someError, -32000, "the server is shutting down")},
	{name: "httpfarewell", http: stream(`{"jsonrpc":"2.0","method":"notifications/patchbay/farewell"}`, doneAnswer)},
	{name: "httpgone", http: func(*httpSign, http.ResponseWriter, wire.Message) { panic(http.ErrAbortHandler) }},
	{name: "httpgoneagain", entry: `, "headers": {"Idempotency-Key": "k"}`, http: func(*httpSign, http.ResponseWriter, wire.Message) { panic(http.ErrAbortHandler) }},
	{name: "httptext", http: raw("HTTP/1.1 200 OK\r\nContent-Length: tls: 5\r\n\r\n")},
	{name: "httpvoid", http: stream()},
	{name: "sse500", sse: true, http: status(500, "")},
	{name: "ssegone", sse: true, http: func(*httpSign, http.ResponseWriter, wire.Message) { panic(http.ErrAbortHandler) }},
	{name: "sseended", sse: true, http: func(c *httpSign, w http.ResponseWriter, _ wire.Message) {
		c.endStreams()
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil { // and never says that it took the call
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}},
	{name: "sseall", sse: true, entry: changingKey, most: 3, http: func(c *httpSign, w http.ResponseWriter, _ wire.Message) {
		turns := []int{307, 401}
		w.Header().Set("Location", fmt.Sprint(c.path, "?session=", c.sessions))
		w.WriteHeader(turns[c.turn%len(turns)])
		c.turn++
	}},
	{name: "httpvisit", http: stream(visitError), most: 2},
	{name: "httpheaders", modern: true, http: status(400, someError, -32020, "header mismatch")},
	{name: "httpnewheaders", modern: true, most: 2, entry: `, "pin": "off"`, http: func(c *httpSign, w http.ResponseWriter, m wire.Message) {
		c.header++ // the tool has other headers from now on
		status(400, someError, -32020, "header mismatch")(c, w, m)
	}},
	{name: "httpversion", modern: true, http: status(400, versionError)},
	{name: "httpinput", modern: true, http: status(200, inputAnswer), most: 10},
	// Each time another of those that are good for one repeat: two in all.
	{name: "httpall", entry: changingKey, most: 3, http: func(c *httpSign, w http.ResponseWriter, m wire.Message) {
		turns := []int{404, 401, 307, 404, 401, 307}
		c.turn++
		status(turns[c.turn%len(turns)], "")(c, w, m)
	}},
}

// status answers with a status and a body.
func status(code int, format string, args ...any) func(*httpSign, http.ResponseWriter, wire.Message) {
	return func(c *httpSign, w http.ResponseWriter, m wire.Message) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", c.path) // if it is a redirect
		w.WriteHeader(code)
		say(format, args...)(w, m.ID)
	}
}

// raw answers with these bytes.
func raw(text string) func(*httpSign, http.ResponseWriter, wire.Message) {
	return func(_ *httpSign, w http.ResponseWriter, _ wire.Message) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(c, text)
			c.Close()
		}
	}
}

// stream answers with events.
func stream(messages ...string) func(*httpSign, http.ResponseWriter, wire.Message) {
	return func(_ *httpSign, w http.ResponseWriter, m wire.Message) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range messages {
			say("data: %s\n", text)(w, m.ID)
		}
	}
}

// What servers say of themselves, and of their tool.
const (
	signInitialized = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sign","version":"1"}}`
	signDiscovered  = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	signTools       = `{"resultType":"complete","tools":[{"name":"act","inputSchema":{"type":"object"%s}}],"ttlMs":0,"cacheScope":"private"}`
)

// reply is the answer to a request that is no call.
func (s *sign) reply(m wire.Message, schema string) wire.Message {
	switch {
	case m.Method == "initialize" && !s.modern:
		return wire.Message{ID: m.ID, Result: json.RawMessage(signInitialized)}
	case m.Method == "server/discover" && s.modern:
		return wire.Message{ID: m.ID, Result: json.RawMessage(signDiscovered)}
	case m.Method == "tools/list":
		return wire.Message{ID: m.ID, Result: json.RawMessage(fmt.Sprintf(signTools, schema))}
	}
	return wire.Message{ID: m.ID, Error: wire.MethodNotFound(m.Method)}
}

// serveSign is a server over stdio that says on another connection when it
// executes its tool, act, and then does what the sign is.
func serveSign(name string, tell io.Writer) {
	i := slices.IndexFunc(signs, func(s sign) bool { return s.name == name })
	s := &signs[i]
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		m, err := wire.Parse(in.Bytes(), wire.Limits{})
		switch {
		case err != nil || m.Kind() != wire.KindRequest:
		case m.Method != "tools/call":
			fmt.Println(string(s.reply(m, "").AppendTo(nil)))
		default:
			fmt.Fprintln(tell, name)
			if s.answer == nil {
				os.Exit(3)
			}
			s.answer(os.Stdout, m.ID)
			if name == "visit" { // the person is done there, sooner or later
				time.AfterFunc(300*time.Millisecond, func() { fmt.Println(visited) })
			}
		}
	}
	os.Exit(0)
}

// httpSign is the same over HTTP.
type httpSign struct {
	*sign
	tally  *tally
	path   string
	header int // which header the tool wants
	turn   int

	mu       sync.Mutex
	sessions int
	listens  chan string            // what is said on the GET stream
	streams  map[string]chan string // of HTTP+SSE, by session
}

func (c *httpSign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && c.sse {
		c.serveSSE(w, r)
		return
	}
	if r.Method == http.MethodGet && !c.modern {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text := <-c.listens:
				fmt.Fprintf(w, "data: %s\n\n", text)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	body, _ := io.ReadAll(r.Body)
	m, err := wire.Parse(body, wire.Limits{})
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.sse && c.streams[r.URL.RawQuery] == nil:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case err != nil || m.Kind() != wire.KindRequest:
		w.WriteHeader(http.StatusAccepted)
	case c.sse && m.Method != "tools/call":
		c.streams[r.URL.RawQuery] <- string(c.reply(m, "").AppendTo(nil))
		w.WriteHeader(http.StatusAccepted)
	case m.Method != "tools/call":
		w.Header().Set("Content-Type", "application/json")
		if m.Method == "initialize" && !c.noSession {
			c.sessions++
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", c.sessions))
		}
		schema := ""
		if c.header > 0 {
			schema = fmt.Sprintf(`,"properties":{"a":{"type":"string","x-mcp-header":"H%d"}}`, c.header)
		}
		_, _ = w.Write(c.reply(m, schema).AppendTo(nil))
	default:
		c.tally.add(c.name)
		if c.name == "httpvisit" {
			time.AfterFunc(300*time.Millisecond, func() { c.listens <- visited })
		}
		c.http(c, w, m)
	}
}

// serveSSE is the stream of HTTP+SSE, which ends when the server wants it to.
func (c *httpSign) serveSSE(w http.ResponseWriter, r *http.Request) {
	said := make(chan string, 10)
	c.mu.Lock()
	c.sessions++
	session := fmt.Sprint("session=", c.sessions)
	c.streams[session] = said
	c.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "event: endpoint\ndata: %s?%s\n\n", c.path, session)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case text, ok := <-said:
			if !ok {
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", text)
		case <-r.Context().Done():
			return
		}
	}
}

// endStreams ends all streams; c.mu is held.
func (c *httpSign) endStreams() {
	for session, said := range c.streams {
		close(said)
		delete(c.streams, session)
	}
}

// A tally counts what servers execute.
type tally struct {
	address string
	mu      sync.Mutex
	counts  map[string]int
	changed chan struct{} // closed and replaced with every count
}

func newTally(t *testing.T) *tally {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	y := &tally{address: l.Addr().String(), counts: map[string]int{}, changed: make(chan struct{})}
	var work sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		work.Wait() // all processes have ended by now
	})
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					y.add(in.Text())
				}
			})
		}
	})
	return y
}

func (y *tally) add(name string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[name]++
	close(y.changed)
	y.changed = make(chan struct{})
}

func (y *tally) of(name string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.counts[name]
}

// check demands that something has been executed, so often at most.
func (y *tally) check(t *testing.T, name string, most int) {
	t.Helper()
	y.await(t, name)
	if n := y.of(name); n > most {
		t.Errorf("%s was executed %d times, want at most %d", name, n, most)
	}
}

// await returns when something has been executed.
func (y *tally) await(t *testing.T, name string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		y.mu.Lock()
		n, changed := y.counts[name], y.changed
		y.mu.Unlock()
		if n > 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s was never executed", name)
		}
	}
}
