package bridge

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFlatten(t *testing.T) {
	for _, tt := range []struct{ about, result, want string }{
		{"text", `{"content":[{"type":"text","text":"one"},{"type":"text","text":"two\nlines"}]}`, "one\n\ntwo\nlines"},
		{"every kind", `{"content":[
			{"type":"text","text":"See:"},
			{"type":"image","data":"AAAA","mimeType":"image/png"},
			{"type":"audio","data":"AAAA","mimeType":"audio/wav"},
			{"type":"resource","resource":{"uri":"file:///a.txt","mimeType":"text/plain","text":"body"}},
			{"type":"resource","resource":{"uri":"file:///a.bin","blob":"AAAA"}},
			{"type":"resource_link","uri":"file:///b.txt","name":"b","description":"The other one."},
			{"type":"resource_link","uri":"file:///c.txt","name":"c"},
			{"type":"resource_link","uri":"file:///d.txt"},
			{"type":"video","uri":"x"}]}`,
			"See:\n\n[Image: image/png]\n\n[Audio: audio/wav]\n\n[Resource: file:///a.txt]\nbody\n\n[Resource: file:///a.bin]\n\n" +
				"[Resource link: file:///b.txt]\nb: The other one.\n\n[Resource link: file:///c.txt]\nc\n\n[Resource link: file:///d.txt]\n\n[Unsupported content: video]"},
		{"an error", `{"content":[{"type":"text","text":"no such file"}],"isError":true}`, "Error: no such file"},
		{"an error without a word", `{"content":[],"isError":true}`, "Error: the tool reports a failure without saying which"},
		{"not quite an error", `{"content":[{"type":"text","text":"fine"}],"isError":"true"}`, "fine"},
		{"nothing", `{"content":[]}`, ""},
		{"no content", `{}`, ""},

		{"structured alone", `{"structuredContent":{"b": 1, "a": 12345678901234567890.10}}`, "```json\n{\"b\":1,\"a\":12345678901234567890.10}\n```"},
		{"structured with a summary", `{"content":[{"type":"text","text":"2 found"}],"structuredContent":{"found":[1,2]}}`, "2 found\n\n```json\n{\"found\":[1,2]}\n```"},
		{"structured and mirrored", `{"content":[{"type":"text","text":" {\"b\": 1.0,\n\"a\":\"\\u00e9\" }"}],"structuredContent":{"a":"é","b":1}}`, " {\"b\": 1.0,\n\"a\":\"\\u00e9\" }"},
		{"structured and nearly mirrored", `{"content":[{"type":"text","text":"{\"id\":9007199254740993}"}],"structuredContent":{"id":9007199254740992}}`,
			"{\"id\":9007199254740993}\n\n```json\n{\"id\":9007199254740992}\n```"},
		{"structured and mirrored in another kind", `{"content":[{"type":"resource","resource":{"uri":"u","text":"{\"a\":1}"}}],"structuredContent":{"a":1}}`,
			"[Resource: u]\n{\"a\":1}\n\n```json\n{\"a\":1}\n```"},
		{"structured as a wrapped text", `{"content":[{"type":"text","text":"hello"}],"structuredContent":{"result":"hello"}}`, "hello"},
		{"structured as the one member of an object", `{"content":[{"type":"text","text":"hi\n"}],"structuredContent":{"content":"hi\n"}}`, "hi\n"},
		{"structured as a wrapped number", `{"content":[{"type":"text","text":"2.50"}],"structuredContent":{"result":2.5}}`, "2.50"},
		{"structured as a wrapped list", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"result":["a",{"n":1}]}}`, "a\n\n{\"n\":1}"},
		{"structured as another wrapped list", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"structuredContent":{"result":["a","c"]}}`,
			"a\n\nb\n\n```json\n{\"result\":[\"a\",\"c\"]}\n```"},
		{"structured as an empty list", `{"content":[],"structuredContent":{"result":[]}}`, "```json\n{\"result\":[]}\n```"},
		{"structured in an error", `{"content":[{"type":"text","text":"no"}],"structuredContent":{"code":7},"isError":true}`, "Error: no\n\n```json\n{\"code\":7}\n```"},
		{"structured null", `{"content":[{"type":"text","text":"x"}],"structuredContent":null}`, "x"},

		{"wrong kinds", `{"content":[7,"x",null,[],{},{"type":"text"},{"type":"text","text":7},{"type":"image"},{"type":"resource"},{"type":"resource","resource":[]}]}`,
			strings.Repeat("[Unreadable content]\n\n", 4) + "[Unsupported content: unknown]\n\n\n\n\n\n[Image: unknown]\n\n[Resource: unknown]\n\n[Resource: unknown]"},
		{"hidden characters in a label", `{"content":[{"type":"image","mimeType":"image/png]\n\u001b[2K\u202e"}]}`, "[Image: image/png] [2K]"},
		{"content of another kind", `{"content":{"type":"text","text":"x"}}`, "[Unreadable content]"},
		{"not an object", `[1]`, "Error: the server sent a result that cannot be read"},
		{"not JSON", `{"content":`, "Error: the server sent a result that cannot be read"},
		{"nothing at all", ``, "Error: the server sent a result that cannot be read"},
		{"names are exact", `{"Content":[{"type":"text","text":"x"}],"ISERROR":true}`, ""},
		{"invalid UTF-8", "{\"content\":[{\"type\":\"text\",\"text\":\"a\xff\"}],\"structuredContent\":{\"b\":\"\xff\"}}", "a\ufffd\n\n```json\n{\"b\":\"\ufffd\"}\n```"},
	} {
		if got := Flatten(json.RawMessage(tt.result)).Text; got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.about, got, tt.want)
		}
	}
}

func TestFlattenKeepsTheServersBytes(t *testing.T) {
	const content, structured = `[ {"text" : "x","type":"text"} ]`, `{"z" : 1.50, "a":12345678901234567890}`
	flat := Flatten(json.RawMessage(`{"structuredContent": ` + structured + ` ,"isError": true, "content" : ` + content + `}`))
	if string(flat.Content) != content || string(flat.Structured) != structured || !flat.IsError {
		t.Errorf("got %s, %s, %v", flat.Content, flat.Structured, flat.IsError)
	}
}

// A large mirror is found by its bytes; decoded it would be many times as large.
func TestLargeMirror(t *testing.T) {
	big := `{"list":[` + strings.Repeat(`"0123456789",`, maxCompared/13) + `1]}`
	text := string(quoted(big))
	if got := Flatten(json.RawMessage(`{"content":[{"type":"text","text":` + text + `}],"structuredContent":` + big + `}`)).Text; got != big {
		t.Errorf("%d characters, want %d", len(got), len(big))
	}
	other := strings.TrimSuffix(big, "1]}") + "2]}"
	if got := Flatten(json.RawMessage(`{"content":[{"type":"text","text":` + text + `}],"structuredContent":` + other + `}`)).Text; got != big+"\n\n```json\n"+other+"\n```" {
		t.Errorf("%d characters", len(got))
	}
}

func TestErrorText(t *testing.T) {
	if got := ErrorText(errors.New("server gone\xff")); got != "MCP error: server gone\ufffd" {
		t.Errorf("got %q", got)
	}
}

func FuzzFlatten(f *testing.F) {
	f.Add(`{"content":[{"type":"text","text":"{\"a\":[1,2.0,null]}"},{"type":"image","mimeType":"x"}],"structuredContent":{"a":[1,2,null]},"isError":true}`)
	f.Add(`{"content":[{"type":"resource","resource":{"uri":"u","text":"t"}},{"type":"resource_link","uri":"u","name":"n"}],"structuredContent":{"result":["a"]}}`)
	f.Add(`{"content":[[[]],{"":"\ud800"},"\\\"",-1e5],"structuredContent":[]}`)
	f.Add("{\"content\":[{\"type\":\"text\",\"text\":\"\xff\xfe\"}]}")
	f.Fuzz(func(t *testing.T, result string) {
		flat := Flatten(json.RawMessage(result))
		if !utf8.ValidString(flat.Text) {
			t.Errorf("text %q", flat.Text)
		}
		if flat.IsError && !strings.HasPrefix(flat.Text, "Error: ") {
			t.Errorf("error %q", flat.Text)
		}
		for _, raw := range []json.RawMessage{flat.Content, flat.Structured} {
			if raw != nil && (!json.Valid(raw) || !strings.Contains(result, string(raw))) {
				t.Errorf("%q is not of the result", raw)
			}
		}
		if flat.Structured != nil && len(result) < maxCompared {
			// Said in the text, it need not be said again.
			mirrored := `{"content":[{"type":"text","text":` + string(quoted(string(flat.Structured))) + `}],"structuredContent":` + string(flat.Structured) + `}`
			if again := Flatten(json.RawMessage(mirrored)); utf8.Valid(flat.Structured) && again.Text != string(flat.Structured) {
				t.Errorf("%s gives %q", mirrored, again.Text)
			}
		}
	})
}
