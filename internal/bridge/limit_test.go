package bridge

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLongText(t *testing.T) {
	long := strings.Repeat("é", 50)
	for name, tt := range map[string]struct{ result, want string }{
		"short":      {`{"content":[{"type":"text","text":"fine"}]}`, ""},
		"many bytes": {`{"content":[{"type":"text","text":"` + strings.Repeat("é", 40) + `"}]}`, ""},
		"an image":   {`{"content":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("A", 1000) + `"}]}`, ""},
		"long":       {`{"content":[{"type":"text","text":"` + long + `"}]}`, long},
		"in two":     {`{"content":[{"type":"text","text":"` + long[:60] + `"},{"type":"text","text":"` + long[60:] + `"}]}`, long[:60] + "\n\n" + long[60:]},
		"an error":   {`{"isError":true,"content":[{"type":"text","text":"` + long + `"}]}`, long},
		"no content": {`{"task":{"taskId":"` + long + `"}}`, ""},
	} {
		if got, ok := LongText(json.RawMessage(tt.result), 40); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}

func TestWithText(t *testing.T) {
	for name, tt := range map[string]struct{ result, want string }{
		"text": {
			`{"_meta":{"a":1},"content":[{"type":"text","text":"long"},{"type":"resource","resource":{"uri":"x:y","text":"long"}}],"isError":true}`,
			`{"_meta":{"a":1},"content":[{"type":"text","text":"<new>"}],"isError":true}`},
		"images stay": {
			`{"content":[{"type":"image","data":"AA=="},{"type":"text","text":"long"},{"type":"audio","data":"BB=="}]}`,
			`{"content":[{"type":"text","text":"<new>"},{"type":"image","data":"AA=="},{"type":"audio","data":"BB=="}]}`},
		"structured": {
			`{"content":[],"structuredContent":{"a":1}}`,
			`{"content":[{"type":"text","text":"<new>"}],"structuredContent":{"a":1}}`},
		"long structured": {
			`{"structuredContent":{"a":"` + strings.Repeat("x", 40) + `"}}`,
			`{"content":[{"type":"text","text":"<new>"}]}`},
		"no object": {`[]`, `[]`},
	} {
		if got := WithText(json.RawMessage(tt.result), "<new>", 40); string(got) != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
