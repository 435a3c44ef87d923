package patchbay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// RPCError is an error that a server answered with.
type RPCError = wire.Error

// Call is one call of a tool.
type Call struct {
	Tool      string          `json:"tool"`                // any rendering of its name that means one tool
	Arguments json.RawMessage `json:"arguments,omitempty"` // a JSON object; nil means an empty one
	Meta      json.RawMessage `json:"_meta,omitempty"`     // of the request, a JSON object; nil means none

	// Progress receives the params of each progress notification; may be nil.
	Progress func(params json.RawMessage) `json:"-"`
}

// Result is what a tool answered.
type Result struct {
	Tool Tool            `json:"tool"`
	Raw  json.RawMessage `json:"raw"` // the server's own bytes

	host *Host // where too long a text is saved
}

// IsError reports whether the tool itself says that it failed.
func (r *Result) IsError() bool {
	v, ok := wire.Member(r.Raw, "isError")
	return ok && string(v) == "true"
}

// ModelResult is the form of a result for a model, with the details that hosts
// show beside it.
type ModelResult struct {
	Text    string `json:"text"`              // at most the tool's limit of characters
	IsError bool   `json:"isError,omitempty"` // Text then begins with "Error: "
	SavedTo string `json:"savedTo,omitempty"` // file with the whole text, if it was too long

	Server     string          `json:"serverName"`
	Tool       string          `json:"mcpToolName"`
	Provider   string          `json:"provider,omitempty"` // id of the product whose file declares the server
	Content    json.RawMessage `json:"rawContent,omitempty"`
	Structured json.RawMessage `json:"structuredContent,omitempty"`
}

// ForModel returns the form of the result for a model. If its text is longer
// than the settings allow, or if they do not say the tool's limit, the whole of
// it goes to a file, and the text shows its head and tail and says where the rest is. If it cannot be saved, the text is
// shortened all the same and the error says why the rest is lost.
func (r *Result) ForModel() (ModelResult, error) {
	flat := bridge.Flatten(r.Raw)
	m := ModelResult{
		Text: flat.Text, IsError: flat.IsError,
		Server: r.Tool.Server, Tool: r.Tool.Tool, Provider: r.Tool.provider, Content: flat.Content, Structured: flat.Structured,
	}
	limit := r.Tool.ForModel().MaxResultChars
	if r.host != nil { // else a hook made it
		limit = cmp.Or(r.host.Settings().Limits.ResultChars, limit)
	}
	if len(m.Text) <= limit || utf8.RuneCountInString(m.Text) <= limit {
		return m, nil
	}
	var err error
	if m.SavedTo, err = r.host.spill(m.Text); err != nil {
		err = fmt.Errorf("the result of %s is too long for a model and could not be saved: %w", r.Tool.Name, err)
	}
	m.Text = bridge.Shorten(m.Text, limit, m.SavedTo)
	return m, err
}

// Call calls a tool under the session's rules. A tool that fails answers with a
// result that says so; an error means that the tool could not be called, or
// that its answer never came. The server may be silent for 30 seconds
// (limits.callTimeout of the settings), which progress renews for up to ten
// minutes; if its entry has a timeout, that is the whole limit.
func (s *Session) Call(ctx context.Context, c Call) (*Result, error) {
	t, err := s.find(ctx, c.Tool)
	if err != nil {
		s.unknown(ctx, "", c.Tool, err)
		return nil, err
	}
	params, err := c.params(t)
	if err != nil {
		return nil, err
	}
	raw, err := s.callTool(s.host.own(ctx), t, params, c.Meta, s.protectProgress(c.Progress))
	if err != nil {
		return nil, err
	}
	return &Result{Tool: t.Tool, Raw: raw, host: s.host}, nil
}

// params are those of the tools/call.
func (c Call) params(t *offered) (json.RawMessage, error) {
	for _, object := range []json.RawMessage{c.Arguments, c.Meta} {
		if len(object) > 0 && (wire.Valid(object, wire.Limits{}) != nil || !wire.IsObject(object)) {
			return nil, errorf(KindConfigInvalid, "The arguments of %s must be a JSON object.", t.Name)
		}
	}
	params := make(json.RawMessage, 0, len(t.Tool.Tool)+len(c.Arguments)+len(c.Meta)+48)
	params = wire.AppendString(append(params, `{"name":`...), t.Tool.Tool)
	params = append(params, `,"arguments":`...)
	if len(c.Arguments) == 0 {
		params = append(params, `{}`...)
	}
	params = append(params, c.Arguments...)
	if len(c.Meta) == 0 {
		return append(params, '}'), nil
	}
	params = append(append(append(params, `,"_meta":`...), c.Meta...), '}')
	return params, checkRequest("tools/call", params)
}

// callTool makes a tools/call with params whose name is the tool's own, if the
// rules, the hooks and whoever is asked let it. meta is what params have as _meta.
func (s *Session) callTool(ctx context.Context, t *offered, params, meta json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	if s.host.opts.Observe == nil {
		return s.callPermitted(ctx, t, params, progress, nil)
	}
	r, params := s.begin("tools/call", t.Server, params, meta)
	r.decided(t)
	raw, err := s.callPermitted(ctx, t, params, progress, &r)
	s.end(ctx, r, raw, err)
	return raw, err
}

// callPermitted makes the call if it may be made; what hooks decide about it goes
// into the record, if there is one.
func (s *Session) callPermitted(ctx context.Context, t *offered, params json.RawMessage, progress func(json.RawMessage), r *CallRecord) (json.RawMessage, error) {
	if t.Changed {
		return nil, toolChanged(t.Tool)
	}
	if t.decision.Effect == Deny {
		return nil, denied(t.Tool, t.decision)
	}
	hooks, decision := s.host.hooks(), t.decision
	var call *HookCall
	if hooks.aroundCalls() {
		var err error
		call = s.hookCall(t, params)
		params, err = s.beforeCall(ctx, hooks, t, call, params)
		decision = call.decide(t.decision, r)
		if err != nil {
			return nil, err
		}
	}
	if decision.Effect == Ask {
		arguments, _ := wire.Member(params, "arguments")
		if err := distinct(arguments); err != nil {
			return nil, errorf(KindDenied, "%s was not permitted: %v", t.Name, err)
		}
		if err := s.consent(ctx, t.Tool, decision, arguments); err != nil {
			return nil, err
		}
	}
	raw, err := s.execute(ctx, t, params, progress)
	if err != nil || call == nil {
		return raw, err
	}
	return s.afterCall(ctx, hooks, t, call, raw)
}

// execute makes a call that was permitted. A tool that may be called only as it
// was accepted is looked at once more, as the connection that gets the call
// defines it: its server may have been started anew.
func (s *Session) execute(ctx context.Context, t *offered, params json.RawMessage, progress func(json.RawMessage)) (json.RawMessage, error) {
	if t.Server == "" {
		arguments, _ := wire.Member(params, "arguments")
		return s.callResourceTool(ctx, t.Tool, arguments)
	}
	var accept func(*conn.Catalog) error
	if t.strict {
		accept = func(c *conn.Catalog) error { return s.accepts(t.Tool, c) }
	}
	call := wire.Call{Method: "tools/call", Params: params, Progress: progress}
	raw, repeats, err := s.request(ctx, t.Server, call, accept)
	if err != nil && s.visitURLs(ctx, t.Server, err, repeats) {
		call.Repeats = repeats
		raw, _, err = s.request(ctx, t.Server, call, accept)
	}
	return raw, err
}

// accepts says why a tool may not be called as a catalog defines it.
func (s *Session) accepts(t Tool, c *conn.Catalog) error {
	r := s.host.reading.Load()
	at, ok := r.inForce[t.Server]
	if !ok || c == nil {
		return errorf(KindNotFound, "Server %q is not there any more.", t.Server)
	}
	known := s.host.knownTools(r, &r.servers[at], c, s.profile())
	i, ok := known.byName[t.Tool]
	switch {
	case !ok:
		return errorf(KindToolNotFound, "Server %q has no tool %q any more.", t.Server, t.Tool)
	case known.tools[i].Changed:
		return toolChanged(t)
	}
	return nil
}

// Forward sends any request to a server and returns its result as it is. A
// tools/call, whose name is the server's own, is subject to the session's rules
// and hooks, like Call; a tools/list has what the session offers of it, other
// lists are the server's own, with what rules hide. An error the server answered
// with is an *RPCError. What some server might read as another request than the
// one that is judged is not sent: params with two spellings of a member, or a
// method that differs from one of the protocol's in its case, which is an
// *RPCError too. If params has a progress
// token, progress goes to Client.Progress. A result of a tool that is longer than
// the settings allow (limits.resultChars) is shortened, and says where the whole
// is; without such a setting none is. It takes as long as ctx lasts, unless the
// server's entry has a timeout.
func (s *Session) Forward(ctx context.Context, server, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := checkRequest(method, params); err != nil {
		return nil, err
	}
	meta, _ := wire.Member(params, "_meta")
	switch method {
	case "tools/call":
	case "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		return json.RawMessage(`{}`), s.keep(ctx, server, method, params)
	case "tools/list":
		raw, err := s.send(ctx, server, wire.Call{Method: method, Params: params, Progress: s.passOn(ctx, server, meta)})
		if err != nil {
			return nil, err
		}
		return s.listed(server, params, raw)
	default:
		if wire.OfConnection(method) { // a notification with an id, which some servers take for one
			return nil, wire.MethodNotFound(method)
		}
		return s.send(ctx, server, wire.Call{Method: method, Params: params, Progress: s.passOn(ctx, server, meta)})
	}
	name, _ := wire.StringMember(params, "name")
	set := s.toolset()
	i, ok := set.byRef[bridge.Ref{Server: server, Tool: name}]
	if !ok {
		err := errorf(KindToolNotFound, "Server %q has no tool %q here.", server, name)
		s.unknown(ctx, server, name, err)
		return nil, err
	}
	return s.forwardCall(ctx, &set.tools[i], params, meta)
}

// forwardCall calls a tool with params whose name is the tool's own.
func (s *Session) forwardCall(ctx context.Context, t *offered, params, meta json.RawMessage) (json.RawMessage, error) {
	raw, err := s.callTool(ctx, t, params, meta, s.passOn(ctx, t.Server, meta))
	if err != nil {
		return nil, err
	}
	return s.limited(t, raw), nil
}

// limited shortens a result that is longer than the settings allow.
func (s *Session) limited(t *offered, raw json.RawMessage) json.RawMessage {
	limit := s.host.Settings().Limits.ResultChars
	if limit == 0 {
		return raw
	}
	text, long := bridge.LongText(raw, limit)
	if !long {
		return raw
	}
	savedTo, err := s.host.spill(text)
	if err != nil {
		s.host.opts.Logger.Warn("a long result is not saved", "server", t.Server, "tool", t.Tool.Tool, "error", err)
	}
	return bridge.WithText(raw, bridge.Shorten(text, limit, savedTo), limit)
}

// ForwardNotification sends a notification to a server, if it is connected. Those
// of the protocol that are about a connection, such as notifications/cancelled,
// are sent by the connection itself, which others may share: they are refused. So
// are requests of the protocol without an id, such as tools/call: there are servers
// that carry them out all the same.
func (s *Session) ForwardNotification(ctx context.Context, server, method string, params json.RawMessage) error {
	switch {
	case method == "notifications/progress":
	case wire.OfConnection(method):
		return errorf(KindDenied, "%s is not passed on: it is for whoever owns the connection to say.", method)
	case wire.Judged(method):
		return errorf(KindDenied, "%s is not passed on: it is a request, and has no id.", method)
	}
	if err := checkRequest(method, params); err != nil {
		return err
	}
	sv, err := s.reach(server, s.profile())
	if err != nil {
		return err
	}
	return callError(sv.Name(), sv.Notify(ctx, method, params))
}

// ForwardCall is Forward for a tools/call whose name is any rendering of a tool's
// that means one tool, which it returns.
func (s *Session) ForwardCall(ctx context.Context, params json.RawMessage) (Tool, json.RawMessage, error) {
	if err := checkRequest("tools/call", params); err != nil {
		return Tool{}, nil, err
	}
	name, _ := wire.StringMember(params, "name")
	t, err := s.find(ctx, name)
	if err != nil {
		s.unknown(ctx, "", name, err)
		return Tool{}, nil, err
	}
	own, err := wire.SetMember(params, wire.AppendString(make([]byte, 0, 128), t.Tool.Tool), "name")
	if err != nil { // which it was found by
		return t.Tool, nil, err
	}
	meta, _ := wire.Member(params, "_meta")
	raw, err := s.forwardCall(ctx, t, own, meta)
	return t.Tool, raw, err
}

// checkRequest says what is wrong with a request or notification, whose params
// go to a server as they are.
func checkRequest(method string, params json.RawMessage) error {
	if method != "tools/call" && wire.Mistakable(method) {
		return wire.MethodNotFound(method)
	}
	if len(params) == 0 {
		return nil
	}
	if err := wire.ValidParams(method, params, wire.Limits{}); err != nil {
		return errorf(KindConfigInvalid, "The params of %s must be a JSON object that every server reads alike: %v.", method, err)
	}
	return nil
}

// passOn returns what receives the progress of a request whose sender asked for
// it in its _meta, nil if that is nobody.
func (s *Session) passOn(ctx context.Context, server string, meta json.RawMessage) func(json.RawMessage) {
	client := s.opts.Client
	if client == nil || client.Progress == nil {
		return nil
	}
	if _, asked := wire.Member(meta, wire.MetaProgressToken); !asked {
		return nil
	}
	return s.protectProgress(func(p json.RawMessage) { client.Progress(ctx, server, p) })
}

// protectProgress keeps a panic of the program away from the connection.
func (s *Session) protectProgress(report func(json.RawMessage)) func(json.RawMessage) {
	if report == nil {
		return nil
	}
	return func(params json.RawMessage) {
		_ = s.host.protect("Progress", func() error { report(params); return nil })
	}
}

// send sends one request that is no tools/call.
func (s *Session) send(ctx context.Context, server string, c wire.Call) (json.RawMessage, error) {
	if s.host.opts.Observe == nil {
		raw, _, err := s.request(ctx, server, c, nil)
		return raw, err
	}
	meta, _ := wire.Member(c.Params, "_meta")
	r, params := s.begin(c.Method, server, c.Params, meta)
	c.Params = params
	raw, _, err := s.request(ctx, server, c, nil)
	s.end(ctx, r, raw, err)
	return raw, err
}

// request sends one request over the session's kind of connection, if accept,
// which may be nil, does not object to what the server offers. It also returns who
// counts how often that is made again.
func (s *Session) request(ctx context.Context, server string, c wire.Call, accept func(*conn.Catalog) error) (json.RawMessage, *wire.Repeats, error) {
	s.askRoots(ctx, server)
	kind := s.kind.Load()
	sv, err := s.reach(server, *kind)
	if err != nil {
		return nil, c.Repeats, err
	}
	f := s.takeOff(ctx, sv.Name(), c.Method)
	defer f.land()
	if client := s.opts.Client; client != nil {
		c.AskTogether = client.AskedInCalls
		if client.ComeBack != nil && s.Remote() {
			c.ComeBack = f.comeBack
		}
	}
	c.Tag, c.Sender = f, kind.Session
	limit(ctx, sv, &c)
	if c.Repeats == nil {
		c.Repeats = &f.repeats
	}
	raw, err := sv.CallListed(ctx, c, accept)
	for errors.Is(err, conn.ErrReleased) && s.kind.Load() != kind { // the session has moved before it was sent
		kind = s.kind.Load()
		if sv, err = s.reach(server, *kind); err != nil {
			return nil, c.Repeats, err
		}
		raw, err = sv.CallListed(ctx, c, accept)
	}
	f.given(err)
	return raw, c.Repeats, callError(sv.Name(), err)
}

// reach returns a connection of a server, unless the session's rules deny all of
// it.
func (s *Session) reach(server string, p conn.Profile) (*conn.Server, error) {
	sv, err := s.host.connected(server, p)
	if err != nil {
		return nil, err
	}
	if !s.has(sv.Name()) {
		return nil, errorf(KindNotFound, "Server %q is not there for this session.", sv.Name())
	}
	if rule := s.toolset().denied[sv.Name()]; rule != nil {
		return nil, errorf(KindDenied, "Server %q is denied.", sv.Name()).hint("The rule is %s in %s.", rule.Pattern, rule.Source)
	}
	return sv, nil
}

// callError is the error a caller sees: a server's own as it is, ours in one
// sentence that says whether it is safe to try again.
func callError(server string, err error) error {
	e, ok := errors.AsType[*conn.CallError](err)
	if !ok {
		return err
	}
	if e.Method == "" && e.Kind != conn.KindDenied && e.Kind != conn.KindConfig {
		return unreachable(server, err)
	}
	out := errorf(Kind(e.Kind), "%s: %v", server, e.Err)
	out.RetrySafe, out.cause = e.RetrySafe, err
	hint := "The call may have been carried out; look before trying again."
	switch {
	case out.Kind == KindAuthUnavailable:
		return out.hint("Check your authentication credentials.")
	case out.RetrySafe:
		hint = "It is safe to try again."
	}
	if _, limited := errors.AsType[*wire.TimeoutError](err); limited {
		hint += " Its entry can allow more: \"timeout\", in milliseconds."
	}
	return out.hint("%s", hint)
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
	t, err := s.toolset().find(c.Tool)
	if err != nil {
		return false
	}
	a := t.ForModel().Annotations
	return a.ReadOnly != nil && *a.ReadOnly
}
