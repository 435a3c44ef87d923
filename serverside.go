package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
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

// HandleRequest takes a request to the session it belongs to. If that is
// nobody's, an elicitation is cancelled.
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
	return nil, &wire.Error{Code: wire.CodeMethodNotFound, Message: "there is nobody to answer " + r.Method}
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

// asker finds the session that a request of the server belongs to: the one whose
// call carried it or, where the transport cannot tell, the only one with a call
// in flight or the only one there is. What could be anybody's is nobody's: one
// session must not learn of another.
func (x serverSide) asker(tag any) *Session {
	if s, ok := tag.(*Session); ok {
		return s
	}
	all := x.sessions()
	busy := slices.DeleteFunc(slices.Clone(all), func(s *Session) bool { return s.inFlight(x.server) == nil })
	switch {
	case len(busy) == 1:
		return busy[0]
	case len(busy) == 0 && len(all) == 1:
		return all[0]
	}
	return nil
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

// HandleNotification tells the sessions it may concern. Log messages and updates
// of resources are for all that share the connection, unless they came with the
// call of one.
func (x serverSide) HandleNotification(_ context.Context, n *wire.Notification) {
	ui := x.host.opts.UI
	if n.Method == "notifications/elicitation/complete" && ui != nil && ui.ElicitComplete != nil {
		id, _ := wire.StringMember(n.Params, "elicitationId")
		ui.ElicitComplete(x.server, id)
		return
	}
	sessions := x.sessions()
	if s, ok := n.Tag.(*Session); ok {
		sessions = []*Session{s}
	} else if n.Method == "notifications/progress" {
		return // of a call that is over
	}
	for _, s := range sessions {
		if s.opts.Client != nil {
			_ = x.host.protect("Client", func() error { // the next one is told nevertheless
				s.opts.Client.notified(x.server, n)
				return nil
			})
		}
	}
}

func (c *Client) notified(server string, n *wire.Notification) {
	switch {
	case n.Method == "notifications/message" && c.Log != nil:
		c.Log(server, n.Params)
	case n.Method == "notifications/progress" && c.Progress != nil:
		c.Progress(server, n.Params)
	case n.Method == "notifications/resources/updated" && c.ResourceUpdated != nil:
		uri, _ := wire.StringMember(n.Params, "uri")
		c.ResourceUpdated(server, uri)
	}
}
