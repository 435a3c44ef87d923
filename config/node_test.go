package config_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestParseJSONPlaces(t *testing.T) {
	const src = "\xef\xbb\xbf{\r\n  // a comment\n  \"a\": 1, /* b */ \"b\": [true, null,],\n}"
	n, err := config.ParseJSON([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(n.JSON()); got != `{"a":1,"b":[true,null]}` {
		t.Errorf("JSON = %s", got)
	}
	b, _ := n.Get("b")
	if b.Line != 3 || b.Items[1].Kind != config.Null {
		t.Errorf("b is at line %d: %v", b.Line, b)
	}
}

func TestParseJSONErrors(t *testing.T) {
	deep := strings.Repeat("[", 101) + strings.Repeat("]", 101)
	for src, want := range map[string]string{
		"":                    "line 1, column 1: the file is empty; expected a JSON object",
		" \n ":                "line 1, column 1: the file is empty; expected a JSON object",
		"{\n\"a\":\xff}":      "line 2, column 5: not valid UTF-8",
		deep:                  "line 1, column 101: nested more than 100 levels deep",
		"\n{\"a\": [1, 2}":    "line 2, column 12: ",
		"{\"a\":{\"b\":\"x\"": "line 1, column 14: ",
	} {
		_, err := config.ParseJSON([]byte(src))
		if _, ok := errors.AsType[*config.SyntaxError](err); !ok {
			t.Errorf("ParseJSON(%.20q) = %v, want a SyntaxError", src, err)
		} else if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("ParseJSON(%.20q) = %v, want %s…", src, err, want)
		}
	}
}

// FuzzParseJSON holds the parser to what encoding/json makes of plain JSON: the
// same values, whatever the bytes.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,"x\u00e9",null,true]}`, `{"a":1,"a":2}`, "// c\n{}", "[", "\xef\xbb\xbf{}", `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := config.ParseJSON(data)
		if err != nil {
			if _, ok := errors.AsType[*config.SyntaxError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		again, err := config.ParseJSON(n.JSON())
		if err != nil {
			t.Fatalf("%s: %v", n.JSON(), err)
		}
		if string(again.JSON()) != string(n.JSON()) {
			t.Fatalf("%s became %s", n.JSON(), again.JSON())
		}
		var std, own any
		if json.Unmarshal(data, &std) == nil {
			if err := json.Unmarshal(n.JSON(), &own); err != nil {
				t.Fatal(err)
			}
			a, _ := json.Marshal(std)
			b, _ := json.Marshal(own)
			if string(a) != string(b) {
				t.Fatalf("%s, want %s", b, a)
			}
		}
	})
}
