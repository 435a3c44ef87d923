package config

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"unique"
)

// redacted stands wherever a secret would have been printed.
const redacted = "[redacted]"

// Secret is a value that may be confidential: every env, header and auth value
// is one. It cannot print itself: fmt, encoding/json and log/slog show a
// placeholder. Reveal is the only way to the text.
//
// It unmarshals from a plain JSON string.
type Secret struct {
	// Not a string, because fmt prints the unexported fields of a struct that
	// holds a Secret without asking it: of a handle it prints an address. Secrets
	// with equal text are equal.
	text unique.Handle[string]
}

// NewSecret wraps text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{unique.Make(text)}
}

// Reveal returns the text. Call it where the value goes to its destination and
// nowhere else.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return s.text.Value()
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s == Secret{} }

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(redacted)) }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText takes the text as it is.
func (s *Secret) UnmarshalText(b []byte) error { *s = NewSecret(string(b)); return nil }

// reference matches one placeholder of any dialect; group 1 is its default.
// A bare $NAME counts only in capitals: a password may begin with a dollar sign.
var reference = regexp.MustCompile(`\$\{\{[^{}]*\}\}|\$\{(?:[^{}:]|:[^-{}])*(?::-([^{}]*))?\}|\{(?:env|file):[^{}]*\}|\$env:\w+|\$[A-Z_][A-Z0-9_]*|%[A-Z_][A-Z0-9_]*%`)

// Mask renders the secret for people: references to variables stay readable,
// since they say where the value comes from, and so do a leading authorization
// scheme and a default too short to be a secret. Literal text does not.
func (s Secret) Mask() string {
	const longestShownDefault = 7
	scheme, rest := "", s.Reveal()
	if word, after, ok := strings.Cut(rest, " "); ok {
		switch strings.ToLower(word) {
		case "bearer", "basic", "token":
			scheme, rest = word+" ", after
		}
	}
	switch {
	case s.IsZero():
		return ""
	case rest == "" || reference.ReplaceAllString(rest, "") != "":
		return redacted
	}
	return scheme + reference.ReplaceAllStringFunc(rest, func(ref string) string {
		if m := reference.FindStringSubmatchIndex(ref); m[2] >= 0 && m[3]-m[2] > longestShownDefault {
			return ref[:m[2]] + redacted + ref[m[3]:]
		}
		return ref
	})
}
