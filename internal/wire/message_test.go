package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, c := range []struct {
		json string
		want Message
		kind Kind
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, Message{ID: NumberID(1), Method: "ping"}, KindRequest},
		{` {"params" : { "b":1, "a":1.0 } , "method":"tools\/call","id":"x", "jsonrpc":"2.0" } `,
			Message{ID: StringID("x"), Method: "tools/call", Params: raw(`{ "b":1, "a":1.0 }`)}, KindRequest},
		{`{"jsonrpc":"2.0","method":"n","params":[1]}`, Message{Method: "n", Params: raw(`[1]`)}, KindNotification},
		{`{"jsonrpc":"2.0","method":"n","params":null}`, Message{Method: "n"}, KindNotification},
		{`{"jsonrpc":"2.0","id":1,"result":{"n":9007199254740993}}`, Message{ID: NumberID(1), Result: raw(`{"n":9007199254740993}`)}, KindResponse},
		{`{"jsonrpc":"2.0","id":1,"result":null}`, Message{ID: NumberID(1), Result: raw(`null`)}, KindResponse},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`, Message{ID: NullID(), Error: &Error{Code: -32700, Message: "m", raw: raw(`{"code":-32700,"message":"m"}`)}}, KindResponse},
		{`{"jsonrpc":"2.0","error":{"code":1,"message":"m","data":[1]}}`, Message{Error: &Error{Code: 1, Message: "m", Data: raw(`[1]`), raw: raw(`{"code":1,"message":"m","data":[1]}`)}}, KindResponse},
		{`{"jsonrpc":"2.0","id":1,"error":{}}`, Message{ID: NumberID(1), Error: &Error{raw: raw(`{}`)}}, KindResponse},
		{`{"\u006asonrpc":"2\u002e0","id":1,"m\u0065thod":"a","extra":{"x":1},"other":"b"}`, Message{ID: NumberID(1), Method: "a"}, KindRequest},
	} {
		got, err := Parse([]byte(c.json), Limits{})
		if err != nil || !reflect.DeepEqual(got, c.want) || got.Kind() != c.kind {
			t.Errorf("Parse(%s) = %+v, %v", c.json, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		json string
		code int64
		id   ID
	}{
		{``, CodeParseError, ID{}},
		{`Listening on stdio`, CodeParseError, ID{}},
		{`{"jsonrpc":"2.0","id":7,"method":"ping"`, CodeParseError, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":1,"a":2}}`, CodeParseError, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","id":8}`, CodeParseError, NumberID(8)},
		{`42`, CodeInvalidRequest, ID{}},
		{`"text"`, CodeInvalidRequest, ID{}},
		{`[{"jsonrpc":"2.0","id":7,"method":"ping"}]`, CodeInvalidRequest, ID{}},
		{`{}`, CodeInvalidRequest, ID{}},
		{`{"id":7,"method":"ping"}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"1.0","id":7,"method":"ping"}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":2.0,"id":7,"method":"ping"}`, CodeInvalidRequest, NumberID(7)},
		{`{"JSONRPC":"2.0","id":7,"method":"ping"}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","method":7,"id":"seven"}`, CodeInvalidRequest, StringID("seven")},
		{`{"jsonrpc":"2.0","method":"","id":7}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","Method":"ping","id":7}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","method\u0000":"ping","id":7}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, CodeInvalidRequest, NullID()},
		{`{"jsonrpc":"2.0","id":true,"method":"ping"}`, CodeInvalidRequest, ID{}},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, CodeInvalidRequest, ID{}},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":""}}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","result":{}}`, CodeInvalidRequest, ID{}},
		{`{"jsonrpc":"2.0","id":null,"result":{}}`, CodeInvalidRequest, NullID()},
		{`{"jsonrpc":"2.0","id":7}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"error":"boom"}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"error":null}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":"1"}}`, CodeInvalidRequest, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":{}}}`, CodeInvalidRequest, NumberID(7)},
	} {
		_, err := Parse([]byte(c.json), Limits{})
		e, ok := errors.AsType[*ParseError](err)
		if !ok || e.Code != c.code || e.ID != c.id {
			t.Errorf("Parse(%s) = %v with id %v", c.json, err, e.ID)
		}
	}
	if _, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), Limits{Size: 20}); err == nil {
		t.Error("a message over the limit is accepted")
	}
}

func TestIDKeepsItsText(t *testing.T) {
	for _, raw := range []string{
		`0`, `1`, `-1`, `-0`, `1.0`, `1e3`, `-1.50E+2`, `123456789012345678`, `-123456789012345678`, `999999999999999999`, `1000000000000000000`,
		`9223372036854775808`, `123456789012345678901234567890`, `""`, `"a"`, `"1"`, `"\u0061\"\\"`, `"é漢"`, `"null"`, `null`,
	} {
		id, err := ParseID([]byte(" " + raw + " "))
		if err != nil || id.String() != raw || string(id.AppendTo(nil)) != raw || id.IsZero() || id.IsNull() != (raw == "null") {
			t.Errorf("ParseID(%s) = %v, %v", raw, id, err)
		}
		again, err := ParseID([]byte(raw))
		if err != nil || again != id {
			t.Errorf("%s is not equal to itself", raw)
		}
	}
	for _, raw := range []string{``, `{}`, `[1]`, `true`, `x`, `1 2`} {
		if id, err := ParseID([]byte(raw)); err == nil {
			t.Errorf("ParseID(%s) = %v", raw, id)
		}
	}
	for _, n := range []int64{0, 7, -7, maxShortInt - 1, maxShortInt, -maxShortInt, -maxShortInt + 1, 1<<63 - 1, -1 << 63} {
		id := NumberID(n)
		if again, err := ParseID([]byte(id.String())); err != nil || again != id {
			t.Errorf("NumberID(%d) is %v, read back %v, %v", n, id, again, err)
		}
	}
	if NumberID(1) == StringID("1") || (ID{}) == NumberID(0) || NullID() == StringID("null") || StringID(`a"`).String() != `"a\""` {
		t.Error("different ids are equal")
	}
}

func TestMessageRoundTrip(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"é","arguments":{ "n" : 1.0,"big":123456789012345678901234567890}}}`,
		`{"jsonrpc":"2.0","id":"\u0061","method":"a\"b"}`,
		`{"jsonrpc":"2.0","method":"notifications/x","params":{"z":1,"a":[]}}`,
		`{"jsonrpc":"2.0","id":1e2,"result":{"unknown":{"b":1,"a":2},"content":[]}}`,
		`{"jsonrpc":"2.0","id":1,"result":"<html>"}`,
		`{"jsonrpc":"2.0","id":null,"error":{"message":"first","code":-5,"x-vendor":[1.0],"data":{"b":1,"a":2}}}`,
	} {
		m, err := Parse([]byte(text), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(m.AppendTo([]byte("> "))); got != "> "+text {
			t.Errorf("got  %s\nwant > %s", got, text)
		}
	}
	for _, c := range []struct {
		m    Message
		want string
	}{
		{Message{ID: NumberID(1)}, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{Message{Error: Errorf(-32000, "no %q", "x")}, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no \"x\""}}`},
		{Message{ID: NumberID(1), Error: &Error{Code: 3, Data: json.RawMessage(`[]`)}}, `{"jsonrpc":"2.0","id":1,"error":{"code":3,"message":"","data":[]}}`},
	} {
		if got := string(c.m.AppendTo(nil)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestErrorKeepsUnknownMembersWhenChanged(t *testing.T) {
	m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":{"x":1,"code":-5,"message":"m","data":1.0}}`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	e := *m.Error
	e.Message, e.Data = "server x: m", nil
	if got, want := string(e.AppendTo(nil)), `{"x":1,"code":-5,"message":"server x: m"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if e.Code = 7; !strings.Contains(string(e.AppendTo(nil)), `"code":7`) {
		t.Errorf("got %s", e.AppendTo(nil))
	}
}

func TestParseBatch(t *testing.T) {
	messages, errs, err := ParseBatch([]byte(` [ {"jsonrpc":"2.0","id":1,"method":"a"} , 1, {"jsonrpc":"2.0","id":2} ,{"jsonrpc":"2.0","method":"b"}] `), Limits{}, 4)
	if err != nil || len(messages) != 4 || len(errs) != 4 {
		t.Fatalf("%v, %v, %v", messages, errs, err)
	}
	if messages[0].Method != "a" || messages[3].Method != "b" || errs[0] != nil || errs[3] != nil {
		t.Errorf("%+v %v", messages, errs)
	}
	if errs[1] == nil || errs[2] == nil || errs[2].(*ParseError).ID != NumberID(2) {
		t.Errorf("%v", errs)
	}
	for _, text := range []string{`[]`, `{}`, `[`, `[{"jsonrpc":"2.0","id":1,"method":"a"}`, `[{"a":1,"a":2}]`, `[1,2,3,4,5]`, `[1] 2`, `[1 2]`, `x`} {
		if m, _, err := ParseBatch([]byte(text), Limits{}, 4); err == nil {
			t.Errorf("ParseBatch(%s) = %v", text, m)
		}
	}
	if !IsBatch([]byte(" \n[")) || IsBatch([]byte(`{"a":[]}`)) || IsBatch(nil) {
		t.Error("IsBatch")
	}
}

// looselyValid is the judgement of encoding/json about an answer, which it lets
// have any bytes in strings, with the depth limit added.
func looselyValid(data []byte, maxDepth int) bool {
	if !json.Valid(data) || !utf8.Valid(data) {
		return false
	}
	dec, depth := json.NewDecoder(bytes.NewReader(data)), 0
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return err == io.EOF
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxDepth {
				return false
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// What is passed on may be all that JSON is, byte for byte.
var looseResults = []struct {
	json  string
	valid bool
}{
	{`{"a":1,"a":2}`, true}, {`{"x":{"_meta":1,"_meta":2}}`, true}, {`{"content":[],"content":[]}`, true},
	{`"\ud800"`, true}, {`"\udc00x"`, true}, {`"\ud800\u0041"`, true}, {`"\ud83c\ud83c\udf89"`, true}, {`{"\ud800":"\ud800","\ud800":1}`, true},
	{strings.Repeat("[", 999) + strings.Repeat("]", 999), true}, {strings.Repeat("[", 1000) + strings.Repeat("]", 1000), false},
	{strings.Repeat(`{"a":`, 999) + "1" + strings.Repeat("}", 999), true}, {strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000), false},
	{`NaN`, false}, {`{"a":Infinity}`, false}, {`"\ud80"`, false}, {`"\x"`, false}, {"\"\xff\"", false}, {"\"\n\"", false}, {`{a:1}`, false}, {`{'a':1}`, false},
	{`{"resultType":1,"resultType":2}`, false}, {`{"resultType":1,"result\u0054ype":2}`, false}, {`{"_meta":{},"a":1,"_meta":{}}`, false},
	{`{"isError":true,"isError":false}`, false}, {`{"inputRequests":{},"inputRequests":{}}`, false}, {`{"task":{},"task":{}}`, false},
}

func TestParseLooseResult(t *testing.T) {
	for _, c := range looseResults {
		text := `{"jsonrpc":"2.0","id":1,"result":` + c.json + `}`
		m, err := Parse([]byte(text), Limits{})
		if (err == nil) != c.valid || c.valid && string(m.Result) != c.json {
			t.Errorf("%.100s: %.100s, %v", c.json, m.Result, err)
		}
		if err := validResult([]byte(c.json), Limits{}); (err == nil) != c.valid {
			t.Errorf("validResult(%.100s) = %v", c.json, err)
		}
		_, errs, err := ParseBatch([]byte(`[`+text+`]`), Limits{}, 0)
		if (err == nil && errs[0] == nil) != c.valid {
			t.Errorf("in a batch: %.100s: %v", c.json, err)
		}
		for _, strict := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"m","params":[` + c.json + `]}`,
			`{"jsonrpc":"2.0","id":1,"result":{},"x":` + c.json + `}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","result":` + c.json + `}`,
		} {
			if m, err := Parse([]byte(strict), Limits{}); err == nil {
				t.Errorf("%.100s: %.100v", strict, m)
			}
		}
	}
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"a\ud800b","data":{"a":1,"a":2}}}`:      `{"code":1,"message":"a\ud800b","data":{"a":1,"a":2}}`,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"m"}}`:                    `{"code":1,"message":"m"}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":2,"message":"m"}}`:                         ``,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","message":"n"}}`:                    ``,
		`{"jsonrpc":"2.0","id":1,"id":2,"error":{"code":1,"message":"m"}}`:                           ``,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"},"error":{"code":1,"message":"m"}}`: ``,
	} {
		m, err := Parse([]byte(text), Limits{})
		if (err == nil) != (want != "") || err == nil && string(m.Error.AppendTo(nil)) != want {
			t.Errorf("%s: %+v, %v", text, m.Error, err)
		}
	}
	if m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}`), Limits{}); err != nil || string(m.Result) != `{"a":1}` || m.Error != nil {
		t.Errorf("%+v, %v", m, err)
	}
}

func FuzzParseResult(f *testing.F) {
	for _, c := range looseResults {
		f.Add([]byte(c.json))
	}
	for _, c := range validityCases {
		f.Add([]byte(c.json))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := validResult(data, Limits{})
		want := looselyValid(data, DefaultAnswerDepth-1)
		if want && IsObject(data) {
			var env envelope
			for name := range Members(data) {
				want = want && env.goBy([]byte(name))
			}
		}
		if (err == nil) != want {
			t.Fatalf("validResult(%q) = %v, encoding/json says %t", data, err, want)
		}
		if err != nil {
			return
		}
		for name := range Members(data) {
			var decoded string
			if err := json.Unmarshal(AppendString(nil, name), &decoded); err != nil || decoded != name {
				t.Errorf("a member of %q is called %q", data, name)
			}
		}
		var s string
		if got, ok := Unquote(bytes.TrimSpace(data)); ok && (json.Unmarshal(data, &s) != nil || s != got) {
			t.Errorf("%q is %q, not %q", data, s, got)
		}
	})
}

// A glance finds what a message was meant to be.
func TestGlance(t *testing.T) {
	for _, c := range []struct {
		text          string
		asks, answers ID
	}{
		{``, ID{}, ID{}},
		{`Listening`, ID{}, ID{}},
		{`{"level":"info","id":7}`, ID{}, ID{}},
		{`{"id":7,"error":NaN}`, ID{}, NumberID(7)},
		{`{"result":NaN,"id":"7"}`, ID{}, StringID("7")},
		{`{"result":[NaN,-Infinity,{"id":8}],"id":7}`, ID{}, NumberID(7)},
		{`{"result":{]]},"id":7,"jsonrpc":"2.0"}`, ID{}, NumberID(7)},
		{`{"result":{},"id":null}`, ID{}, ID{}},
		{`{"result":{},"id":x}`, ID{}, ID{}},
		{`{"id":7,"method":"m","params":{"a":1,"a":2}}`, NumberID(7), ID{}},
		{`{"id":7,"method":"m","result":NaN}`, NumberID(7), ID{}},
		{`{"method":"m","params":NaN}`, ID{}, ID{}},
		{`[{"id":7,"result":NaN}]`, ID{}, ID{}},
	} {
		g := glanceAt([]byte(c.text), []byte(c.text))
		if g.asks != c.asks || g.answers != c.answers {
			t.Errorf("%s: %+v", c.text, g)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"a","result":{}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1.5,"error":{"code":-1,"message":"\u0061","x":1}}`))
	f.Add([]byte(`{"\u006asonrpc":"2.0","method":"n"}`))
	f.Add([]byte(`[{"jsonrpc":"2.0","method":"n"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		glanceAt(data, data)
		if _, _, err := ParseBatch(data, Limits{}, 0); err == nil && !looselyValid(data, DefaultAnswerDepth+1) {
			t.Errorf("a batch that is not JSON: %q", data)
		}
		m, err := Parse(data, Limits{})
		if err != nil {
			// Strict JSON is refused only for its shape, and what is no JSON at
			// all never is.
			e, ok := errors.AsType[*ParseError](err)
			if !ok || e.Code == CodeParseError && Valid(data, Limits{}) == nil || e.Code != CodeParseError && !looselyValid(data, DefaultAnswerDepth) {
				t.Errorf("Parse(%q) = %v", data, err)
			}
			return
		}
		if m.Kind() != KindResponse && Valid(data, Limits{}) != nil || !looselyValid(data, DefaultAnswerDepth) {
			t.Errorf("Parse(%q) = %+v", data, m)
		}
		out := m.AppendTo(nil)
		again, err := Parse(out, Limits{})
		if err != nil {
			t.Fatalf("%q became %q: %v", data, out, err)
		}
		if m.Kind() == KindResponse && m.ID.IsZero() {
			m.ID = NullID() // AppendTo says so
		}
		if !reflect.DeepEqual(m, again) {
			t.Errorf("%+v became %+v", m, again)
		}
	})
}
