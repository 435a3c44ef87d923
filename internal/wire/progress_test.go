package wire

import (
	"encoding/json"
	"testing"
)

// TestOutgoingParams compares what is spliced with what SetMember makes.
func TestOutgoingParams(t *testing.T) {
	modern := newRequestMeta(json.RawMessage(`{"name":"n"}`), json.RawMessage(`{}`), "")
	for _, params := range []string{
		`{}`, `{"name":"n"}`, ` { "name" : "n" } `, `null`, ``, `[1]`,
		`{"_meta":{}}`, `{"_meta":null,"a":1}`, `{"a":1,"_meta": { } }`, `{"_meta":{"x":{"progressToken":9}},"b":[]}`,
		`{"_meta":{"progressToken":"mine"}}`, `{"_meta":{"a":1, "progressToken" : 5 ,"b":2},"c":3}`, `{"_meta":7}`,
	} {
		for _, progress := range []func(json.RawMessage){nil, func(json.RawMessage) {}} {
			for _, meta := range []*requestMeta{nil, modern} {
				token, has := Member([]byte(params), "_meta", MetaProgressToken)
				if _, any := Member([]byte(params), "_meta"); any && meta != nil {
					continue // the client has seen to that
				}
				want := params
				if meta != nil {
					want = set(want, string(meta.whole), "_meta")
				}
				if has || progress != nil {
					want = set(want, "42", "_meta", MetaProgressToken)
				}
				k := &call{id: 42, Call: Call{Params: json.RawMessage(params), Progress: progress, meta: meta}}
				if got := string(new(Peer).outgoingParams(k)); got != want || string(k.token) != string(token) {
					t.Errorf("%q, progress %v, meta %v: %s with token %s, want %s with %s", params, progress != nil, meta != nil, got, k.token, want, token)
				}
			}
		}
	}
}

// set is SetMember for what can be set, and else the object as it was.
func set(object, value string, path ...string) string {
	out, err := SetMember([]byte(object), []byte(value), path...)
	if err != nil {
		return object
	}
	return string(out)
}
