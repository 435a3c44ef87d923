package bridge

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShorten(t *testing.T) {
	digits := strings.Repeat("0123456789", 20)
	for _, tt := range []struct {
		about, text string
		limit       int
		savedTo     string
		want        string
	}{
		{"fits", digits, 200, "/r", digits},
		{"fits in characters", strings.Repeat("é", 200), 200, "/r", strings.Repeat("é", 200)},
		{"one too many", digits + "X", 200, "/r", digits[:95] + "\n\n[… 59 characters left out; the whole text is in /r …]\n\n" + digits[154:] + "X"},
		{"not saved", digits, 100, "", digits[:45] + "\n\n[… 133 characters left out …]\n\n" + digits[178:]},
		{"wide characters", strings.Repeat("€", 200), 100, "", strings.Repeat("€", 45) + "\n\n[… 133 characters left out …]\n\n" + strings.Repeat("€", 22)},
		{"no room for a word", digits, 10, "/r", "0123456789"},
		{"no room", digits, 0, "/r", ""},
		{"less than no room", digits, -1, "/r", ""},
		{"empty", "", 0, "/r", ""},
	} {
		if got := Shorten(tt.text, tt.limit, tt.savedTo); got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.about, got, tt.want)
		}
	}
}

func FuzzShorten(f *testing.F) {
	f.Add(strings.Repeat("0123456789", 20), 100, "/r")
	f.Add(strings.Repeat("é€\U0001f600", 50), 99, "")
	f.Add(strings.Repeat("\xff\xe2\x82", 50), 77, "")
	f.Add("x", -1, "")
	f.Fuzz(func(t *testing.T, text string, limit int, savedTo string) {
		got := Shorten(text, limit, savedTo)
		total := utf8.RuneCountInString(text)
		if total <= max(0, limit) {
			if got != text {
				t.Fatalf("%q became %q", text, got)
			}
			return
		}
		if n := utf8.RuneCountInString(got); n > max(0, limit) {
			t.Errorf("%d characters, want at most %d", n, limit)
		}
		if utf8.ValidString(text) && utf8.ValidString(savedTo) && !utf8.ValidString(got) {
			t.Errorf("%q is cut inside a character", got)
		}
		if strings.HasPrefix(text, got) {
			return // no room for more
		}
		// A beginning, a gap that tells its own size, and an end.
		for left := total; left > 0; left-- {
			if head, tail, ok := strings.Cut(got, gap(left, savedTo)); ok && strings.HasPrefix(text, head) && strings.HasSuffix(text, tail) &&
				utf8.RuneCountInString(head)+left+utf8.RuneCountInString(tail) == total {
				return
			}
		}
		t.Errorf("%q is no shortened %q", got, text)
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a\x00b\u202e\U000e0041\u200d\ufe0f\r\n")
	f.Add("\xff\u0600é")
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s)
		if !utf8.ValidString(got) || clean(got) != got {
			t.Errorf("%q becomes %q", s, got)
		}
		for _, c := range got {
			if c != '\n' && c != '\t' && (c < ' ' || 0x7f <= c && c < 0xa0 || 0x200b <= c && c <= 0x200f || 0x202a <= c && c <= 0x202e || 0x2060 <= c && c <= 0x206f || c == 0xfeff || 0xe0000 <= c && c <= 0xe0fff) {
				t.Errorf("%q keeps %U", s, c)
			}
		}
	})
}

// Strings are read as encoding/json reads them, however plain they are.
func FuzzParseString(f *testing.F) {
	for _, text := range []string{`"plain"`, ` "spaced" `, `""`, `"`, `"a"b"`, `"tab\u0009"`, "\"\t\"", `"é"`, "\"\xff\"", `"\\"`, `"\"`, `"<&>"`, `1`, `{"a":"b"}`, ``} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want string
		ok := json.Unmarshal([]byte(text), &want) == nil && firstByte(json.RawMessage(text)) == '"'
		if got, is := parseString(json.RawMessage(text)); is != ok || ok && got != want {
			t.Errorf("%q: got %q, %v; want %q, %v", text, got, is, want, ok)
		}
	})
}
