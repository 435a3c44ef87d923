package wire

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The headers of Streamable HTTP, in the form of http.CanonicalHeaderKey.
const (
	headerVersion     = "Mcp-Protocol-Version"
	headerSession     = "Mcp-Session-Id"
	headerLastEventID = "Last-Event-Id"

	// In the modern era a request repeats in its headers what it says in its
	// body, so that what stands between client and server need not read bodies.
	headerMethod      = "Mcp-Method"
	headerName        = "Mcp-Name"
	headerParamPrefix = "Mcp-Param-"
)

// mirroredName returns what Mcp-Name has to repeat: the name, URI or task of the
// methods that are about one thing.
func mirroredName(method string, params json.RawMessage) (string, bool) {
	switch method {
	case "tools/call", "prompts/get":
		return StringMember(params, "name")
	case "resources/read":
		return StringMember(params, "uri")
	case "tasks/get", "tasks/update", "tasks/cancel":
		return StringMember(params, "taskId")
	}
	return "", false
}

// setMirror writes the headers that repeat the method and the name.
func setMirror(h http.Header, method string, params json.RawMessage) {
	h[headerMethod] = []string{method}
	if name, ok := mirroredName(method, params); ok {
		h[headerName] = []string{encodeHeaderValue(name)}
	}
}

// checkMirror reports the first difference between the headers and the body, and
// returns the name that both have.
func checkMirror(h http.Header, method string, params json.RawMessage) (name string, err error) {
	got, err := singleHeader(h, headerMethod) // which is never in base64
	if err != nil {
		return "", err
	}
	if got != method {
		return "", fmt.Errorf("%s header says %q, the body %q", headerMethod, got, method)
	}
	name, ok := mirroredName(method, params)
	if !ok {
		return "", nil // nothing to repeat, or params that are invalid for another reason
	}
	if got, err = decodedHeader(h, headerName); err != nil {
		return "", err
	}
	if got != name {
		return "", fmt.Errorf("%s header says %q, the body %q", headerName, got, name)
	}
	return name, nil
}

// singleHeader returns the value of a header that has to be there exactly once.
// The name is canonical.
func singleHeader(h http.Header, name string) (string, error) {
	switch values := h[name]; len(values) {
	case 0:
		return "", fmt.Errorf("%s header is missing", name)
	case 1:
		return values[0], nil
	default:
		return "", fmt.Errorf("%s header is there %d times", name, len(values))
	}
}

// decodedHeader is singleHeader for a header that may be in base64.
func decodedHeader(h http.Header, name string) (string, error) {
	text, err := singleHeader(h, name)
	if err != nil {
		return "", err
	}
	if text, err = decodeHeaderValue(text); err != nil {
		return "", fmt.Errorf("%s header %w", name, err)
	}
	return text, nil
}

const (
	base64Start = "=?base64?"
	base64End   = "?="
)

// encodeHeaderValue writes a string so that it survives as the value of a
// header: as it is if it is visible ASCII with spaces inside, else in base64
// between the markers. An empty value takes that form too, because what stands
// between may drop a header without one.
func encodeHeaderValue(s string) string {
	plain := s != "" && s[0] != ' ' && s[len(s)-1] != ' ' &&
		!(strings.HasPrefix(s, base64Start) && strings.HasSuffix(s, base64End))
	for i := 0; plain && i < len(s); i++ {
		plain = 0x20 <= s[i] && s[i] <= 0x7e
	}
	if plain {
		return s
	}
	return base64Start + base64.StdEncoding.EncodeToString([]byte(s)) + base64End
}

var (
	errHeaderChars  = errors.New("has characters no header may have")
	errHeaderBase64 = errors.New("is not valid base64 between its markers")
)

// decodeHeaderValue is the inverse of encodeHeaderValue.
func decodeHeaderValue(s string) (string, error) {
	if inner, ok := strings.CutPrefix(s, base64Start); ok {
		if inner, ok = strings.CutSuffix(inner, base64End); ok {
			text, err := base64.StdEncoding.Strict().DecodeString(inner)
			if err != nil || !utf8.Valid(text) {
				return "", errHeaderBase64
			}
			return string(text), nil
		}
	}
	for i := range len(s) {
		if (s[i] < 0x20 || s[i] > 0x7e) && s[i] != '\t' {
			return "", errHeaderChars
		}
	}
	return s, nil
}

// ParamHeaders says which arguments of a tool are repeated in which headers.
// It follows from the x-mcp-header annotations of the tool's input schema.
type ParamHeaders []paramHeader

type paramHeader struct {
	header string   // Mcp-Param-…, canonical
	path   []string // of the property, from the root of the arguments
}

const annotation = "x-mcp-header"

// ParseParamHeaders reads the annotations of a tool's input schema. An error
// means that one of them is invalid; a client of Streamable HTTP must then
// leave the whole tool out.
func ParseParamHeaders(inputSchema json.RawMessage) (ParamHeaders, error) {
	// Nearly no schema has annotations: look for the word first, or for an
	// escape that may hide it.
	if !bytes.Contains(inputSchema, []byte(annotation)) && !bytes.Contains(inputSchema, []byte(`\u`)) {
		return nil, nil
	}
	w := annotationWalker{taken: make(map[string]bool)}
	if err := w.schema(inputSchema, nil, true); err != nil {
		return nil, err
	}
	return w.found, nil
}

type annotationWalker struct {
	found ParamHeaders
	taken map[string]bool // header names, canonical
}

// schema walks over one schema. reachable says that the chain from the root to
// it consists of properties only: only there annotations are allowed.
func (w *annotationWalker) schema(schema json.RawMessage, path []string, reachable bool) error {
	for keyword, value := range Members(schema) {
		var err error
		switch keyword {
		case annotation:
			err = w.annotation(schema, value, path, reachable)
		case "properties":
			for name, property := range Members(value) {
				next := append(path[:len(path):len(path)], name)
				if err = w.schema(property, next, reachable); err != nil {
					break
				}
			}
		case "const", "enum", "default", "examples", "required", "dependentRequired":
			// data, not schemas
		case "patternProperties", "dependentSchemas", "$defs", "definitions":
			for _, s := range Members(value) {
				if err = w.schema(s, path, false); err != nil {
					break
				}
			}
		default: // items, anyOf, if and so on: a schema, several, or none
			err = w.schema(value, path, false)
			for s := range Elements(value) {
				if err == nil {
					err = w.schema(s, path, false)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *annotationWalker) annotation(schema, value json.RawMessage, path []string, reachable bool) error {
	if !reachable || len(path) == 0 {
		return fmt.Errorf("%s is not on a property reached through properties alone", annotation)
	}
	property := strings.Join(path, ".")
	name, ok := Unquote(value)
	if !ok || name == "" {
		return fmt.Errorf("%s of property %q is not a name", annotation, property)
	}
	for i := range len(name) {
		if !isTokenChar(name[i]) {
			return fmt.Errorf("%s %q of property %q is not a header name", annotation, name, property)
		}
	}
	if kind, _ := Member(schema, "type"); !isMirroredType(kind) {
		return fmt.Errorf("%s %q is on property %q, which is no string, integer or boolean", annotation, name, property)
	}
	header := http.CanonicalHeaderKey(headerParamPrefix + name)
	if w.taken[header] {
		return fmt.Errorf("%s %q is there twice", annotation, name)
	}
	w.taken[header] = true
	w.found = append(w.found, paramHeader{header: header, path: path})
	return nil
}

// isMirroredType reports whether the type keyword allows one of the three
// types, and nothing else but null.
func isMirroredType(kind json.RawMessage) bool {
	name, ok := Unquote(kind)
	if !ok {
		for k := range Elements(kind) {
			if n, _ := Unquote(k); n != "null" {
				if name != "" {
					return false
				}
				name = n
			}
		}
	}
	return name == "string" || name == "integer" || name == "boolean"
}

// Elements ranges over the elements of a valid JSON array, and over nothing if
// the value is not an array.
func Elements(array json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		i := skipSpace(array, 0)
		if i == len(array) || array[i] != '[' {
			return
		}
		for i = skipSpace(array, i+1); i < len(array) && array[i] != ']'; i = skipSpace(array, i) {
			if array[i] == ',' {
				i++
				continue
			}
			end := skipValue(array, i)
			if !yield(array[i:end:end]) {
				return
			}
			i = end
		}
	}
}

type paramHeadersKey struct{}

// WithParamHeaders has a tool call that is made with the context carry the
// Mcp-Param headers of the request that it is made for. Those that repeat
// arguments are written anew; others are passed on as they are, because the
// server may know what they mean.
func WithParamHeaders(ctx context.Context, request http.Header) context.Context {
	var found http.Header
	for name, values := range request {
		if strings.HasPrefix(name, headerParamPrefix) {
			if found == nil {
				found = http.Header{}
			}
			found[name] = values
		}
	}
	if found == nil {
		return ctx
	}
	return context.WithValue(ctx, paramHeadersKey{}, found)
}

// Set writes the headers for a call with these arguments. Arguments that are
// absent, null or of a type that has no header form get none.
func (p ParamHeaders) Set(h http.Header, arguments json.RawMessage) {
	for _, ph := range p {
		if arg, ok := Member(arguments, ph.path...); ok {
			if text, ok := mirroredText(arg); ok {
				h[ph.header] = []string{encodeHeaderValue(text)}
			}
		}
	}
}

// Check reports the first difference between the headers and the arguments.
func (p ParamHeaders) Check(h http.Header, arguments json.RawMessage) error {
	for _, ph := range p {
		arg, ok := Member(arguments, ph.path...)
		if !ok || isNull(arg) {
			if len(h[ph.header]) > 0 {
				return fmt.Errorf("%s header is there, the argument is not", ph.header)
			}
			continue
		}
		got, err := decodedHeader(h, ph.header)
		if err != nil {
			return err
		}
		if want, ok := mirroredText(arg); !ok || want != got && !sameInteger(arg, got) {
			return fmt.Errorf("%s header differs from the argument", ph.header)
		}
	}
	return nil
}

// mirroredText is the plain form of an argument: a string as it is, a boolean,
// or an integer that a double holds exactly.
func mirroredText(arg json.RawMessage) (string, bool) {
	switch string(arg) {
	case "true", "false":
		return string(arg), true
	}
	if s, ok := Unquote(arg); ok {
		return s, true
	}
	n, ok := safeInteger(string(arg))
	return strconv.FormatInt(n, 10), ok
}

// sameInteger compares as numbers, so that 42.0 equals 42.
func sameInteger(arg json.RawMessage, header string) bool {
	a, ok := safeInteger(string(arg))
	b, also := safeInteger(header)
	return ok && also && a == b
}

// safeInteger reads a number that is an integer within ±(2^53−1).
func safeInteger(text string) (int64, bool) {
	const limit = 1<<53 - 1
	if text == "" || strings.Trim(text, "0123456789+-.eE") != "" {
		return 0, false // ParseFloat would take Inf, 0x1 and 1_0
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, -limit <= n && n <= limit
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || f < -limit || f > limit {
		return 0, false
	}
	return int64(f), true
}
