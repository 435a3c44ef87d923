package wire

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestHeaderValue(t *testing.T) {
	// The examples of the specification, and the corners around them.
	tests := []struct{ value, header string }{
		{"us-west1", "us-west1"},
		{"us west 1", "us west 1"},
		{"Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="},
		{" padded ", "=?base64?IHBhZGRlZCA=?="},
		{"line1\nline2", "=?base64?bGluZTEKbGluZTI=?="},
		{"=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		{"=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="},
		{"=?base64?x", "=?base64?x"},
		{"a\tb", "=?base64?YQli?="},
		{"", "=?base64??="},
		{"\x7f", "=?base64?fw==?="},
	}
	for _, tt := range tests {
		if got := encodeHeaderValue(tt.value); got != tt.header {
			t.Errorf("encode %q = %q, want %q", tt.value, got, tt.header)
		}
		if got, err := decodeHeaderValue(tt.header); err != nil || got != tt.value {
			t.Errorf("decode %q = %q, %v; want %q", tt.header, got, err, tt.value)
		}
	}
	for _, bad := range []string{"=?base64?!?=", "=?base64?YQ?=", "=?base64?YR==?=", "=?base64?/w==?=", "ü", "a\nb", "\x00"} {
		if got, err := decodeHeaderValue(bad); err == nil {
			t.Errorf("decode %q = %q, want an error", bad, got)
		}
	}
}

func FuzzHeaderValue(f *testing.F) {
	f.Add("us-west1")
	f.Add("=?base64?YQ==?=")
	f.Add(" Grüße\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		h := encodeHeaderValue(s)
		for _, c := range []byte(h) {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("%q encodes to %q", s, h)
			}
		}
		if h != strings.TrimSpace(h) {
			t.Fatalf("%q encodes to %q", s, h)
		}
		if got, err := decodeHeaderValue(h); utf8.ValidString(s) && (err != nil || got != s) {
			t.Fatalf("%q encodes to %q, which decodes to %q, %v", s, h, got, err)
		}
		if got, err := decodeHeaderValue(s); err == nil && got != s && encodeHeaderValue(got) != s &&
			!(strings.HasPrefix(s, base64Start) && strings.HasSuffix(s, base64End)) {
			t.Fatalf("%q decodes to %q without markers", s, got)
		}
	})
}

func TestMirror(t *testing.T) {
	tests := []struct {
		name, method, params string
		want                 http.Header
	}{
		{"tool", "tools/call", `{"name":"echo","arguments":{"name":"no"}}`, http.Header{headerMethod: {"tools/call"}, headerName: {"echo"}}},
		{"prompt", "prompts/get", `{"arguments":{},"name":"grüß"}`, http.Header{headerMethod: {"prompts/get"}, headerName: {"=?base64?Z3LDvMOf?="}}},
		{"resource", "resources/read", `{"uri":"file:///a"}`, http.Header{headerMethod: {"resources/read"}, headerName: {"file:///a"}}},
		{"task", "tasks/cancel", `{"taskId":"t1"}`, http.Header{headerMethod: {"tasks/cancel"}, headerName: {"t1"}}},
		{"other", "tools/list", `{"name":"x"}`, http.Header{headerMethod: {"tools/list"}}},
		{"no params", "server/discover", ``, http.Header{headerMethod: {"server/discover"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := make(http.Header)
			setMirror(h, tt.method, json.RawMessage(tt.params))
			if diff := cmp.Diff(tt.want, h); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if _, err := checkMirror(h, tt.method, json.RawMessage(tt.params)); err != nil {
				t.Errorf("check: %v", err)
			}
		})
	}
}

func TestMirrorMismatch(t *testing.T) {
	const params = `{"name":"echo"}`
	tests := []struct {
		name string
		h    http.Header
		want string
	}{
		{"no method", http.Header{headerName: {"echo"}}, "Mcp-Method header is missing"},
		{"other method", http.Header{headerMethod: {"tools/list"}, headerName: {"echo"}}, `Mcp-Method header says "tools/list", the body "tools/call"`},
		{"method in base64", http.Header{headerMethod: {"=?base64?dG9vbHMvY2FsbA==?="}, headerName: {"echo"}},
			`Mcp-Method header says "=?base64?dG9vbHMvY2FsbA==?=", the body "tools/call"`},
		{"method twice", http.Header{headerMethod: {"tools/call", "tools/call"}, headerName: {"echo"}}, "Mcp-Method header is there 2 times"},
		{"no name", http.Header{headerMethod: {"tools/call"}}, "Mcp-Name header is missing"},
		{"other name", http.Header{headerMethod: {"tools/call"}, headerName: {"Echo"}}, `Mcp-Name header says "Echo", the body "echo"`},
		{"name twice", http.Header{headerMethod: {"tools/call"}, headerName: {"echo", "rm"}}, "Mcp-Name header is there 2 times"},
		{"bad base64", http.Header{headerMethod: {"tools/call"}, headerName: {"=?base64?*?="}}, "Mcp-Name header is not valid base64 between its markers"},
		{"bad characters", http.Header{headerMethod: {"tools/call"}, headerName: {"échо"}}, "Mcp-Name header has characters no header may have"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := checkMirror(tt.h, "tools/call", json.RawMessage(params))
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	inBase64 := http.Header{headerMethod: {"tools/call"}, headerName: {"=?base64?ZWNobw==?="}}
	if _, err := checkMirror(inBase64, "tools/call", json.RawMessage(params)); err != nil {
		t.Errorf("a name may be in base64 without need: %v", err)
	}
}

func TestParamHeaders(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"n":{"x-mcp-header":"priority","type":["integer","null"]},
		"on":{"type":"boolean","x-mcp-header":"On"},
		"x-mcp-header":{"type":"string","default":{"x-mcp-header":1}},
		"deep":{"type":"object","properties":{"er":{"type":"string","x-mcp-header":"Deep.er"}}}}}`
	p, err := ParseParamHeaders(json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, args string
		want       http.Header
	}{
		{"all", `{"region":"eu","n":-7,"on":false,"deep":{"er":"ä"},"other":1}`, http.Header{
			"Mcp-Param-Region": {"eu"}, "Mcp-Param-Priority": {"-7"}, "Mcp-Param-On": {"false"}, "Mcp-Param-Deep.er": {"=?base64?w6Q=?="}}},
		{"none", `{}`, http.Header{}},
		{"no arguments", ``, http.Header{}},
		{"null", `{"region":null,"n":null}`, http.Header{}},
		{"escaped", `{"re\u0067ion":"a\u0062"}`, http.Header{"Mcp-Param-Region": {"ab"}}},
		{"integers written as floats", `{"n":4.2e1}`, http.Header{"Mcp-Param-Priority": {"42"}}},
		{"empty string", `{"region":""}`, http.Header{"Mcp-Param-Region": {"=?base64??="}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := make(http.Header)
			p.Set(h, json.RawMessage(tt.args))
			if diff := cmp.Diff(tt.want, h); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if err := p.Check(h, json.RawMessage(tt.args)); err != nil {
				t.Errorf("check: %v", err)
			}
		})
	}

	h := make(http.Header)
	p.Set(h, json.RawMessage(`{"region":["x"],"n":9007199254740992,"on":1.5}`))
	if len(h) != 0 {
		t.Errorf("headers for arguments that have no header form: %v", h)
	}
	for args, header := range map[string]http.Header{
		`{"region":"eu"}`:       {},
		`{"region":"us"}`:       {"Mcp-Param-Region": {"eu"}},
		`{"region":"eu","a":1}`: {"Mcp-Param-Region": {"eu", "eu"}},
		`{"region":null}`:       {"Mcp-Param-Region": {"null"}},
		`{}`:                    {"Mcp-Param-Region": {"eu"}},
		`{"region":{}}`:         {"Mcp-Param-Region": {"{}"}},
		`{"n":1}`:               {"Mcp-Param-Priority": {"0x1"}},
		`{"on":true}`:           {"Mcp-Param-On": {"True"}},
	} {
		if err := p.Check(header, json.RawMessage(args)); err == nil {
			t.Errorf("%s accepted with %v", args, header)
		}
	}
	if err := p.Check(http.Header{"Mcp-Param-Priority": {"42.0"}}, json.RawMessage(`{"n":42}`)); err != nil {
		t.Errorf("numbers are to be compared as numbers: %v", err)
	}
}

func TestParamHeadersInvalid(t *testing.T) {
	tests := []struct{ name, schema string }{
		{"empty", `{"properties":{"a":{"type":"string","x-mcp-header":""}}}`},
		{"not a string", `{"properties":{"a":{"type":"string","x-mcp-header":1}}}`},
		{"space", `{"properties":{"a":{"type":"string","x-mcp-header":"A b"}}}`},
		{"colon", `{"properties":{"a":{"type":"string","x-mcp-header":"A:b"}}}`},
		{"line feed", `{"properties":{"a":{"type":"string","x-mcp-header":"A\n"}}}`},
		{"not ASCII", `{"properties":{"a":{"type":"string","x-mcp-header":"Ä"}}}`},
		{"twice", `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`},
		{"number", `{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`},
		{"object", `{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`},
		{"two types", `{"properties":{"a":{"type":["string","integer"],"x-mcp-header":"A"}}}`},
		{"no type", `{"properties":{"a":{"x-mcp-header":"A"}}}`},
		{"root", `{"type":"string","x-mcp-header":"A"}`},
		{"items", `{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`},
		{"properties below items", `{"properties":{"a":{"items":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}}}}`},
		{"anyOf", `{"anyOf":[{},{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`},
		{"definition", `{"$defs":{"d":{"type":"string","x-mcp-header":"A"}},"properties":{"a":{"$ref":"#/$defs/d"}}}`},
		{"escaped keyword", `{"properties":{"a":{"type":"string","x\u002dmcp-header":""}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if p, err := ParseParamHeaders(json.RawMessage(tt.schema)); err == nil {
				t.Errorf("accepted: %v", p)
			}
		})
	}
	for _, ok := range []string{``, `true`, `{}`, `{"properties":{"x-mcp-header":{"type":"object"}}}`, `{"examples":[{"x-mcp-header":1}]}`, `{"$defs":{"x-mcp-header":{}}}`} {
		if p, err := ParseParamHeaders(json.RawMessage(ok)); err != nil || len(p) > 0 {
			t.Errorf("%s: %v, %v", ok, p, err)
		}
	}
}

// Whatever the arguments are, what Set writes Check accepts, and http can send.
func FuzzParamHeaders(f *testing.F) {
	p, err := ParseParamHeaders(json.RawMessage(`{"properties":{"s":{"type":"string","x-mcp-header":"S"},"o":{"properties":{"i":{"type":"integer","x-mcp-header":"I"}}}}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"s":"a","o":{"i":1}}`)
	f.Add(`{"s":"\u00e4\n","o":{"i":-0}}`)
	f.Add(`{"s":true,"o":{"i":1e3}}`)
	f.Fuzz(func(t *testing.T, args string) {
		if Valid([]byte(args), Limits{}) != nil {
			return
		}
		h := make(http.Header)
		p.Set(h, json.RawMessage(args))
		for name := range h {
			for _, c := range []byte(h.Get(name)) {
				if c < 0x20 || c > 0x7e {
					t.Fatalf("%s: %q", name, h.Get(name))
				}
			}
		}
		if len(h) == len(p) {
			if err := p.Check(h, json.RawMessage(args)); err != nil {
				t.Fatalf("%s with %v: %v", args, h, err)
			}
		}
	})
}
