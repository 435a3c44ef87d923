package patchbay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
// nobody's, an elicitation is cancelled, and whoever it may have belonged to is
// told why.
func (x serverSide) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	if r.Method == "roots/list" {
		return x.roots(ctx, r)
	}
	to, why := x.asker(r)
	if to.host == nil {
		return x.refuse(ctx, r, why)
	}
	return x.put(ctx, r, to)
}

// put puts a question to whom it is for.
func (x serverSide) put(ctx context.Context, r *wire.Request, to asked) (json.RawMessage, error) {
	if to.carrier != nil {
		defer to.carrier.putDown()
		defer to.carrier.asks()()
	} else if len(to.flights) == 1 {
		defer to.flights[0].asks()()
	}
	ctx, stop := to.context(ctx, elicitPatience)
	defer stop()
	answer, err := to.host.ask(ctx, r.Method, func() (json.RawMessage, error) { return to.answer(ctx, r) })
	if err != nil && r.Method == "elicitation/create" && ctx.Err() != nil {
		to.host.opts.Logger.Warn("elicitation", "server", to.server, "error", err)
		return cancelled, nil
	}
	return answer, err
}

// refuse answers a question that is nobody's.
func (x serverSide) refuse(ctx context.Context, r *wire.Request, why string) (json.RawMessage, error) {
	x.shared.Log().Warn("a question for nobody", "method", r.Method, "reason", why)
	for _, a := range x.sessions() {
		if c := a.session.opts.Client; c != nil && c.Log != nil && !idle(a) {
			text, _ := json.Marshal(map[string]string{"level": "warning", "logger": "patchbay", // strings always marshal
				"data": "A question of " + a.server + " was not asked: " + why + "."})
			_ = a.session.host.protect("Client.Log", func() error { c.Log(a.values(ctx), a.server, text); return nil }) // that is all that can be done
		}
	}
	if r.Method == "elicitation/create" {
		return cancelled, nil
	}
	return nil, nobody(r, why)
}

// roots answers a server that asks for roots: with those of the session it asks,
// or, where that cannot be told, if all that share the connection have the same.
// Sessions with other roots than the server was told share it no longer.
func (x serverSide) roots(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	var to []asked
	if f, ok := r.Tag.(*flight); ok {
		to = []asked{f.asked()}
	} else {
		clients := slices.DeleteFunc(x.sessions(), func(a asked) bool { return a.session.opts.Client == nil })
		if len(clients) == 0 { // agents that list and go are common, and nothing is lost
			x.shared.Log().Info("roots", "reason", "whoever it was connected for has left")
			return nil, nobody(r, "its client has left")
		}
		if to = slices.DeleteFunc(clients, func(a asked) bool { return a.session.opts.Client.Roots == nil }); len(to) > 1 {
			if a, ok := only(to); ok {
				to = []asked{a}
			}
		}
	}
	if len(to) == 0 {
		return x.refuse(ctx, r, "no session that uses it has roots")
	}
	var roots json.RawMessage
	for _, a := range to {
		if len(to) > 1 && a.session.opts.Client.AskedInCalls {
			return x.apart(r, fmt.Sprintf("it sent roots/list while it served %d sessions, and nobody could tell which one it meant", len(to)))
		}
		answer, err := x.put(ctx, r, a)
		if _, said := errors.AsType[*wire.Error](err); err != nil && !said {
			x.shared.Log().Info("roots", "session", a.session.opts.Name, "error", err)
			return nil, nobody(r, "the client does not say what its roots are")
		}
		if err != nil {
			return nil, err
		}
		if roots != nil && !bytes.Equal(roots, answer) {
			return x.apart(r, "the agents that share it have different roots")
		}
		roots = answer
	}
	if c, ok := r.Link.(*wire.Client); !ok || c.Opening().Era == wire.Legacy { // a modern server asks in each call anew
		x.shared.AsksForRoots(to[0].session.profile())
	}
	return roots, nil
}

// apart has every session have a connection of its own to a server that asked for
// roots of which nobody can tell whose they should be. There it asks again, so
// nothing is lost and there is nothing to warn of.
func (x serverSide) apart(r *wire.Request, why string) (json.RawMessage, error) {
	x.shared.AsksForRoots(conn.Profile{Roots: "of several"}) // that nobody has
	x.shared.Log().Info("roots", "reason", why+"; now those with other roots have a connection of their own")
	return nil, nobody(r, why)
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
		return a.session.answerRoots(ctx)
	}
	return nil, nobody(r, "the client does not support it")
}

// nobody is the answer to a request that there is nobody for.
func nobody(r *wire.Request, why string) error {
	return &wire.Error{Code: wire.CodeMethodNotFound, Message: "there is nobody to answer " + r.Method + ": " + why}
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
		return x.unlessAbandoned(r, a)
	}
	own := func(a asked) bool { return a.session.opts.Client != nil && a.session.opts.Client.Elicit != nil }
	if parties := x.shared.Parties(); r.Method == "elicitation/create" && ofOneHost(parties) && !slices.ContainsFunc(all, own) {
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
	client := first.opts.Client
	switch {
	case len(agents) > 1:
		why = fmt.Sprintf("it sent %s while calls of %d agents were under way, and nobody could tell which one it meant; now each agent that can be asked has a connection of its own", r.Method, len(agents))
		x.shared.Split(why)
		return asked{}, why
	case client != nil && (client.OneProgram || client.LikelyOneProgram && r.Method == "elicitation/create"):
		if to, why = x.unlessAbandoned(r, busy[0]); to.host == nil {
			return to, why
		}
		return together(busy)
	default:
		return asked{}, fmt.Sprintf("it sent %s while %d calls of %s were under way, which may be those of several programs, and nobody could tell which one it meant", r.Method, len(busy), first.opts.Name)
	}
}

// unlessAbandoned is who a question is for, unless it may be one of a call that
// another agent has given up: the server need not have heard of that.
func (x serverSide) unlessAbandoned(r *wire.Request, a asked) (to asked, why string) {
	if !x.shared.AbandonedByOthers(a.session.profile().Session) {
		return a, ""
	}
	why = "it sent " + r.Method + " soon after another agent had given up a call, and nobody could tell which one it meant; now each agent that can be asked has a connection of its own"
	x.shared.Split(why)
	return asked{}, why
}

// together is for a question of which no more is known than the program whose
// calls are under way: it is asked in the first of them that can carry it, and
// stands as long as any of them is under way. Calls in which the server waits for
// an answer already are left out if there are others: it hardly asks in the same
// call again. It may, so this is no way to tell one program from another.
func together(calls []asked) (to asked, why string) {
	var flights, waiting []*flight
	for _, a := range calls {
		flights = append(flights, a.free...)
		waiting = append(waiting, a.flights...)
	}
	if len(flights) == 0 {
		flights = waiting
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

// only returns the one that something must be about: the only one there is, or the
// only one with a request under way.
func only(all []asked) (a asked, ok bool) {
	if len(all) > 1 {
		all = slices.DeleteFunc(slices.Clone(all), idle)
	}
	if len(all) == 1 {
		return all[0], true
	}
	return asked{}, false
}

func idle(a asked) bool { return len(a.flights) == 0 }

// sessions are those that share this connection, of whatever host, with their
// requests that are under way to the server.
func (x serverSide) sessions() []asked {
	var all []asked
	at := map[*Session]int{}
	for _, party := range x.shared.Parties() {
		h := party.Owner.(*Host)
		for _, s := range h.openSessions() {
			if i, known := at[s]; known { // by another name of the server
				if s.has(party.Server) {
					all[i].server = party.Server
				}
				continue
			}
			a := asked{host: h, server: party.Server, session: s}
			if a.flights, a.free = s.inFlight(x.shared); !idle(a) || x.shared.Serves(h, s.profile()) {
				at[s] = len(all)
				all = append(all, a)
			}
		}
	}
	return all
}

// ofOneHost reports whether all parties are one host, which may have several names
// for a server.
func ofOneHost(parties []conn.Party) bool {
	return len(parties) > 0 && !slices.ContainsFunc(parties, func(p conn.Party) bool { return p.Owner != parties[0].Owner })
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
		if a.session != owner.session && (n.Method == "notifications/message" && !a.session.asksForLog(a.server) || !isForAll(n.Method)) {
			continue // it may be about another one's call
		}
		_ = a.session.host.protect("Client", func() error { // the next one is told nevertheless
			a.session.notified(a.values(ctx), a.server, n)
			return nil
		})
	}
}

// isForAll reports whether a notification is for all that share a connection. What
// nobody knows the meaning of may be about one of them alone.
func isForAll(method string) bool {
	switch method {
	case "notifications/message", "notifications/resources/updated",
		"notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/prompts/list_changed":
		return true
	}
	return strings.HasPrefix(method, "notifications/tasks") // whose they are is looked at where tasks are known
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
