package wire

import (
	"encoding/json"
	"testing"
)

func TestDress(t *testing.T) {
	s := newTestServer(t, func(o *ServerOptions) {
		o.Cache = func(method string) CacheHint { return CacheHint{TTLMillis: 5, Public: method == "tools/list"} }
	})
	const meta = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}`
	for _, c := range []struct{ name, method, result, want string }{
		{"nothing there", "tools/call", `{"content":[]}`, `{"resultType":"complete",` + meta + `,"content":[]}`},
		{"an empty result", "tools/call", `{}`, `{"resultType":"complete",` + meta + `}`},
		{"no result", "tools/call", ``, `{"resultType":"complete",` + meta + `}`},
		{"white space stays", "tools/call", ` { "content" : [] } `, `{"resultType":"complete",` + meta + `, "content" : [] } `},
		{"a list", "tools/list", `{"tools":[]}`, `{"resultType":"complete","ttlMs":5,"cacheScope":"public",` + meta + `,"tools":[]}`},
		{"a resource", "resources/read", `{"contents":[]}`, `{"resultType":"complete","ttlMs":5,"cacheScope":"private",` + meta + `,"contents":[]}`},
		{"what is there stays", "tools/list", `{"ttlMs":9,"cacheScope":"private","resultType":"task",` + meta + `}`, `{"ttlMs":9,"cacheScope":"private","resultType":"task",` + meta + `}`},
		{"a scope only", "tools/list", `{"cacheScope":"private"}`, `{"resultType":"complete","ttlMs":5,` + meta + `,"cacheScope":"private"}`},
		{"a question is not kept", "resources/read", `{"resultType":"input_required"}`, `{` + meta + `,"resultType":"input_required"}`},
		{"the server's name goes into a _meta that is there", "tools/call", `{"_meta":{"a":1},"x":2}`, `{"resultType":"complete","_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}},"x":2}`},
		{"the name of another server stays", "tools/call", `{"_meta":{"io.modelcontextprotocol/serverInfo":{}}}`, `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}}}`},
		{"names with escapes", "tools/call", `{"result\u0054ype":"task"}`, `{` + meta + `,"result\u0054ype":"task"}`},
	} {
		got := s.Dress(c.method, json.RawMessage(c.result))
		if string(got) != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
		if again := s.Dress(c.method, got); string(again) != string(got) {
			t.Errorf("%s: dressed twice it is %s", c.name, again)
		}
	}
}

// Whatever a handler returns, the dressed result is valid and keeps its members.
func FuzzDress(f *testing.F) {
	f.Add(`{"content":[],"_meta":{}}`)
	f.Add(` {"resultType":3,"ttlMs":null}`)
	f.Add(`{"_meta":null}`)
	s, err := NewServer(ServerOptions{Info: json.RawMessage(`{"name":"test","version":"1"}`), Handler: newTestHandler()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, result string) {
		if Valid([]byte(result), Limits{}) != nil || !IsObject([]byte(result)) {
			return
		}
		got := s.Dress("tools/list", json.RawMessage(result))
		if err := Valid(got, Limits{Depth: 200}); err != nil {
			t.Fatalf("%q becomes %q: %v", result, got, err)
		}
		for name, value := range Members([]byte(result)) {
			if kept, ok := Member(got, name); !ok || name != "_meta" && string(kept) != string(value) {
				t.Fatalf("%q becomes %q: %s is lost", result, got, name)
			}
		}
		if _, ok := Member(got, "resultType"); !ok {
			t.Fatalf("%q has no type", got)
		}
	})
}
