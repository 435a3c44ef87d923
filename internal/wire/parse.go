package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// ParseError says why bytes are not a message: with CodeParseError they are not
// JSON as we accept it, with CodeInvalidRequest they are JSON but no message, and
// with CodeInvalidParams a request whose params may be read in two ways.
type ParseError struct {
	Code   int64
	ID     ID     // of the message, if it could be read
	Offset int    // of the byte where a parse error was noticed
	Reason string // never quotes the message
}

func (e *ParseError) Error() string {
	switch e.Code {
	case CodeParseError:
		return "not valid JSON: " + e.Reason + " at byte " + strconv.Itoa(e.Offset)
	case CodeInvalidParams:
		return "invalid params: " + e.Reason
	}
	return "not a valid message: " + e.Reason
}

// Reply is the response that tells the sender.
func (e *ParseError) Reply() Message {
	m := Message{ID: e.ID, Error: &Error{Code: e.Code, Message: e.Error()}}
	if m.ID.IsZero() {
		m.ID = NullID()
	}
	return m
}

func tooLarge(size int) *ParseError {
	return &ParseError{Code: CodeInvalidRequest, Reason: fmt.Sprintf("%d bytes are more than the limit", size)}
}

func invalid(reason string) *ParseError {
	return &ParseError{Code: CodeInvalidRequest, Reason: reason}
}

// Parse reads one message. This is the one validation of its bytes: strict
// JSON grammar, UTF-8 without lone surrogates, no member name twice in any
// object, depth and size within the limits, member names compared exactly, and
// the shape of a JSON-RPC 2.0 message; of a request that is judged, also that no
// reader can take its members for others. The raw members of the message alias
// data. The error is a *ParseError.
//
// A result or an error may be all that JSON is, since the one it is for can
// judge that best: below its own members names may be there twice, escapes may
// be of lone surrogates, and it may be nested more deeply. Who decides by what is
// in a result uses Valid first.
func Parse(data []byte, lim Limits) (Message, error) {
	if len(data) > lim.size() {
		return Message{}, tooLarge(len(data))
	}
	s := lim.scanner(data)
	var env envelope
	if s.end(s.message(s.space(0), &env)) < 0 {
		err := s.parseError()
		err.ID, _ = env.id(data)
		return Message{}, err
	}
	m, err := env.decode(data)
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

// message scans a value and marks the members of a message if it is an object.
func (s *scanner) message(i int, env *envelope) int {
	if s.at(i, '{') {
		env.object = true
		s.place, s.odd = inEnvelope, odd{}
		i = s.object(i, 1, env)
		env.odd = s.odd
		return i
	}
	return s.value(i, 0)
}

// checkResult refuses what Parse lets pass in results, where it is we who decide
// by what is in them: lists are pinned and filtered, and what a server says of
// itself is kept.
func checkResult(method string, result json.RawMessage) error {
	if method != "initialize" && method != "server/discover" && !strings.HasSuffix(method, "/list") {
		return nil
	}
	if err := Valid(result, Limits{Size: len(result)}); err != nil {
		return fmt.Errorf("the answer to %s is invalid: %w", method, err)
	}
	return nil
}

// A glance at text that is no message tells what it was meant to be, so that
// nobody waits for it.
type glance struct {
	asks    ID // the request that it is, zero if it is none
	answers ID // the request that it answers, zero if it answers none
}

// glanceAt looks at text that Parse refuses, of which head is the beginning, or
// all, and ending is the end. It finds the members of the message as long as
// brackets and quotes add up; some senders write the id last.
func glanceAt(head, ending []byte) (g glance) {
	i := skipSpace(head, 0)
	if i == len(head) || head[i] != '{' {
		return g
	}
	var id ID
	asks, answers, named := false, false, false
	for i++; ; {
		if i = skipSpace(head, i); i < len(head) && head[i] == ',' {
			i = skipSpace(head, i+1)
		}
		if i >= len(head) || head[i] != '"' {
			break
		}
		start := i
		i = skipString(head, i)
		name, _ := Unquote(head[start:i])
		if i = skipSpace(head, i); i >= len(head) || head[i] != ':' {
			break
		}
		start = skipSpace(head, i+1)
		i = skipRoughly(head, start)
		switch name {
		case "id":
			id, _ = ParseID(head[start:i])
		case "method":
			asks = true
		case "result", "error":
			answers = true
		case "jsonrpc":
			named = true
		}
	}
	if i < len(head) && head[i] == '}' && named {
		answers = true // what JavaScript makes of an answer whose result is undefined
	}
	if id.IsZero() && !asks {
		if end := idAtEnd.FindSubmatch(ending); end != nil {
			id = parseID(end[1])
		}
	}
	switch {
	case id.IsNull():
	case asks:
		g.asks = id
	case answers:
		g.answers = id
	}
	return g
}

// idAtEnd is how a message ends with its id.
var idAtEnd = regexp.MustCompile(`,\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)

// skipRoughly is skipValue for what may be no value, such as NaN.
func skipRoughly(text []byte, i int) int {
	if i < len(text) && (text[i] == '"' || text[i] == '{' || text[i] == '[') {
		return skipValue(text, i)
	}
	for i < len(text) && text[i] != ',' && text[i] != '}' {
		i++
	}
	return i
}

// IsBatch reports whether data is a JSON array rather than a single message.
func IsBatch(data []byte) bool {
	i := skipSpace(data, 0)
	return i < len(data) && data[i] == '['
}

// ParseBatch reads the array of messages that revision 2025-03-26 allows. Of
// the two slices, which are equally long, the second holds a *ParseError for
// each element that is no message. The error is a *ParseError too: it says that
// the whole is not JSON, is empty or has more than max elements (0: no limit).
func ParseBatch(data []byte, lim Limits, max int) ([]Message, []error, error) {
	if len(data) > lim.size() {
		return nil, nil, tooLarge(len(data))
	}
	if max <= 0 {
		max = math.MaxInt
	}
	s := lim.scanner(data)
	i := s.space(0)
	if !s.at(i, '[') {
		return nil, nil, invalid("not an array")
	}
	i = s.space(i + 1)
	if s.at(i, ']') {
		return nil, nil, invalid("an empty batch")
	}
	var messages []Message
	var errs []error
	for {
		if len(messages) == max {
			return nil, nil, invalid(fmt.Sprintf("a batch of more than %d messages", max))
		}
		var env envelope
		if i = s.message(i, &env); i < 0 {
			return nil, nil, s.parseError()
		}
		m, err := env.decode(data)
		messages = append(messages, m)
		if err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, nil)
		}
		i = s.space(i)
		if s.at(i, ',') {
			i = s.space(i + 1)
			continue
		}
		if s.at(i, ']') {
			i = s.end(i + 1)
		} else {
			i = s.fail(i, arrayNotEnded)
		}
		if i < 0 {
			return nil, nil, s.parseError()
		}
		return messages, errs, nil
	}
}

// An envelope marks where the members of a message are while it is scanned. An
// empty span is an absent member.
type envelope struct {
	object                                      bool // it is an object at all
	version, ident, method, params, result, err span
	odd                                         odd

	inner bool   // it is not the message that is scanned, but its result or error
	seen  uint16 // which of the members there that we go by
}

// isAnswer reports whether a member of the message is its result or error.
func (e *envelope) isAnswer(name []byte) bool {
	return !e.inner && (string(name) == "result" || string(name) == "error")
}

// member takes note of one member of the message, or of its result or error. It
// reports false if that must not be there again.
func (e *envelope) member(name []byte, value span) bool {
	if e.inner {
		return e.goBy(name)
	}
	switch string(name) {
	case "jsonrpc":
		e.version = value
	case "id":
		e.ident = value
	case "method":
		e.method = value
	case "params":
		e.params = value
	case "result":
		e.result = value
	case "error":
		e.err = value
	}
	return true
}

// goBy takes note of a member of a result or error if we go by it.
func (e *envelope) goBy(name []byte) bool {
	bit := uint16(0)
	switch string(name) {
	case "resultType":
		bit = 1
	case "inputRequests":
		bit = 1 << 1
	case "requestState":
		bit = 1 << 2
	case "_meta":
		bit = 1 << 3
	case "task":
		bit = 1 << 4
	case "taskId":
		bit = 1 << 5
	case "isError":
		bit = 1 << 6
	case "ttlMs":
		bit = 1 << 7
	case "cacheScope":
		bit = 1 << 8
	case "action":
		bit = 1 << 9
	case "code":
		bit = 1 << 10
	case "message":
		bit = 1 << 11
	}
	if e.seen&bit != 0 {
		return false
	}
	e.seen |= bit
	return true
}

func (p span) in(data []byte) json.RawMessage {
	if p.end == 0 {
		return nil
	}
	return data[p.start:p.end:p.end]
}

// id returns the id, which may be absent, and false if it is none.
func (e *envelope) id(data []byte) (ID, bool) {
	raw := e.ident.in(data)
	if raw == nil {
		return ID{}, true
	}
	if !isID(raw) {
		return ID{}, false
	}
	return parseID(raw), true
}

// decode makes a message of the marked members, if they add up to one.
func (e *envelope) decode(data []byte) (Message, *ParseError) {
	id, idOK := e.id(data)
	m := Message{ID: id, Params: e.params.in(data), Result: e.result.in(data)}
	refuse := func(reason string) (Message, *ParseError) {
		err := invalid(reason)
		err.ID = id
		return Message{}, err
	}
	if !e.object {
		return refuse("not an object")
	}
	if !idOK {
		return refuse("id is neither a string nor a number")
	}
	if version := e.version.in(data); string(version) != `"2.0"` {
		if s, _ := Unquote(version); s != "2.0" {
			return refuse(`jsonrpc is not "2.0"`)
		}
	}
	raw := e.err.in(data)
	if string(raw) == "null" && m.Result != nil {
		raw = nil // some senders write null for none
	}
	if raw != nil {
		if string(m.Result) == "null" {
			m.Result = nil
		}
		var ok bool
		if m.Error, ok = parseError(raw); !ok {
			return refuse("error is no object with an integer code and a text message")
		}
	}
	if e.method.end == 0 {
		switch {
		case m.Result == nil && m.Error == nil:
			return refuse("neither method nor result nor error")
		case m.Result != nil && m.Error != nil:
			return refuse("both a result and an error")
		case m.Result != nil && (id.IsZero() || id.IsNull()):
			return refuse("a result without the id of its request")
		}
		m.Params = nil
		return m, nil
	}
	var ok bool
	if m.Method, ok = unquoteMethod(e.method.in(data)); !ok || m.Method == "" {
		return refuse("method is not a name")
	}
	switch {
	case e.odd.envelope:
		return refuse(oddEnvelope)
	case e.odd.params && Judged(m.Method):
		return Message{}, &ParseError{Code: CodeInvalidParams, ID: id, Reason: oddParams}
	case m.Result != nil || m.Error != nil:
		return refuse("both a request and a response")
	case id.IsNull():
		return refuse("id is null")
	case m.Params == nil || m.Params[0] == '{' || m.Params[0] == '[':
		return m, nil
	case m.Params[0] == 'n': // some senders write null for none
		m.Params = nil
		return m, nil
	default:
		return refuse("params is not an object")
	}
}

// unquoteMethod is Unquote without an allocation for the methods that make up
// nearly all traffic.
func unquoteMethod(raw []byte) (string, bool) {
	switch string(raw) {
	case `"tools/call"`:
		return "tools/call", true
	case `"tools/list"`:
		return "tools/list", true
	case `"resources/read"`:
		return "resources/read", true
	case `"prompts/get"`:
		return "prompts/get", true
	case `"ping"`:
		return "ping", true
	case `"notifications/progress"`:
		return "notifications/progress", true
	case `"notifications/message"`:
		return "notifications/message", true
	case `"notifications/cancelled"`:
		return "notifications/cancelled", true
	}
	return Unquote(raw)
}
