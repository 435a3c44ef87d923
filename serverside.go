package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// serverSide answers what one server asks and tells on its own account.
type serverSide struct {
	host    *Host
	server  string
	profile conn.Profile
}

func (h *Host) serverSide(server string, p conn.Profile) wire.Handler {
	return serverSide{h, server, p}
}

// cancelled is the answer to an elicitation when there is nobody to ask.
var cancelled = json.RawMessage(`{"action":"cancel"}`)

// HandleRequest takes a request to the session it belongs to: the one whose
// call carried it or, where the transport cannot tell, the only one with a call
// in flight. If that is nobody's, an elicitation is cancelled.
func (x serverSide) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	s := x.asker(r.Tag)
	var client *Client
	if s != nil {
		client = s.opts.Client
	}
	switch r.Method {
	case "elicitation/create":
		return x.elicit(ctx, s, r.Params)
	case "sampling/createMessage":
		if client != nil && client.Sample != nil {
			return client.Sample(ctx, x.server, r.Params)
		}
	case "roots/list":
		if client != nil && client.Roots != nil {
			return client.Roots(ctx)
		}
	}
	return nil, &wire.Error{Code: wire.CodeMethodNotFound, Message: r.Method + " is not supported here"}
}

// elicitPatience is how long a person has to answer.
const elicitPatience = 10 * time.Minute

// elicit asks the person. The question ends with the calls it may belong to: not
// every server takes it back. An answer that does not come, in time or at all, is
// a cancellation: the server must not wait for ever.
func (x serverSide) elicit(ctx context.Context, s *Session, params json.RawMessage) (json.RawMessage, error) {
	ctx, stop := context.WithTimeout(ctx, elicitPatience)
	defer stop()
	var client *Client
	if s != nil {
		client = s.opts.Client
		if calls := s.inFlight(x.server); calls != nil {
			defer context.AfterFunc(calls, stop)()
		}
	}
	answer := cancelled
	err := x.host.protect("Elicit", func() (err error) {
		if client != nil && client.Elicit != nil {
			answer, err = client.Elicit(ctx, x.server, params)
			return err
		}
		ui := x.host.opts.UI
		if ui == nil || ui.Elicit == nil {
			return nil
		}
		result, err := ui.Elicit(ctx, ElicitRequest{Server: x.server, Params: params})
		if err == nil {
			answer, err = json.Marshal(result)
		}
		return err
	})
	if refusal, ok := errors.AsType[*RPCError](err); ok {
		return nil, refusal // which the client means for the server
	}
	if err != nil {
		x.host.opts.Logger.Warn("elicitation", "server", x.server, "error", err)
		return cancelled, nil
	}
	return answer, nil
}

// asker finds the session that a request of the server belongs to.
func (x serverSide) asker(tag any) *Session {
	if s, ok := tag.(*Session); ok {
		return s
	}
	var only *Session
	for _, s := range x.sessions() {
		busy := s.inFlight(x.server) != nil
		if busy && only != nil {
			return nil
		}
		if busy {
			only = s
		}
	}
	return only
}

// sessions are those that share this connection.
func (x serverSide) sessions() []*Session {
	x.host.sessionsMu.Lock()
	defer x.host.sessionsMu.Unlock()
	var all []*Session
	for s := range x.host.sessions {
		if s.profile.Key == x.profile.Key {
			all = append(all, s)
		}
	}
	return all
}

// HandleNotification tells the sessions that share the connection.
func (x serverSide) HandleNotification(_ context.Context, n *wire.Notification) {
	if n.Method == "notifications/elicitation/complete" {
		if ui := x.host.opts.UI; ui != nil && ui.ElicitComplete != nil {
			id, _ := wire.StringMember(n.Params, "elicitationId")
			ui.ElicitComplete(x.server, id)
		}
		return
	}
	sessions := x.sessions()
	if s, ok := n.Tag.(*Session); ok {
		sessions = []*Session{s}
	}
	for _, s := range sessions {
		c := s.opts.Client
		if c == nil {
			continue
		}
		switch {
		case n.Method == "notifications/message" && c.Log != nil:
			c.Log(x.server, n.Params)
		case n.Method == "notifications/progress" && c.Progress != nil:
			c.Progress(x.server, n.Params)
		case n.Method == "notifications/resources/updated" && c.ResourceUpdated != nil:
			uri, _ := wire.StringMember(n.Params, "uri")
			c.ResourceUpdated(x.server, uri)
		}
	}
}
