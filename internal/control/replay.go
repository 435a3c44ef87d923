package control

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// transcript is what must be known of a conversation to go on with it at another
// host. It sees every message on its way, and changes few.
type transcript struct {
	turn   int  // how many hosts there have been before this one
	parted bool // this one reads no more

	// What the client said that still holds.
	initialize  *wire.Message
	opened      json.RawMessage // the result of that
	initialized *wire.Message
	level       *wire.Message
	subscribed  map[string]wire.Message // by URI

	requests  map[wire.ID]*request // of the client, not answered yet
	sequence  int
	questions map[wire.ID]wire.ID // of the host, not answered yet: as the client knows them, and as the host does
	ours      map[wire.ID]bool    // requests made here, whose answers are for nobody
	news      []wire.Message      // what the client is to hear next
	harmless  map[string]bool     // tools that may be called twice
}

// request is a request of the client.
type request struct {
	wire.Message
	number       int
	refused      bool // by a host that is ending, or has; no server has been asked
	repeated     bool // a host that ended had it, and may have carried it out
	acknowledged bool // a subscription
}

func newTranscript() transcript {
	return transcript{
		subscribed: map[string]wire.Message{}, requests: map[wire.ID]*request{},
		questions: map[wire.ID]wire.ID{}, ours: map[wire.ID]bool{}, harmless: map[string]bool{},
	}
}

// byClient takes note of what the client says, and returns it as the host is to
// hear it; false if the host is not to.
func (s *transcript) byClient(m wire.Message) (wire.Message, bool) {
	switch m.Kind() {
	case wire.KindRequest:
		if m.Method == "initialize" && s.initialize == nil {
			s.initialize = &m
		}
		s.sequence++
		s.requests[m.ID] = &request{Message: m, number: s.sequence, refused: s.parted}
	case wire.KindNotification:
		switch m.Method {
		case "notifications/initialized":
			s.initialized = &m
		case "notifications/cancelled":
			if id, ok := requestID(m.Params); ok {
				delete(s.requests, id) // there may be an answer, but need not
			}
		}
	case wire.KindResponse:
		asked, ok := s.questions[m.ID]
		if !ok {
			return m, false // whoever asked has gone
		}
		delete(s.questions, m.ID)
		m.ID = asked
	}
	return m, true
}

// byHost takes note of what the host says, and returns it as the client is to
// hear it; false if the client is not to.
func (s *transcript) byHost(m wire.Message) (wire.Message, bool) {
	switch m.Kind() {
	case wire.KindRequest:
		known := s.known(m.ID)
		s.questions[known] = m.ID
		m.ID = known
	case wire.KindNotification:
		return s.notified(m)
	case wire.KindResponse:
		if s.ours[m.ID] {
			delete(s.ours, m.ID)
			return m, false
		}
		return m, s.answered(m)
	}
	return m, true
}

// byDaemon takes note of what the daemon itself says, beside the messages of MCP.
func (s *transcript) byDaemon(word string) {
	if word == wordFarewell {
		s.parted = true
		for _, r := range s.requests {
			r.refused = true // it was not even read
		}
		return
	}
	if text, ok := strings.CutPrefix(word, wordRefused); ok {
		id, err := wire.ParseID([]byte(text))
		if r := s.requests[id]; err == nil && r != nil {
			r.refused = true
		}
	}
}

// known is the id under which the client knows a request of the host. Each host
// counts anew, and an answer that comes late must not be taken for that to
// another question.
func (s *transcript) known(id wire.ID) wire.ID {
	if s.turn == 0 {
		return id
	}
	return wire.StringID(fmt.Sprintf("%d:%s", s.turn, id))
}

// notified takes note of a notification of the host.
func (s *transcript) notified(m wire.Message) (wire.Message, bool) {
	switch m.Method {
	case "notifications/cancelled":
		id, ok := requestID(m.Params)
		if !ok {
			return m, true
		}
		known := s.known(id)
		delete(s.questions, known)
		if params, err := wire.SetMember(m.Params, known.AppendTo(nil), "requestId"); err == nil {
			m.Params = params
		}
	case "notifications/subscriptions/acknowledged":
		raw, _ := wire.Member(m.Params, "_meta", wire.MetaSubscriptionID)
		if id, err := wire.ParseID(raw); err == nil && s.requests[id] != nil {
			first := !s.requests[id].acknowledged
			s.requests[id].acknowledged = true
			if !first { // now, because what changes from here on will be told
				s.news = append(s.news, s.requests[id].missed()...)
			}
			return m, first
		}
	}
	return m, true
}

func requestID(params json.RawMessage) (wire.ID, bool) {
	raw, ok := wire.Member(params, "requestId")
	if !ok {
		return wire.ID{}, false
	}
	id, err := wire.ParseID(raw)
	return id, err == nil
}

// answered takes note of an answer to the client, and reports whether the client
// is to hear it.
func (s *transcript) answered(m wire.Message) bool {
	r := s.requests[m.ID]
	switch {
	case r == nil:
		return true
	case r.Method == "subscriptions/listen" && m.Error == nil:
		// A host that is about to end ends subscriptions, which are its own
		// business and no server's.
		r.refused = true
		return false
	}
	delete(s.requests, m.ID)
	if m.Error != nil {
		if r.Method == "initialize" && s.opened == nil {
			s.initialize = nil // the client may try again
		}
		return true
	}
	uri, _ := wire.StringMember(r.Params, "uri")
	switch r.Method {
	case "initialize":
		s.opened = m.Result
	case "logging/setLevel":
		s.level = &r.Message
	case "resources/subscribe":
		s.subscribed[uri] = r.Message
	case "resources/unsubscribe":
		delete(s.subscribed, uri)
	case "tools/list":
		s.listed(m.Result)
	}
	return true
}

// dismissed reports whether the host is about to end, and nothing is left that it
// could still answer.
func (s *transcript) dismissed() bool {
	for _, r := range s.requests {
		if !r.refused {
			return false
		}
	}
	return len(s.requests) > 0
}

// listed takes note of which tools say that calling them twice does no harm.
func (s *transcript) listed(result json.RawMessage) {
	tools, _ := wire.Member(result, "tools")
	var list []json.RawMessage
	if json.Unmarshal(tools, &list) != nil {
		return // then none of them does
	}
	for _, tool := range list {
		// Not by json.Unmarshal: a server would speak of another's tool in NAME.
		name, _ := wire.StringMember(tool, "name")
		readOnly, _ := wire.Member(tool, "annotations", "readOnlyHint")
		idempotent, _ := wire.Member(tool, "annotations", "idempotentHint")
		s.harmless[name] = string(readOnly) == "true" || string(idempotent) == "true"
	}
}

// leftover is what has to be done when a host has ended.
type leftover struct {
	answers    []wire.Message // to the client: what cannot be asked again
	initialize *wire.Message  // to the next host, before anything else
	again      []wire.Message // to the next host, then
	news       []wire.Message // to the client, at last
}

// moved begins the conversation with another host.
func (s *transcript) moved() leftover {
	var over leftover
	s.turn++
	s.parted = false
	for id := range s.questions {
		params := append(id.AppendTo([]byte(`{"requestId":`)), `,"reason":"whoever asked has ended"}`...)
		over.answers = append(over.answers, wire.Message{Method: "notifications/cancelled", Params: params})
	}
	clear(s.questions)
	clear(s.ours)
	switch {
	case s.opened != nil:
		again := s.own(*s.initialize)
		over.initialize = &again
	case s.initialize != nil:
		over.initialize = s.initialize // whose answer the client waits for
	}
	s.restore(&over)
	pending := slices.SortedFunc(maps.Values(s.requests), func(a, b *request) int { return cmp.Compare(a.number, b.number) })
	for _, r := range pending {
		switch {
		case r.Method == "initialize" && over.initialize == s.initialize:
		case r.refused, r.Method == "subscriptions/listen", s.repeatable(r) && !r.repeated:
			over.again = append(over.again, r.Message)
		default:
			delete(s.requests, r.ID)
			over.answers = append(over.answers, r.lost())
		}
	}
	over.news = s.missed()
	return over
}

// restore says again what holds for the whole session.
func (s *transcript) restore(over *leftover) {
	if s.initialized != nil {
		over.again = append(over.again, *s.initialized)
	}
	if s.level != nil {
		over.again = append(over.again, s.own(*s.level))
	}
	for _, uri := range slices.Sorted(maps.Keys(s.subscribed)) {
		over.again = append(over.again, s.own(s.subscribed[uri]))
	}
}

// own makes a request of the client one of ours.
func (s *transcript) own(m wire.Message) wire.Message {
	m.ID = wire.StringID("patchbay-" + rand.Text())
	s.ours[m.ID] = true
	return m
}

// repeatable reports whether a request can be made twice.
func (s *transcript) repeatable(r *request) bool {
	switch r.Method {
	case "tools/call":
		name, _ := wire.StringMember(r.Params, "name")
		return s.harmless[name]
	case "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return true
	}
	return wire.SafeToRepeat(r.Method)
}

// lost is the answer to a request whose own never came.
func (r *request) lost() wire.Message {
	text := "The Patchbay daemon that carried this request ended before it was answered. It may have been carried out; look before trying again."
	if r.refused {
		text = "The Patchbay daemon ended before it began with this request. It was not carried out; try again."
	}
	if r.Method != "tools/call" {
		return wire.Message{ID: r.ID, Error: wire.Errorf(wire.CodeInternal, "%s", text)}
	}
	result := []byte(`{`)
	if version, _ := wire.StringMember(r.Params, "_meta", wire.MetaProtocolVersion); wire.EraOf(version) == wire.Modern {
		result = append(result, `"resultType":"`+wire.ResultComplete+`",`...)
	}
	result = wire.AppendString(append(result, `"content":[{"type":"text","text":`...), text)
	return wire.Message{ID: r.ID, Result: append(result, `}],"isError":true}`...)}
}

// lists are what clients are told the changes of.
var lists = [...]string{"tools", "prompts", "resources"}

// missed tells the client, if it wants to know, that lists may have changed.
func (s *transcript) missed() (all []wire.Message) {
	for _, kind := range lists {
		if v, _ := wire.Member(s.opened, "capabilities", kind, "listChanged"); string(v) == "true" && s.initialized != nil {
			all = append(all, wire.Message{Method: "notifications/" + kind + "/list_changed"})
		}
	}
	return all
}

// missed is the same on a subscription, which the request is.
func (r *request) missed() (all []wire.Message) {
	for _, kind := range lists {
		if v, _ := wire.Member(r.Params, "notifications", kind+"ListChanged"); string(v) != "true" {
			continue
		}
		if params, err := wire.SetMember(nil, r.ID.AppendTo(nil), "_meta", wire.MetaSubscriptionID); err == nil {
			all = append(all, wire.Message{Method: "notifications/" + kind + "/list_changed", Params: params})
		}
	}
	return all
}
