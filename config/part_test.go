package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// nodeSamples are files that are JSON, nearly so, and not at all.
var nodeSamples = []string{
	``, ` `, "\xef\xbb\xbf", "\xef\xbb\xbf{}", `{}`, `[]`, `null`, `true`, `falsey`, `-0`, `01`, `1e5`, `1.`, `+1`, `"a"`, `"a`, `"\u12"`, `"\ud800"`, `"\q"`, "\"\t\"",
	`{"a":1,"b":[1,2,{"c":null}],}`, `{"a":1,,}`, `{,}`, `[,]`, `[1,]`, `[1 2]`, `{"a" 1}`, `{"a":}`, `{1:2}`, `{"a":1}x`, `{"a":1`, `[`, `{`, `}`, `{"a":`,
	"// c\n{}", "{} // c", "{} // c\n", "/* c */{/**/}/* * */", "/* c", "/", "{/}", "// \u2028\n{}", "/* \u2028 */{}", "{\"a\": \"\u2028é日𝄞\"}",
	"{\"\xff\": 1}", "// \xff\n{}", "\xff", `{"a\"\\\/\b\f\n\r\tA日": "😀"}`, "{\r\n\t\"a\": {\r\n\t\t\"b\": [\n1,\n\"x\"]\r\n}}", `{"a":1,"a":2}`,
	strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100), strings.Repeat(`[`, 101) + strings.Repeat(`]`, 101), strings.Repeat(`{"a":`, 101),
}

// checkPart compares what is read from a stream, whatever pieces it comes in,
// with what ParseJSON makes of the file.
func checkPart(t *testing.T, data []byte) {
	t.Helper()
	want, wantErr := ParseJSON(data)
	for how, r := range map[string]io.Reader{"whole": bytes.NewReader(data), "bytes": iotest.OneByteReader(bytes.NewReader(data))} {
		got, err := ReadPart(r, nil)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q (%s): %v, of ParseJSON %v", data, how, err, wantErr)
		}
		if e, ok := errors.AsType[*SyntaxError](err); err != nil && (!ok || e.Line < 1 || e.Column < 1) {
			t.Fatalf("%q (%s): %#v", data, how, err)
		}
		if !bytes.Equal(got.JSON(), want.JSON()) || !reflect.DeepEqual(places(got), places(want)) {
			t.Fatalf("%q (%s):\n%s %v\nof ParseJSON\n%s %v", data, how, got.JSON(), places(got), want.JSON(), places(want))
		}
	}
}

// places says where everything in a node lies.
func places(n Node) []string {
	all := []string{fmt.Sprint(n.Kind, n.Line, n.Column, len(n.Members), len(n.Items))}
	for _, m := range n.Members {
		all = append(append(all, fmt.Sprint(m.Name, m.Line, m.Repeated)), places(m.Value)...)
	}
	for _, it := range n.Items {
		all = append(all, places(it)...)
	}
	return all
}

func TestReadPartReadsWhatParseJSONReads(t *testing.T) {
	for _, s := range nodeSamples {
		checkPart(t, []byte(s))
		checkPart(t, []byte(`{"x": `+s+"\n}"))
	}
}

func FuzzReadPart(f *testing.F) {
	for _, s := range nodeSamples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < maxLiteral { // beyond which a number is none
			checkPart(t, data)
		}
	})
}

// Only what is selected is there, where it lies in the file, and the rest has to
// have an end.
func TestReadPart(t *testing.T) {
	part := Part{"servers": nil, "projects": {"*": {"servers": nil}}}
	const file = `{
  "before": {"servers": {"no": 1}, "x": [1, {"y": "\"}"}]}, // comment
  "servers": {
    "a": {"args": ["1"]}
  },
  "projects": {
    "/p": {"history": ["long", {}], "servers": {}, "more": null},
    "/q": [1, 2],
    "/r": {"history": []}
  }
}`
	n, err := ReadPart(strings.NewReader(file), part)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"servers":{"a":{"args":["1"]}},"projects":{"/p":{"servers":{}},"/q":[],"/r":{}}}`
	if got := string(n.JSON()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if p, _ := n.Get("projects"); n.Members[0].Line != 3 || p.Members[1].Line != 8 || p.Members[1].Value.Column != 11 {
		t.Errorf("places: %v", places(n))
	}
	for _, broken := range []string{
		file[:len(file)-1], file[:60], file[:40], strings.Replace(file, `"before": `, `"before": , "x": `, 1), strings.Replace(file, `null`, `nul`, 1),
		strings.Replace(file, `[1, {"y"`, `[1 ({"y"`, 1), strings.Replace(file, `[1, {"y"`, `[1], {"y"`, 1), strings.Replace(file, `"long"`, "\"\x00\"", 1),
		strings.Replace(file, `"long"`, strings.Repeat("[", 100), 1),
	} {
		if _, err := ReadPart(strings.NewReader(broken), part); err == nil {
			t.Errorf("accepted: %s", broken)
		}
	}
	fails := errors.New("disk")
	if _, err := ReadPart(io.MultiReader(strings.NewReader(file[:40]), iotest.ErrReader(fails)), part); !errors.Is(err, fails) {
		t.Errorf("a disk that fails: %v", err)
	}
}

// endless is an object that never ends.
type endless struct {
	head, again string
	total       int
}

func (e *endless) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		if e.head == "" {
			e.head = e.again
		}
		c := copy(b[n:], e.head)
		e.head = e.head[c:]
		n += c
	}
	e.total += n
	return n, nil
}

// What would have to be kept is limited, and no more of the file is read.
func TestReadPartIsLimited(t *testing.T) {
	part := Part{"kept": nil, "some": {"*": {"kept": nil}}}
	for _, head := range []string{`{"kept":["`, `{"kept":[`, `{"kept":{`, `{"some":{`} {
		again := map[byte]string{'"': "text", '[': "[],", '{': `"":{},`}[head[len(head)-1]]
		r := &endless{head: head, again: again}
		if _, err := ReadPart(r, part); err == nil || !strings.Contains(err.Error(), "4 MiB") || r.total > 5*MaxFileSize {
			t.Errorf("%s…: %v after %d bytes", head, err, r.total)
		}
	}
}

// A long file takes no more memory than what is kept of it.
func TestReadPartTakesLittleMemory(t *testing.T) {
	history := strings.Repeat(`{"display": "what somebody \"typed\"\n", "more": [1, 2.5, true, null]},`+"\n", 1<<10)
	file := func() io.Reader {
		parts := []io.Reader{strings.NewReader(`{"projects": {"/p": {"history": [`)}
		for range 256 {
			parts = append(parts, strings.NewReader(history))
		}
		return io.MultiReader(append(parts, strings.NewReader(`], "servers": {"a": {}}}}}`))...)
	}
	part := Part{"projects": {"*": {"servers": nil}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := ReadPart(file(), part)
	runtime.ReadMemStats(&after)
	if err != nil || string(n.JSON()) != `{"projects":{"/p":{"servers":{"a":{}}}}}` {
		t.Fatal(string(n.JSON()), err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes for a file of %d", got, 256*len(history))
	}
}

func BenchmarkReadPart(b *testing.B) {
	file := []byte(`{"history": [` + strings.Repeat(`{"display": "what somebody \"typed\"\n once upon a time, and so on and on", "more": [1, 2.5, true, null]},`+"\n    ", 1<<14) + `]}`)
	b.SetBytes(int64(len(file)))
	for range b.N {
		if _, err := ReadPart(bytes.NewReader(file), Part{"servers": nil}); err != nil {
			b.Fatal(err)
		}
	}
}
