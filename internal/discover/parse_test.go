package discover

import (
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestParse(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	for _, tt := range []struct{ file, text, want string }{
		{"a.json", bom + `{"a": 1, /* c */ "b": [true, null,],}`, `{"a":1,"b":[true,null]}`},
		{"a.jsonc", `{}`, `{}`},
		{"config", `{"a": "\u0041"}`, `{"a":"A"}`},
		{"a.toml", bom + "a = 1\n[t]\nb = 'x'\n", `{"a":1,"t":{"b":"x"}}`},
		{"a.toml", "", `{}`},
		{"a.toml", "a.b.c = 1\na.d = 2", `{"a":{"b":{"c":1},"d":2}}`},
		{"a.toml", "[a.b]\nx = 1\n[a]\ny = 2", `{"a":{"b":{"x":1},"y":2}}`},
		{"a.toml", "[[a]]\nx = 1\n[a.b]\ny = 2\n[[a]]\nx = 3", `{"a":[{"x":1,"b":{"y":2}},{"x":3}]}`},
		{"a.toml", "a = [1, [2.5, 'x'], {b = 0xff}]", `{"a":[1,[2.5,"x"],{"b":255}]}`},
		{"a.toml", "a = 1_000\nb = +2\nc = 0o17\nd = 0b11\ne = 6.02e+23\nf = inf\ng = nan\nh = -0.5", `{"a":1000,"b":2,"c":15,"d":3,"e":6.02e+23,"f":"inf","g":"nan","h":-0.5}`},
		{"a.toml", "a = 2026-01-02T03:04:05Z\nb = true\nc = \"\"\"\nx\"\"\"", `{"a":"2026-01-02T03:04:05Z","b":true,"c":"x"}`},
		{"a.toml", "\"a b\".'c.d' = 1", `{"a b":{"c.d":1}}`},
		{"a.yaml", bom + "a: 1\nb: [x, ~]\n", `{"a":1,"b":["x",null]}`},
		{"a.yml", "", `{}`},
		{"a.yaml", "# nothing\n", `{}`},
		{"a.yaml", "a: True\nb: no\nc: 0x10\nd: 1e3\ne: .inf\nf: '5'\ng: 2026-01-02\n", `{"a":true,"b":"no","c":16,"d":1000,"e":".inf","f":"5","g":"2026-01-02"}`},
		{"a.yaml", "a: ${{ secrets.X }}\nb: |\n  two\n  lines\n", `{"a":"${{ secrets.X }}","b":"two\nlines\n"}`},
		{"a.yaml", "a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\nc: {<<: [*x, {m: 4}]}\n", `{"a":{"k":1,"l":2},"b":{"l":3,"k":1},"c":{"k":1,"l":2,"m":4}}`},
		{"a.yaml", "a: 1\n---\na: 2\n", `{"a":1}`},
		{"a.yaml", "1: a\ntrue: b\n", `{"1":"a","true":"b"}`},
	} {
		n, err := parse(tt.file, []byte(tt.text))
		if err != nil || string(n.JSON()) != tt.want {
			t.Errorf("%s %q: %s, %v; want %s", tt.file, tt.text, n.JSON(), err, tt.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		file, text   string
		line, column int
	}{
		{"a.json", "{\n  \"a\": 1,\n  b: 2}", 3, 3},
		{"a.toml", "a = 1\nb = \n", 2, 5},
		{"a.toml", "a = 1\n[b\n", 2, 3},
		{"a.toml", "a = \"x", 1, 6},
		{"a.toml", "a = 1\n[a.b]\nc = 1", 2, 2},
		{"a.toml", "a = \"\xff\"", 1, 6},
		{"a.yaml", "a: 1\nb: [\n", 2, 1},
		{"a.yaml", "a: *x\n", 1, 1},
		{"a.yaml", "a:\n\tb: 1\n", 2, 1},
	} {
		_, err := parse(tt.file, []byte(tt.text))
		e, ok := errors.AsType[*config.SyntaxError](err)
		if !ok || e.Line != tt.line || e.Column != tt.column {
			t.Errorf("%s %q: %v", tt.file, tt.text, err)
		}
	}
}

// What a broken file holds may be a secret: no message quotes it.
func TestParseErrorsShowNoValue(t *testing.T) {
	for file, text := range map[string]string{
		"alias.yaml":   "a: *hunter2\n",
		"mapping.yaml": "a: hunter2: b\n",
		"tag.yaml":     "a: !hunter2 [\n",
		"bare.toml":    "a = hunter2\n",
		"open.toml":    "a = \"hunter2\n",
		"escape.toml":  "a = \"\\hunter2\"\n",
		"date.toml":    "a = 2020-13-hunter2\n",
		"bare.json":    `{"a": hunter2}`,
		"open.json":    `{"a": "hunter2`,
		"escape.json":  `{"a": "\hunter2"}`,
	} {
		if _, err := parse(file, []byte(text)); err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestRepeatedTable: a table defined twice spoils what it defines, not the file.
func TestRepeatedTable(t *testing.T) {
	n, err := parse("a.toml", []byte("[s.a]\nx = 1\n[s.b]\nx = 2\n[s.a]\nx = 3\n[s.b.c]\ny = 4\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := n.Get("s")
	var got []string
	for _, m := range s.Members {
		if m.Repeated {
			got = append(got, m.Name)
		}
	}
	if len(s.Members) != 3 || len(got) != 1 || got[0] != "a" || s.Members[2].Line != 5 {
		t.Errorf("repeated %v in %s", got, n.JSON())
	}
}
