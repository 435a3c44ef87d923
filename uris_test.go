package patchbay

import (
	"strings"
	"testing"
)

func TestFitsTemplate(t *testing.T) {
	for _, tt := range []struct {
		template, uri string
		literal       int
		fits          bool
	}{
		{"file:///{path}", "file:///a/b", 8, true},
		{"file:///{path}", "note:///a/b", 0, false},
		{"a://{x}/b", "a://1/b", 6, true},
		{"a://{x}/b", "a://1/b/c", 0, false},
		{"a://{x}/b/{y}", "a://1/b/c", 7, true},
		{"a://{x}/b/{y}", "a://1/c/c", 0, false},
		{"a://b", "a://b", 5, true},
		{"a://b", "a://bc", 0, false},
		{"a://b{?q}", "a://b?q=1", 5, true},
		{"{+any}", "whatever", 0, true},
		{"a://{broken", "a://x", 0, false},
	} {
		if literal, fits := fitsTemplate(tt.template, tt.uri); fits != tt.fits || fits && literal != tt.literal {
			t.Errorf("%s, %s: %d, %t", tt.template, tt.uri, literal, fits)
		}
	}
}

// A template without expressions fits itself and nothing else; what is put in
// place of an expression at the end always fits.
func FuzzFitsTemplate(f *testing.F) {
	f.Add("file:///{path}", "x/y")
	f.Add("a://{x}/b/{y}", "}{")
	f.Fuzz(func(t *testing.T, template, value string) {
		_, _ = fitsTemplate(template, value)
		if plain := strings.NewReplacer("{", "", "}", "").Replace(template); plain != "" {
			if _, ok := fitsTemplate(plain, plain); !ok {
				t.Errorf("%q does not fit itself", plain)
			}
			if _, ok := fitsTemplate(plain+"{v}", plain+value); !ok {
				t.Errorf("%q does not fit with %q", plain, value)
			}
		}
	})
}
