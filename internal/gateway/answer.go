package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// HandleRequest answers a request of a client: it finds the server that it is
// for, puts the server's own name for things in place of ours, and passes it on.
func (ep *endpoint) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	c, done, err := ep.client(r.Session)
	if err != nil {
		return nil, err
	}
	defer done()
	if d := ep.described.Load(); d != nil {
		r.AnswerAs(d)
	}
	s, end, err := c.sessionFor(ctx, r)
	if err != nil {
		return nil, refusal(err)
	}
	defer end()
	ctx = context.WithValue(ctx, requestKey{}, r)
	if r.Session.Era == wire.Modern && r.Method == "tools/call" {
		ctx = wire.WithParamHeaders(ctx, r.Header())
	}
	var raw json.RawMessage
	if ep.single != "" {
		raw, err = c.pass(ctx, s, r)
	} else {
		raw, err = c.answer(ctx, s, r)
	}
	return raw, inEra(r, err)
}

// inEra is a server's error as the era of the client knows it. Only the legacy
// one has a code for resources that do not exist, and one for URLs that a person
// has to visit: the modern one says which capability of the client is missing.
func inEra(r *wire.Request, err error) error {
	if err == nil || r.Session.Era == wire.Legacy {
		return err
	}
	e, ok := errors.AsType[*patchbay.RPCError](err)
	if !ok {
		return err
	}
	switch {
	case e.Code == wire.CodeResourceNotFound && r.Method == "resources/read":
		known := *e
		known.Code = wire.CodeInvalidParams
		return &known
	case e.Code == wire.CodeURLElicitationRequired && !r.Session.Supports("elicitation", "url"):
		return &wire.Error{
			Code:    wire.CodeMissingClientCapability,
			Message: e.Message,
			Data:    json.RawMessage(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`),
		}
	}
	return err
}

// sessionFor returns the session of a request: that of the client, or, where the
// client can be asked only within its requests, one of its own, so that no
// question goes to another one.
func (c *client) sessionFor(ctx context.Context, r *wire.Request) (s *patchbay.Session, end func(), err error) {
	if r.Session.Era == wire.Legacy {
		return c.session, func() {}, nil
	}
	c.level(ctx, r.Session)
	if c.asked == nil {
		return c.session, func() {}, nil
	}
	s, err = c.session.For(c.asked)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// pass answers a request to the one server of an endpoint: all goes to it as it
// is.
func (c *client) pass(ctx context.Context, s *patchbay.Session, r *wire.Request) (json.RawMessage, error) {
	server := c.ep.single
	switch r.Method {
	case "tools/call":
		raw, err := result(s.Forward(ctx, server, r.Method, r.Params))
		if err == nil && mayBeTask(r) {
			raw = c.noteTask(server, raw)
		}
		return raw, err
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return c.forwardTask(ctx, s, r)
	case "tasks/list":
		return c.listOwnTasks(ctx, s, r)
	case "tools/list":
		defer c.tellUnaccepted(ctx, r)
	case "resources/subscribe":
		return emptyResult, refusal(c.subscribe(ctx, member(r.Params, "uri")))
	case "resources/unsubscribe":
		return emptyResult, refusal(c.unsubscribe(ctx, member(r.Params, "uri")))
	}
	raw, err := s.Forward(ctx, server, r.Method, r.Params)
	return private(raw), refusal(err)
}

// private makes a result that may be kept one that only its client may keep: what
// a server has for everybody is here for those who may use the gateway.
func private(result json.RawMessage) json.RawMessage {
	if scope, _ := wire.StringMember(result, "cacheScope"); scope != "public" {
		return result
	}
	result, _ = wire.SetMember(result, json.RawMessage(`"private"`), "cacheScope") // it has one
	return result
}

// answer answers a request to all servers of an endpoint.
func (c *client) answer(ctx context.Context, s *patchbay.Session, r *wire.Request) (json.RawMessage, error) {
	switch r.Method {
	case "tools/call":
		return c.callTool(ctx, s, r)
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		if r.Method == "tools/list" {
			defer c.tellUnaccepted(ctx, r)
		}
		return c.list(ctx, r.Method, r.Params)
	case "prompts/get":
		p, err := c.prompt(ctx, member(r.Params, "name"))
		if err != nil {
			return nil, refusal(err)
		}
		return forward(ctx, s, p.Server, r, p.Name, "name")
	case "resources/read":
		server, own, err := c.resource(ctx, member(r.Params, "uri"))
		if err != nil {
			return nil, refusal(err)
		}
		return forward(ctx, s, server, r, own, "uri")
	case "resources/subscribe":
		return emptyResult, refusal(c.subscribe(ctx, member(r.Params, "uri")))
	case "resources/unsubscribe":
		return emptyResult, refusal(c.unsubscribe(ctx, member(r.Params, "uri")))
	case "completion/complete":
		return c.complete(ctx, s, r)
	case "logging/setLevel":
		return emptyResult, refusal(s.SetLogLevel(ctx, "", member(r.Params, "level")))
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return c.forwardTask(ctx, s, r)
	case "tasks/list":
		return c.listTasks(ctx, s, r.Params)
	}
	return nil, wire.MethodNotFound(r.Method)
}

var emptyResult = json.RawMessage(`{}`)

func member(params json.RawMessage, path ...string) string {
	value, _ := wire.StringMember(params, path...)
	return value
}

// callTool calls a tool by its name at this endpoint.
func (c *client) callTool(ctx context.Context, s *patchbay.Session, r *wire.Request) (json.RawMessage, error) {
	t, raw, err := s.ForwardCall(ctx, r.Params)
	raw, err = result(raw, err)
	if err == nil && mayBeTask(r) {
		raw = c.noteTask(t.Server, raw)
	}
	return raw, err
}

// result is the answer to a tools/call: what went wrong on our side is told like
// a failure of the tool, so that a model reads it.
func result(raw json.RawMessage, err error) (json.RawMessage, error) {
	if err == nil {
		return raw, nil
	}
	if _, ok := errors.AsType[*patchbay.RPCError](err); ok || errors.Is(err, context.Canceled) {
		return nil, err
	}
	if e, ok := errors.AsType[*patchbay.Error](err); ok && e.Kind == patchbay.KindToolNotFound {
		return nil, wire.Errorf(wire.CodeInvalidParams, "%v", err)
	}
	text := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), patchbay.ErrorText(err))
	return append(text, `}],"isError":true}`...), nil
}

// refusal is an error as a client sees it: a server's own as it is.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*patchbay.RPCError](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	code := int64(wire.CodeInternal)
	if e, ok := errors.AsType[*patchbay.Error](err); ok && (e.Kind == patchbay.KindNotFound || e.Kind == patchbay.KindConfigInvalid) {
		code = wire.CodeInvalidParams
	}
	return wire.Errorf(code, "%s", patchbay.ErrorText(err))
}

// forward passes a request on with a server's own name for something in place of
// ours.
func forward(ctx context.Context, s *patchbay.Session, server string, r *wire.Request, own string, path ...string) (json.RawMessage, error) {
	params := r.Params
	if member(params, path...) != own {
		var err error
		if params, err = wire.SetMember(params, wire.AppendString(nil, own), path...); err != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "%v", err)
		}
	}
	raw, err := s.Forward(ctx, server, r.Method, params)
	return private(raw), refusal(err)
}

// resource returns the server of a URI, and the URI as that knows it.
func (c *client) resource(ctx context.Context, uri string) (server, own string, err error) {
	if c.ep.single != "" {
		return c.ep.single, uri, nil
	}
	server, own, err = c.session.FindResource(uri)
	if err == nil {
		return server, own, nil
	}
	if err := c.awaitLists(ctx); err != nil { // it may be there in a moment
		return "", "", err
	}
	return c.session.FindResource(uri)
}

// prompt returns the prompt of a name.
func (c *client) prompt(ctx context.Context, name string) (patchbay.Prompt, error) {
	p, err := c.session.FindPrompt(name)
	if err == nil {
		return p, nil
	}
	if err := c.session.Await(ctx, name); err != nil { // it may be there in a moment
		return p, err
	}
	return c.session.FindPrompt(name)
}

// complete asks the server whose prompt or template an argument is of.
func (c *client) complete(ctx context.Context, s *patchbay.Session, r *wire.Request) (json.RawMessage, error) {
	switch kind := member(r.Params, "ref", "type"); kind {
	case "ref/prompt":
		p, err := c.prompt(ctx, member(r.Params, "ref", "name"))
		if err != nil {
			return nil, refusal(err)
		}
		return forward(ctx, s, p.Server, r, p.Name, "ref", "name")
	case "ref/resource":
		server, own, err := c.resource(ctx, member(r.Params, "ref", "uri"))
		if err != nil {
			return nil, refusal(err)
		}
		return forward(ctx, s, server, r, own, "ref", "uri")
	default:
		return nil, wire.Errorf(wire.CodeInvalidParams, "ref.type is %q: expected ref/prompt or ref/resource", kind)
	}
}

// HandleNotification passes on what a client tells. Of the notifications of the
// protocol a server gets none as the client sent it: the connection is ours, and
// others may share it, so what is cancelled or reported there must be the
// client's own. The wire has taken those that are about its requests; here is
// progress with what it was asked. What extensions define goes on as it is.
func (ep *endpoint) HandleNotification(ctx context.Context, n *wire.Notification) {
	c, done, err := ep.client(n.Session)
	if err != nil {
		return
	}
	defer done()
	switch {
	case n.Method == "notifications/initialized": // the connection to each server has its own
	case n.Method == "notifications/roots/list_changed":
		c.session.RootsChanged(ctx)
	case n.Method == "notifications/progress" && !c.reports(n.Params):
	case ep.single != "":
		if err := c.session.ForwardNotification(ctx, ep.single, n.Method, n.Params); err != nil {
			ep.gateway.log.Debug("notification", "method", n.Method, "error", err)
		}
	}
}
