package patchbay

import (
	"context"
	"encoding/json"

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

// HandleRequest takes a request to the session it belongs to. If that is
// nobody's, an elicitation is cancelled.
func (x serverSide) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	to := x.asker(r.Tag)
	ctx, stop := to.context(ctx, elicitPatience)
	defer stop()
	client := &Client{}
	if to.session != nil && to.session.opts.Client != nil {
		client = to.session.opts.Client
	}
	switch {
	case r.Method == "elicitation/create":
		return x.elicit(ctx, to.session, r.Params)
	case r.Method == "sampling/createMessage" && client.Sample != nil:
		return client.Sample(ctx, x.server, r.Params)
	case r.Method == "roots/list" && client.Roots != nil:
		return client.Roots(ctx)
	}
	return nil, &wire.Error{Code: wire.CodeMethodNotFound, Message: "there is nobody to answer " + r.Method}
}

// asker finds the session that a request of the server belongs to: the one whose
// call carried it or, where the transport cannot tell, the only one with a call
// in flight or the only one there is. What could be anybody's is nobody's: one
// session must not learn of another.
func (x serverSide) asker(tag any) asked {
	if f, ok := tag.(*flight); ok {
		return asked{f.session, []*flight{f}}
	}
	all := x.sessions()
	var busy []asked
	for _, s := range all {
		if flights := s.inFlight(x.server); flights != nil {
			busy = append(busy, asked{s, flights})
		}
	}
	switch {
	case len(busy) == 1:
		return busy[0]
	case len(busy) == 0 && len(all) == 1:
		return asked{session: all[0]}
	}
	return asked{}
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
func (x serverSide) HandleNotification(ctx context.Context, n *wire.Notification) {
	if n.Method == methodElicitComplete {
		x.visited(ctx, n)
		return
	}
	var to []asked
	if f, ok := n.Tag.(*flight); ok {
		to = []asked{{f.session, []*flight{f}}}
	} else if n.Method == "notifications/progress" {
		return // of a call that is over
	} else {
		for _, s := range x.sessions() {
			to = append(to, asked{s, s.inFlight(x.server)})
		}
	}
	for _, a := range to {
		if a.session.opts.Client == nil {
			continue
		}
		_ = x.host.protect("Client", func() error { // the next one is told nevertheless
			a.session.notified(a.values(ctx), x.server, n)
			return nil
		})
	}
}

// notified tells the session's user of what a server says on its own account.
func (s *Session) notified(ctx context.Context, server string, n *wire.Notification) {
	c := s.opts.Client
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/prompts/list_changed":
		// Client.Changed is told when the new list is there.
	case "notifications/message":
		if c.Log != nil && s.wantsLog(server, n.Params) {
			c.Log(ctx, server, n.Params)
		}
	case "notifications/progress":
		if c.Progress != nil {
			c.Progress(ctx, server, n.Params)
		}
	case "notifications/resources/updated":
		if uri, _ := wire.StringMember(n.Params, "uri"); c.ResourceUpdated != nil && s.wantsUpdates(server, uri) {
			c.ResourceUpdated(server, uri, n.Params)
		}
	default:
		if c.Notified != nil {
			c.Notified(ctx, server, n.Method, n.Params)
		}
	}
}
