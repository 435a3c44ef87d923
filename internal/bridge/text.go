package bridge

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean removes from a foreign text what a reader does not see but a terminal
// or a model would obey: controls except line ends and tabs, bidirectional
// marks, zero-width and other invisible characters.
func clean(s string) string {
	if isPlain(s) {
		return s
	}
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && isHidden(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// isPlain reports whether a text is of visible ASCII, line ends and tabs, as
// nearly all are.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// cleanLine is clean for what must stay in one line.
func cleanLine(s string) string {
	return strings.Join(strings.Fields(clean(s)), " ")
}

func isHidden(c rune) bool {
	switch {
	case c < 0x20 || 0x7f <= c && c < 0xa0:
		return true
	case c < 0x300: // ordinary letters first: they are nearly all there is
		return c == 0xad
	case c == 0xfe0f: // makes the character before it an emoji
		return false
	default:
		return unicode.In(c, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
			!unicode.Is(unicode.Prepended_Concatenation_Mark, c)
	}
}

// runeOffset returns where the first n characters of a text end.
func runeOffset(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	offset := 0
	for ; n > 0 && offset < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[offset:])
		offset += size
	}
	return offset
}

// Shorten returns a text of at most limit characters: the text itself, or its
// beginning and its end with a line between them that says how much was left
// out and, if it was saved, where all of it is.
func Shorten(text string, limit int, savedTo string) string {
	if len(text) <= limit {
		return text
	}
	total := utf8.RuneCountInString(text)
	if total <= limit {
		return text
	}
	// Written with the largest number it may have to hold.
	room := limit - utf8.RuneCountInString(gap(total, savedTo))
	if room <= 0 {
		return text[:runeOffset(text, limit)]
	}
	tail := room / 3
	head := room - tail
	from := runeOffset(text, head)
	to := from + runeOffset(text[from:], total-room)
	return text[:from] + gap(total-room, savedTo) + text[to:]
}

func gap(left int, savedTo string) string {
	if savedTo == "" {
		return fmt.Sprintf("\n\n[… %d characters left out …]\n\n", left)
	}
	return fmt.Sprintf("\n\n[… %d characters left out; the whole text is in %s …]\n\n", left, savedTo)
}
