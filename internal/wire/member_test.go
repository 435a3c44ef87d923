package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestMember(t *testing.T) {
	obj := []byte(` {"a" : 1.0 ,"s":"x\"}","o":{"p":{"q":[{"q":1},"]"]},"n":null}, "\u0065":true,"":-5}`)
	for _, c := range []struct {
		path []string
		want string
	}{
		{[]string{"a"}, `1.0`},
		{[]string{"s"}, `"x\"}"`},
		{[]string{"o"}, `{"p":{"q":[{"q":1},"]"]},"n":null}`},
		{[]string{"o", "p", "q"}, `[{"q":1},"]"]`},
		{[]string{"o", "n"}, `null`},
		{[]string{"e"}, `true`},
		{[]string{""}, `-5`},
		{[]string{"A"}, ``},
		{[]string{"p"}, ``},
		{[]string{"o", "q"}, ``},
		{[]string{"a", "b"}, ``},
		{[]string{"o", "p", "q", "q"}, ``},
		{nil, ``},
	} {
		got, ok := Member(obj, c.path...)
		if ok != (c.want != "") || ok && string(got) != c.want {
			t.Errorf("Member(%q) = %s, %t", c.path, got, ok)
		}
	}
	if s, ok := StringMember(obj, "s"); !ok || s != `x"}` {
		t.Errorf("StringMember = %q, %t", s, ok)
	}
	if s, ok := StringMember(obj, "a"); ok {
		t.Errorf("StringMember of a number = %q", s)
	}
	var names []string
	for name := range Members(obj) {
		names = append(names, name)
	}
	if want := []string{"a", "s", "o", "e", ""}; !reflect.DeepEqual(names, want) {
		t.Errorf("Members: %q", names)
	}
	for _, text := range []string{``, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":"`, `{"a":1`, `[]`, `1`, `{"a\`, `{"\`, `{"\u`, `{"\ud800`, `{"\ud800":1`, `{]`, `}`} {
		Member([]byte(text), "b", "c") // must not panic
		DeleteMember([]byte(text), "a")
		if out, err := SetMember([]byte(text), []byte("1"), "b"); err == nil && len(out) < len(text) {
			t.Errorf("SetMember(%s) = %s", text, out)
		}
	}
}

func TestSetMember(t *testing.T) {
	for _, c := range []struct {
		obj, value string
		path       []string
		want       string
	}{
		{`{"a":1,"b":2}`, `"x"`, []string{"a"}, `{"a":"x","b":2}`},
		{`{ "a" : 1 , "b" : 2 }`, `9`, []string{"b"}, `{ "a" : 1 , "b" : 9 }`},
		{`{"a":1}`, `2`, []string{"b"}, `{"a":1,"b":2}`},
		{` { } `, `2`, []string{"b"}, ` {"b":2 } `},
		{`{"a":1 }`, `2`, []string{"b"}, `{"a":1,"b":2 }`},
		{``, `2`, []string{"a", "b"}, `{"a":{"b":2}}`},
		{`null`, `2`, []string{"a"}, `{"a":2}`},
		{`{"_meta":null}`, `2`, []string{"_meta", "t"}, `{"_meta":{"t":2}}`},
		{`{"x":[{"_meta":1}],"_meta":{"k":"}"},"y":1}`, `2`, []string{"_meta", "t"}, `{"x":[{"_meta":1}],"_meta":{"k":"}","t":2},"y":1}`},
		{`{"x":1}`, `2`, []string{"a", "b", "c"}, `{"x":1,"a":{"b":{"c":2}}}`},
		{`{"\u0061":1}`, `2`, []string{"a"}, `{"\u0061":2}`},
		{`{}`, `2`, []string{"q\"\n"}, `{"q\"\n":2}`},
	} {
		got, err := SetMember([]byte(c.obj), []byte(c.value), c.path...)
		if err != nil || string(got) != c.want {
			t.Errorf("SetMember(%s, %s, %q) = %s, %v; want %s", c.obj, c.value, c.path, got, err, c.want)
		}
	}
	for _, obj := range []string{`[]`, `1`, `"s"`, `{"a":1}`, `{"a":[]}`} {
		if got, err := SetMember([]byte(obj), []byte("2"), "a", "b"); err == nil {
			t.Errorf("SetMember(%s) = %s", obj, got)
		}
	}
	if got, err := SetMember([]byte(`{}`), []byte("2")); err == nil {
		t.Errorf("SetMember without a path = %s", got)
	}
}

func TestDeleteMember(t *testing.T) {
	for _, c := range []struct {
		obj  string
		path []string
		want string
	}{
		{`{"a":1,"b":2,"c":3}`, []string{"a"}, `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []string{"b"}, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []string{"c"}, `{"a":1,"b":2}`},
		{`{ "a" : 1 , "b" : 2 }`, []string{"a"}, `{ "b" : 2 }`},
		{`{ "a" : 1 , "b" : 2 }`, []string{"b"}, `{ "a" : 1 }`},
		{`{"a":1}`, []string{"a"}, `{}`},
		{`{"a":{"b":1,"c":2},"d":{"b":3}}`, []string{"a", "b"}, `{"a":{"c":2},"d":{"b":3}}`},
		{`{"a":{"b":1}}`, []string{"a", "x"}, `{"a":{"b":1}}`},
		{`{"a":1}`, []string{"a", "x"}, `{"a":1}`},
		{`{"a":1}`, nil, `{"a":1}`},
		{`[1]`, []string{"a"}, `[1]`},
	} {
		if got := DeleteMember([]byte(c.obj), c.path...); string(got) != c.want {
			t.Errorf("DeleteMember(%s, %q) = %s; want %s", c.obj, c.path, got, c.want)
		}
	}
}

func TestIsString(t *testing.T) {
	for raw, want := range map[string]bool{
		`"plain"`: true, `"pl\u0061in"`: true, `"plai"`: false, `"plain\n"`: false, `plain`: false, `"`: false, ``: false, `1234567`: false,
	} {
		if got := isString([]byte(raw), "plain"); got != want {
			t.Errorf("isString(%s) = %v", raw, got)
		}
	}
}

// FuzzMember checks the splicing functions against decoding the whole.
func FuzzMember(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1},"c":[{}]}`), "a", "b", "text")
	f.Add([]byte(` { "\u0061" : { } } `), "a", "b", "\"\n\x00\xff")
	f.Add([]byte(`{"a":null,"b":"\\\""}`), "a", "b", "")
	f.Add([]byte(`{"":""}`), "", "x", "é")
	f.Fuzz(func(t *testing.T, obj []byte, outer, inner, text string) {
		if !IsObject(obj) || Valid(obj, Limits{}) != nil {
			return
		}
		// AppendString replaces what is not UTF-8; that is tested elsewhere.
		outer, inner, text = strings.ToValidUTF8(outer, "?"), strings.ToValidUTF8(inner, "?"), strings.ToValidUTF8(text, "?")
		value := AppendString(nil, text)

		var before map[string]json.RawMessage
		if err := json.Unmarshal(obj, &before); err != nil {
			t.Fatal(err)
		}
		got, ok := Member(obj, outer)
		if want, there := before[outer]; ok != there || !bytes.Equal(got, want) {
			t.Errorf("Member(%q, %q) = %s, want %s", obj, outer, got, want)
		}

		set, err := SetMember(obj, value, outer, inner)
		if parent, there := before[outer]; err != nil {
			if !there || parent[0] == '{' || parent[0] == 'n' {
				t.Errorf("SetMember(%q): %v", obj, err)
			}
			return
		}
		if err := Valid(set, Limits{Depth: DefaultMaxDepth + 1}); err != nil {
			t.Fatalf("SetMember(%q) = %q: %v", obj, set, err)
		}
		if got, ok := StringMember(set, outer, inner); !ok || got != text {
			t.Errorf("%q set to %q reads %q", obj, text, got)
		}
		var after map[string]json.RawMessage
		if err := json.Unmarshal(set, &after); err != nil {
			t.Fatal(err)
		}
		delete(before, outer)
		delete(after, outer)
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%q became %q", obj, set)
		}
		deleted := DeleteMember(set, outer)
		if _, ok := Member(deleted, outer); ok || Valid(deleted, Limits{}) != nil {
			t.Errorf("%q without %q is %q", set, outer, deleted)
		}
	})
}

func FuzzAppendString(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\x1f\"\\/\n\r\t\b\f<>&\u2028é漢🎉\x7f")
	f.Add("bad\xff\xc0\xafutf8\xe6\xbc")
	f.Fuzz(func(t *testing.T, s string) {
		raw := AppendString(nil, s)
		var want string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatalf("%q became %q: %v", s, raw, err)
		}
		got, ok := Unquote(raw)
		if !ok || got != want || Valid(raw, Limits{}) != nil {
			t.Errorf("%q became %q", s, raw)
		}
		if utf8 := strings.ToValidUTF8(s, ""); utf8 == s && got != s {
			t.Errorf("%q is now %q", s, got)
		}
	})
}
