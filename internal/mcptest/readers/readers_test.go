package readers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/gateway"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A request is a message that may be in disguise.
type request struct {
	name   string // of the disguise
	method string // as it is written between quotes
	params string // the members besides _meta
	before string // members of the envelope that come first
	after  string // members of the envelope that come last
	meta   string // further members of _meta

	// What may be carried out, as the protocol reads it; runs says that it must be.
	means [3]string // method, subject, path
	runs  bool
}

// text is the message; own is what _meta has besides.
func (r request) text(id int, own string) string {
	meta := strings.Trim(own+","+r.meta, ",")
	params := strings.Trim(r.params+`,"_meta":{`+meta+`}`, ",")
	return fmt.Sprintf(`{%s"jsonrpc":"2.0","id":%d,"method":"%s","params":{%s}%s}`, r.before, id, r.method, params, r.after)
}

// A target is a method with something that it may be about and something else.
type target struct {
	method    string
	member    string
	good, bad string
	wrap      string // what the member is inside of, with %s for it
	eras      string
	loose     bool // it may be refused for reasons of its own
}

// targets are all methods that are judged. Prefix is what names have before them.
func targets(prefix string) []target {
	const both, legacy = "2025-11-25 2026-07-28", "2025-11-25"
	return []target{
		{method: "tools/call", member: "name", good: prefix + "read", bad: "delete_all", eras: both},
		{method: "tools/call", member: "name", good: prefix + "read", bad: "changed", eras: both},
		{method: "prompts/get", member: "name", good: prefix + "greet", bad: "other", eras: both},
		{method: "resources/read", member: "uri", good: "note://a", bad: "note://b", eras: both},
		{method: "resources/subscribe", member: "uri", good: "note://a", bad: "note://b", eras: legacy, loose: true},
		{method: "resources/unsubscribe", member: "uri", good: "note://a", bad: "note://b", eras: legacy, loose: true},
		{method: "logging/setLevel", member: "level", good: "info", bad: "debug", eras: legacy, loose: true},
		{method: "tasks/get", member: "taskId", good: "mine", bad: "yours", eras: both, loose: true},
		{method: "tasks/cancel", member: "taskId", good: "mine", bad: "yours", eras: both, loose: true},
		{method: "tasks/result", member: "taskId", good: "mine", bad: "yours", eras: legacy, loose: true},
		{method: "completion/complete", member: "name", good: prefix + "greet", bad: "other", eras: both, wrap: `"ref":{"type":"ref/prompt",%s},"argument":{"name":"a","value":"v"}`},
		{method: "completion/complete", member: "ref", good: prefix + "greet", bad: "other", eras: both},
	}
}

// disguises are all the requests that are made of a target.
func (g target) disguises(prefix string) []request {
	quoted := func(s string) string { text, _ := json.Marshal(s); return string(text) }
	good, bad := quoted(g.good), quoted(g.bad)
	if g.member == "ref" {
		good, bad = `{"type":"ref/prompt","name":`+good+`}`, `{"type":"ref/prompt","name":`+bad+`}`
	}
	in := func(members string) string {
		if g.wrap != "" {
			return fmt.Sprintf(g.wrap, members)
		}
		return members
	}
	as := func(name, value string) string { return quoted(name) + ":" + value }
	m := g.member
	means := [3]string{g.method, strings.TrimPrefix(g.good, prefix)}
	plain := in(as(m, good))
	all := []request{
		{name: "plain", params: plain, runs: !g.loose},
		{name: "escaped name", params: in(`"` + escapes(m) + `":` + good), runs: !g.loose},
		{name: "escaped method", method: escapes(g.method), params: plain, runs: !g.loose},
		{name: "escaped slash", method: strings.ReplaceAll(g.method, "/", `\/`), params: plain, runs: !g.loose},
		{name: "the same twice", params: in(as(m, good) + "," + as(m, bad))},
		{name: "the same twice, once in escapes", params: in(as(m, good) + `,"` + escapes(m) + `":` + bad)},
		{name: "meta twice", params: plain + `,"_meta":{}`},
		{name: "meta in another case", params: plain + `,"_Meta":{}`},
		{name: "a token in another case", params: plain, meta: `"progressToken":1,"ProgressToken":2`},
		{name: "params twice", params: plain, after: `,"params":{` + in(as(m, bad)) + `}`},
	}
	for _, spelling := range spellings(m) {
		all = append(all,
			request{name: "beside " + spelling, params: in(as(m, good) + "," + as(spelling, bad))},
			request{name: "after " + spelling, params: in(as(spelling, bad) + "," + as(m, good))},
			request{name: "only " + spelling, params: in(as(spelling, bad))},
		)
	}
	for _, spelling := range spellings("params") {
		all = append(all,
			request{name: "beside " + spelling, params: plain, after: "," + as(spelling, "{"+in(as(m, bad))+"}")},
			request{name: "after " + spelling, params: plain, before: as(spelling, "{"+in(as(m, bad))+"}") + ","},
		)
	}
	for _, spelling := range spellings("method") {
		all = append(all, request{name: "a ping with " + spelling, method: "ping", params: in(as(m, bad)), after: "," + as(spelling, quoted(g.method))})
	}
	for _, method := range slices.Concat(spellings(g.method), []string{
		" " + g.method, g.method + "/", "/" + g.method, strings.ReplaceAll(g.method, "/", "//"), strings.ReplaceAll(g.method, "/", "."),
		strings.ReplaceAll(g.method, "/", "_"), g.method + "\x00", g.method + "\x00x",
	}) {
		text := quoted(method)
		all = append(all, request{name: "method " + method, method: text[1 : len(text)-1], params: in(as(m, bad)), means: [3]string{"nothing"}})
	}
	for i := range all {
		r := &all[i]
		if r.method == "" {
			r.method = g.method
		}
		if r.means[0] == "" {
			r.means = means
		}
	}
	return all
}

// writes are calls of a tool whose arguments a hook looks at.
func writes(prefix string) []request {
	call := func(name, params string, runs bool) request {
		return request{name: name, method: "tools/call", params: `"name":"` + prefix + `write",` + params, means: [3]string{"tools/call", "write", "/ok"}, runs: runs}
	}
	all := []request{
		call("plain", `"arguments":{"path":"/ok"}`, true),
		call("forbidden", `"arguments":{"path":"/etc"}`, false),
		call("twice", `"arguments":{"path":"/ok","path":"/etc"}`, false),
	}
	for _, spelling := range spellings("path") {
		spelling = strings.ReplaceAll(spelling, "\x00", `\u0000`)
		all = append(all, call("beside "+spelling, `"arguments":{"path":"/ok","`+spelling+`":"/etc"}`, false), call("after "+spelling, `"arguments":{"`+spelling+`":"/etc","path":"/ok"}`, false))
	}
	for _, spelling := range spellings("arguments") {
		spelling = strings.ReplaceAll(spelling, "\x00", `\u0000`)
		all = append(all,
			call("beside "+spelling, `"arguments":{"path":"/ok"},"`+spelling+`":{"path":"/etc"}`, false),
			call("only "+spelling, `"`+spelling+`":{"path":"/etc"}`, false))
	}
	return all
}

// spellings are those of a name that some reader takes for it.
func spellings(name string) []string {
	all := []string{strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:], name[:len(name)-1] + strings.ToUpper(name[len(name)-1:])}
	for from, to := range map[string]string{"s": "ſ", "k": "\u212a", "i": "ı"} {
		all = append(all, strings.ReplaceAll(name, from, to))
	}
	var snake strings.Builder
	for _, r := range name {
		if 'A' <= r && r <= 'Z' {
			snake.WriteByte('_')
		}
		snake.WriteRune(r)
	}
	all = append(all, strings.ToLower(snake.String()), name+"\x00")
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == name })
}

// escapes writes a text in escapes.
func escapes(text string) string {
	var b strings.Builder
	for _, r := range text {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

// world is a gateway in front of one server.
type world struct {
	host    *patchbay.Host
	gateway *gateway.Gateway
	url     string
	journal string
	read    int // of the journal
}

func newWorld(t *testing.T, server config.Server) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{journal: filepath.Join(dir, "journal")}
	describe := filepath.Join(dir, "describe")
	write(t, describe, "as it was")
	if server.Env == nil {
		server.Env = map[string]config.Secret{}
	}
	server.Pin = config.PinStrict
	server.Env[journalEnv], server.Env[describeEnv] = config.NewSecret(w.journal), config.NewSecret(describe)
	home := filepath.Join(dir, "home")
	write(t, filepath.Join(home, ".config", "patchbay", "settings.json"),
		`{"permissions":{"deny":["mcp__srv__delete_all"]},"gateway":{"profiles":{"p":{"servers":["srv"]}}}}`)
	o := patchbay.Options{
		Dir: filepath.Join(dir, "home"), Home: home, SystemRoot: filepath.Join(dir, "root"), Environ: []string{"PATH=" + os.Getenv("PATH")},
		Hooks: &patchbay.Hooks{BeforeCall: func(_ context.Context, c *patchbay.HookCall) error {
			if path, _ := wire.StringMember(c.Arguments, "path"); c.Tool == "write" && path != "/ok" {
				return errors.New("not there")
			}
			return nil
		}},
	}
	open := func() {
		h, err := patchbay.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		w.host = h
		if err := h.Apply(t.Context(), map[string]config.Server{"srv": server}); err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(t.Context(), "srv"); err != nil {
			t.Fatal(err)
		}
		if st, err := h.Server("srv"); err != nil || st.State != config.Connected {
			t.Fatalf("%v, %v: %s", err, st.State, st.Reason)
		}
	}
	open() // which remembers what the tools are
	if err := w.host.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, describe, "something else")
	open()
	w.gateway = gateway.New(w.host, gateway.Options{Version: "test"})
	web := httptest.NewServer(w.gateway.HTTP(wire.HTTPOptions{}))
	w.url = web.URL + "/mcp"
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		_ = w.gateway.Shutdown(ctx)
		web.Close()
		if err := w.host.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// news is what was carried out since it was last asked for.
func (w *world) news(t *testing.T) (all [][3]string) {
	t.Helper()
	text, err := os.ReadFile(w.journal)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text[w.read:]) {
		var entry [3]string
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		all = append(all, entry)
	}
	w.read = len(text)
	return all
}

// A client sends a message and returns when it is answered.
type client interface {
	send(t *testing.T, r request, text string)
}

// overHTTP sends messages with the headers that a client has to send: those that
// fit what the protocol reads.
type overHTTP struct{ url, version, session string }

func (c *overHTTP) send(t *testing.T, r request, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {c.version}}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	if c.version == wire.Version20260728 {
		m, _ := wire.Unquote([]byte(`"` + r.method + `"`))
		var params struct{ Name, URI, TaskID string }
		var message struct{ Params json.RawMessage }
		_ = json.Unmarshal([]byte(text), &message)
		params.Name, _ = wire.StringMember(message.Params, "name")
		params.URI, _ = wire.StringMember(message.Params, "uri")
		params.TaskID, _ = wire.StringMember(message.Params, "taskId")
		if strings.ContainsFunc(m, func(r rune) bool { return r < ' ' }) {
			m = "x" // no header can say that
		}
		req.Header.Set("Mcp-Method", m)
		if name := params.Name + params.URI + params.TaskID; name != "" && m != "completion/complete" {
			req.Header.Set("Mcp-Name", name)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
}

// overStdio sends lines, over a new connection once in a while: one that sends
// much that is no message is ended.
type overStdio struct {
	open  func() (io.ReadWriteCloser, *bufio.Reader)
	conn  io.ReadWriteCloser
	lines *bufio.Reader
	sent  int
	tells bool // it sends notifications, whose refusals answer nothing
}

func (c *overStdio) send(t *testing.T, _ request, text string) {
	t.Helper()
	if c.sent++; c.sent%50 == 1 {
		if c.conn != nil {
			c.conn.Close()
		}
		c.conn, c.lines = c.open()
	}
	if _, err := io.WriteString(c.conn, text+"\n"); err != nil {
		t.Fatal(err)
	}
	for {
		line, err := c.lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%v after %s", err, text)
		}
		if id, _ := wire.Member(line, "id"); id != nil && !(c.tells && string(id) == "null") { // else it is a notification
			return
		}
	}
}

const opening = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

func (w *world) client(t *testing.T, over, version, endpoint string) client {
	t.Helper()
	if over == "http" {
		c := &overHTTP{url: strings.TrimSuffix(w.url+"/"+endpoint, "/"), version: version}
		if version != wire.Version20260728 {
			c.send(t, request{}, opening)
		}
		return c
	}
	c := &overStdio{}
	c.open = func() (io.ReadWriteCloser, *bufio.Reader) {
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- w.gateway.Serve(context.Background(), wire.NewStreamConn(far, far, &wire.StreamOptions{MaxBatch: 10}), endpoint)
		}()
		t.Cleanup(func() { near.Close(); <-done })
		lines := bufio.NewReader(near)
		if version != wire.Version20260728 {
			if _, err := io.WriteString(near, opening+"\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := lines.ReadBytes('\n'); err != nil {
				t.Fatal(err)
			}
		}
		return near, lines
	}
	return c
}

// check sends requests and compares what was carried out with what each means.
func (w *world) check(t *testing.T, c client, own string, requests []request) {
	t.Helper()
	w.news(t)
	for i, r := range requests {
		text := r.text(i+1, own)
		c.send(t, r, text)
		w.compare(t, r, text)
	}
}

// kept are what a host asks for on behalf of its sessions, when it is needed, and
// takes back.
var kept = map[[3]string]bool{
	{"resources/subscribe", "note://a"}: true, {"resources/unsubscribe", "note://a"}: true, {"logging/setLevel", "info"}: true,
}

// compare looks at what was carried out for a request.
func (w *world) compare(t *testing.T, r request, text string) {
	t.Helper()
	done := slices.DeleteFunc(w.news(t), func(entry [3]string) bool { return kept[entry] })
	for _, entry := range done {
		if entry != r.means {
			t.Errorf("%s: carried out %q, judged was %q: %s", r.name, entry, r.means, text)
		}
	}
	if r.runs && len(done) != 1 {
		t.Errorf("%s: carried out %q, want %q: %s", r.name, done, r.means, text)
	}
}

// modernMeta is what a modern request says of its client.
const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// testServer sends everything to one server.
func testServer(t *testing.T, server config.Server) {
	w := newWorld(t, server)
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		own := ""
		if version == wire.Version20260728 {
			own = modernMeta
		}
		for _, over := range []string{"http", "stdio"} {
			for _, endpoint := range []string{"", "srv", "@p"} {
				t.Run(fmt.Sprintf("%s over %s at %q", version, over, endpoint), func(t *testing.T) {
					prefix := "mcp__srv__"
					if endpoint == "srv" {
						prefix = ""
					}
					c := w.client(t, over, version, endpoint)
					for _, g := range targets(prefix) {
						if strings.Contains(g.eras, version) {
							w.check(t, c, own, g.disguises(prefix))
						}
					}
					w.check(t, c, own, writes(prefix))
				})
			}
		}
	}
	t.Run("batches", w.batches)
	t.Run("library", w.library)
	t.Run("notifications", w.notifications)
}

// batches are of revision 2025-03-26.
func (w *world) batches(t *testing.T) {
	for _, over := range []string{"http", "stdio"} {
		for _, endpoint := range []string{"", "srv"} {
			prefix := "mcp__srv__"
			if endpoint == "srv" {
				prefix = ""
			}
			var c client
			if over == "stdio" {
				c = w.client(t, over, wire.Version20251125, endpoint)
			} else {
				old := &overHTTP{url: strings.TrimSuffix(w.url+"/"+endpoint, "/"), version: "2025-03-26"}
				old.send(t, request{}, strings.Replace(opening, wire.Version20251125, old.version, 1))
				c = old
			}
			w.news(t)
			for i, r := range targets(prefix)[0].disguises(prefix) {
				text := "[" + r.text(i+1, "") + "]"
				r.runs = r.runs && over == "http" // the other side of a pipe has read them one by one
				c.send(t, r, text)
				w.compare(t, r, text)
			}
		}
	}
}

// library is a program that embeds the host.
func (w *world) library(t *testing.T) {
	s, err := w.host.NewSession(patchbay.SessionOptions{Default: patchbay.Allow})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w.news(t)
	send := func(r request, forward func(method string, params json.RawMessage) error) {
		t.Helper()
		method, _ := wire.Unquote([]byte(`"` + r.method + `"`))
		params := strings.TrimSuffix(`{`+r.params+`,"_meta":{`+r.meta+`}`, ",") + `}`
		err := forward(method, json.RawMessage(params))
		w.compare(t, r, params+fmt.Sprintf(" (%v)", err))
	}
	for _, g := range targets("") {
		for _, r := range g.disguises("") {
			if r.before+r.after == "" {
				send(r, func(method string, params json.RawMessage) error {
					_, err := s.Forward(t.Context(), "srv", method, params)
					return err
				})
			}
		}
	}
	for _, r := range slices.Concat(targets("mcp__srv__")[0].disguises("mcp__srv__"), writes("mcp__srv__")) {
		if r.method == "tools/call" && r.before+r.after == "" {
			send(r, func(_ string, params json.RawMessage) error {
				_, _, err := s.ForwardCall(t.Context(), params)
				return err
			})
		}
	}
	for _, r := range writes("") {
		arguments, ok := wire.Member([]byte("{"+r.params+"}"), "arguments")
		if !ok {
			continue
		}
		send(r, func(string, json.RawMessage) error {
			_, err := s.Call(t.Context(), patchbay.Call{Tool: "mcp__srv__write", Arguments: arguments})
			return err
		})
	}
	r := request{name: "meta of a call", means: [3]string{"tools/call", "write", "/ok"}, params: `"x":1`}
	send(r, func(string, json.RawMessage) error {
		_, err := s.Call(t.Context(), patchbay.Call{Tool: "mcp__srv__write", Arguments: json.RawMessage(`{"path":"/ok"}`), Meta: json.RawMessage(`{"progressToken":1,"progresstoken":2}`)})
		if err == nil {
			t.Error("a call whose _meta has two tokens was made")
		}
		return err
	})
}

// notifications of the protocol are about a connection that others share.
func (w *world) notifications(t *testing.T) {
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		for _, over := range []string{"http", "stdio"} {
			c := w.client(t, over, version, "srv")
			if pipe, ok := c.(*overStdio); ok {
				pipe.tells = true
			}
			own := ""
			if version == wire.Version20260728 {
				own = modernMeta
			}
			plain := request{name: "plain", method: "tools/call", params: `"name":"read"`, means: [3]string{"tools/call", "read"}, runs: true}
			w.check(t, c, own, []request{plain}) // on a connection of its own
			for method, members := range map[string]string{
				"notifications/cancelled":            `"requestId":1 "requestId":"x" "RequestId":1 "request_id":1 "x":1`,
				"notifications/progress":             `"progressToken":1,"progress":1 "progressToken":"x","progress":1 "ProgressToken":1 "progress_token":1`,
				"notifications/elicitation/complete": `"elicitationId":"1" "ElicitationId":"1" "elicitation_id":"1"`,
			} {
				for _, params := range strings.Fields(members) {
					for _, spelling := range append(spellings(method), method) {
						text, _ := json.Marshal(spelling)
						message := fmt.Sprintf(`{"jsonrpc":"2.0","method":%s,"params":{%s}}`, text, params)
						if over == "http" {
							c.send(t, request{method: string(text[1 : len(text)-1])}, message)
						} else if _, err := io.WriteString(c.(*overStdio).conn, message+"\n"); err != nil {
							t.Fatal(err)
						}
						c.send(t, plain, plain.text(1000, own)) // nothing passes what was sent before
						w.compare(t, plain, message)
					}
				}
			}
		}
	}
}

// TestReaders has servers that read as those do that are written in Go, Node,
// Python and C.
func TestReaders(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name := range readers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testServer(t, config.Server{Command: self, Cwd: dir, Env: map[string]config.Secret{readerEnv: config.NewSecret(name)}})
		})
	}
}
