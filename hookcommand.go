package patchbay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/proc"
)

const (
	hookTimeout   = 60 * time.Second // unless a hook says another
	maxHookOutput = 16 << 20         // a result may be among it
	maxHookReason = 4 << 10          // of what a hook that blocks says why
)

// commandHooks are the hooks of settings: commands that run when something
// happens, one after the other.
type commandHooks struct {
	host   *Host
	groups map[config.HookEvent][]commandGroup
}

// commandGroup is commands that are about the same.
type commandGroup struct {
	about    config.HookMatcher
	commands []hookCommand
}

// hookCommand is one command.
type hookCommand struct {
	config.HookCommand
	*hookSource
}

// hookSource is the file that declares commands.
type hookSource struct {
	file     string
	mayAllow bool              // what rules ask about: not for those of a project
	files    map[string]string // that commands name, with their approved content; nil for the user's own
	wrong    string            // why none of them can run
}

// place says where a command is declared.
func (c *hookCommand) place() string { return fmt.Sprintf("%s:%d", c.file, c.Line) }

// add adds the hooks of a file.
func (c *commandHooks) add(hooks config.Hooks, from hookSource) {
	for event, g := range hooks.All() {
		about, _ := config.ParseHookMatcher(g.Matcher) // which was checked when it was read
		group := commandGroup{about: about}
		for _, command := range g.Hooks {
			if from.wrong != "" {
				command.Invalid = from.wrong
			}
			group.commands = append(group.commands, hookCommand{command, &from})
		}
		c.groups[event] = append(c.groups[event], group)
	}
}

// hooks compiles the commands into hooks of the library; nil if there are none.
func (c *commandHooks) hooks() *Hooks {
	if len(c.groups) == 0 {
		return nil
	}
	h := &Hooks{}
	if c.groups[config.PreToolUse] != nil {
		h.BeforeCall = c.beforeCall
	}
	if c.groups[config.PostToolUse] != nil {
		h.AfterCall = c.afterCall
	}
	if c.groups[config.Elicitation] != nil {
		h.Elicitation = c.elicitation
	}
	if c.groups[config.ElicitationResult] != nil {
		h.ElicitationResult = c.elicitationResult
	}
	if c.groups[config.Notification] != nil {
		h.Notification = c.notification
	}
	return h
}

func (c *commandHooks) beforeCall(ctx context.Context, call *HookCall) error {
	if c.about(config.PreToolUse, call.names) {
		if err := distinct(call.Arguments); err != nil {
			return err
		}
	}
	input := func() hookInput { return c.callInput(call) }
	return c.each(ctx, config.PreToolUse, call.names, input, func(h *hookCommand, a hookAnswer) bool {
		if a.arguments != nil {
			call.Arguments = a.arguments
		}
		decides := a.permission == Ask || a.permission == Allow && h.mayAllow
		if decides && (call.Permission == "" || stricter(a.permission, call.Permission)) {
			call.Permission, call.Reason = a.permission, a.reason
		}
		return true
	})
}

func (c *commandHooks) afterCall(ctx context.Context, call *HookCall, r *Result) (*Result, error) {
	out := *r
	input := func() hookInput {
		in := c.callInput(call)
		in.ToolResponse = out.Raw
		return in
	}
	err := c.each(ctx, config.PostToolUse, call.names, input, func(_ *hookCommand, a hookAnswer) bool {
		if a.result != nil {
			out.Raw = a.result
		}
		return true
	})
	return &out, err
}

func (c *commandHooks) elicitation(ctx context.Context, r ElicitRequest) (*ElicitResult, error) {
	var answer *ElicitResult
	input := func() hookInput { return c.elicitInput(r) }
	err := c.each(ctx, config.Elicitation, c.serverNames(r.Server), input, func(_ *hookCommand, a hookAnswer) bool {
		answer = a.elicited
		return answer == nil // the first that answers does
	})
	return answer, err
}

func (c *commandHooks) elicitationResult(ctx context.Context, r ElicitRequest, answer ElicitResult) (ElicitResult, error) {
	input := func() hookInput {
		in := c.elicitInput(r)
		in.Message, in.URL, in.RequestedSchema = "", "", nil
		in.Action, in.Content = answer.Action, answer.Content
		return in
	}
	err := c.each(ctx, config.ElicitationResult, c.serverNames(r.Server), input, func(_ *hookCommand, a hookAnswer) bool {
		if a.elicited != nil {
			answer = *a.elicited
		}
		return true
	})
	return answer, err
}

func (c *commandHooks) notification(ctx context.Context, n HookNotification) {
	input := func() hookInput {
		return hookInput{
			SessionID: n.Session, NotificationType: n.Type, ServerName: c.host.ruledName(n.Server), ElicitationID: n.ElicitationID,
			Message: fmt.Sprintf("What %s asked for at a web page is done.", c.host.ruledName(n.Server)),
		}
	}
	err := c.each(ctx, config.Notification, []string{n.Type}, input, func(*hookCommand, hookAnswer) bool { return true })
	if err != nil {
		c.host.opts.Logger.Warn("hook", "event", config.Notification, "error", err)
	}
}

// serverNames are those that a matcher may have for a server.
func (c *commandHooks) serverNames(server string) []string {
	server = c.host.ruledName(server)
	return []string{server, serverMatch(server)}
}

// about reports whether a command of an event is about what has one of the names.
func (c *commandHooks) about(event config.HookEvent, names []string) bool {
	return slices.ContainsFunc(c.groups[event], func(g commandGroup) bool { return g.about.Fits(names...) })
}

// each runs the commands of an event that are about what has one of the names,
// in their order, as long as goOn says so. The error is that one of them blocks.
//
// A command that gives no answer, because it does not start, is ended or prints
// what cannot be understood, blocks: it may have been meant to guard something.
// One that exits with a status of its own has answered: 2 blocks, any other is
// reported and passed over.
func (c *commandHooks) each(ctx context.Context, event config.HookEvent, names []string, input func() hookInput, goOn func(*hookCommand, hookAnswer) bool) error {
	for _, g := range c.groups[event] {
		if !g.about.Fits(names...) {
			continue
		}
		for i := range g.commands {
			h := &g.commands[i]
			in := input()
			in.Event, in.Cwd = event, c.host.places().project
			answer, err := c.run(ctx, h, in)
			if err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				return fmt.Errorf("the hook at %s gave no answer: %w", h.place(), err)
			}
			if answer.blocks {
				return errors.New(orElse(answer.reason, "the hook at "+h.place()+" blocks it"))
			}
			if !goOn(h, answer) {
				return nil
			}
		}
	}
	return nil
}

// run runs one command to its end.
func (c *commandHooks) run(ctx context.Context, h *hookCommand, in hookInput) (hookAnswer, error) {
	if h.Invalid != "" {
		return hookAnswer{}, errors.New(h.Invalid)
	}
	if file := c.host.changedFile(h.Command, h.files); file != "" {
		return hookAnswer{}, fmt.Errorf("%s changed since it was approved", file)
	}
	if !c.host.enter() {
		return hookAnswer{}, errors.New("the host is closed")
	}
	defer c.host.followers.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.host.life, stop)()

	start := time.Now()
	spec, err := c.spec(h, in)
	if err != nil {
		return hookAnswer{}, err
	}
	out, err := proc.Output(ctx, spec)
	log := c.host.opts.Logger.With("event", in.Event, "hook", h.place(), "took", time.Since(start))
	exit, exited := errors.AsType[*proc.ExitError](err)
	switch {
	case err == nil:
		log.Debug("hook")
		return parseHookOutput(in.Event, out)
	case !exited || exit.Code < 0 || exit.Code == 126 || exit.Code == 127: // which the shell says of what it cannot start
		return hookAnswer{}, err
	case exit.Code == 2:
		log.Debug("hook", "exit", 2)
		return hookAnswer{blocks: true, reason: hookReason(exit.Head)}, nil
	}
	log.Warn("hook", "error", err) // which has nothing of what it printed
	return hookAnswer{}, nil
}

// spec is what a command runs as: in the project, with what any program needs,
// like a server.
func (c *commandHooks) spec(h *hookCommand, in hookInput) (proc.Spec, error) {
	var stdin bytes.Buffer
	enc := json.NewEncoder(&stdin)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(in); err != nil {
		return proc.Spec{}, err
	}
	shell := "/bin/sh"
	if runtime.GOOS == "windows" {
		shell = "sh" // as Git for Windows brings it along
	}
	project := c.host.places().project
	env := append(proc.BaseEnv(c.host.opts.Environ), proc.ProxyEnv(c.host.opts.Environ)...)
	limit := hookTimeout
	if h.Timeout > 0 {
		limit = time.Duration(h.Timeout) * time.Second
	}
	return proc.Spec{
		Path: shell, Args: []string{"-c", h.Command}, Dir: project,
		Env:   append(env, "PATCHBAY_PROJECT_DIR="+project, "CLAUDE_PROJECT_DIR="+project),
		Guard: c.host.manager.Guard(), Stdin: stdin.Bytes(), MaxOutput: maxHookOutput, KeepStderr: maxHookReason, Timeout: limit,
	}, nil
}

// hookReason is what a command printed to say why it blocks.
func hookReason(stderr []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(stderr), "�"))
	for len(text) > maxHookReason { // the replaced characters are longer
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// hookInput is what a command is told of an event, in the words that other
// products use.
type hookInput struct {
	SessionID string           `json:"session_id"`
	Cwd       string           `json:"cwd"`
	Event     config.HookEvent `json:"hook_event_name"`

	// Of calls.
	ToolName     string          `json:"tool_name,omitempty"` // mcp__server__tool, however the session names it
	ToolInput    json.RawMessage `json:"tool_input,omitempty"`
	ToolResponse json.RawMessage `json:"tool_response,omitempty"`
	Server       *hookServer     `json:"mcp_server,omitempty"`
	ServerTool   string          `json:"mcp_tool_name,omitempty"` // as the server calls it

	// Of questions and notifications.
	ServerName       string          `json:"mcp_server_name,omitempty"`
	Message          string          `json:"message,omitempty"`
	Mode             string          `json:"mode,omitempty"`
	URL              string          `json:"url,omitempty"`
	ElicitationID    string          `json:"elicitation_id,omitempty"`
	RequestedSchema  json.RawMessage `json:"requested_schema,omitempty"`
	Action           string          `json:"action,omitempty"`
	Content          json.RawMessage `json:"content,omitempty"`
	NotificationType string          `json:"notification_type,omitempty"`
}

type hookServer struct {
	Name   string `json:"name"`
	Source string `json:"source"` // user, project, local; sdk or dynamic for servers of the program
}

func (c *commandHooks) callInput(call *HookCall) hookInput {
	in := hookInput{SessionID: call.Session, ToolName: call.Tool, ToolInput: call.Arguments}
	if len(in.ToolInput) == 0 {
		in.ToolInput = json.RawMessage(`{}`)
	}
	if call.Server != "" {
		in.ToolName = bridge.Render(config.NamingClaude, bridge.Ref{Server: c.host.ruledName(call.Server), Tool: call.Tool})
		in.ServerTool, in.Server = call.Tool, c.server(call.Server)
	}
	return in
}

func (c *commandHooks) server(name string) *hookServer {
	s := &hookServer{Name: c.host.ruledName(name)}
	if st, err := c.host.reading.Load().find(name); err == nil {
		switch st.Origin.Provider {
		case inProcessProvider:
			s.Source = "sdk"
		case programProvider:
			s.Source = "dynamic"
		default:
			s.Source = string(st.Origin.Scope)
		}
	}
	return s
}

func (c *commandHooks) elicitInput(r ElicitRequest) hookInput {
	return hookInput{
		SessionID: r.Session, Server: c.server(r.Server), ServerName: c.host.ruledName(r.Server),
		Message: r.Message, Mode: r.Mode, URL: r.URL, ElicitationID: r.ElicitationID, RequestedSchema: r.Schema,
	}
}
