package config

import "testing"

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		`C:\Users\x "quoted" 'it'`: `C:\Users\x "quoted" 'it'`,
		"naïve 日本語 🙂":              "naïve 日本語 🙂",
		"a\x1b[31mb\r\n\t\x00\x7f": "a<U+001B>[31mb<U+000D><U+000A><U+0009><U+0000><U+007F>",
		"\u0085\u009b":             "<U+0085><U+009B>",
		"safe\u202egnp.exe":        "safe<U+202E>gnp.exe",
		"a\u200b\u200d\ufeffb":     "a<U+200B><U+200D><U+FEFF>b",
		"a\u00a0b\u3000\u2028":     "a<U+00A0>b<U+3000><U+2028>",
		"\u2800\u115f\ue000\ufe0f": "<U+2800><U+115F><U+E000><U+FE0F>",
		"\U000e0041":               "<U+E0041>",
		"\xff\xfe":                 "<0xFF><0xFE>",
		"<U+202E> <0xFF> <b>":      "<U+003C>U+202E> <U+003C>0xFF> <b>",
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%+q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\u202eb<U+202E>", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := Escape(a)
		for _, r := range got {
			if deceptive(r) {
				t.Fatalf("Escape(%+q) still holds %U", a, r)
			}
		}
		if a != b && got == Escape(b) {
			t.Fatalf("%+q and %+q both show as %q", a, b, got)
		}
	})
}
