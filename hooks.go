package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Hooks run around every call of every session, and around the questions of
// servers. Each may be nil. Hooks of settings are the outer ones: they run first
// before a call or a question, and last after it.
type Hooks struct {
	// BeforeCall may change the arguments, decide about the permission, or refuse
	// the call by returning an error, whose text the caller sees. It is not called
	// for what rules deny.
	BeforeCall func(ctx context.Context, c *HookCall) error

	// AfterCall may replace the result, or withhold it by returning an error.
	AfterCall func(ctx context.Context, c *HookCall, r *Result) (*Result, error)

	// Elicitation may answer a server's question in place of the person, who is
	// asked if it returns nil. An error declines.
	Elicitation func(ctx context.Context, r ElicitRequest) (*ElicitResult, error)

	// ElicitationResult may change the answer before the server gets it. An error
	// declines in its place.
	ElicitationResult func(ctx context.Context, r ElicitRequest, answer ElicitResult) (ElicitResult, error)

	// Notification hears of what has happened. It is called on a goroutine of its
	// own; ctx ends with the host.
	Notification func(ctx context.Context, n HookNotification)
}

// HookCall is a call as hooks see it.
type HookCall struct {
	Session   string          `json:"session"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`

	// Permission is what a hook decides, if it does: Allow makes a question
	// unnecessary, Ask demands one. The strictest of several counts. Reason is
	// told to the person who is asked.
	Permission Effect `json:"permission,omitempty"`
	Reason     string `json:"reason,omitempty"`

	names []string // all that a matcher may have for the tool
}

// HookNotification is something that has happened.
type HookNotification struct {
	Type          string `json:"type"`    // elicitation_complete: what a person was sent to a URL for is done
	Session       string `json:"session"` // whose it is, where that is known
	Server        string `json:"server"`
	ElicitationID string `json:"elicitationId,omitempty"`
}

// ElicitationComplete is the type of a HookNotification.
const ElicitationComplete = "elicitation_complete"

// looking returns hooks of a program, which look at the arguments of every call.
func (h *Hooks) looking() *Hooks {
	if h == nil || h.BeforeCall == nil {
		return h
	}
	looking := *h
	looking.BeforeCall = func(ctx context.Context, c *HookCall) error {
		if err := distinct(c.Arguments); err != nil {
			return err
		}
		return h.BeforeCall(ctx, c)
	}
	return &looking
}

// around puts hooks around others. Either may be nil.
func (outer *Hooks) around(inner *Hooks) *Hooks {
	switch {
	case outer == nil:
		return inner
	case inner == nil:
		return outer
	}
	both := *inner
	if outer.BeforeCall != nil {
		both.BeforeCall = func(ctx context.Context, c *HookCall) error {
			if err := outer.BeforeCall(ctx, c); err != nil || inner.BeforeCall == nil {
				return err
			}
			permission, reason := c.Permission, c.Reason
			c.Permission, c.Reason = "", ""
			err := inner.BeforeCall(ctx, c)
			if c.Permission == "" || stricter(permission, c.Permission) {
				c.Permission, c.Reason = permission, reason
			}
			return err
		}
	}
	if outer.AfterCall != nil {
		both.AfterCall = func(ctx context.Context, c *HookCall, r *Result) (*Result, error) {
			if inner.AfterCall != nil {
				var err error
				if r, err = inner.AfterCall(ctx, c, r); err != nil || r == nil {
					return r, err
				}
			}
			return outer.AfterCall(ctx, c, r)
		}
	}
	if outer.Elicitation != nil {
		both.Elicitation = func(ctx context.Context, r ElicitRequest) (*ElicitResult, error) {
			answer, err := outer.Elicitation(ctx, r)
			if answer != nil || err != nil || inner.Elicitation == nil {
				return answer, err
			}
			return inner.Elicitation(ctx, r)
		}
	}
	if outer.ElicitationResult != nil {
		both.ElicitationResult = func(ctx context.Context, r ElicitRequest, a ElicitResult) (ElicitResult, error) {
			if inner.ElicitationResult != nil {
				var err error
				if a, err = inner.ElicitationResult(ctx, r, a); err != nil {
					return a, err
				}
			}
			return outer.ElicitationResult(ctx, r, a)
		}
	}
	if outer.Notification != nil {
		both.Notification = func(ctx context.Context, n HookNotification) {
			outer.Notification(ctx, n)
			if inner.Notification != nil {
				inner.Notification(ctx, n)
			}
		}
	}
	return &both
}

// hooks are those in force: the settings' around the program's.
func (h *Host) hooks() Hooks {
	if hooks := h.hooked.Load(); hooks != nil {
		return *hooks
	}
	return Hooks{}
}

// firstHooks are those that will be in force when the configuration has been read:
// connections are to be prepared before.
func (h *Host) firstHooks() *Hooks {
	s := h.readSettings()
	approvals, _ := h.readApprovals()
	return h.commandHooks(s, h.projectHooks(s.project.Hooks, approvals)).hooks().around(h.opts.Hooks)
}

func (h *Hooks) aroundCalls() bool { return h.BeforeCall != nil || h.AfterCall != nil }

// hookCall is a call as its hooks see it.
func (s *Session) hookCall(t *offered, params json.RawMessage) *HookCall {
	arguments, _ := wire.Member(params, "arguments")
	return &HookCall{
		Session: s.opts.Name, Server: t.Server, Tool: t.Tool.Tool, Arguments: arguments,
		names: append(slices.Clone(t.ruled.Names()), t.Name, serverMatch(s.host.ruledName(t.Server))),
	}
}

// beforeCall runs the hooks before a call that no rule denies. It returns the
// params as the hooks want them.
func (s *Session) beforeCall(ctx context.Context, hooks Hooks, t *offered, call *HookCall, params json.RawMessage) (json.RawMessage, error) {
	if hooks.BeforeCall == nil {
		return params, nil
	}
	arguments := call.Arguments
	err := s.host.protect("Hooks.BeforeCall", func() error { return hooks.BeforeCall(ctx, call) })
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == nil && call.Permission == Deny {
		err = errors.New(orElse(call.Reason, "a hook denies it"))
	}
	if err != nil {
		call.Permission = Deny
		return nil, errorf(KindDenied, "%s was refused: %v", t.Name, err)
	}
	if string(call.Arguments) == string(arguments) {
		return params, nil
	}
	changed, err := withArguments(params, call.Arguments)
	if err != nil {
		return nil, errorf(KindConfigInvalid, "A hook gave %s arguments that are no JSON object: %v", t.Name, err)
	}
	return changed, nil
}

// decide says what is to happen to a call, given what was decided before the
// hooks, and records it if they changed that.
func (c *HookCall) decide(before Decision, r *CallRecord) Decision {
	if c.Permission == "" {
		return before
	}
	if r != nil {
		r.Decision, r.Rule, r.Source = c.Permission, "", "hook"
	}
	return Decision{Effect: c.Permission, Reason: orElse(c.Reason, "a hook says so")}
}

// distinct says why arguments are not what whoever decides by them takes them
// for: some servers read two names that differ only in their case as one.
func distinct(arguments json.RawMessage) error {
	if len(arguments) > 0 && wire.ValidDistinct(arguments, wire.Limits{}) != nil {
		return errors.New("two members of its arguments have names that differ only in their case, which servers read in different ways")
	}
	return nil
}

func orElse(text, otherwise string) string {
	if strings.TrimSpace(text) == "" {
		return otherwise
	}
	return text
}

func withArguments(params, arguments json.RawMessage) (json.RawMessage, error) {
	if err := wire.Valid(arguments, wire.Limits{}); err != nil {
		return nil, err
	}
	if !wire.IsObject(arguments) {
		return nil, errors.New("it is something else")
	}
	return wire.SetMember(params, arguments, "arguments")
}

// afterCall runs the hooks after a call, and returns the result as they want it.
func (s *Session) afterCall(ctx context.Context, hooks Hooks, t *offered, call *HookCall, raw json.RawMessage) (json.RawMessage, error) {
	if hooks.AfterCall == nil {
		return raw, nil
	}
	r := &Result{Tool: t.Tool, Raw: raw, host: s.host}
	err := s.host.protect("Hooks.AfterCall", func() (err error) {
		r, err = hooks.AfterCall(ctx, call, r)
		if err == nil && r == nil {
			err = errors.New("the hook returned nothing")
		}
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, errorf(KindDenied, "The result of %s was refused: %v", t.Name, err)
	}
	return r.Raw, nil
}

// notify tells the hooks that something has happened, without waiting for them.
func (h *Host) notify(n HookNotification) {
	hooks := h.hooks()
	if hooks.Notification == nil || !h.enter() {
		return
	}
	go func() {
		defer h.followers.Done()
		_, err := h.ask(h.life, "Hooks.Notification", func() (json.RawMessage, error) {
			hooks.Notification(h.life, n)
			return nil, nil
		})
		if err != nil {
			h.opts.Logger.Warn("hook", "event", config.Notification, "error", err)
		}
	}()
}

// enter counts something that Close waits for, until followers.Done, unless the
// host is closed.
func (h *Host) enter() bool {
	h.sessionsMu.Lock()
	defer h.sessionsMu.Unlock()
	if h.closed {
		return false
	}
	h.followers.Add(1)
	return true
}

// ruledName is the name by which rules and hooks know a server.
func (h *Host) ruledName(server string) string {
	r := h.reading.Load()
	if at, ok := r.inForce[server]; ok {
		return r.servers[at].ruled()
	}
	return server
}

// serverMatch is how a matcher names a server, and means all of its tools.
func serverMatch(server string) string {
	return strings.TrimSuffix(bridge.Render(config.NamingClaude, bridge.Ref{Server: server}), "__")
}
