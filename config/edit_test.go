package config

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestEdit runs the cases in testdata/edit: the comment of an archive holds
// operations, `set POINTER VALUE` and `remove POINTER`; `before` is the file and
// `after` what they make of it.
func TestEdit(t *testing.T) {
	files, _ := filepath.Glob("testdata/edit/*.txtar")
	if len(files) == 0 {
		t.Fatal("no cases")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			ar := txtar.Parse(data)
			src := ar.Files[0].Data
			for line := range strings.Lines(string(ar.Comment)) {
				op, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				pointer, value, _ := strings.Cut(rest, " ")
				switch op {
				case "set":
					src, err = SetMember(src, pointer, []byte(value))
				case "remove":
					src, err = RemoveMember(src, pointer)
				case "", "#":
				default:
					t.Fatalf("unknown operation %q", op)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			ar.Files = append(ar.Files[:1], txtar.File{Name: "after", Data: src})
			golden(t, file, txtar.Format(ar))
		})
	}
}

func TestEditKeepsBytesAroundTheDocument(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	for _, c := range []struct{ before, after string }{
		{"", "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n"},
		{" \r\n\t", "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n"},
		{bom, bom + "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n"},
		{bom + "{}", bom + "{\n  \"a\": {\n    \"b\": 1\n  }\n}"},
		{"{}\n\n", "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n\n"},
		{"{\r\n\t\"x\": 0 // c\r\n}\r\n", "{\r\n\t\"x\": 0, // c\r\n\t\"a\": {\r\n\t\t\"b\": 1\r\n\t}\r\n}\r\n"},
		{"{ /* c */ }", "{ /* c */\n  \"a\": {\n    \"b\": 1\n  }\n}"},
		{"{\n  /* c */ }", "{\n  \"a\": {\n    \"b\": 1\n  }\n  /* c */\n}"},
		{"// top\n{\"x\":0}// end\n", "// top\n{\"x\":0,\"a\":{\"b\":1}}// end\n"},
		{`{"a":null}`, `{"a":{"b":1}}`},
		{`{ "a" : { } }`, `{ "a" : {"b": 1} }`},
		{`{"a":{"b":2}}`, `{"a":{"b":1}}`},
		{`{"a":{"b":1}}`, `{"a":{"b":1}}`},
	} {
		got, err := SetMember([]byte(c.before), "/a/b", []byte("1"))
		if err != nil || string(got) != c.after {
			t.Errorf("set in %q\n got %q, %v\nwant %q", c.before, got, err, c.after)
		}
	}
	for _, c := range []struct{ before, after string }{
		{"", ""},
		{bom + "{\"a\":1}", bom + "{}"},
		{"{\r\n  \"x\": 0,\r\n  \"a\": 1 // c\r\n}", "{\r\n  \"x\": 0\r\n}"},
		{"{\r\n  \"x\": 0, \"a\": 1,\r\n}", "{\r\n  \"x\": 0,\r\n}"},
		{"{ \"x\": 0, // c\r\n  \"a\": 1 }", "{ \"x\": 0 // c\r\n }"},
		{"{ \"x\": 0,\r\n  \"a\": 1 }", "{ \"x\": 0 }"},
		{`{"x":0}`, `{"x":0}`},
	} {
		got, err := RemoveMember([]byte(c.before), "/a")
		if err != nil || string(got) != c.after {
			t.Errorf("remove from %q\n got %q, %v\nwant %q", c.before, got, err, c.after)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, MaxDepth-2) + "{}" + strings.Repeat("}", MaxDepth-2)
	for _, c := range []struct{ src, pointer, value, want string }{
		{`{}`, "", "1", "not a JSON pointer"},
		{`{}`, "a", "1", "not a JSON pointer"},
		{`{}`, "/\xff", "1", "not valid UTF-8"},
		{`{}`, "/a", "", "value of /a"},
		{`{}`, "/a", `{"x":1,"x":2}`, `duplicate key "x"`},
		{"{\n\"a\":{},\n\"a\":{}}", "/a/b", "1", `line 3: duplicate key "a"`},
		{"{\n\"a\":1,\n\"a\":2}", "/a", "1", `line 3: duplicate key "a"`},
		{"[]", "/a", "1", "line 1: the file is an array, expected an object"},
		{"{\n\"a\": {\"b\":[]}}", "/a/b/c", "1", "line 2: /a/b is an array, expected an object"},
		{"{}", "/x", deep, ""},
		{`{"x":{}}`, "/x/y", deep, "levels deep"},
		{`{}`, "/a", `"` + strings.Repeat("x", MaxFileSize) + `"`, "longer than"},
	} {
		_, err := SetMember([]byte(c.src), c.pointer, []byte(c.value))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s in %s: %v", c.pointer, c.src, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("set %s in %s: error %v, want %q", c.pointer, c.src, err, c.want)
		}
	}
	for _, src := range []string{`{`, "{\n\"a\": }", "\xff", "{} {}", `{"a":"\q"}`} {
		_, setErr := SetMember([]byte(src), "/a", []byte("1"))
		_, removeErr := RemoveMember([]byte(src), "/a")
		for _, err := range []error{setErr, removeErr} {
			if _, ok := errors.AsType[*SyntaxError](err); !ok {
				t.Errorf("%q gives %v, want a SyntaxError", src, err)
			}
		}
	}
	if _, err := RemoveMember([]byte(`{"a":1,"a":2}`), "/a"); err == nil {
		t.Error("removed one of two")
	}
}

func TestSyntaxErrorShowsNoValue(t *testing.T) {
	_, err := ParseJSON([]byte(`{"token": "sesame\q"}`))
	if err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("error %v", err)
	}
}

// FuzzEdit checks that an edit changes the tree where it should and nowhere
// else, that the bytes around the edited object stay, and that taking a member
// out again gives back the tree it was put into.
func FuzzEdit(f *testing.F) {
	files, _ := filepath.Glob("testdata/edit/*.txtar")
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, a := range ar.Files {
			f.Add(a.Data, "mcpServers", "new", []byte(`{"command":"x","args":["a"]}`))
			f.Add(bytes.ReplaceAll(a.Data, []byte("\n"), []byte("\r\n")), "mcpServers", "one", []byte(`{"env":{"A":"b"}}`))
		}
	}
	f.Add([]byte(`{"a":{/*x*/"b":1,//y
	"c":2/*z*/,}}`), "a", "c", []byte(`[1,[2],{}]`))
	f.Fuzz(checkEdit)
}

// TestEditAnyLayout does the same with white space, comments and commas in any
// place where they may be, which fuzzing bytes finds too rarely.
func TestEditAnyLayout(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "b", "c", "d"}
	values := []string{"1", `"s"`, "{}", `{"a":1}`, `{"a":{"b":2},"c":[{}]}`, "[]"}
	for range 1_500 {
		src := randomObject(r, names, 3)
		checkEdit(t, []byte(src), names[r.IntN(4)], names[r.IntN(4)], []byte(values[r.IntN(len(values))]))
		if t.Failed() {
			t.FailNow()
		}
	}
}

func randomObject(r *rand.Rand, names []string, depth int) string {
	extra := func() string {
		parts := []string{"", "", "", " ", " ", "\n", "\n  ", "\r\n\t", " // x\n", "/* x */", " /* x\n y */ ", "\n\n", "\n  // x\r\n  "}
		return parts[r.IntN(len(parts))] + parts[r.IntN(len(parts))]
	}
	var members []string
	for _, i := range r.Perm(len(names))[:r.IntN(len(names))] {
		value := "0"
		if depth > 0 && r.IntN(3) > 0 {
			value = randomObject(r, names, depth-1)
		}
		members = append(members, extra()+strconv.Quote(names[i])+extra()+":"+extra()+value+extra())
	}
	s := "{" + strings.Join(members, ",")
	if len(members) > 0 && r.IntN(3) == 0 {
		s += "," + extra()
	} else if len(members) == 0 {
		s += extra()
	}
	return s + "}"
}

func checkEdit(t *testing.T, src []byte, outer, inner string, value []byte) {
	pointer := PointerTo(PointerTo("", outer), inner)
	before, err := ParseJSON(src)
	if len(bytes.TrimSpace(bytes.TrimPrefix(src, utf8BOM))) == 0 {
		before, err = Node{Kind: Object}, nil
	}
	set, setErr := SetMember(src, pointer, value)
	if err != nil && setErr == nil {
		t.Fatalf("edited a broken file: %v", err)
	}
	if setErr != nil {
		return
	}
	after, err := ParseJSON(set)
	if err != nil {
		t.Fatalf("broke the file: %v\n%s", err, set)
	}
	v, _ := ParseJSON(value)
	want := withMember(before, outer, func(n Node) Node {
		return withMember(n, inner, func(Node) Node { return v })
	})
	if !sameTree(after, want) {
		t.Fatalf("tree is\n%s\nwant\n%s", after.JSON(), want.JSON())
	}
	checkSurroundings(t, src, set, outer)

	removed, err := RemoveMember(set, pointer)
	if err != nil {
		t.Fatalf("remove: %v\n%s", err, set)
	}
	back, err := ParseJSON(removed)
	if err != nil {
		t.Fatalf("removing broke the file: %v\nfrom\n%s\nto\n%s", err, set, removed)
	}
	want = withMember(want, outer, func(n Node) Node { return withoutMember(n, inner) })
	if !sameTree(back, want) {
		t.Fatalf("after removal the tree is\n%s\nwant\n%s", back.JSON(), want.JSON())
	}
	checkSurroundings(t, set, removed, outer)
}

// checkSurroundings checks that two versions of a file agree in every byte
// before and behind the value of one member of the root; or, where the first
// has no such member, before and behind some place.
func checkSurroundings(t *testing.T, before, after []byte, outer string) {
	t.Helper()
	if len(bytes.TrimSpace(bytes.TrimPrefix(before, utf8BOM))) == 0 {
		return // a new document
	}
	d, err := parseDocument(before)
	if err != nil {
		t.Fatal(err)
	}
	from, to := d.root.StartOffset+1, d.root.EndOffset-1
	if at, err := d.find([]string{outer}); err == nil && at.index >= 0 {
		v := at.in.obj.Members[at.index].Value
		from, to = v.StartOffset, v.EndOffset
	}
	prefix := slices.Concat(d.bom, d.src[:from])
	if !bytes.HasPrefix(after, prefix) || !bytes.HasSuffix(after, d.src[to:]) || len(after) < len(prefix)+len(d.src)-to {
		t.Fatalf("bytes outside the change differ\nbefore %q\nafter  %q", before, after)
	}
}

// withMember returns an object with a member changed, or added at the end. Null
// is as good as no object.
func withMember(n Node, name string, change func(Node) Node) Node {
	if n.Kind == Null {
		n = Node{Kind: Object}
	}
	n.Members = slices.Clone(n.Members)
	for i, m := range n.Members {
		if m.Name == name {
			n.Members[i].Value = change(m.Value)
			return n
		}
	}
	n.Members = append(n.Members, Member{Name: name, Value: change(Node{})})
	return n
}

func withoutMember(n Node, name string) Node {
	n.Members = slices.DeleteFunc(slices.Clone(n.Members), func(m Member) bool { return m.Name == name })
	return n
}

// sameTree compares the members of the outer two levels in order, repeated ones
// included, and the values below whatever their order.
func sameTree(a, b Node) bool { return sameMembers(a, b, 2) }

func sameMembers(a, b Node, levels int) bool {
	if levels == 0 || a.Kind != Object {
		return equalNodes(a, b) || string(a.JSON()) == string(b.JSON())
	}
	return b.Kind == Object && slices.EqualFunc(a.Members, b.Members, func(x, y Member) bool {
		return x.Name == y.Name && sameMembers(x.Value, y.Value, levels-1)
	})
}
