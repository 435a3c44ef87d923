//go:build unix

package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A sign is a way to answer a call, or not to, on which somebody might make the
// call again.
type sign struct {
	name   string
	modern bool                            // the server is
	answer func(out io.Writer, id wire.ID) // nil ends the process
	most   int                             // executions of a call; 0 means one
}

func say(format string, args ...any) func(io.Writer, wire.ID) {
	return func(out io.Writer, id wire.ID) {
		fmt.Fprintln(out, strings.ReplaceAll(fmt.Sprintf(format, args...), "ID", id.String()))
	}
}

const (
	doneAnswer = `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`
	someError  = `{"jsonrpc":"2.0","id":ID,"error":{"code":%d,"message":"%s"}}`
)

// signs are what servers over stdio do.
var signs = []sign{
	{name: "shutting", answer: say(someError, -32000, "the server is shutting down")},
	{name: "ended", answer: say(someError, -32000, "shutting down")},
	{name: "farewell", answer: say(`{"jsonrpc":"2.0","method":"notifications/patchbay/farewell"}` + "\n" + doneAnswer)},
	{name: "refused", answer: say(`{"jsonrpc":"2.0","method":"notifications/patchbay/refused","params":{"requestId":ID}}` + "\n" + doneAnswer)},
	{name: "lines", answer: say("!farewell\n!refused ID\n" + doneAnswer)},
	{name: "gone", answer: nil},
}

// serveSign is a server that says on another connection when it executes its
// tool, act, and then does what the sign is.
func serveSign(name string, tell io.Writer) {
	var s sign
	for _, s = range signs {
		if s.name == name {
			break
		}
	}
	answer := func(id wire.ID, result string) {
		fmt.Println(string(wire.Message{ID: id, Result: json.RawMessage(result)}.AppendTo(nil)))
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		m, err := wire.Parse(in.Bytes(), wire.Limits{})
		if err != nil || m.Kind() != wire.KindRequest {
			continue
		}
		switch {
		case m.Method == "initialize":
			answer(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sign","version":"1"}}`)
		case m.Method == "server/discover" && s.modern:
			answer(m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)
		case m.Method == "tools/list":
			answer(m.ID, `{"resultType":"complete","tools":[{"name":"act","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`)
		case m.Method == "tools/call":
			fmt.Fprintln(tell, name)
			if s.answer == nil {
				os.Exit(3)
			}
			s.answer(os.Stdout, m.ID)
		default:
			say(someError, wire.CodeMethodNotFound, "no such method")(os.Stdout, m.ID)
		}
	}
	os.Exit(0)
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

// outcome reads until a request has been answered, and accepts whatever is asked
// meanwhile.
func (a *agent) outcome(id wire.ID) wire.Message {
	a.t.Helper()
	for {
		m, err := a.conn.Read()
		if err != nil {
			a.t.Fatalf("no answer to %s: %v\n%s", id, err, a.said.String())
		}
		switch {
		case m.Kind() == wire.KindRequest:
			_ = a.conn.Write(a.t.Context(), wire.Message{ID: m.ID, Result: json.RawMessage(`{"action":"accept","content":{}}`)})
		case m.Kind() == wire.KindResponse && m.ID == id:
			return m
		}
	}
}

// tool is the name under which an agent sees the tool of a server.
func (a *agent) tool(server, tool string) string {
	a.t.Helper()
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(a.outcome(a.send("tools/list", `{}`)).Result, &list); err != nil {
		a.t.Fatal(err)
	}
	for _, t := range list.Tools {
		if strings.HasSuffix(t.Name, server+"__"+tool) {
			return t.Name
		}
	}
	a.t.Fatalf("no tool %s of %s in %v", tool, server, list)
	return ""
}

// No server can have a call made again by what it answers, neither its own nor
// another's.
func TestNothingIsExecutedTwice(t *testing.T) {
	y := newTally(t)
	entries := []string{`"slow": ` + mcptestEntry("-tell", y.address)}
	for _, s := range signs {
		entries = append(entries, fmt.Sprintf("%q: %s", s.name, mcptestEntry("-tell", y.address, "-sign", s.name)))
	}
	home, project := machine(t)
	write(t, filepath.Join(home, ".config", "patchbay", "mcp.json"), `{"mcpServers": {`+strings.Join(entries, ",")+`}}`)
	startGateway(t, home, project)
	st := &station{t: t, home: home, project: project, env: patchbayCommand(t, home, project).Env}

	for _, s := range signs {
		t.Run(s.name, func(t *testing.T) {
			// A call of another server is under way all the time.
			a := st.start("serve", "--stdio")
			a.t = t
			a.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{},"url":{}}},"clientInfo":{"name":"test","version":"1"}}`)
			if err := a.conn.Write(t.Context(), wire.Message{Method: "notifications/initialized"}); err != nil {
				t.Fatal(err)
			}
			act, slow := a.tool(s.name, "act"), a.tool("slow", "slow")
			y.reset("began")
			bystander := a.send("tools/call", `{"name":"`+slow+`"}`)
			y.await(t, "began")
			t.Logf("%s", a.outcome(a.send("tools/call", `{"name":"`+act+`","arguments":{}}`)).AppendTo(nil))
			a.ask("ping", `{}`) // whatever would happen on the way has happened
			if n, most := y.of(s.name), max(s.most, 1); n == 0 || n > most {
				t.Errorf("it was executed %d times, want at most %d", n, most)
			}
			if n := y.of("began"); n != 1 {
				t.Errorf("the call of another server was executed %d times", n)
			}
			params := fmt.Sprintf(`{"requestId":%s}`, bystander)
			if err := a.conn.Write(t.Context(), wire.Message{Method: "notifications/cancelled", Params: json.RawMessage(params)}); err != nil {
				t.Fatal(err)
			}
			y.await(t, "cancelled")
			if said := a.said.String(); said != "" {
				t.Errorf("the relay said %s", said)
			}
		})
	}
}

// reset forgets what was counted under a name.
func (y *tally) reset(name string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.counts, name)
}
