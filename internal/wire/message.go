package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Message is one JSON-RPC message: a request has an id and a method, a
// notification a method only, a response an id and either a result or an error.
// Params and Result are validated JSON, carried as they came.
type Message struct {
	ID     ID
	Method string
	Params json.RawMessage // an object or array; nil if there are none
	Result json.RawMessage
	Error  *Error

	// lead, if there is one, is the beginning of the result, and Result the
	// rest: what a Server puts in front of a result, without copying it. Only
	// what writes messages with AppendTo gets to see one.
	lead []byte

	repeats *Repeats // of the call that it is, for conns that may have to send it again
}

// Kind says what a Message is.
type Kind uint8

const (
	KindRequest Kind = iota + 1
	KindNotification
	KindResponse
)

// Kind tells requests, notifications and responses apart.
func (m Message) Kind() Kind {
	switch {
	case m.Method == "":
		return KindResponse
	case m.ID.IsZero():
		return KindNotification
	default:
		return KindRequest
	}
}

// AppendTo appends the message as JSON text: a fresh envelope with the raw
// members copied byte for byte. A response without result or error gets an
// empty object as its result, one without id a null.
func (m Message) AppendTo(dst []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if m.Method == "" {
		dst = append(dst, `,"id":`...)
		if m.ID.IsZero() {
			dst = append(dst, "null"...)
		}
		dst = m.ID.AppendTo(dst)
		switch {
		case m.Error != nil:
			dst = append(dst, `,"error":`...)
			dst = m.Error.AppendTo(dst)
		case len(m.Result) == 0:
			dst = append(dst, `,"result":{}`...)
		default:
			dst = append(dst, `,"result":`...)
			dst = append(dst, m.lead...)
			dst = append(dst, m.Result...)
		}
		return append(dst, '}')
	}
	if !m.ID.IsZero() {
		dst = append(dst, `,"id":`...)
		dst = m.ID.AppendTo(dst)
	}
	dst = append(dst, `,"method":`...)
	dst = AppendString(dst, m.Method)
	if len(m.Params) > 0 {
		dst = append(dst, `,"params":`...)
		dst = append(dst, m.Params...)
	}
	return append(dst, '}')
}

// size is about what AppendTo appends.
func (m Message) size() int {
	n := 64 + len(m.ID.text) + len(m.Method) + len(m.Params) + len(m.lead) + len(m.Result)
	if m.Error != nil {
		n += 64 + len(m.Error.Message) + len(m.Error.Data) + len(m.Error.raw)
	}
	return n
}

// ID is the id of a request: a JSON string or number, kept as it was written,
// or null in an error about a request whose id nobody could read. The zero ID
// is an absent one. IDs are comparable with ==, which compares the texts.
type ID struct {
	kind idKind
	num  int64  // of an idInt, which is most ids and needs no memory of its own
	text string // of an idText
}

type idKind uint8

const (
	idAbsent idKind = iota
	idInt           // an integer in its shortest form, at most 18 digits
	idText          // any other JSON text
)

const maxShortInt = 1e18 // the first integer of 19 digits

// NullID is the id of an error about a request whose id could not be read.
func NullID() ID { return ID{kind: idText, text: "null"} }

// NumberID returns an integer id.
func NumberID(n int64) ID {
	if n <= -maxShortInt || n >= maxShortInt {
		return ID{kind: idText, text: strconv.FormatInt(n, 10)}
	}
	return ID{kind: idInt, num: n}
}

// StringID returns a string id; s is the string itself, not its JSON text.
func StringID(s string) ID { return ID{kind: idText, text: string(AppendString(nil, s))} }

// ParseID reads an id from its JSON text: a string, a number or null.
func ParseID(raw []byte) (ID, error) {
	if err := Valid(raw, Limits{}); err != nil {
		return ID{}, err
	}
	start := skipSpace(raw, 0)
	raw = raw[start:skipValue(raw, start)]
	if !isID(raw) {
		return ID{}, &ParseError{Code: CodeInvalidRequest, Reason: "id is neither a string nor a number"}
	}
	return parseID(raw), nil
}

func isID(raw []byte) bool {
	switch raw[0] {
	case '{', '[', 't', 'f':
		return false
	}
	return true
}

// parseID makes an ID of the valid text of one.
func parseID(raw []byte) ID {
	if n, ok := parseInt(raw); ok {
		return ID{kind: idInt, num: n}
	}
	return ID{kind: idText, text: string(raw)}
}

// parseInt reads the valid JSON number raw if it is an integer of at most 18
// digits in its one shortest form.
func parseInt(raw []byte) (int64, bool) {
	digits := raw
	if len(raw) > 1 && raw[0] == '-' && raw[1] != '0' {
		digits = raw[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(raw) {
		n = -n
	}
	return n, true
}

// IsZero reports whether the id is absent.
func (id ID) IsZero() bool { return id.kind == idAbsent }

// IsNull reports whether the id is null.
func (id ID) IsNull() bool { return id.kind == idText && id.text == "null" }

// String returns the JSON text of the id, nothing if it is absent.
func (id ID) String() string {
	if id.kind == idInt {
		return strconv.FormatInt(id.num, 10)
	}
	return id.text
}

// AppendTo appends the JSON text of the id, nothing if it is absent.
func (id ID) AppendTo(dst []byte) []byte {
	if id.kind == idInt {
		return strconv.AppendInt(dst, id.num, 10)
	}
	return append(dst, id.text...)
}

// MarshalJSON writes the id as it came, and null for an absent one.
func (id ID) MarshalJSON() ([]byte, error) {
	if id.IsZero() {
		return []byte("null"), nil
	}
	return id.AppendTo(nil), nil
}

// UnmarshalJSON reads an id of any legal form.
func (id *ID) UnmarshalJSON(data []byte) (err error) {
	*id, err = ParseID(data)
	return err
}

// Error codes of JSON-RPC and MCP.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603

	CodeOverloaded       = -32000 // ours: a queue is full
	CodeResourceNotFound = -32002 // legacy era; the modern one says CodeInvalidParams
	CodeNotInitialized   = -32002 // a strict legacy server before initialize

	CodeHeaderMismatch          = -32020 // a header does not mirror the body
	CodeMissingClientCapability = -32021 // data.requiredCapabilities
	CodeUnsupportedVersion      = -32022 // data.supported, data.requested
	CodeURLElicitationRequired  = -32042 // 2025-11-25
)

// Error is the error of a response. Members of the error object that are not
// known here survive as long as the value (or a copy of it) is what goes out.
type Error struct {
	Code    int64
	Message string
	Data    json.RawMessage // nil if there is none

	raw json.RawMessage // the whole object, if it was received

	unhandled bool // see Unhandled
}

// Errorf returns an Error with a formatted message.
func Errorf(code int64, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Unhandled reports whether a Server or Peer of this process refused a request
// because it is shutting down, before any handler saw it. An error that was
// received never says so, whatever is in it.
func (e *Error) Unhandled() bool { return e != nil && e.unhandled }

func (e *Error) Error() string {
	return e.Message + " (code " + strconv.FormatInt(e.Code, 10) + ")"
}

// AppendTo appends the error object as JSON text.
func (e *Error) AppendTo(dst []byte) []byte {
	if e.raw != nil {
		return append(dst, e.patched()...)
	}
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, e.Code, 10)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, e.Message)
	if e.Data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	}
	return append(dst, '}')
}

// patched is the received object with whatever has been changed since.
func (e *Error) patched() []byte {
	was, _ := parseError(e.raw)
	raw := []byte(e.raw)
	set := func(name string, value []byte) {
		if out, err := SetMember(raw, value, name); err == nil {
			raw = out
		}
	}
	if was.Code != e.Code {
		set("code", strconv.AppendInt(nil, e.Code, 10))
	}
	if was.Message != e.Message {
		set("message", AppendString(nil, e.Message))
	}
	switch {
	case string(was.Data) == string(e.Data):
	case e.Data == nil:
		raw = DeleteMember(raw, "data")
	default:
		set("data", e.Data)
	}
	return raw
}

// parseError reads valid JSON as an error object. A server that leaves out the
// code or the message is forgiven; one that gets their types wrong is not.
func parseError(raw json.RawMessage) (*Error, bool) {
	e := &Error{raw: raw}
	if !IsObject(raw) {
		return e, false
	}
	for name, value := range Members(raw) {
		switch name {
		case "code":
			code, ok := parseInt(value)
			if !ok {
				return e, false
			}
			e.Code = code
		case "message":
			message, ok := Unquote(value)
			if !ok {
				return e, false
			}
			e.Message = message
		case "data":
			e.Data = value
		}
	}
	return e, true
}
