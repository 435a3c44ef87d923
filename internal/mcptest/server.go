package mcptest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// script is how a server behaves from its start.
type script struct {
	discover string
	banner   int
}

func parseScript(args []string, errors io.Writer) (script, error) {
	var s script
	flags := flag.NewFlagSet("mcptest", flag.ContinueOnError)
	flags.SetOutput(errors)
	flags.StringVar(&s.discover, "discover", "answer", "what server/discover does: answer, unknown (an error), silent (nothing) or crash")
	flags.IntVar(&s.banner, "banner", 0, "lines that are no messages to print at the start")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return s, nil
}

// A server answers one message after the other. It uses nothing of wire but its
// messages, because it must be able to do what wire refuses to.
type server struct {
	script
	in   io.ReadCloser
	out  io.WriteCloser
	late map[wire.ID]bool // calls that are answered when they are cancelled
}

// serve runs a server until its input ends and returns its exit status.
func serve(args []string, in io.ReadCloser, out io.WriteCloser, diagnostics io.Writer) int {
	script, err := parseScript(args, diagnostics)
	if err != nil {
		fmt.Fprintln(diagnostics, "mcptest:", err)
		return 2
	}
	s := &server{script: script, in: in, out: out, late: map[wire.ID]bool{}}
	s.garbage(s.banner, 40)
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			s.message(line, diagnostics)
		}
		if errors.Is(err, os.ErrClosed) {
			select {} // it closed its input itself: see the tool hangup
		}
		if err != nil {
			return 0
		}
	}
}

func (s *server) message(line []byte, diagnostics io.Writer) {
	m, err := wire.Parse(line, wire.Limits{})
	if err != nil {
		fmt.Fprintln(diagnostics, "mcptest:", err)
		return
	}
	switch m.Kind() {
	case wire.KindRequest:
		s.request(m)
	case wire.KindNotification:
		s.notification(m)
	}
}

func (s *server) request(m wire.Message) {
	switch m.Method {
	case "server/discover":
		s.discovered(m)
	case "initialize":
		version, _ := wire.StringMember(m.Params, "protocolVersion")
		if wire.EraOf(version) != wire.Legacy {
			version = wire.Version20251125
		}
		s.answer(m.ID, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"mcptest","version":"1"}}`, version))
	case "ping":
		s.answer(m.ID, `{}`)
	case "tools/list":
		s.answer(m.ID, listTools())
	case "tools/call":
		s.call(m)
	default:
		s.send(wire.Message{ID: m.ID, Error: wire.MethodNotFound(m.Method)})
	}
}

func (s *server) discovered(m wire.Message) {
	switch s.discover {
	case "silent":
	case "crash":
		os.Exit(3)
	case "unknown":
		s.send(wire.Message{ID: m.ID, Error: wire.MethodNotFound(m.Method)})
	default:
		s.answer(m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private"}`)
	}
}

func (s *server) notification(m wire.Message) {
	if m.Method != "notifications/cancelled" {
		return
	}
	raw, _ := wire.Member(m.Params, "requestId")
	if id, err := wire.ParseID(raw); err == nil && s.late[id] {
		delete(s.late, id)
		s.text(id, "too late")
	}
}

// arguments are those of all tools.
type arguments struct {
	Text  string `json:"text,omitempty"`
	Count int    `json:"count,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
}

// tools are what a server does when asked.
var tools = []struct{ name, does string }{
	{"echo", "answers with text"},
	{"late", "sends progress, and answers once the call has been cancelled"},
	{"noise", "prints count lines of that many bytes that are no messages, then answers"},
	{"long", "answers with that many bytes"},
	{"flood", "sends count notifications, then answers"},
	{"crash", "exits with status 3"},
	{"deaf", "answers and never reads again"},
	{"mute", "closes its output instead of answering"},
	{"hangup", "closes its input, then answers"},
}

func listTools() string {
	var list []string
	for _, tool := range tools {
		list = append(list, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, tool.name, tool.does))
	}
	return `{"resultType":"complete","tools":[` + strings.Join(list, ",") + `],"ttlMs":0,"cacheScope":"private"}`
}

func (s *server) call(m wire.Message) {
	name, _ := wire.StringMember(m.Params, "name")
	var args arguments
	if raw, ok := wire.Member(m.Params, "arguments"); ok {
		if err := json.Unmarshal(raw, &args); err != nil {
			s.send(wire.Message{ID: m.ID, Error: wire.Errorf(wire.CodeInvalidParams, "%v", err)})
			return
		}
	}
	switch name {
	case "echo":
		s.text(m.ID, args.Text)
	case "late":
		s.late[m.ID] = true
		s.progress(m.Params)
	case "noise":
		s.garbage(args.Count, args.Bytes)
		s.text(m.ID, "noisy")
	case "long":
		s.long(m.ID, args.Bytes)
	case "flood":
		for i := range args.Count {
			params := fmt.Appendf(nil, `{"level":"info","data":%d}`, i)
			s.send(wire.Message{Method: "notifications/message", Params: params})
		}
		s.text(m.ID, "flooded")
	case "crash":
		os.Exit(3)
	case "deaf":
		s.text(m.ID, "deaf")
		select {}
	case "mute":
		s.out.Close()
	case "hangup":
		s.in.Close()
		s.text(m.ID, "gone")
	default:
		s.send(wire.Message{ID: m.ID, Error: wire.Errorf(wire.CodeInvalidParams, "no tool %q", name)})
	}
}

// progress tells the caller that its call has arrived, if it wants to know.
func (s *server) progress(params json.RawMessage) {
	if token, ok := wire.Member(params, "_meta", wire.MetaProgressToken); ok {
		s.send(wire.Message{Method: "notifications/progress", Params: fmt.Appendf(nil, `{"progressToken":%s,"progress":0}`, token)})
	}
}

// garbage prints lines that are no messages: what loggers, package managers and
// broken writers leave on the standard output of servers.
func (s *server) garbage(count, size int) {
	samples := []string{
		"\x1b[32mINFO\x1b[0m listening on stdio",
		`{"jsonrpc":"2.0","id":1,"result":{"content":[`,
		`{"level":"info","msg":"started"}`,
		"npm warn deprecated something@1.0.0: no longer supported",
	}
	for i := range count {
		line := samples[i%len(samples)]
		line += strings.Repeat(".", max(0, size-len(line)))
		fmt.Fprintln(s.out, line)
	}
}

// long answers with a text of that many bytes, without ever having it whole.
func (s *server) long(id wire.ID, size int) {
	fmt.Fprintf(s.out, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"`, id)
	for piece := strings.Repeat("x", 64<<10); size > 0; size -= len(piece) {
		_, _ = io.WriteString(s.out, piece[:min(size, len(piece))]) // see send
	}
	fmt.Fprintln(s.out, `"}]}}`)
}

func (s *server) text(id wire.ID, text string) {
	s.answer(id, `{"resultType":"complete","content":[{"type":"text","text":`+string(wire.AppendString(nil, text))+`}]}`)
}

func (s *server) answer(id wire.ID, result string) {
	s.send(wire.Message{ID: id, Result: json.RawMessage(result)})
}

// send ignores that nobody may read any more: the end of the input will tell.
func (s *server) send(m wire.Message) { _, _ = s.out.Write(append(m.AppendTo(nil), '\n')) }
