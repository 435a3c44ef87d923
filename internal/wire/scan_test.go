package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// strictlyValid is the judgement of an independent strict decoder, with the
// depth limit added.
func strictlyValid(data []byte, maxDepth int) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		_, err := dec.ReadToken()
		if err != nil || dec.StackDepth() > maxDepth {
			return false
		}
		if dec.StackDepth() == 0 {
			_, err = dec.ReadToken()
			return err == io.EOF
		}
	}
}

var validityCases = []struct {
	json  string
	valid bool
}{
	{`{}`, true}, {`[]`, true}, {` null `, true}, {`true`, true}, {`false`, true}, {`""`, true},
	{"\t\r\n {\"a\" : [ 1 , 2 ] }\n", true},
	{``, false}, {` `, false}, {`{`, false}, {`[1,]`, false}, {`{"a":1,}`, false}, {`{,}`, false}, {`{"a"}`, false},
	{`{"a":1 "b":2}`, false}, {`{a:1}`, false}, {`{1:1}`, false}, {`[1 2]`, false}, {`{}{}`, false}, {`{} x`, false},
	{`nul`, false}, {`nulll`, false}, {`True`, false}, {`NaN`, false}, {`Infinity`, false}, {"\u00a0{}", false}, {"\ufeff{}", false},
	// numbers
	{`0`, true}, {`-0`, true}, {`-0.0e-0`, true}, {`1e400`, true}, {`12345678901234567890123`, true}, {`1.5E+10`, true},
	{`01`, false}, {`-`, false}, {`+1`, false}, {`1.`, false}, {`.5`, false}, {`1e`, false}, {`1e+`, false}, {`0x10`, false}, {`1_000`, false},
	// strings
	{`"a\"b\\c\/d\b\f\n\r\t\u00e9"`, true}, {`"é漢🎉"`, true}, {`"\ud83c\udf89"`, true}, {`"\u0000"`, true}, {"\"\x7f\"", true},
	{`"abc`, false}, {`"\x"`, false}, {`"\u12"`, false}, {`"\u12g4"`, false}, {"\"a\nb\"", false}, {"\"\x00\"", false}, {"\"\x1f12345678\"", false},
	{`"\`, false}, {`"\u`, false}, {`"\ud83c"`, false}, {`"\ud83cx"`, false}, {`"\udf89"`, false}, {`"\udf89\ud83c"`, false}, {`"\ud83c\ud83c"`, false}, {`"\ud83c\u0041"`, false},
	{"\"\xff\"", false}, {"\"12345678\xff12345678\"", false}, {"\"\xc0\xaf\"", false}, {"\"\xed\xa0\x80\"", false}, {"\"\xe6\xbc\"", false}, {"\"\xf4\x90\x80\x80\"", false},
	{"{\"\xff\":1}", false},
	// duplicate names
	{`{"a":1,"b":2}`, true}, {`{"a":1,"A":2}`, true}, {`{"a":{"a":{"a":1}}}`, true}, {`[{"a":1},{"a":1}]`, true}, {`{"a":{"b":1},"b":1}`, true},
	{`{"a":1,"a":2}`, false}, {`{"a":1,"\u0061":2}`, false}, {`{"\u0061":1,"a":2}`, false}, {`{"\u0061":1,"\u0061":2}`, false},
	{`{"x":[{"y":{"a":1,"b":2,"a":3}}]}`, false}, {`{"":1,"":2}`, false}, {`{"a":{"\u0062":{"\u0063":1}},"\u0062":1,"b":1}`, false},
	{`{"é":1,"\u00e9":2}`, false}, {`{"a\u0000":1,"a":2}`, true}, {`{"\ud83c\udf89":1,"🎉":2}`, false},
}

func TestValid(t *testing.T) {
	for _, c := range validityCases {
		err := Valid([]byte(c.json), Limits{})
		if (err == nil) != c.valid {
			t.Errorf("Valid(%q) = %v", c.json, err)
		}
		if strictlyValid([]byte(c.json), DefaultMaxDepth) != c.valid {
			t.Errorf("the reference disagrees about %q", c.json)
		}
	}
}

func TestValidLimits(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(strings.Repeat(`[`, n/2) + strings.Repeat(`{"a":`, n-n/2) + "1" + strings.Repeat(`}`, n-n/2) + strings.Repeat(`]`, n/2))
	}
	if err := Valid(nested(100), Limits{}); err != nil {
		t.Errorf("depth 100: %v", err)
	}
	if err := Valid(nested(101), Limits{}); err == nil {
		t.Error("depth 101 is accepted")
	}
	if err := Valid(nested(5), Limits{Depth: 4}); err == nil {
		t.Error("depth 5 is accepted with limit 4")
	}
	if err := Valid([]byte(`"12345678"`), Limits{Size: 10}); err != nil {
		t.Errorf("10 bytes with limit 10: %v", err)
	}
	err := Valid([]byte(`"123456789"`), Limits{Size: 10})
	if e, ok := errors.AsType[*ParseError](err); !ok || e.Code != CodeInvalidRequest {
		t.Errorf("11 bytes with limit 10: %v", err)
	}
}

// manyMembers is an object of n members; the last repeats one if dup is set.
func manyMembers(n int, dup bool) []byte {
	b := []byte{'{'}
	for i := range n {
		b = fmt.Appendf(b, `"member%d":%d,`, i, i)
	}
	if dup {
		return fmt.Appendf(b, `"\u006dember%d":0}`, n/2)
	}
	return append(b, `"last":0}`...)
}

func TestDuplicateInLargeObject(t *testing.T) {
	for _, n := range []int{10, 15, 16, 17, 1000, 100_000} {
		if err := Valid(manyMembers(n, false), Limits{}); err != nil {
			t.Errorf("%d members: %v", n, err)
		}
		if err := Valid(manyMembers(n, true), Limits{}); err == nil {
			t.Errorf("a duplicate among %d members is accepted", n)
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, c := range validityCases {
		f.Add([]byte(c.json))
	}
	f.Add(manyMembers(40, false))
	f.Add(manyMembers(40, true))
	f.Fuzz(func(t *testing.T, data []byte) {
		const maxDepth = 7
		err := Valid(data, Limits{Depth: maxDepth})
		if want := strictlyValid(data, maxDepth); (err == nil) != want {
			t.Errorf("Valid(%q) = %v, the reference says %t", data, err, want)
		}
		if err == nil && !json.Valid(data) {
			t.Errorf("encoding/json does not accept %q", data)
		}
	})
}

func TestScanDoesNotAllocate(t *testing.T) {
	data := []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"hello \u00e9 漢"}],"isError":false,"_meta":{"a":1,"b":[true,null]}}}`)
	if n := testing.AllocsPerRun(100, func() {
		if m, err := Parse(data, Limits{}); err != nil || m.ID != NumberID(17) {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	large := manyMembers(1000, false)
	if n := testing.AllocsPerRun(10, func() {
		if err := Valid(large, Limits{}); err != nil {
			t.Fatal(err)
		}
	}); n > 6 { // the growth of one slice
		t.Errorf("%v allocations for 1000 members", n)
	}
}

func BenchmarkParse(b *testing.B) {
	small := []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 60) + `"}],"isError":false}}`)
	large := []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"` + strings.Repeat(`line of text with \"quotes\"\n`, 1<<20/29) + `"}],"isError":false}}`)
	for _, c := range []struct {
		name string
		data []byte
	}{{"100B", small}, {"1MiB", large}, {"members", manyMembers(100_000, false)}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Valid(c.data, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
