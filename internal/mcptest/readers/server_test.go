package readers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// In the environment of a child: which reader it is, where it writes down what it
// carries out, and the file that describes the tool changed.
const (
	readerEnv   = "READERS_READER"
	journalEnv  = "READERS_JOURNAL"
	describeEnv = "READERS_DESCRIBE"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(readerEnv); name != "" {
		serve(readers[name])
		return
	}
	os.Exit(m.Run())
}

// A reader is a way to read JSON: it finds a member of an object.
type reader struct {
	member func(object json.RawMessage, name string) json.RawMessage
	means  func(method, known string) bool // whether a method is taken for a known one
}

// readers are what servers are made of.
var readers = map[string]reader{
	"go":     {intoStruct, strings.EqualFold},
	"node":   {lastMember, exactly},
	"python": {lastOrField, exactly},
	"c":      {firstMember, func(method, known string) bool { return strings.EqualFold(cString(method), known) }},
	"sloppy": {intoStruct, func(method, known string) bool { return onlyLetters(method) == onlyLetters(known) }},
}

func exactly(a, b string) bool { return a == b }

func onlyLetters(s string) string {
	return strings.ToUpper(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return -1
	}, s))
}

// intoStruct is encoding/json with a struct: names fold, the last one wins.
func intoStruct(object json.RawMessage, name string) json.RawMessage {
	field := reflect.StructField{Name: "Field", Type: reflect.TypeFor[json.RawMessage](), Tag: reflect.StructTag(`json:"` + name + `"`)}
	v := reflect.New(reflect.StructOf([]reflect.StructField{field}))
	_ = json.Unmarshal(object, v.Interface())
	return v.Elem().Field(0).Bytes()
}

// lastMember is JSON.parse, and json.loads of Python.
func lastMember(object json.RawMessage, name string) json.RawMessage {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(object, &all)
	return all[name]
}

// lastOrField is a model of pydantic that may be filled by the names of its
// fields, too.
func lastOrField(object json.RawMessage, name string) json.RawMessage {
	if value := lastMember(object, name); value != nil {
		return value
	}
	var field strings.Builder
	for _, r := range strings.TrimPrefix(name, "_") {
		if unicode.IsUpper(r) {
			field.WriteByte('_')
		}
		field.WriteRune(unicode.ToLower(r))
	}
	return lastMember(object, field.String())
}

// firstMember is cJSON: names fold, the first one wins, and a NUL ends a text.
func firstMember(object json.RawMessage, name string) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, _ := d.Token(); open != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		if key, _ := key.(string); strings.EqualFold(cString(key), name) {
			return value
		}
	}
	return nil
}

func cString(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

// subjects are the methods that a server carries out, and what each is about.
var subjects = map[string][]string{
	"tools/call": {"name"}, "prompts/get": {"name"},
	"resources/read": {"uri"}, "resources/subscribe": {"uri"}, "resources/unsubscribe": {"uri"},
	"tasks/get": {"taskId"}, "tasks/cancel": {"taskId"}, "tasks/result": {"taskId"},
	"completion/complete": {"ref", "name"}, "logging/setLevel": {"level"},
	"notifications/cancelled": {"requestId"}, "notifications/progress": {"progressToken"},
	"notifications/elicitation/complete": {"elicitationId"}, "notifications/example": {"name"},
}

// answers are those to what is asked before anything is carried out, and to what
// is. The servers in other languages have the same, see servers.json.
func serve(r reader) {
	data, err := os.ReadFile("servers.json")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var answers map[string]json.RawMessage
	if err := json.Unmarshal(data, &answers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		method, id := text(r.member(line, "method")), r.member(line, "id")
		params := r.member(line, "params")
		answer := answers["other"]
		for known, path := range subjects {
			if r.means(method, known) {
				carryOut(r, known, path, params)
			}
		}
		for known, value := range answers {
			if r.means(method, known) {
				answer = value
			}
		}
		switch {
		case id == nil:
		case method == "server/discover": // it is of the older era
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`+"\n", id)
		default:
			description, _ := os.ReadFile(os.Getenv(describeEnv))
			answer = bytes.ReplaceAll(answer, []byte("DESCRIPTION"), description)
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, oneLine(answer))
		}
	}
}

func oneLine(value json.RawMessage) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, value)
	return b.Bytes()
}

// carryOut writes down what a request is taken for.
func carryOut(r reader, method string, path []string, params json.RawMessage) {
	value := params
	for _, name := range path {
		value = r.member(value, name)
	}
	entry, _ := json.Marshal([]string{method, text(value), text(r.member(r.member(params, "arguments"), "path"))})
	f, err := os.OpenFile(os.Getenv(journalEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer f.Close()
	_, _ = f.Write(append(entry, '\n'))
}

// text is a value as text, without the quotes of a string.
func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}
