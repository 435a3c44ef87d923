package patchbay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// serverSide answers what one server asks and tells on its own account, over a
// connection that sessions of several hosts may share.
type serverSide struct{ shared *conn.Shared }

// HandleRequest takes a request to the session it belongs to. If that is
// nobody's, an elicitation is cancelled.
func (x serverSide) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	to, why := x.asker(r)
	elicitation := r.Method == "elicitation/create"
	if to.host == nil {
		x.shared.Log().Warn("a question for nobody", "method", r.Method, "reason", why)
		if elicitation {
			return cancelled, nil
		}
		return nil, nobody(r)
	}
	if to.carrier != nil {
		defer to.carrier.putDown()
	}
	ctx, stop := to.context(ctx, elicitPatience)
	defer stop()
	answer, err := to.host.ask(ctx, r.Method, func() (json.RawMessage, error) { return to.answer(ctx, r) })
	if err != nil && elicitation && ctx.Err() != nil {
		to.host.opts.Logger.Warn("elicitation", "server", to.server, "error", err)
		return cancelled, nil
	}
	return answer, err
}

// answer asks whoever a request is for.
func (a asked) answer(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	client := &Client{}
	if a.session != nil && a.session.opts.Client != nil {
		client = a.session.opts.Client
	}
	switch {
	case r.Method == "elicitation/create":
		return a.elicit(ctx, r.Params)
	case r.Method == "sampling/createMessage" && client.Sample != nil:
		return client.Sample(ctx, a.server, r.Params)
	case r.Method == "roots/list" && client.Roots != nil:
		if roots := a.session.knownRoots(); roots != nil {
			return roots, nil
		}
		return client.Roots(ctx)
	}
	return nil, nobody(r)
}

// nobody is the answer to a request that there is nobody for.
func nobody(r *wire.Request) error {
	return &wire.Error{Code: wire.CodeMethodNotFound, Message: "there is nobody to answer " + r.Method}
}

// asker finds the session that a request of the server belongs to: the one whose
// call carried it or, where the transport cannot tell, the only one with a call
// in flight or the only one there is. What could be anybody's is nobody's, and
// why says so: one session must not learn of another. A server that brings that
// about is shared no longer.
func (x serverSide) asker(r *wire.Request) (to asked, why string) {
	if f, ok := r.Tag.(*flight); ok {
		return f.asked(), ""
	}
	all := x.sessions()
	if a, ok := only(all); ok {
		return a, ""
	}
	if i := slices.IndexFunc(all, func(a asked) bool { return a.session.knownRoots() != nil }); r.Method == "roots/list" && i >= 0 {
		return all[i], "" // all have the same
	}
	own := func(a asked) bool { return a.session.opts.Client != nil && a.session.opts.Client.Elicit != nil }
	if parties := x.shared.Parties(); r.Method == "elicitation/create" && len(parties) == 1 && !slices.ContainsFunc(all, own) {
		return asked{host: parties[0].Owner.(*Host), server: parties[0].Server}, "" // whose UI is that of all sessions
	}
	busy := slices.DeleteFunc(all, idle)
	if len(busy) == 0 {
		return asked{}, "no call was under way"
	}
	agents := map[string]bool{}
	for _, a := range busy {
		agents[a.session.profile().Session] = true
	}
	first := busy[0].session
	switch {
	case len(agents) > 1:
		why = fmt.Sprintf("it sent %s while calls of %d agents were under way, and nobody could tell which one it meant; now each agent has a connection of its own", r.Method, len(agents))
	case first.opts.Client == nil || !first.opts.Client.OneProgram:
		why = fmt.Sprintf("it sent %s while %d calls of %s were under way, which may be those of several programs, and nobody could tell which one it meant; now no other agent shares their connection", r.Method, len(busy), first.opts.Name)
	default:
		return together(busy)
	}
	x.shared.Split(why)
	return asked{}, why
}

// together is for a question of which no more is known than the program whose
// calls are under way: it is asked in the first of them that can carry it, and
// stands as long as any of them is under way.
func together(calls []asked) (to asked, why string) {
	var flights []*flight
	for _, a := range calls {
		flights = append(flights, a.flights...)
	}
	slices.SortFunc(flights, func(a, b *flight) int { return cmp.Compare(a.number, b.number) })
	for _, f := range flights {
		if wire.MayAskBack(f.method) && f.carry() {
			to = f.asked()
			to.flights, to.carrier = flights, f
			return to, ""
		}
	}
	return asked{}, "no request was under way in which the program could be asked"
}

// only returns the one that something must be about: the only one there is, or
// the only one with a request under way.
func only(all []asked) (a asked, ok bool) {
	for _, candidates := range [][]asked{all, slices.DeleteFunc(slices.Clone(all), idle)} {
		if len(candidates) == 1 {
			return candidates[0], true
		}
	}
	return asked{}, false
}

func idle(a asked) bool { return len(a.flights) == 0 }

// sessions are those that share this connection, of whatever host, with their
// requests that are under way to the server.
func (x serverSide) sessions() []asked {
	var all []asked
	for _, party := range x.shared.Parties() {
		h := party.Owner.(*Host)
		for _, s := range h.openSessions() {
			if x.shared.Serves(h, s.profile()) {
				all = append(all, asked{host: h, server: party.Server, session: s, flights: s.inFlight(party.Server)})
			}
		}
	}
	return all
}

// ownNotifications is how the names of notifications begin that are Patchbay's
// own: a server has none of them to send.
const ownNotifications = "notifications/patchbay/"

// HandleNotification tells the sessions it may concern. Updates of resources are
// for all that share the connection, unless they came with the call of one, and
// so are log messages for those who asked for them; others hear of their own
// calls.
func (x serverSide) HandleNotification(ctx context.Context, n *wire.Notification) {
	if n.Method == methodElicitComplete {
		x.visited(ctx, n)
		return
	}
	if strings.HasPrefix(n.Method, ownNotifications) {
		return
	}
	var to []asked
	if f, ok := n.Tag.(*flight); ok {
		to = []asked{f.asked()}
	} else if n.Method == "notifications/progress" || n.Method == "notifications/subscriptions/acknowledged" {
		return // of a call that is over, and of a subscription of the connection itself
	} else {
		to = x.sessions()
	}
	owner, _ := only(to)
	for _, a := range to {
		if a.session.opts.Client == nil {
			continue
		}
		if n.Method == "notifications/message" && a.session != owner.session && !a.session.asksForLog(a.server) {
			continue // it may be about another one's call
		}
		_ = a.session.host.protect("Client", func() error { // the next one is told nevertheless
			a.session.notified(a.values(ctx), a.server, n)
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
