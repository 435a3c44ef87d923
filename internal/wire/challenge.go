package wire

import "strings"

// Challenge is one authentication challenge of a WWW-Authenticate header.
type Challenge struct {
	Scheme string            // lower case
	Token  string            // the token68 of schemes that have one instead of params
	Params map[string]string // names in lower case, values unquoted; nil if there are none
}

// What is read of WWW-Authenticate; the rest is ignored.
const (
	maxChallengeText = 16 << 10
	maxChallenges    = 16
	maxChallengeArgs = 32
)

// ParseChallenges reads the values of all WWW-Authenticate headers of a
// response (RFC 9110, section 11.6.1). It is lenient, because a challenge that
// is half understood is still the way to an authorization server: what is not
// grammatical is skipped up to the next comma. The first of two params with
// the same name counts.
func ParseChallenges(headers []string) []Challenge {
	var all []Challenge
	for _, h := range headers {
		if len(h) > maxChallengeText {
			h = h[:maxChallengeText]
		}
		// What starts a header cannot belong to the last challenge of another.
		all = parseChallenges(h, all)
	}
	return all
}

func parseChallenges(text string, all []Challenge) []Challenge {
	p := challengeParser{text: text}
	var current *Challenge
	for {
		p.skip(" \t,")
		word := p.token()
		switch {
		case p.done() && word == "":
			return all
		case word == "":
			p.skipToComma()
			continue
		}
		if value, ok := p.param(); ok {
			current.set(word, value)
			continue
		}
		if len(all) == maxChallenges {
			return all
		}
		all = append(all, Challenge{Scheme: strings.ToLower(word)})
		current = &all[len(all)-1]
		current.Token = p.token68()
	}
}

func (c *Challenge) set(name, value string) {
	if c == nil || len(c.Params) == maxChallengeArgs {
		return // a param before any scheme, or one too many
	}
	if c.Params == nil {
		c.Params = make(map[string]string)
	}
	name = strings.ToLower(name)
	if _, dup := c.Params[name]; !dup {
		c.Params[name] = value
	}
}

type challengeParser struct {
	text string
	pos  int
}

func (p *challengeParser) done() bool { return p.pos == len(p.text) }

func (p *challengeParser) skip(set string) {
	for !p.done() && strings.IndexByte(set, p.text[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *challengeParser) skipToComma() {
	if i := strings.IndexByte(p.text[p.pos:], ','); i >= 0 {
		p.pos += i
	} else {
		p.pos = len(p.text)
	}
}

func (p *challengeParser) token() string {
	start := p.pos
	for !p.done() && isTokenChar(p.text[p.pos]) {
		p.pos++
	}
	return p.text[start:p.pos]
}

// param reads the rest of an auth-param, from its equals sign. It reports
// false, and consumes nothing, if there is none: the word before is a scheme.
func (p *challengeParser) param() (string, bool) {
	start := p.pos
	p.skip(" \t")
	if p.done() || p.text[p.pos] != '=' {
		p.pos = start
		return "", false
	}
	p.pos++
	p.skip(" \t")
	if p.done() || p.text[p.pos] != '"' {
		// A server that forgets the quotes around a URL or a list of scopes
		// meant everything up to the comma.
		start = p.pos
		p.skipToComma()
		return strings.TrimRight(p.text[start:p.pos], " \t"), true
	}
	p.pos++
	var value strings.Builder
	for ; !p.done(); p.pos++ {
		c := p.text[p.pos]
		if c == '"' {
			p.pos++
			break
		}
		if c == '\\' && p.pos+1 < len(p.text) {
			p.pos++
			c = p.text[p.pos]
		}
		value.WriteByte(c)
	}
	return value.String(), true
}

// token68 reads what follows a scheme if it stands alone before a comma or the
// end: anything else is the name of the first param.
func (p *challengeParser) token68() string {
	start := p.pos
	p.skip(" \t")
	if p.pos == start {
		return ""
	}
	begin := p.pos
	for !p.done() && isToken68Char(p.text[p.pos]) {
		p.pos++
	}
	if p.pos > begin {
		p.skip("=")
	}
	token := p.text[begin:p.pos]
	p.skip(" \t")
	if p.done() || p.text[p.pos] == ',' {
		return token
	}
	p.pos = start
	return ""
}

func isToken68Char(c byte) bool {
	return isAlphanumeric(c) || strings.IndexByte("-._~+/", c) >= 0
}

// isTokenChar reports whether c may stand in an HTTP token, such as the name of
// a header.
func isTokenChar(c byte) bool {
	return isAlphanumeric(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
