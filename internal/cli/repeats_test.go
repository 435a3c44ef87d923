//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

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

// No server can have a call made again by what it answers more often than the list
// of signs permits, and never another one's.
func TestRepeats(t *testing.T) {
	t.Parallel()
	y := newTally(t)
	mux := http.NewServeMux()
	remote := httptest.NewServer(mux)
	t.Cleanup(remote.Close)
	entries := []string{`"slow": ` + mcptestEntry("-tell", y.address)}
	for i := range signs {
		s := &signs[i]
		entry := mcptestEntry("-tell", y.address, "-sign", s.name)
		if s.http != nil {
			path := "/" + s.name
			mux.Handle(path, &httpSign{sign: s, tally: y, path: path, listens: make(chan string, 100), streams: map[string]chan string{}})
			kind := "http"
			if s.sse {
				kind = "sse"
			}
			entry = fmt.Sprintf(`{"type": %q, "url": %q%s}`, kind, remote.URL+path, s.entry)
		}
		entries = append(entries, fmt.Sprintf("%q: %s", s.name, entry))
	}
	home, project := machine(t)
	write(t, filepath.Join(home, ".config", "patchbay", "mcp.json"), `{"mcpServers": {`+strings.Join(entries, ",")+`}}`)
	g := startGateway(t, home, project)
	st := &station{t: t, home: home, project: project, env: patchbayCommand(t, home, project).Env}

	a := st.start("serve", "--stdio")
	a.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"test","version":"1"}}`)
	if err := a.conn.Write(t.Context(), wire.Message{Method: "notifications/initialized"}); err != nil {
		t.Fatal(err)
	}
	tools := a.tools(len(signs) + 1)
	// A call of another server is under way all the time.
	slow := a.send("tools/call", `{"name":"`+tools["slow__slow"]+`"}`)
	y.await(t, "began")

	permitted := map[string]int{}
	for _, s := range signs {
		most := max(s.most, 1)
		t.Run(s.name+"/stdio", func(t *testing.T) {
			t.Logf("%s", a.outcome(a.send("tools/call", `{"name":"`+tools[s.name+"__act"]+`","arguments":{"a":"b"}}`)).AppendTo(nil))
			a.ask("ping", `{}`) // whatever would happen on the way has happened
			permitted[s.name] += most
			y.check(t, s.name, permitted[s.name])
		})
		t.Run(s.name+"/http", func(t *testing.T) {
			rounds, params := 0, `"name":"act","arguments":{"a":"b"}`
			for answer := ""; rounds == 0 || strings.Contains(answer, `"input_required"`) && rounds < 5; rounds++ {
				answer = g.elicitedCall("/mcp/"+s.name, params)
				t.Logf("%s", answer)
				params = `"name":"act","arguments":{"a":"b"}` + inputFor(answer)
			}
			if permitted[s.name] += most; s.modern { // the client itself makes it so often
				permitted[s.name] += rounds - 1
			}
			y.check(t, s.name, permitted[s.name])
		})
	}
	for _, s := range signs { // once more: now they have had time
		y.check(t, s.name, permitted[s.name])
	}
	if n := y.of("began"); n != 1 {
		t.Errorf("the call of another server was executed %d times", n)
	}
	params := fmt.Sprintf(`{"requestId":%s}`, slow)
	if err := a.conn.Write(t.Context(), wire.Message{Method: "notifications/cancelled", Params: json.RawMessage(params)}); err != nil {
		t.Fatal(err)
	}
	y.await(t, "cancelled")
	if said := a.said.String(); said != "" {
		t.Errorf("the relay said %s", said)
	}
}

// tools returns the names of all tools, by server and tool, once there are those
// of so many servers.
func (a *agent) tools(servers int) map[string]string {
	a.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		var list struct{ Tools []struct{ Name string } }
		if err := json.Unmarshal(a.outcome(a.send("tools/list", `{}`)).Result, &list); err != nil {
			a.t.Fatal(err)
		}
		names, from := map[string]string{}, map[string]bool{}
		for _, t := range list.Tools {
			short := strings.TrimPrefix(t.Name, "mcp__")
			server, _, _ := strings.Cut(short, "__")
			names[short], from[server] = t.Name, true
		}
		if len(from) >= servers {
			return names
		}
		if m, err := a.conn.Read(); err != nil || m.Kind() != wire.KindNotification { // that the list has changed
			a.t.Fatalf("%s, %v", m.AppendTo(nil), err)
		}
	}
	a.t.Fatal("not all servers are there")
	return nil
}

// elicitedCall makes a tools/call of the modern era, of a client that can be
// asked.
func (g *gatewayProcess) elicitedCall(path, params string) string {
	g.t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}}}}}}`
	_, answer := g.request(http.MethodPost, path, body,
		"Authorization", "Bearer "+g.token, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "act",
		"Mcp-Param-H1", "b", "Mcp-Param-H2", "b") // see httpnewheaders
	return answer
}

// inputFor is what the client of an answer that asks for input adds to its call.
func inputFor(answer string) string {
	_, data, _ := strings.Cut("data: "+answer, `{"jsonrpc"`)
	data, _, _ = strings.Cut(`{"jsonrpc"`+data, "\n")
	result, _ := wire.Member(json.RawMessage(data), "result")
	asked, _ := wire.Member(result, "inputRequests")
	state, hasState := wire.Member(result, "requestState")
	var answers []string
	for key := range wire.Members(asked) {
		answers = append(answers, string(wire.AppendString(nil, key))+`:{"action":"accept","content":{}}`)
	}
	text := `,"inputResponses":{` + strings.Join(answers, ",") + `}`
	if hasState {
		text += `,"requestState":` + string(state)
	}
	return text
}
