package cli_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A scriptServer is the MCP server that scripts and tests configure, as the
// command mcptest-server. It has a tool, a resource and a prompt of every kind
// that the commands treat differently, and fails in the ways its flags say.
type scriptServer struct {
	definition string        // file with the description of the tool echo
	more       int           // further tools
	bare       bool          // nothing but tools
	extra      bool          // tools for tests of the daemon
	tell       io.Writer     // hears what flag -tell says
	released   chan struct{} // closed when that says something: slow is over then
}

// npxFailure is what npx wrote for a package that is not there.
const npxFailure = `npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/@acme%2ffiles
npm error 404
npm error 404  The requested resource '@acme/files@*' could not be found or you do not have permission to access it.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm notice
npm notice New minor version of npm available! 11.19.1 -> 11.21.1
npm notice
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/2026-11-15T16_56_16_188Z-debug-0.log
`

// runScriptServer is the main function of mcptest-server.
func runScriptServer() {
	s := scriptServer{tell: io.Discard, released: make(chan struct{})}
	var broken, listener, sign string
	flag.StringVar(&s.definition, "definition", "", "file with the description of echo")
	flag.IntVar(&s.more, "tools", 0, "further tools")
	flag.BoolVar(&s.bare, "bare", false, "offer neither resources nor prompts")
	flag.BoolVar(&s.extra, "extra", false, "offer pid, ask, count and big too")
	flag.StringVar(&broken, "broken", "", "crash, npx, garbage or hang instead of serving; chatty serves, after a word")
	flag.StringVar(&listener, "tell", "", "address to tell when slow or hang begins, and when slow is cancelled")
	flag.StringVar(&sign, "sign", "", "how to answer calls instead, see signs")
	linger := flag.Bool("linger", false, "stay when nobody is there to be served any more")
	flag.Parse()
	fmt.Fprintln(os.Stderr, "mcptest-server \x1b[31mstarts")
	if listener != "" {
		c, err := net.Dial("tcp", listener)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		s.tell = c
		go func() {
			if n, _ := c.Read(make([]byte, 1)); n > 0 {
				close(s.released)
			}
		}()
	}
	if sign != "" {
		serveSign(sign, s.tell)
	}
	switch broken {
	case "crash":
		fmt.Fprintln(os.Stderr, "cannot open the vault")
		os.Exit(3)
	case "npx":
		fmt.Fprint(os.Stderr, npxFailure)
		os.Exit(1)
	case "chatty":
		fmt.Println("Server \x1b[31mready\x1b[0m with the key", os.Getenv("KEY"))
	case "garbage":
		for range 200 {
			fmt.Println("npm warn deprecated something@1.0.0: no longer supported")
		}
		fallthrough
	case "hang":
		fmt.Fprintln(s.tell, "began")
		buf := make([]byte, 4096)
		for {
			if _, err := os.Stdin.Read(buf); err != nil {
				os.Exit(0)
			}
		}
	}
	capabilities := `{"tools":{},"resources":{},"prompts":{}}`
	if s.bare {
		capabilities = `{"tools":{}}`
	}
	server, err := wire.NewServer(wire.ServerOptions{
		Info:         json.RawMessage(`{"name":"scripted","version":"1.2.3"}`),
		Capabilities: json.RawMessage(capabilities),
		Handler:      &s,
	})
	if err == nil {
		err = server.Serve(context.Background(), wire.NewStreamConn(os.Stdin, os.Stdout, nil))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *linger {
		select {} // a signal ends it
	}
}

func (*scriptServer) HandleNotification(context.Context, *wire.Notification) {}

func (s *scriptServer) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/list":
		return s.listTools()
	case "tools/call":
		return s.call(ctx, r)
	case "resources/list":
		return json.RawMessage(`{"resources":[{"uri":"note://one","name":"first note","mimeType":"text/plain"},{"uri":"note://pixel","name":"a pixel","mimeType":"image/png"}]}`), nil
	case "resources/templates/list":
		return json.RawMessage(`{"resourceTemplates":[{"uriTemplate":"note://{id}","name":"a note"}]}`), nil
	case "resources/read":
		switch uri, _ := wire.StringMember(r.Params, "uri"); uri {
		case "note://one":
			return json.RawMessage(`{"contents":[{"uri":"note://one","mimeType":"text/plain","text":"tide at noon"}]}`), nil
		case "note://pixel":
			return json.RawMessage(`{"contents":[{"uri":"note://pixel","mimeType":"image/png","blob":"iVBORw0KGgo="}]}`), nil
		}
		return nil, wire.Errorf(wire.CodeInvalidParams, "no such note")
	case "prompts/list":
		return json.RawMessage(`{"prompts":[{"name":"greet","description":"A greeting","arguments":[{"name":"name","description":"Who is greeted","required":true},{"name":"style"}]}]}`), nil
	case "prompts/get":
		if name, _ := wire.StringMember(r.Params, "name"); name != "greet" {
			return nil, wire.Errorf(wire.CodeInvalidParams, "no such prompt")
		}
		who, _ := wire.StringMember(r.Params, "arguments", "name")
		text := string(wire.AppendString(nil, "Greet "+who+"."))
		return json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":` + text + `}},{"role":"assistant","content":{"type":"image","mimeType":"image/png","data":""}}]}`), nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (s *scriptServer) listTools() (json.RawMessage, error) {
	about := "Answers with its text"
	if s.definition != "" {
		data, err := os.ReadFile(s.definition)
		if err != nil {
			return nil, err
		}
		about = strings.TrimSpace(string(data))
	}
	tools := []string{
		`{"name":"echo","description":` + string(wire.AppendString(nil, about)) + `,"inputSchema":{"type":"object","properties":{"text":{"type":"string","description":"What to say"}},"required":["text"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}`,
		`{"name":"add","inputSchema":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}}}}`,
		`{"name":"fail","inputSchema":{"type":"object"}}`,
		`{"name":"refuse","inputSchema":{"type":"object"}}`,
		`{"name":"slow","inputSchema":{"type":"object"}}`,
		`{"name":"wipe","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true,"openWorldHint":true}}`,
	}
	if s.extra {
		tools = append(tools, `{"name":"pid","inputSchema":{"type":"object"}}`, `{"name":"ask","inputSchema":{"type":"object"}}`, `{"name":"count","inputSchema":{"type":"object"}}`, `{"name":"big","inputSchema":{"type":"object"}}`, `{"name":"variable","inputSchema":{"type":"object"}}`, `{"name":"cwd","inputSchema":{"type":"object"}}`)
	}
	for i := range s.more {
		tools = append(tools, fmt.Sprintf(`{"name":"more%02d","inputSchema":{"type":"object"}}`, i+1))
	}
	return json.RawMessage(`{"tools":[` + strings.Join(tools, ",") + `]}`), nil
}

func (s *scriptServer) call(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	params := r.Params
	text := func(t string) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[{"type":"text","text":` + string(wire.AppendString(nil, t)) + `}]}`), nil
	}
	switch name, _ := wire.StringMember(params, "name"); name {
	case "echo":
		said, _ := wire.StringMember(params, "arguments", "text")
		return text(said)
	case "add":
		var p struct{ Arguments struct{ A, B float64 } }
		if err := json.Unmarshal(params, &p); err != nil {
			return json.RawMessage(`{"content":[{"type":"text","text":"a and b must be numbers"}],"isError":true}`), nil
		}
		return json.RawMessage(fmt.Sprintf(`{"content":[],"structuredContent":{"sum":%v}}`, p.Arguments.A+p.Arguments.B)), nil
	case "fail":
		return json.RawMessage(`{"content":[{"type":"text","text":"it \u001b[31mbroke"}],"isError":true}`), nil
	case "refuse":
		return nil, wire.Errorf(wire.CodeInvalidParams, "not like that")
	case "slow":
		fmt.Fprintln(s.tell, "began")
		select {
		case <-s.released:
			return text("released")
		case <-ctx.Done():
			fmt.Fprintln(s.tell, "cancelled")
			return nil, ctx.Err()
		}
	case "wipe":
		return text("wiped")
	case "pid":
		return text(fmt.Sprint(os.Getpid()))
	case "variable":
		name, _ := wire.StringMember(params, "arguments", "name")
		return text(os.Getenv(name))
	case "cwd":
		dir, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		return text(dir)
	case "ask":
		question, _ := wire.Member(params, "arguments")
		answer, err := r.Link.Call(ctx, wire.Call{Method: "elicitation/create", Params: question})
		if err != nil {
			return text("could not ask: " + err.Error())
		}
		return text(string(answer))
	case "count":
		token, _ := wire.Member(params, "_meta", wire.MetaProgressToken)
		for i := range 3 {
			progress := fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":3,"message":"step %d"}`, token, i+1, i+1)
			if err := r.Link.Notify(ctx, "notifications/progress", json.RawMessage(progress)); err != nil {
				return nil, err
			}
		}
		return text("counted")
	case "big":
		return text(strings.Repeat("0123456789abcdef", 34<<20/16))
	default:
		return text("called " + name)
	}
}
