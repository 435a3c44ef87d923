package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// RPCError is an error that a server answered with.
type RPCError = wire.Error

// Call is one call of a tool.
type Call struct {
	Tool      string          `json:"tool"`                // any rendering of its name that means one tool
	Arguments json.RawMessage `json:"arguments,omitempty"` // nil means none

	// Progress receives the params of each progress notification; may be nil.
	Progress func(params json.RawMessage) `json:"-"`
}

// Result is what a tool answered.
type Result struct {
	Tool Tool            `json:"tool"`
	Raw  json.RawMessage `json:"raw"` // the server's own bytes

	spill func(text string) (path string, err error)
}

// IsError reports whether the tool itself says that it failed.
func (r *Result) IsError() bool {
	v, ok := wire.Member(r.Raw, "isError")
	return ok && string(v) == "true"
}

// ModelResult is the form of a result for a model.
type ModelResult struct {
	Text    string          `json:"text"`              // at most the tool's limit of characters
	IsError bool            `json:"isError,omitempty"` // Text then begins with "Error: "
	SavedTo string          `json:"savedTo,omitempty"` // file with the whole text, if it was too long
	Server  string          `json:"serverName"`        //
	Tool    string          `json:"mcpToolName"`       //
	Content json.RawMessage `json:"rawContent,omitempty"`
}

// ForModel returns the form of the result for a model. If its text is longer
// than the tool's limit the whole of it goes to a file, and the text shows its
// head and tail and says where the rest is.
func (r *Result) ForModel() (ModelResult, error) {
	flat := bridge.Flatten(r.Raw)
	m := ModelResult{Text: flat.Text, IsError: flat.IsError, Server: r.Tool.Server, Tool: r.Tool.Tool, Content: flat.Content}
	limit := r.Tool.ForModel().MaxResultChars
	if utf8.RuneCountInString(m.Text) <= limit {
		return m, nil
	}
	path, err := r.spill(m.Text)
	if err != nil {
		return m, fmt.Errorf("the result of %s is too long for a model and could not be saved: %w", r.Tool.Name, err)
	}
	m.SavedTo, m.Text = path, bridge.Shorten(m.Text, limit, path)
	return m, nil
}

// Call calls a tool under the session's rules. A tool that fails answers with a
// result that says so; an error means that the tool could not be called, or
// that its answer never came.
func (s *Session) Call(ctx context.Context, c Call) (*Result, error) {
	t, err := s.resolve(c.Tool)
	if err != nil {
		return nil, err
	}
	if len(c.Arguments) == 0 {
		c.Arguments = json.RawMessage("{}")
	}
	if err := wire.Valid(c.Arguments, wire.Limits{}); err != nil || !wire.IsObject(c.Arguments) {
		return nil, errorf(KindConfigInvalid, "The arguments of %s must be a JSON object.", t.Name)
	}
	if t.Server == "" {
		return s.callResourceTool(ctx, t, c.Arguments)
	}
	params := wire.AppendString([]byte(`{"name":`), t.Tool)
	params = append(append(append(params, `,"arguments":`...), c.Arguments...), '}')
	if report := c.Progress; report != nil {
		c.Progress = func(params json.RawMessage) {
			_ = s.host.protect("Call.Progress", func() error { report(params); return nil })
		}
	}
	raw, err := s.callTool(ctx, t, params, c.Progress)
	if err != nil {
		return nil, err
	}
	return &Result{Tool: t, Raw: raw, spill: s.host.spill}, nil
}

// callTool sends a tools/call with params whose name is the tool's own, if the
// rules and hooks let it.
func (s *Session) callTool(ctx context.Context, t Tool, params json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	t, err := s.current(ctx, t)
	if err != nil {
		return nil, err
	}
	arguments, _ := wire.Member(params, "arguments")
	if err := s.permit(ctx, t, arguments); err != nil {
		return nil, err
	}
	hooks := s.host.opts.Hooks
	hc := &HookCall{Session: s.opts.Name, Server: t.Server, Tool: t.Tool, Arguments: arguments}
	if hooks != nil && hooks.BeforeCall != nil {
		if err := s.host.protect("Hooks.BeforeCall", func() error { return hooks.BeforeCall(ctx, hc) }); err != nil {
			return nil, errorf(KindDenied, "%s was refused: %v", t.Name, err)
		}
		if string(hc.Arguments) != string(arguments) {
			var err error
			if params, err = wire.SetMember(params, hc.Arguments, "arguments"); err != nil {
				return nil, errorf(KindConfigInvalid, "A hook gave %s arguments that are no JSON: %v", t.Name, err)
			}
		}
	}
	raw, err := s.send(ctx, t.Server, wire.Call{Method: "tools/call", Params: params, Progress: progress})
	if err != nil || hooks == nil || hooks.AfterCall == nil {
		return raw, err
	}
	r := &Result{Tool: t, Raw: raw, spill: s.host.spill}
	err = s.host.protect("Hooks.AfterCall", func() (err error) {
		r, err = hooks.AfterCall(ctx, hc, r)
		if err == nil && r == nil {
			err = errors.New("the hook returned nothing")
		}
		return err
	})
	if err != nil {
		return nil, errorf(KindDenied, "The result of %s was refused: %v", t.Name, err)
	}
	return r.Raw, nil
}

// current returns the tool as its server defines it now, if it may only be
// called as it was accepted. One that is known from an earlier connection is
// looked at again: it must not get a call through before its change is seen.
func (s *Session) current(ctx context.Context, t Tool) (Tool, error) {
	st, err := s.host.configured().find(t.Server)
	if err != nil || !t.Cached || policy.Mode(st.entry) == config.PinOff {
		return t, err
	}
	if _, err := s.host.connect(ctx, t.Server); err != nil {
		return t, err
	}
	set := s.toolset()
	i, ok := set.byRef[t.ref()]
	if !ok {
		return t, errorf(KindToolNotFound, "Server %q has no tool %q any more.", t.Server, t.Tool)
	}
	return set.tools[i], nil
}

// forward is Forward with progress.
func (s *Session) forward(ctx context.Context, server, method string, params json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	if method != "tools/call" {
		return s.send(ctx, server, wire.Call{Method: method, Params: params, Progress: progress})
	}
	name, _ := wire.StringMember(params, "name")
	set := s.toolset()
	i, ok := set.byRef[bridge.Ref{Server: server, Tool: name}]
	if !ok {
		return nil, errorf(KindToolNotFound, "Server %q has no tool %q here.", server, name)
	}
	return s.callTool(ctx, set.tools[i], params, progress)
}

// send sends one request over the session's kind of connection.
func (s *Session) send(ctx context.Context, server string, c wire.Call) (json.RawMessage, error) {
	if err := s.admit(server); err != nil {
		return nil, err
	}
	sv, err := s.host.connected(server, s.profile)
	if err != nil {
		return nil, err
	}
	defer s.takeOff(server)()
	c.Tag = s
	raw, err := sv.Call(ctx, c)
	return raw, callError(server, err)
}

// flight is the calls of a session that are under way to one server.
type flight struct {
	calls int
	life  context.Context // ends when there is none left
	end   context.CancelFunc
}

// takeOff counts a call among those under way, until land is called.
func (s *Session) takeOff(server string) (land func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.calls[server]
	if f == nil {
		f = &flight{}
		f.life, f.end = context.WithCancel(s.life)
		s.calls[server] = f
	}
	f.calls++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.calls--; f.calls == 0 {
			f.end()
			delete(s.calls, server)
		}
	}
}

// inFlight returns a context that ends with the session's last call to a
// server, nil if there is none.
func (s *Session) inFlight(server string) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.calls[server]; f != nil {
		return f.life
	}
	return nil
}

// callError is the error a caller sees: a server's own as it is, ours in one
// sentence that says whether it is safe to try again.
func callError(server string, err error) error {
	e, ok := errors.AsType[*conn.CallError](err)
	if !ok {
		return err
	}
	out := errorf(Kind(e.Kind), "%s: %v", server, e.Err)
	out.RetrySafe, out.cause = e.RetrySafe, err
	switch {
	case out.Kind == KindAuthUnavailable:
		return out.hint("Check your authentication credentials.")
	case out.RetrySafe:
		return out.hint("It is safe to try again.")
	}
	return out.hint("The call may have been carried out; look before trying again.")
}

// ErrorText renders an error of a call the way a model is told, with what there
// is to do about it.
func ErrorText(err error) string {
	text := bridge.ErrorText(err)
	if e, ok := errors.AsType[*Error](err); ok && e.Hint != "" {
		text = strings.TrimSuffix(text, ".") + ". " + e.Hint
	}
	return text
}

// Outcome is the result of one call of a batch, or its error.
type Outcome struct {
	Result *Result
	Err    error
}

// Batch makes several calls. Neighbours that their servers call read-only run
// together; any other call runs alone, in its place.
func (s *Session) Batch(ctx context.Context, calls []Call) []Outcome {
	out := make([]Outcome, len(calls))
	for start := 0; start < len(calls); {
		end := start + 1
		if s.readOnly(calls[start]) {
			for end < len(calls) && s.readOnly(calls[end]) {
				end++
			}
		}
		var wg sync.WaitGroup
		for i := start; i < end; i++ {
			wg.Go(func() { out[i].Result, out[i].Err = s.Call(ctx, calls[i]) })
		}
		wg.Wait()
		start = end
	}
	return out
}

func (s *Session) readOnly(c Call) bool {
	t, err := s.resolve(c.Tool)
	if err != nil {
		return false
	}
	a := t.ForModel().Annotations
	return a.ReadOnly != nil && *a.ReadOnly
}
