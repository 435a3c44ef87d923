package wire

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What a request is judged by must be what its server acts on, and servers read
// JSON in different ways: encoding/json of Go and the serializer of .NET take
// "Name" for "name", and the last of both counts; models of pydantic take
// "task_id" for "taskId". So in the places that requests are judged by, a member
// of the protocol is written as the protocol writes it or is refused, and no two
// names may differ only in their case.

// A place is an object that requests are judged by.
type place uint8

const (
	elsewhere  place = iota
	inEnvelope       // the message itself
	inParams
	inMeta   // params._meta
	inRef    // params.ref of completion/complete
	inFilter // params.notifications of subscriptions/listen
)

// judgedNames are the members that requests are judged by.
var judgedNames = [...][]string{
	inEnvelope: {"jsonrpc", "id", "method", "params", "result", "error"},
	inParams: {
		"name", "arguments", "_meta", "uri", "cursor", "ref", "argument", "context", "level", "task", "taskId", "notifications",
		"inputResponses", "requestState", "requestId", "progressToken", "elicitationId",
	},
	inMeta: {
		MetaProgressToken, MetaProtocolVersion, MetaClientInfo, MetaClientCapabilities, MetaLogLevel, MetaSubscriptionID,
		"io.modelcontextprotocol/related-task",
	},
	inRef:    {"type", "name", "uri"},
	inFilter: {"toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds"},
}

// inside is the place of the value of a member.
func (p place) inside(name []byte) place {
	switch {
	case p == inEnvelope && string(name) == "params":
		return inParams
	case p != inParams:
	case string(name) == "_meta":
		return inMeta
	case string(name) == "ref":
		return inRef
	case string(name) == "notifications":
		return inFilter
	}
	return elsewhere
}

// misspells reports whether a name is one that requests are judged by, in a
// spelling that some servers read and others do not.
func (p place) misspells(name []byte) bool {
	for _, judged := range judgedNames[p] {
		if string(name) == judged {
			return false
		}
	}
	if bytes.IndexByte(name, 0) >= 0 { // see cut
		return true
	}
	return slices.ContainsFunc(judgedNames[p], func(judged string) bool { return sameLetters(name, judged) })
}

// sameLetters reports whether two names are the same but for their case and the
// hyphens and underscores in them.
func sameLetters(name []byte, judged string) bool {
	for {
		name, judged = bytes.TrimLeft(name, "-_"), strings.TrimLeft(judged, "-_")
		if len(name) == 0 || len(judged) == 0 {
			return len(name) == len(judged)
		}
		r, size := utf8.DecodeRune(name)
		if fold(r) != fold(rune(judged[0])) { // which are all ASCII
			return false
		}
		name, judged = name[size:], judged[1:]
	}
}

// odd is what of a message some servers may read as something else.
type odd struct{ envelope, params bool }

// note takes note of something odd in a place.
func (o *odd) note(p place) {
	if p == inEnvelope {
		o.envelope = true
	} else {
		o.params = true
	}
}

// alike reports whether two names from base on differ in nothing but their case.
func (s *scanner) alike(base int) bool {
	names := s.open(base)
	if len(names) > 16 { // see unique
		slices.SortFunc(names, func(a, b span) int { return compareFolded(s.name(a), s.name(b)) })
		for i := 1; i < len(names); i++ {
			if compareFolded(s.name(names[i-1]), s.name(names[i])) == 0 {
				return true
			}
		}
		return false
	}
	for i, a := range names {
		for _, b := range names[:i] {
			if sameFolded(s.name(a), s.name(b)) {
				return true
			}
		}
	}
	return false
}

// sameFolded reports whether two names differ in nothing but their case. Names of
// the protocol begin alike, so their ends are looked at first.
func sameFolded(a, b []byte) bool {
	if len(a) > 0 && len(b) > 0 {
		x, y := a[len(a)-1], b[len(b)-1]
		if x < utf8.RuneSelf && y < utf8.RuneSelf && fold(rune(x)) != fold(rune(y)) {
			return false
		}
	}
	return compareFolded(a, b) == 0
}

// cut reports whether a name from base on has a NUL, where texts end for readers
// in C.
func (s *scanner) cut(base int) bool {
	return slices.ContainsFunc(s.open(base), func(p span) bool { return bytes.IndexByte(s.name(p), 0) >= 0 })
}

// compareFolded orders names without regard to their case.
func compareFolded(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		x, y, n, m := rune(a[0]), rune(b[0]), 1, 1
		if x != y || x >= utf8.RuneSelf {
			if x >= utf8.RuneSelf {
				x, n = utf8.DecodeRune(a)
			}
			if y >= utf8.RuneSelf {
				y, m = utf8.DecodeRune(b)
			}
			if x, y = fold(x), fold(y); x != y {
				return int(x - y)
			}
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

// fold returns the same rune for all that differ in nothing but their case: by
// simple folding, to which U+017F is an s and U+212A a k, and by what some
// languages make of the Turkish i.
func fold(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z':
		return r - 'a' + 'A'
	case r < utf8.RuneSelf:
		return r
	case r == 'ı' || r == 'İ':
		return 'I'
	}
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}

const (
	oddEnvelope = "a member is not spelled as in JSON-RPC, or two of them differ only in their case"
	oddParams   = "a member of params is not spelled as in the protocol, or two of them differ only in their case"
)

// ValidParams reports whether data may be the params of a request of a client: an
// object by the rules of Parse. The error is a *ParseError.
func ValidParams(method string, data []byte, lim Limits) error {
	if len(data) > lim.size() {
		return tooLarge(len(data))
	}
	s := lim.scanner(data)
	s.place = inParams
	i := s.space(0)
	if !s.at(i, '{') {
		return &ParseError{Code: CodeInvalidParams, Reason: "params is not an object"}
	}
	if s.end(s.value(i, 0)) < 0 {
		return s.parseError()
	}
	if s.odd.params && Judged(method) {
		return &ParseError{Code: CodeInvalidParams, Reason: oddParams}
	}
	return nil
}

// ValidDistinct reports whether data is valid, and no object in it has two member
// names that some reader takes for one: that differ only in their case, or have a
// NUL.
func ValidDistinct(data []byte, lim Limits) error {
	if len(data) > lim.size() {
		return tooLarge(len(data))
	}
	s := lim.scanner(data)
	s.distinct = true
	if s.end(s.value(s.space(0), 0)) < 0 {
		return s.parseError()
	}
	return nil
}

// judged are the methods of the protocol that a client sends, by their letters
// alone.
var judged = func() map[string]string {
	all := map[string]string{}
	for _, method := range []string{
		"initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete",
		"tools/list", "tools/call", "prompts/list", "prompts/get",
		"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
		"tasks/list", "tasks/get", "tasks/result", "tasks/cancel", "tasks/update",
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
		"notifications/elicitation/complete",
	} {
		all[letters(method)] = method
	}
	return all
}()

// Judged reports whether a method is one of those that a client sends and that
// decide what may happen.
func Judged(method string) bool {
	if method == "tools/call" {
		return true
	}
	return judged[letters(method)] == method
}

// Mistakable reports whether a method is none that we judge, but one that some
// server may take for such a one: it differs in case or in what is no letter, or
// has control characters, at which some readers end a text.
func Mistakable(method string) bool {
	meant := judged[letters(method)]
	return meant != "" && meant != method || strings.ContainsFunc(method, unicode.IsControl)
}

// OfConnection reports whether a notification is one of the protocol's own, in
// whatever spelling: it is about the connection that it is sent on, or about what
// was sent there, and nobody but the owner of the connection can say it.
func OfConnection(notification string) bool {
	first, rest, _ := strings.Cut(notification, "/")
	subject, _, _ := strings.Cut(rest, "/")
	if letters(first) != "NOTIFICATIONS" {
		return false
	}
	switch letters(subject) {
	case "INITIALIZED", "CANCELLED", "PROGRESS", "MESSAGE", "TOOLS", "RESOURCES", "PROMPTS", "ROOTS", "TASKS", "ELICITATION", "SUBSCRIPTIONS":
		return true
	}
	return false
}

// letters is a method in capitals, without all that is neither letter nor digit.
func letters(method string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return fold(r)
	}, method)
}
