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
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// script is how a server behaves from its start.
type script struct {
	discover string
	banner   int
	line     string
	gate     bool
	stderr   bool
	start    string
	tools    string
	describe string
	stay     bool
	journal  string
}

func parseScript(args []string, errors io.Writer) (script, error) {
	var s script
	flags := flag.NewFlagSet("mcptest", flag.ContinueOnError)
	flags.SetOutput(errors)
	flags.StringVar(&s.discover, "discover", "answer", "what server/discover does: answer, unknown (an error), silent (nothing) or crash")
	flags.IntVar(&s.banner, "banner", 0, "lines that are no messages to print at the start")
	flags.StringVar(&s.line, "line", "", "address and name of a lifeline, see Lifelines.Arg")
	flags.BoolVar(&s.gate, "gate", false, "wait to be released on the lifeline before anything else")
	flags.BoolVar(&s.stderr, "stderr", false, "write to standard error all the time, from the start")
	flags.StringVar(&s.start, "start", "serve", "what comes after the gate: serve, hang (never answer), exit (with status 3) or noise (what is no message, for ever)")
	flags.StringVar(&s.tools, "tools", "fixed", "what tools/list gives: fixed, many (too many), endless (pages), loop (the same page), huge (a definition) or none (an error)")
	flags.BoolVar(&s.stay, "stay", false, "stay when the input ends")
	flags.StringVar(&s.journal, "journal", "", "file to which the tool note appends")
	flags.StringVar(&s.describe, "describe", "", "file that holds the description of every tool")
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
	life line // held on to, as long as the process lives
	script
	in   io.ReadCloser
	out  io.WriteCloser
	late map[wire.ID]bool // calls that are answered when they are cancelled

	lists int              // how often tools/list was asked for
	asked map[wire.ID]*ask // questions to the client, by the id of the last

	visited map[string]bool // ids of the URLs that the tool visited was called for
}

// ask is a call that asks the client before it is answered.
type ask struct {
	call    wire.ID
	more    int      // questions to come
	params  string   // of each
	whole   bool     // the answers are wanted as they are
	answers []string // so far
}

// serve runs a server until its input ends and returns its exit status.
func serve(args []string, in io.ReadCloser, out io.WriteCloser, diagnostics io.Writer) int {
	script, err := parseScript(args, diagnostics)
	if err != nil {
		fmt.Fprintln(diagnostics, "mcptest:", err)
		return 2
	}
	s := &server{script: script, in: in, out: out, late: map[wire.ID]bool{}, asked: map[wire.ID]*ask{}, visited: map[string]bool{}}
	if err := s.begin(diagnostics); err != nil {
		fmt.Fprintln(diagnostics, "mcptest:", err)
		return 2
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			s.message(line, diagnostics)
		}
		if errors.Is(err, os.ErrClosed) || err != nil && s.stay {
			select {} // it closed its input itself, see the tool hangup, or ignores its end
		}
		if err != nil {
			return 0
		}
	}
}

// begin does what comes before the first message.
func (s *server) begin(diagnostics io.Writer) error {
	var err error
	s.life, err = dialLine(s.line)
	if err != nil {
		return err
	}
	s.garbage(s.banner, 40)
	if s.stderr {
		go func() {
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(diagnostics, "%d %s\n", i, strings.Repeat("blah ", 200)); err != nil {
					return
				}
			}
		}()
	}
	if s.gate {
		if err := s.life.wait(); err != nil {
			return err
		}
	}
	switch s.start {
	case "serve":
	case "hang":
		_, _ = io.Copy(io.Discard, s.in)
		os.Exit(0)
	case "exit":
		for i := range 30 {
			fmt.Fprintf(diagnostics, "line %d\n", i)
		}
		os.Exit(3)
	case "noise":
		go func() {
			for {
				s.garbage(1000, 40)
			}
		}()
		_, _ = io.Copy(io.Discard, s.in)
		os.Exit(0)
	default:
		return fmt.Errorf("unknown start %q", s.start)
	}
	return nil
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
	case wire.KindResponse:
		s.answered(m)
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
		s.lists++
		s.listTools(m)
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
	{"raw", "prints text as a line, with the id of the call in place of $id: the answer, or something else"},
	{"flood", "sends count notifications, then answers"},
	{"crash", "exits with status 3"},
	{"deaf", "answers and never reads again"},
	{"mute", "closes its output instead of answering"},
	{"hangup", "closes its input, then answers"},
	{"pid", "answers with the number of its process"},
	{"ask", "asks the client count questions, one after the other, and answers with what it did"},
	{"elicit", "asks the client what text says, which is the params of an elicitation, and answers with the answer"},
	{"gated", "answers with an error that sends the client to a URL with the id text, until the tool visited was called with it"},
	{"visited", "says that the person is done at the URL with the id text, then answers"},
	{"changed", "says count times that its tools have changed, then answers"},
	{"lists", "answers with how often its tools have been listed"},
	{"note", "appends text to the journal as a line, then answers with it"},
	{"fork", "starts a process that outlives it and holds its output, with a lifeline of the name text"},
}

// ToolNames are those of the tools that a server has unless it is told otherwise.
func ToolNames() []string {
	var names []string
	for _, tool := range tools {
		names = append(names, tool.name)
	}
	return names
}

func (s *server) listTools(m wire.Message) {
	cursor, _ := wire.StringMember(m.Params, "cursor")
	switch s.tools {
	case "none":
		s.send(wire.Message{ID: m.ID, Error: wire.Errorf(wire.CodeInternal, "no list today")})
	case "many":
		var list []string
		for i := range 2000 {
			list = append(list, definition(fmt.Sprintf("tool%d", i), "one of many"))
		}
		s.tool(m.ID, list, "")
	case "endless":
		s.tool(m.ID, []string{definition("tool"+cursor, "one of a page")}, cursor+"x")
	case "loop":
		s.tool(m.ID, []string{definition("tool", "one of a page")}, "again")
	case "huge":
		s.tool(m.ID, []string{definition("echo", "answers with text"), definition("huge", strings.Repeat("x", 1<<20))}, "")
	default:
		var list []string
		for _, tool := range tools {
			does := tool.does
			if text, err := os.ReadFile(s.describe); err == nil {
				does = string(text)
			}
			list = append(list, definition(tool.name, does))
		}
		s.tool(m.ID, list, "")
	}
}

func definition(name, description string) string {
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, description)
}

// tool answers with a page of tools.
func (s *server) tool(id wire.ID, list []string, next string) {
	result := `{"resultType":"complete","tools":[` + strings.Join(list, ",") + `],"ttlMs":0,"cacheScope":"private"`
	if next != "" {
		result += fmt.Sprintf(`,"nextCursor":%q`, next)
	}
	s.answer(id, result+"}")
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
	case "raw":
		fmt.Fprintln(s.out, strings.ReplaceAll(args.Text, "$id", m.ID.String()))
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
	case "pid":
		s.text(m.ID, strconv.Itoa(os.Getpid()))
	case "ask":
		s.ask(m, &ask{call: m.ID, more: args.Count, params: elicitation})
	case "elicit":
		s.ask(m, &ask{call: m.ID, more: 1, params: args.Text, whole: true})
	case "gated":
		s.gated(m.ID, args.Text)
	case "visited":
		s.visited[args.Text] = true
		s.send(wire.Message{Method: "notifications/elicitation/complete", Params: fmt.Appendf(nil, `{"elicitationId":%q}`, args.Text)})
		s.text(m.ID, "visited")
	case "changed":
		for range args.Count {
			s.send(wire.Message{Method: "notifications/tools/list_changed"})
		}
		s.text(m.ID, "changed")
	case "lists":
		s.text(m.ID, strconv.Itoa(s.lists))
	case "note":
		if err := s.note(args.Text); err != nil {
			s.send(wire.Message{ID: m.ID, Error: wire.Errorf(wire.CodeInternal, "%v", err)})
			return
		}
		s.text(m.ID, args.Text)
	case "fork":
		s.fork(m.ID, args.Text)
	default:
		s.send(wire.Message{ID: m.ID, Error: wire.Errorf(wire.CodeInvalidParams, "no tool %q", name)})
	}
}

// gated refuses a call until a person has been at a URL.
func (s *server) gated(id wire.ID, url string) {
	if s.visited[url] {
		s.text(id, "open")
		return
	}
	data := fmt.Appendf(nil, `{"elicitations":[{"mode":"url","elicitationId":%q,"url":"https://example.com/visit?id=1","message":"Please visit"}]}`, url)
	s.send(wire.Message{ID: id, Error: &wire.Error{Code: -32042, Message: "a visit is needed", Data: data}})
}

// ask asks the client, in the way of the call's era.
func (s *server) ask(m wire.Message, a *ask) {
	if version, _ := wire.StringMember(m.Params, "_meta", wire.MetaProtocolVersion); version == "" {
		s.question(a)
		return
	}
	if _, answered := wire.Member(m.Params, "inputResponses"); !answered {
		var list []string
		for i := range a.more {
			list = append(list, fmt.Sprintf(`"q%d":{"method":"elicitation/create","params":%s}`, i, a.params))
		}
		s.answer(m.ID, `{"resultType":"input_required","inputRequests":{`+strings.Join(list, ",")+`}}`)
		return
	}
	for i := range a.more {
		answer, _ := wire.Member(m.Params, "inputResponses", fmt.Sprintf("q%d", i))
		a.add(answer)
	}
	s.text(m.ID, strings.Join(a.answers, " "))
}

// add takes in an answer.
func (a *ask) add(answer json.RawMessage) {
	text, _ := wire.StringMember(answer, "action")
	if a.whole {
		text = string(answer)
	}
	a.answers = append(a.answers, text)
}

const elicitation = `{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}`

// question asks the next question of a call, or answers the call.
func (s *server) question(a *ask) {
	if a.more == 0 {
		s.text(a.call, strings.Join(a.answers, " "))
		return
	}
	a.more--
	id := wire.StringID(fmt.Sprintf("question %v %d", a.call, a.more))
	s.asked[id] = a
	s.send(wire.Message{ID: id, Method: "elicitation/create", Params: json.RawMessage(a.params)})
}

// answered goes on with the call to which a question belongs.
func (s *server) answered(m wire.Message) {
	a := s.asked[m.ID]
	if a == nil {
		return
	}
	delete(s.asked, m.ID)
	if m.Error != nil {
		a.answers = append(a.answers, fmt.Sprintf("error %d", m.Error.Code))
	} else {
		a.add(m.Result)
	}
	s.question(a)
}

// note writes a line that is in the file whatever happens to this process next.
func (s *server) note(text string) error {
	f, err := os.OpenFile(s.journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Close())
}

// fork starts another scripted server that inherits the output, never ends by
// itself and hears no signal that is sent to this one alone.
func (s *server) fork(id wire.ID, name string) {
	address, _, _ := strings.Cut(s.line, "/")
	cmd := Command("-line="+address+"/"+name, "-gate")
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		s.send(wire.Message{ID: id, Error: wire.Errorf(wire.CodeInternal, "%v", err)})
		return
	}
	s.text(id, strconv.Itoa(cmd.Process.Pid))
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
		`{"jsonrpc":"2.0","result":{"content":[`,
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
