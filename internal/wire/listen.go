package wire

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
)

// Filter is what a modern client subscribes to with subscriptions/listen.
type Filter struct {
	ToolsListChanged      bool
	PromptsListChanged    bool
	ResourcesListChanged  bool
	ResourceSubscriptions []string // URIs
	TaskIDs               []string // of the tasks extension
}

// maxListeners bounds the subscriptions that are open at once, in all and for
// one owner.
const (
	maxListeners = 4096
)

const tasksExtension = "io.modelcontextprotocol/tasks"

// parseFilter reads the params of subscriptions/listen.
func parseFilter(params json.RawMessage) (Filter, *Error) {
	var f Filter
	wanted, ok := Member(params, "notifications")
	if !ok || !IsObject(wanted) {
		return f, Errorf(CodeInvalidParams, "notifications is missing or not an object")
	}
	for name, value := range Members(wanted) {
		ok := true
		switch name {
		case "toolsListChanged":
			ok = parseBool(value, &f.ToolsListChanged)
		case "promptsListChanged":
			ok = parseBool(value, &f.PromptsListChanged)
		case "resourcesListChanged":
			ok = parseBool(value, &f.ResourcesListChanged)
		case "resourceSubscriptions":
			ok = parseStrings(value, &f.ResourceSubscriptions)
		case "taskIds":
			ok = parseStrings(value, &f.TaskIDs)
		}
		if !ok {
			return f, Errorf(CodeInvalidParams, "notifications.%s is of the wrong type", name)
		}
	}
	if len(f.ResourceSubscriptions) > maxSubscribed || len(f.TaskIDs) > maxSubscribed {
		return f, Errorf(CodeInvalidParams, "more than %d subscriptions", maxSubscribed)
	}
	return f, nil
}

func parseBool(raw json.RawMessage, to *bool) bool {
	*to = string(raw) == "true"
	return *to || string(raw) == "false" || isNull(raw)
}

func parseStrings(raw json.RawMessage, to *[]string) bool {
	if isNull(raw) {
		return true
	}
	if raw[0] != '[' {
		return false
	}
	for e := range Elements(raw) {
		s, ok := Unquote(e)
		if !ok {
			return false
		}
		*to = append(*to, s)
	}
	return true
}

// appendTo writes the filter as the acknowledgement shows it: what is not
// honoured is not there.
func (f Filter) appendTo(dst []byte) []byte {
	dst = append(dst, '{')
	start := len(dst)
	name := func(s string) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, s), ':')
	}
	list := func(s string, values []string) {
		if len(values) == 0 {
			return
		}
		name(s)
		for i, v := range values {
			if i == 0 {
				dst = append(dst, '[')
			} else {
				dst = append(dst, ',')
			}
			dst = AppendString(dst, v)
		}
		dst = append(dst, ']')
	}
	flag := func(s string, on bool) {
		if on {
			name(s)
			dst = append(dst, "true"...)
		}
	}
	flag("toolsListChanged", f.ToolsListChanged)
	flag("promptsListChanged", f.PromptsListChanged)
	flag("resourcesListChanged", f.ResourcesListChanged)
	list("resourceSubscriptions", f.ResourceSubscriptions)
	list("taskIds", f.TaskIDs)
	return append(dst, '}')
}

// filterOffered is the most that capabilities allow to subscribe to; the lists
// stand for any.
func filterOffered(capabilities json.RawMessage) Filter {
	has := func(path ...string) bool {
		value, ok := Member(capabilities, path...)
		return ok && string(value) != "false" && !isNull(value)
	}
	f := Filter{
		ToolsListChanged:     has("tools", "listChanged"),
		PromptsListChanged:   has("prompts", "listChanged"),
		ResourcesListChanged: has("resources", "listChanged"),
	}
	if has("resources", "subscribe") {
		f.ResourceSubscriptions = []string{}
	}
	if has("extensions", tasksExtension) {
		f.TaskIDs = []string{}
	}
	return f
}

// within is the part of the filter that is offered.
func (f Filter) within(offered Filter) Filter {
	f.ToolsListChanged = f.ToolsListChanged && offered.ToolsListChanged
	f.PromptsListChanged = f.PromptsListChanged && offered.PromptsListChanged
	f.ResourcesListChanged = f.ResourcesListChanged && offered.ResourcesListChanged
	if offered.ResourceSubscriptions == nil {
		f.ResourceSubscriptions = nil
	}
	if offered.TaskIDs == nil {
		f.TaskIDs = nil
	}
	return f
}

// wants reports whether a notification is subscribed to.
func (f *Filter) wants(method string, params json.RawMessage) bool {
	switch method {
	case "notifications/tools/list_changed":
		return f.ToolsListChanged
	case "notifications/prompts/list_changed":
		return f.PromptsListChanged
	case "notifications/resources/list_changed":
		return f.ResourcesListChanged
	case "notifications/resources/updated":
		uri, _ := StringMember(params, "uri")
		return covers(f.ResourceSubscriptions, uri)
	case "notifications/tasks":
		id, _ := StringMember(params, "taskId")
		return slices.Contains(f.TaskIDs, id)
	}
	return false
}

// A listener is one subscription: a subscriptions/listen request that has not
// been answered yet.
type listener struct {
	session *Session // that of the request
	id      ID
	filter  Filter              // what is honoured
	send    func(Message) error // must not block

	once sync.Once
	end  chan struct{} // closed when the server ends the subscription

	mu      sync.Mutex
	ready   bool      // the acknowledgement is out
	waiting []Message // for that
}

// maxWaiting bounds what a subscription keeps until it is acknowledged.
const maxWaiting = 64

func newListener(sess *Session, id ID, send func(Message) error) *listener {
	l := &listener{session: sess, id: id, send: send, end: make(chan struct{})}
	sess.heard = l
	return l
}

// finish ends the subscription in order: the client gets its result.
func (l *listener) finish() { l.once.Do(func() { close(l.end) }) }

// tagged is a message of the subscription, with its id.
func (l *listener) tagged(method string, params json.RawMessage) Message {
	if tagged, err := SetMember(params, l.id.AppendTo(nil), "_meta", MetaSubscriptionID); err == nil {
		params = tagged
	}
	return Message{Method: method, Params: params}
}

// tell sends one message, or keeps it until the acknowledgement is out.
func (l *listener) tell(method string, params json.RawMessage) error {
	m := l.tagged(method, params)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready {
		return l.send(m)
	}
	if len(l.waiting) < maxWaiting {
		l.waiting = append(l.waiting, m)
	}
	return nil
}

// acknowledgement is the first message on the stream of the subscription.
func (l *listener) acknowledgement() Message {
	params := append([]byte(`{"notifications":`), l.filter.appendTo(nil)...)
	return l.tagged(methodAcknowledged, append(params, '}'))
}

// acknowledged lets through what has waited.
func (l *listener) acknowledged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = true
	for _, m := range l.waiting {
		l.send(m) // one that fails has broken the stream off: its reader will see
	}
	l.waiting = nil
}

// listen opens a subscription. The caller sends its acknowledgement, says so,
// keeps the stream until the subscription ends or the client has gone, and then
// calls unlisten.
func (s *Server) listen(ctx context.Context, l *listener, params json.RawMessage) *Error {
	want, refused := parseFilter(params)
	if refused != nil {
		return refused
	}
	d, refused := s.describe(ctx, l.session)
	if refused != nil {
		return refused
	}
	l.filter = want.within(d.offered)
	if s.opts.Listen != nil {
		var err error
		if l.filter, err = s.opts.Listen(ctx, l.session, l.filter); err != nil {
			return s.publicError("subscriptions/listen", err)
		}
	}
	if !s.addListener(l) {
		return Errorf(CodeOverloaded, "too many subscriptions")
	}
	return nil
}

func (s *Server) addListener(l *listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := 0
	for other := range s.listeners {
		if other.session.owner == l.session.owner {
			mine++
		}
	}
	if s.draining || len(s.listeners) >= maxListeners || mine >= s.opts.MaxByOne {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) unlisten(l *listener) {
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
}

// endListeners ends the subscriptions of one owner in order.
func (s *Server) endListeners(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		if l.session.owner == owner {
			l.finish()
		}
	}
}

// result is the answer that ends a subscription in order.
func (l *listener) result(s *Server) json.RawMessage {
	result, _ := SetMember(nil, l.id.AppendTo(nil), "_meta", MetaSubscriptionID)
	return s.dressAs(l.session.description(), "subscriptions/listen", result)
}

// publish tells a modern client something that belongs to no call: on the one
// subscription whose session it is, or on all that belong to the owner of the
// request.
func (s *Server) publish(from *Session, method string, params json.RawMessage) {
	s.mu.Lock()
	var to []*listener
	for l := range s.listeners {
		if (from.heard == l || from.heard == nil && from.owner == l.session.owner) && l.filter.wants(method, params) {
			to = append(to, l)
		}
	}
	s.mu.Unlock()
	for _, l := range to {
		if err := l.tell(method, params); err != nil {
			s.log.Debug("subscription broken off", "error", err)
		}
	}
}
