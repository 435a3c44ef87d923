package config

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Env, header and auth values are secrets by their type. What follows is for
// places that hold secrets against all advice: command lines and URLs. It is a
// matter of judgement, and errs on the side of hiding.

// secretName is part of the name of an option, variable or header that holds
// something confidential.
const secretName = `[\w.-]*(?:token|secret|passw(?:or)?d|passphrase|pwd|key|auth|credential|bearer|cookie|(?:^|[-_.])pass(?:$|[-_.]))[\w.-]*`

var (
	secretOption = regexp.MustCompile(`(?i)^-{0,2}` + secretName + `$`)
	headerOption = regexp.MustCompile(`^(?:-H|--headers?)$`)
	envOption    = regexp.MustCompile(`^(?:-e|--env)$`)

	// secretInText finds secrets in the middle of a text: NAME=value, Name: value
	// and --name value for a confidential name, an authorization scheme with its
	// credential, and tokens of a well-known shape. Its groups are the secrets.
	secretInText = regexp.MustCompile(`(?i)(?:` + secretName + `\s*[=:]\s*|--?` + secretName + `\s+|\b(?:bearer|basic)\s+)` +
		`((?:(?:bearer|basic|token)\s+)?(?:"[^"]*"|'[^']*'|[^\s"';&,]+))` +
		`|\b((?-i:sk-[\w-]{8,}|gh[a-z]_\w{16,}|github_pat_\w+|glpat-[\w-]+|xox[a-z]-[\w-]+|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]+\.[\w-]+\.[\w-]+))`)

	urlInText = regexp.MustCompile(`[a-zA-Z][\w+.-]*://[^\s"']+`)
)

// longestRead bounds the texts that are searched for secrets.
const longestRead = 16 << 10

// MaskText hides what may be confidential in a command line or a part of one.
// References to variables stay readable. A text too long to be read is hidden as
// a whole.
func MaskText(s string) string {
	if len(s) > longestRead {
		return redacted
	}
	var b strings.Builder
	for {
		var at []int
		if strings.Contains(s, "://") {
			at = urlInText.FindStringIndex(s)
		}
		if at == nil {
			return b.String() + maskPlain(s)
		}
		b.WriteString(maskPlain(s[:at[0]]))
		b.WriteString(maskURL(s[at[0]:at[1]]))
		s = s[at[1]:]
	}
}

// maskPlain does so for a text without a URL.
func maskPlain(s string) string {
	var b strings.Builder
	done := 0
	for _, m := range secretInText.FindAllStringSubmatchIndex(s, -1) {
		hidden := s[max(m[2], m[4]):m[1]] // group 1 or 2 is not there
		quote := ""
		if len(hidden) > 1 && (hidden[0] == '"' || hidden[0] == '\'') {
			quote, hidden = hidden[:1], hidden[1:len(hidden)-1]
		}
		b.WriteString(s[done:max(m[2], m[4])] + quote + NewSecret(hidden).Mask() + quote)
		done = m[1]
	}
	return b.String() + s[done:]
}

// maskArgs hides the values of options that name a secret, as in --api-key X,
// headers and variables passed as options, and whatever MaskText finds.
func maskArgs(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		option := ""
		if i > 0 {
			option = args[i-1]
		}
		name, value, hasValue := strings.Cut(a, "=")
		switch {
		case headerOption.MatchString(option):
			out[i] = maskPair(a, ":")
		case envOption.MatchString(option):
			out[i] = maskPair(a, "=")
		case strings.HasPrefix(option, "-") && secretOption.MatchString(option) && !strings.HasPrefix(a, "-"):
			out[i] = NewSecret(a).Mask()
		case hasValue && headerOption.MatchString(name):
			out[i] = name + "=" + maskPair(value, ":")
		case hasValue && envOption.MatchString(name):
			out[i] = name + "=" + maskPair(value, "=")
		case hasValue && secretOption.MatchString(name):
			out[i] = name + "=" + NewSecret(value).Mask()
		default:
			out[i] = MaskText(a)
		}
	}
	return out
}

// maskPair hides the value of a name and a value.
func maskPair(s, separator string) string {
	name, value, ok := strings.Cut(s, separator)
	if !ok {
		return MaskText(s)
	}
	text := strings.TrimLeft(value, " ")
	return name + separator + value[:len(value)-len(text)] + NewSecret(text).Mask()
}

// maskURL hides what may be confidential in a URL: user information, the values
// of its query, the fragment, and parts of the path that look like a token.
// References to variables stay readable.
func maskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		// A template in the host or port does not parse; go by the characters.
		raw, _, _ = strings.Cut(raw, "#")
		base, query, found := strings.Cut(raw, "?")
		if i := strings.LastIndex(base, "@"); i >= 0 {
			if j := strings.Index(base, "://"); j >= 0 && j < i {
				base = base[:j+3] + redacted + base[i:]
			}
		}
		base = maskPath(base)
		if !found {
			return base
		}
		return base + "?" + maskQuery(query)
	}
	query := u.RawQuery
	u.RawQuery = ""
	user := u.User
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	s, err := url.PathUnescape(u.String())
	if err != nil {
		s = u.String()
	}
	s = maskPath(s)
	if user != nil {
		s = strings.Replace(s, "://", "://"+redacted+"@", 1)
	}
	if query != "" {
		s += "?" + maskQuery(query)
	}
	return s
}

// maskPath hides the segments that nobody would choose as a name: long ones in
// which letters and digits are mixed. Many a service puts its key there.
func maskPath(s string) string {
	segments := strings.Split(s, "/")
	for i, segment := range segments {
		if i > 2 && len(segment) >= 16 && !reference.MatchString(segment) && mixesDigits(segment) { // 0 to 2: scheme and host
			segments[i] = redacted
		}
	}
	return strings.Join(segments, "/")
}

// mixesDigits reports whether a word of eight characters or more has both
// letters and digits.
func mixesDigits(s string) bool {
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("-_.~", r) }) {
		if len(word) >= 8 && strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789") != "" {
			return true
		}
	}
	return false
}

func maskQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, p := range parts {
		if name, value, ok := strings.Cut(p, "="); ok {
			parts[i] = name + "=" + NewSecret(value).Mask()
		} else {
			parts[i] = NewSecret(p).Mask()
		}
	}
	return strings.Join(parts, "&")
}

// plainWord matches arguments that need no quotes on a command line.
var plainWord = regexp.MustCompile(`^[]\w@%+=:,./${}~?&[-]+$`)

// quoteCommand renders a command line that shows where arguments begin and end.
func quoteCommand(command string, args []string) string {
	words := make([]string, 0, len(args)+1)
	for _, w := range append([]string{command}, args...) {
		if !plainWord.MatchString(w) {
			w = strconv.Quote(w)
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}
