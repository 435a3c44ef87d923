package patchbay_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// having is a server in this process that has tools of those names, each of which
// answers with the name of the server.
func having(server string, tools ...string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: server, Version: "1"}, nil)
	for _, tool := range tools {
		addTool(s, server, tool)
	}
	return s
}

func addTool(s *mcp.Server, server, tool string) {
	s.AddTool(&mcp.Tool{Name: tool, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: server}}}, nil
	})
}

func toolNames(s *patchbay.Session) (names []string) {
	for _, t := range s.Tools() {
		names = append(names, t.Name)
	}
	return names
}

// problemsOf are all warnings about servers.
func problemsOf(h *patchbay.Host) (texts []string) {
	for _, st := range h.Servers() {
		for _, p := range st.Problems {
			texts = append(texts, p.Message)
		}
	}
	return texts
}

// A project's server takes no name of the user's own, however it is called and
// whether or not the other is there; doctor tells of it.
func TestProjectTakesNoName(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy = false
	mine := scripted()
	mine.DisabledTools = []string{"pid"}
	c.declare(map[string]config.Server{"my_server": mine})
	theirs := string(config.EncodeServer(scripted()))
	c.write(filepath.Join(c.project, ".mcp.json"), `{"mcpServers": {"my.server": `+theirs+`}}`)
	c.approve("my.server")
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Prefixed: true})
	for _, tool := range s.Tools() {
		switch name := "my_server__" + tool.Tool; {
		case tool.Server == "my_server" && tool.Name != name:
			t.Errorf("%s/%s is called %s", tool.Server, tool.Tool, tool.Name)
		case tool.Server == "my.server" && (!strings.HasPrefix(tool.Name, name+"_") || len(tool.Name) != len(name)+9):
			t.Errorf("%s/%s is called %s", tool.Server, tool.Tool, tool.Name)
		}
	}
	for _, name := range []string{"my_server__pid", "mcp__my_server__pid", "mcp_my_server_pid"} { // which is hidden
		if _, err := s.Call(t.Context(), patchbay.Call{Tool: name}); kindOf(err) != patchbay.KindToolNotFound || strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all := strings.Join(problemsOf(h), "\n"); !strings.Contains(all, `tools "my_server/ask" and "my.server/ask" would both be called mcp__my_server__ask: the second is offered as mcp__my_server__ask_`) {
		t.Errorf("problems:\n%s", all)
	}
	if _, err := h.SetEnabled(t.Context(), "my_server", false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "my_server__echo"}); kindOf(err) != patchbay.KindDenied || !strings.Contains(err.Error(), `Server "my_server" is disabled.`) {
		t.Errorf("a tool of a server that is off: %v", err)
	}
}

// A tool keeps its name when another comes that would have the same, and of two
// that were there from the start none has it.
func TestNameStaysWithItsTool(t *testing.T) {
	a := having("a", "other")
	h := withServers(t, nil, func(o *patchbay.Options) {
		o.InProcess = map[string]patchbay.LocalServer{
			"a": patchbay.FromSDK(a), "a__b": patchbay.FromSDK(having("a__b", "c")),
			"x": patchbay.FromSDK(having("x", "y__z")), "x__y": patchbay.FromSDK(having("x__y", "z")),
		}
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Prefixed: true})
	if got := say(t, s, "a__b__c", ""); got != "a__b" {
		t.Fatalf("got %s", got)
	}
	addTool(a, "a", "b__c")
	await(t, h, "a has the tool", func(patchbay.Snapshot) bool { return len(s.Tools()) == 5 })
	if got := say(t, s, "a__b__c", ""); got != "a__b" {
		t.Errorf("its name is taken by %s", got)
	}
	later := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Tools: []string{"mcp__a", "mcp__a__b"}, Prefixed: true})
	if names := toolNames(later); len(names) != 3 || slices.Contains(names, "a__b__c") {
		t.Errorf("of one that did not know the first: %q", names)
	}
	_, err := s.Call(t.Context(), patchbay.Call{Tool: "x__y__z"})
	if kindOf(err) != patchbay.KindToolNotFound || !strings.Contains(err.Error(), `is ambiguous: it may mean "x/y__z" or "x__y/z"`) {
		t.Errorf("got %v", err)
	}
	if all := strings.Join(problemsOf(h), "\n"); !strings.Contains(all, "several tools would be called mcp__x__y__z, so none is") {
		t.Errorf("problems:\n%s", all)
	}
}

// Names are short enough for the prefix of an agent, and gateway.naming alone
// changes how they are made; all other ways to write them are understood.
func TestPrefixedNames(t *testing.T) {
	long := strings.Repeat("x", 60)
	c := newComputer(t)
	c.opts.Lazy = false
	c.opts.InProcess = map[string]patchbay.LocalServer{"files": patchbay.FromSDK(having("files", "read", long))}
	settings := filepath.Join(c.home, ".config", "patchbay", "settings.json")
	c.write(settings, `{"naming": {"style": "xcsh"}}`)
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, own := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Prefixed: true}), anyone(t, h)
	names := toolNames(s)
	if len(names) != 2 || names[0] != "files__read" || len(names[1]) != 49 || len("mcp__patchbay__"+names[1]) != 64 {
		t.Errorf("names %q", names)
	}
	for _, name := range []string{"files__read", "mcp__files__read", "mcp_files_read", "mcp__files_read", "files.read", "files/read", names[1], "mcp__files__" + long} {
		if got := say(t, s, name, ""); got != "files" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := toolNames(own); got[0] != "mcp_files_read" {
		t.Errorf("names %q", got)
	}
	c.write(settings, `{"naming": {"style": "xcsh"}, "gateway": {"naming": {"style": "claude", "maxLength": 64}}}`)
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := toolNames(s); got[0] != "mcp__files__read" || len(got[1]) != 64 {
		t.Errorf("names %q", got)
	}
	if got := toolNames(own); got[0] != "mcp_files_read" {
		t.Errorf("names %q", got)
	}
}

// A call whose name begins with a server's waits for that server: one that is
// started by the first call, and one that is not there yet.
func TestCallWaitsForItsServer(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	lazy := scripted("-gate", lines.Arg("lazy"))
	lazy.Lazy = true
	h := withServers(t, map[string]config.Server{"slow": scripted("-gate", lines.Arg("slow")), "lazy": lazy}, nil)
	s := anyone(t, h)
	late, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	for _, server := range []string{"slow", "lazy"} {
		for _, name := range []string{"mcp__" + server + "__pid", server + "__pid", server + ".pid"} {
			if _, err := s.Call(late, patchbay.Call{Tool: name}); kindOf(err) != patchbay.KindTimeout {
				t.Errorf("%s: %v", name, err)
			}
		}
		lines.Next(server).Release()
		if _, err := s.Call(t.Context(), patchbay.Call{Tool: "mcp__" + server + "__pid"}); err != nil {
			t.Errorf("%s: %v", server, err)
		}
		if _, err := s.Call(t.Context(), patchbay.Call{Tool: server + ".pit"}); kindOf(err) != patchbay.KindToolNotFound || !strings.Contains(err.Error(), server+".pid") {
			t.Errorf("a name that it does not have: %v", err)
		}
	}
}

// A server that is started by the first call is listed once before that, and then
// not again: its tools are there, and its process is not.
func TestLazyServerIsListed(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	c := newComputer(t)
	c.opts.Lazy = false
	lazy := scripted(lines.Arg("lazy"))
	lazy.Lazy = true
	c.declare(map[string]config.Server{"lazy": lazy})
	project := scripted(lines.Arg("project"))
	project.Lazy = true
	c.write(filepath.Join(c.project, ".mcp.json"), `{"mcpServers": {"project": `+string(config.EncodeServer(project))+`}}`)
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines.Next("lazy").WaitGone(t)
	if names := toolNames(anyone(t, h)); !slices.Contains(names, "mcp__lazy__pid") {
		t.Errorf("tools %q", names)
	}
	h.Close()
	h = c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := anyone(t, h)
	if names := toolNames(s); !slices.Contains(names, "mcp__lazy__pid") {
		t.Errorf("tools %q", names)
	}
	pid := say(t, s, "lazy.pid", "")
	if line := lines.Next("lazy"); strconv.Itoa(line.PID) != pid {
		t.Errorf("process %d was started before %s", line.PID, pid)
	}
}

// What is not there says why, and leads to no other server's tool.
func TestToolsOfServersThatAreOff(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy = false
	off := false
	disabled := scripted()
	disabled.Enabled = &off
	c.declare(map[string]config.Server{"alpha1": scripted(), "alpha2": disabled, "alpha3": scripted(), "alpha4": {Command: filepath.Join(c.home, "nothing")}})
	c.write(filepath.Join(c.project, ".mcp.json"), `{"mcpServers": {"alpha5": `+string(config.EncodeServer(scripted()))+`}}`)
	c.write(filepath.Join(c.home, ".config", "patchbay", "settings.json"), `{"permissions": {"deny": ["mcp__alpha3", "mcp__alpha1__pid"]}}`)
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Prefixed: true})
	few := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Servers: []string{"alpha1"}})
	for _, tt := range []struct {
		s          *patchbay.Session
		name, want string
	}{
		{s, "alpha2__echo", `Server "alpha2" is disabled. Run patchbay enable alpha2 first.`},
		{s, "mcp__alpha2__echo", `Server "alpha2" is disabled. Run patchbay enable alpha2 first.`},
		{s, "alpha2.echo", `Server "alpha2" is disabled. Run patchbay enable alpha2 first.`},
		{s, "alpha3__echo", `Server "alpha3" is denied.`},
		{s, "alpha3__ecoh", `Server "alpha3" is denied.`},
		{s, "alpha4__echo", `Failed to connect to "alpha4"`},
		{s, "alpha5__echo", `Server "alpha5" needs approval. Run patchbay approve alpha5 first.`},
		{s, "alpha1__pid", `unknown tool "alpha1__pid"`}, // denied
		{s, "alpha1__ecoh", `unknown tool "alpha1__ecoh"; did you mean "alpha1__echo"?`},
		{few, "alpha3.echo", `unknown tool "alpha3.echo"`},
	} {
		_, err := tt.s.Call(t.Context(), patchbay.Call{Tool: tt.name})
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || !strings.Contains(tt.want, "did you mean") && strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%s: %v\nwant %s", tt.name, err, tt.want)
		}
	}
}

// Servers whose names differ only in case are told apart by nobody.
func TestLikeNamesAreReported(t *testing.T) {
	c := newComputer(t)
	c.declare(map[string]config.Server{"GitHub": {Command: "a"}, "github": {Command: "b"}, "other": {Command: "c"}})
	h := c.open()
	if got := strings.Join(problemsOf(h), "\n"); got != `the name "github" differs from that of the server "GitHub" only in case` {
		t.Errorf("problems: %s", got)
	}
}

// Prompts are named like tools: what one of a server that is denied is called,
// no other is, and no other is suggested.
func TestNamesOfPrompts(t *testing.T) {
	with := func(server, prompt string) patchbay.LocalServer {
		s := having(server)
		s.AddPrompt(&mcp.Prompt{Name: prompt}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
		return patchbay.FromSDK(s)
	}
	h := withServers(t, nil, func(o *patchbay.Options) {
		o.InProcess = map[string]patchbay.LocalServer{"my_server": with("my_server", "greet"), "my.server": with("my.server", "greet"), "other": with("other", "greet")}
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, denied := range []bool{false, true} {
		o := patchbay.SessionOptions{Prefixed: true}
		if denied {
			o.DisallowedTools = []string{"my_server/*"}
		}
		s := session(t, h, o)
		p, err := s.FindPrompt("my_server__greet")
		if denied != (err != nil) || !denied && p.Server != "my_server" {
			t.Errorf("denied %v: %+v, %v", denied, p, err)
		}
		prompts, err := s.ListPrompts(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range prompts {
			if p.Server == "my.server" && !strings.HasPrefix(p.FullName, "my_server__greet_") {
				t.Errorf("denied %v: %s is called %s", denied, p.Server, p.FullName)
			}
		}
	}
	s := session(t, h, patchbay.SessionOptions{Prefixed: true})
	for name, hint := range map[string]string{"other__gret": `Did you mean "other__greet"?`, "other__zzzzz": "", "othr__greet": `Did you mean "other__greet"?`} {
		_, err := s.FindPrompt(name)
		if e := asError(t, err); e.Kind != patchbay.KindNotFound || e.Message != fmt.Sprintf("No prompt %q.", name) || e.Hint != hint {
			t.Errorf("%s: %#v", name, e)
		}
	}
}
