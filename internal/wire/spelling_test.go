package wire

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// A request that servers could read in different ways is refused, and says by
// its code where it is wrong.
func TestSpellingOfRequests(t *testing.T) {
	tests := []struct {
		name, text string
		code       int64 // 0: it is a message
	}{
		{"plain", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{},"_meta":{"progressToken":1}}}`, 0},
		{"escapes are no other spelling", `{"jsonrpc":"2.0","id":1,"m\u0065thod":"\u0074ools/call","params":{"n\u0061me":"a"}}`, 0},
		{"members that nobody judges", `{"jsonrpc":"2.0","id":1,"method":"tools/call","X":1,"params":{"name":"a","X":1,"_meta":{"x":1,"example.com/Y":2}}}`, 0},

		{"twice in the envelope", `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, CodeInvalidRequest},
		{"twice, in any order", `{"Params":{},"jsonrpc":"2.0","id":1,"method":"ping","params":{}}`, CodeInvalidRequest},
		{"only in another case", `{"jsonrpc":"2.0","id":1,"method":"ping","Params":{}}`, CodeInvalidRequest},
		{"unknown ones that are alike", `{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"X":2}`, CodeInvalidRequest},

		{"the name twice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}`, CodeInvalidParams},
		{"params before the method", `{"params":{"name":"a","Name":"b"},"method":"tools/call","id":1,"jsonrpc":"2.0"}`, CodeInvalidParams},
		{"arguments in another case", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Arguments":{}}}`, CodeInvalidParams},
		{"a long s", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","argumentſ":{}}}`, CodeInvalidParams},
		{"an escaped long s", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","argument\u017f":{}}}`, CodeInvalidParams},
		{"a Kelvin sign", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a","tas\u212aId":"b"}}`, CodeInvalidParams},
		{"a Turkish i", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a","ur\u0131":"b"}}`, CodeInvalidParams},
		{"ended by a NUL", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name\u0000x":"b","name":"a"}}`, CodeInvalidParams},
		{"as Python writes it", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a","task_id":"b"}}`, CodeInvalidParams},
		{"meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","meta":{}}}`, CodeInvalidParams},
		{"two _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{},"_Meta":{}}}`, CodeInvalidParams},
		{"in _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1,"ProgressToken":2}}}`, CodeInvalidParams},
		{"the version in _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/ProtocolVersion":"x"}}}`, CodeInvalidParams},
		{"unknown ones in _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"x":1,"X":2}}}`, CodeInvalidParams},
		{"ref", `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a","Name":"b"}}}`, CodeInvalidParams},
		{"a filter", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"ResourceSubscriptions":["a"]}}}`, CodeInvalidParams},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"RequestId":2}}`, CodeInvalidParams},

		{"arguments are the tool's", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1,"X":2,"name":1,"Name":2}}}`, 0},
		{"so are lists", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","ref":[{"x":1,"X":2}]}}`, 0},
		{"params of an extension", `{"jsonrpc":"2.0","id":1,"method":"example/thing","params":{"Name":"a","name":"b"}}`, 0},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{"x":1,"X":2},"Result":{}}`, 0},
	}
	for _, tt := range tests {
		_, err := Parse([]byte(tt.text), Limits{})
		bad, _ := errors.AsType[*ParseError](err)
		switch {
		case tt.code == 0 && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.code != 0 && (bad == nil || bad.Code != tt.code):
			t.Errorf("%s: got %v, want code %d", tt.name, err, tt.code)
		case bad != nil && !strings.Contains(tt.name, "notification") && bad.ID != NumberID(1):
			t.Errorf("%s: the error is about %v", tt.name, bad.ID)
		}
		// One element of a batch does not speak for another.
		_, errs, err := ParseBatch([]byte(`[`+tt.text+`,{"jsonrpc":"2.0","id":2,"method":"ping"}]`), Limits{}, 0)
		if err != nil || (errs[0] != nil) != (tt.code != 0) || errs[1] != nil {
			t.Errorf("%s, in a batch: %v, %v", tt.name, errs, err)
		}
	}
}

// Names are compared no slower the more there are.
func TestSpellingOfManyNames(t *testing.T) {
	for _, last := range []string{"x", "M77"} {
		params := []byte(`{"name":"a"`)
		for i := range 100_000 {
			params = append(strconv.AppendQuote(append(params, ','), "m"+strconv.Itoa(i)), ":1"...)
		}
		params = append(params, `,"`+last+`":1}`...)
		if err := ValidParams("tools/call", params, Limits{}); (err != nil) != (last == "M77") {
			t.Errorf("with %s: %v", last, err)
		}
	}
}

func TestValidParams(t *testing.T) {
	for _, text := range []string{``, `[]`, `1`, `{"a":1,"a":2}`, `{"name":"a","NAME":"b"}`, `{} {}`} {
		if err := ValidParams("tools/call", []byte(text), Limits{}); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if err := ValidParams("example/thing", []byte(`{"name":"a","NAME":"b"}`), Limits{}); err != nil {
		t.Errorf("of an extension: %v", err)
	}
}

func TestValidDistinct(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":1,"b":2}`:              true,
		`{"a":1,"A":2}`:              false,
		`{"a":[{"k":1,"\u212a":2}]}`: false,
		`{"a\u0000":1}`:              false,
		`[{"a":1},{"A":2}]`:          true,
		`{"user_id":1,"userid":2}`:   true,
	} {
		if err := ValidDistinct([]byte(text), Limits{}); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestMistakable(t *testing.T) {
	for method, want := range map[string]bool{
		"tools/call": false, "ping": false, "notifications/cancelled": false,
		"example/thing": false, "tools/callback": false, "toolbox/call": false, "x": false, "": false, "wetter/münchen": false,
		"Tools/Call": true, "TOOLS/CALL": true, "tools/Call": true, "toolſ/call": true, "tools//call": true, "/tools/call": true,
		"tools/call/": true, " tools/call": true, "tools.call": true, "tools_call": true, "toolscall": true,
		"tools/call\x00": true, "tools/call\x00x": true, "example\nthing": true, "ta\u0073\u212As/get": true, "logging/setlevel": true, "PING": true,
		"Notifications/Cancelled": true,
	} {
		if got := Mistakable(method); got != want {
			t.Errorf("Mistakable(%q) = %v", method, got)
		}
		if Judged(method) && want {
			t.Errorf("%q is judged and mistakable", method)
		}
	}
}

func TestOfConnection(t *testing.T) {
	for method, want := range map[string]bool{
		"notifications/cancelled": true, "notifications/tools/list_changed": true, "Notifications/TASKS/status": true, "notifications/progress": true,
		"notifications/toolsmith": false, "notifications/example/thing": false, "ide_connected": false, "tools/call": false, "": false,
	} {
		if got := OfConnection(method); got != want {
			t.Errorf("OfConnection(%q) = %v", method, got)
		}
	}
}

// A fold that is coarser than what any reader does is safe, a finer one is not.
func FuzzFolding(f *testing.F) {
	f.Add("name", "NAME")
	f.Add("ſtatus", "Status")
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.EqualFold(a, b) && compareFolded([]byte(a), []byte(b)) != 0 {
			t.Errorf("%q and %q are equal to EqualFold", a, b)
		}
		if x, y := compareFolded([]byte(a), []byte(b)), compareFolded([]byte(b), []byte(a)); (x < 0) != (y > 0) || (x == 0) != (y == 0) {
			t.Errorf("%q and %q: %d, %d", a, b, x, y)
		}
	})
}
