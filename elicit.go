package patchbay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// What a person can do with a question.
const (
	ElicitAccept  = "accept"
	ElicitDecline = "decline"
	ElicitCancel  = "cancel"
)

// The kinds of questions.
const (
	ModeForm = "form" // the person fills in a form
	ModeURL  = "url"  // the person is sent to a web page
)

// ElicitRequest is a server's question to a person. What it holds is the
// server's text: it is to be shown as such, with the server's name.
type ElicitRequest struct {
	Session string `json:"session,omitempty"` // whose call made the server ask, where that is known
	Server  string `json:"server"`
	Mode    string `json:"mode"` // ModeForm or ModeURL
	Message string `json:"message"`

	// Schema, of a form, is a JSON Schema of an object whose members are strings,
	// numbers, booleans, or lists of choices; Form reads it.
	Schema json.RawMessage `json:"schema,omitempty"`

	// URL is to be opened only if the person agrees, who must see all of it, and
	// Host above all. UI.ElicitComplete has ElicitationID when the person is done.
	URL           string `json:"url,omitempty"`
	Host          string `json:"host,omitempty"`
	ElicitationID string `json:"elicitationId,omitempty"`

	Params json.RawMessage `json:"params"` // of elicitation/create, as the server sent them
}

// ElicitResult is the answer: accept with content, decline, or cancel. Fields of
// a form that content leaves out get their defaults.
type ElicitResult struct {
	Action  string          `json:"action"`
	Content json.RawMessage `json:"content,omitempty"` // of a form: a JSON object
}

var (
	cancelled = json.RawMessage(`{"action":"cancel"}`)  // when there is nobody to ask
	declined  = json.RawMessage(`{"action":"decline"}`) // when a hook says so
)

// elicitPatience is how long a person has to answer.
const elicitPatience = 10 * time.Minute

// NewElicitRequest reads the params of elicitation/create, as Client.Elicit gets
// them.
func NewElicitRequest(server string, params json.RawMessage) (ElicitRequest, error) {
	r := ElicitRequest{Server: server, Params: params}
	r.Mode, _ = wire.StringMember(params, "mode")
	r.Message, _ = wire.StringMember(params, "message")
	switch r.Mode {
	case "", ModeForm:
		r.Mode = ModeForm
		r.Schema, _ = wire.Member(params, "requestedSchema")
		return r, nil
	case ModeURL:
		r.URL, _ = wire.StringMember(params, "url")
		r.ElicitationID, _ = wire.StringMember(params, "elicitationId")
		var err error
		r.Host, err = hostOf(r.URL)
		return r, err
	}
	return r, wire.Errorf(wire.CodeInvalidParams, "unknown mode of elicitation: expected form or url")
}

// hostOf returns the host of a URL that a person may be sent to. It must be what
// it seems to be.
func hostOf(text string) (string, error) {
	u, err := url.Parse(text)
	plain := strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", wire.Errorf(wire.CodeInvalidParams, "the url of an elicitation must be an absolute http or https URL")
	case !plain:
		return "", wire.Errorf(wire.CodeInvalidParams, "the url of an elicitation must be written in ASCII, without spaces")
	case u.User != nil:
		return "", wire.Errorf(wire.CodeInvalidParams, "the url of an elicitation must not have a user name")
	}
	return u.Host, nil
}

// elicitModes is which kinds of questions can be answered.
type elicitModes struct{ form, url bool }

func (m elicitModes) has(mode string) bool {
	return mode == ModeForm && m.form || mode == ModeURL && m.url
}

func (m elicitModes) or(other elicitModes) elicitModes {
	return elicitModes{m.form || other.form, m.url || other.url}
}

// elicitModes are those of a person whom the UI reaches.
func (u *UI) elicitModes() elicitModes {
	if u == nil || u.Elicit == nil {
		return elicitModes{}
	}
	return elicitModes{form: true, url: !u.ElicitFormsOnly}
}

// elicitModes are those of the host itself. Hooks may answer anything.
func (h *Host) elicitModes(hooks *Hooks) elicitModes {
	if hooks != nil && hooks.Elicitation != nil {
		return elicitModes{form: true, url: true}
	}
	return h.opts.UI.elicitModes()
}

// elicitModes are those of the session's user.
func (c *Client) elicitModes() elicitModes {
	switch {
	case c == nil || c.Elicit == nil:
		return elicitModes{}
	case c.Capabilities == nil:
		return elicitModes{form: true, url: true}
	}
	declared, ok := wire.Member(c.Capabilities, "elicitation")
	_, form := wire.Member(declared, "form")
	_, url := wire.Member(declared, "url")
	return elicitModes{form: ok && (form || !url), url: url} // what declares nothing more can do forms
}

// declare adds the kinds of questions to capabilities.
func (m elicitModes) declare(capabilities json.RawMessage) json.RawMessage {
	for _, mode := range []string{ModeForm, ModeURL} {
		if !m.has(mode) {
			continue
		}
		if _, declared := wire.Member(capabilities, "elicitation", mode); declared {
			continue
		}
		if with, err := wire.SetMember(capabilities, []byte(`{}`), "elicitation", mode); err == nil {
			capabilities = with
		}
	}
	return capabilities
}

// question is a server's question on its way to whoever answers it.
type question struct {
	ElicitRequest
	host   *Host
	client *Client // of the session
	visit  *visit  // to the URL; nil for forms
}

// elicit answers a question of a server: a hook does, or the session's user, or
// the person whom the host's UI reaches.
func (a asked) elicit(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	q, err := a.host.question(a.session, a.server, params)
	if err != nil {
		return nil, err
	}
	answer, err := q.settle(ctx, false)
	if err != nil || !accepts(answer) {
		a.host.visits.forget(q.visit)
	}
	return answer, err
}

func (h *Host) question(s *Session, server string, params json.RawMessage) (*question, error) {
	r, err := NewElicitRequest(server, params)
	if err != nil {
		return nil, err
	}
	q := &question{ElicitRequest: r, host: h, visit: h.visits.expect(server, r.ElicitationID, s)}
	if s != nil {
		q.Session, q.client = s.opts.Name, s.opts.Client
	}
	return q, nil
}

func accepts(answer json.RawMessage) bool {
	action, _ := wire.StringMember(answer, "action")
	return action == ElicitAccept
}

// settle obtains an answer, and lets hooks have the last word on it. One that
// does not come, in time or at all, is a cancellation: the server must not wait
// for ever. With hooksOnly nobody else is asked, and the answer may be nil.
func (q *question) settle(ctx context.Context, hooksOnly bool) (json.RawMessage, error) {
	answer, err := q.answer(ctx, hooksOnly)
	if refusal, ok := errors.AsType[*RPCError](err); ok {
		return nil, refusal // which the client means for the server
	}
	if err != nil {
		q.host.opts.Logger.Warn("elicitation", "server", q.Server, "error", err)
		return cancelled, nil
	}
	if answer == nil || ctx.Err() != nil {
		return answer, nil
	}
	return q.review(ctx, answer), nil
}

// answer asks one after the other: hooks, the session's user, the UI.
func (q *question) answer(ctx context.Context, hooksOnly bool) (answer json.RawMessage, err error) {
	if hooks := q.host.hooks(); hooks.Elicitation != nil {
		var given *ElicitResult
		err := q.host.protect("Hooks.Elicitation", func() (err error) {
			given, err = hooks.Elicitation(ctx, q.ElicitRequest)
			return err
		})
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			q.host.opts.Logger.Warn("elicitation declined by a hook", "server", q.Server, "error", err)
			return declined, nil
		case given != nil:
			return q.checked(*given)
		}
	}
	if hooksOnly {
		return nil, nil
	}
	if q.client.elicitModes().has(q.Mode) {
		q.host.visits.show(q.visit, toClient)
		err = q.host.protect("Client.Elicit", func() (err error) {
			answer, err = q.client.Elicit(ctx, q.Server, q.Params)
			return err
		})
		if err == nil && !wire.IsObject(answer) {
			err = errors.New("the answer is no object")
		}
		return answer, err
	}
	if ui := q.host.opts.UI; ui.elicitModes().has(q.Mode) {
		if q.Mode == ModeForm {
			if _, err := q.Form(); err != nil {
				return nil, wire.Errorf(wire.CodeInvalidParams, "%v", err)
			}
		}
		q.host.visits.show(q.visit, toUI)
		var given ElicitResult
		err := q.host.protect("UI.Elicit", func() (err error) {
			given, err = ui.Elicit(ctx, q.ElicitRequest)
			return err
		})
		if err != nil {
			return nil, err
		}
		return q.checked(given)
	}
	if m := q.client.elicitModes().or(q.host.opts.UI.elicitModes()); m.form || m.url {
		return nil, wire.Errorf(wire.CodeInvalidParams, "nobody here has declared elicitation of mode %q", q.Mode)
	}
	return cancelled, nil
}

// checked is an answer of a hook or a person in the form that servers get, if it
// is one to the question.
func (q *question) checked(a ElicitResult) (json.RawMessage, error) {
	switch a.Action {
	case ElicitDecline, ElicitCancel:
		a.Content = nil
	case ElicitAccept:
		if q.Mode == ModeURL {
			a.Content = nil
			break
		}
		form, err := q.Form()
		if err != nil {
			return nil, err
		}
		if a.Content, err = form.Fill(a.Content); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("the answer is none of %s, %s and %s", ElicitAccept, ElicitDecline, ElicitCancel)
	}
	return json.Marshal(a)
}

// review lets the hooks change an answer. One they leave alone stays as it is, to
// the byte.
func (q *question) review(ctx context.Context, answer json.RawMessage) json.RawMessage {
	hooks := q.host.hooks()
	if hooks.ElicitationResult == nil {
		return answer
	}
	var was ElicitResult
	was.Action, _ = wire.StringMember(answer, "action")
	was.Content, _ = wire.Member(answer, "content")
	now := was
	err := q.host.protect("Hooks.ElicitationResult", func() (err error) {
		now, err = hooks.ElicitationResult(ctx, q.ElicitRequest, was)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return cancelled
	case err != nil:
		q.host.opts.Logger.Warn("elicitation declined by a hook", "server", q.Server, "error", err)
		return declined
	case now.Action == was.Action && bytes.Equal(now.Content, was.Content):
		return answer
	}
	changed, err := q.checked(now)
	if err != nil {
		q.host.opts.Logger.Warn("elicitation", "server", q.Server, "error", err)
		return cancelled
	}
	return changed
}
