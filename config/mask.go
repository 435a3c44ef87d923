package config

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// secretFlag matches options whose value is a secret by their name.
var secretFlag = regexp.MustCompile(`(?i)^-{1,2}[\w.-]*(?:token|secret|passw(?:or)?d|api[-_]?key|auth(?:orization)?|credential|private[-_]?key|bearer)[\w.-]*$`)

// MaskURL hides what may be confidential in a URL: user information, and the
// values of its query. References to variables stay readable.
func MaskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		// A template in the host or port does not parse; hide the query by hand.
		base, query, found := strings.Cut(raw, "?")
		if i := strings.LastIndex(base, "@"); i >= 0 {
			if j := strings.Index(base, "://"); j >= 0 && j < i {
				base = base[:j+3] + redacted + base[i:]
			}
		}
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
	if user != nil {
		s = strings.Replace(s, "://", "://"+redacted+"@", 1)
	}
	if query != "" {
		s += "?" + maskQuery(query)
	}
	return s
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

// MaskArgs hides the values of options that name a secret, as in --api-key X,
// and the confidential parts of URLs.
func MaskArgs(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		name, value, hasValue := strings.Cut(a, "=")
		switch {
		case i > 0 && secretFlag.MatchString(args[i-1]) && !strings.HasPrefix(a, "-"):
			out[i] = NewSecret(a).Mask()
		case hasValue && (secretFlag.MatchString(name) || secretFlag.MatchString("--"+name)):
			out[i] = name + "=" + NewSecret(value).Mask()
		case strings.Contains(a, "://"):
			out[i] = MaskURL(a)
		default:
			out[i] = a
		}
	}
	return out
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
