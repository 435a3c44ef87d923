package config

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes foreign text safe to show on one line of a terminal, and shows
// what would deceive the eye: control characters, characters that change the
// direction of writing or take no room, unusual spaces, bytes that are no text.
// They become <U+202E> or <0xFF>; all else stays as it is. Different texts stay
// different.
func Escape(s string) string {
	if !needsEscape(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "<0x%02X>", s[i])
		case deceptive(r), looksEscaped(s[i:]):
			fmt.Fprintf(&b, "<U+%04X>", r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

func needsEscape(s string) bool {
	for i, r := range s {
		if r == utf8.RuneError || deceptive(r) || looksEscaped(s[i:]) {
			return true
		}
	}
	return false
}

// looksEscaped reports whether the text begins like an escape of ours.
func looksEscaped(s string) bool {
	return strings.HasPrefix(s, "<U+") || strings.HasPrefix(s, "<0x")
}

// deceptive reports whether a character shows as nothing, or as something else
// than it is.
func deceptive(r rune) bool {
	switch {
	case ' ' <= r && r <= '~':
		return false
	case !unicode.IsGraphic(r): // controls, format characters, private use, unassigned
		return true
	case unicode.Is(unicode.Zs, r): // spaces other than the space
		return true
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return true
	}
	return r == '\u2800' // the blank among the braille patterns
}
