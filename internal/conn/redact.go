package conn

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// redactor takes the secrets of an entry out of texts that people see.
type redactor struct{ replacer *strings.Replacer }

// redactor is one for what a connection was made with.
func (l *link) redactor() *redactor {
	switch {
	case l.process != nil:
		return l.process.redact
	case l.headers != nil:
		return l.headers.redactor(l.answers)
	}
	return redactorOf(l.answers)
}

// hiddenAnswers are what a person answered, in every form that a message may quote
// it in. A password is hidden however short it is.
func hiddenAnswers(answers map[string]config.Answer) (secrets []string) {
	for _, a := range answers {
		text := a.Text.Reveal()
		if text == "" || !a.Password && (len(text) < shortestSecret || filepath.IsAbs(text)) {
			continue
		}
		quoted := strconv.Quote(text)
		literal, _ := json.Marshal(text) // a string always marshals
		secrets = append(secrets, text, url.QueryEscape(text), url.PathEscape(text), quoted[1:len(quoted)-1], string(literal[1:len(literal)-1]))
	}
	slices.Sort(secrets)
	return slices.Compact(secrets)
}

// redactor is one for what the requests of a connection carry, and for texts that
// are secrets anyway.
func (h *headers) redactor(secrets []string) *redactor {
	secrets = slices.Clone(secrets)
	hide := func(text string) {
		if len(text) >= shortestSecret {
			secrets = append(secrets, text)
		}
	}
	now := h.issued()
	if now == nil { // the helper failed, and nothing was sent
		now = &issue{}
	}
	for _, values := range now.header {
		for _, v := range values {
			hide(v)
			if _, token, ok := strings.Cut(v, " "); ok { // as in Bearer token
				hide(token)
			}
		}
	}
	if u, err := url.Parse(h.server.URL); err == nil {
		hide(u.RawQuery)
		for _, values := range u.Query() {
			for _, v := range values {
				hide(v)
			}
		}
		if password, ok := u.User.Password(); ok {
			hide(password)
		}
	}
	return redactorOf(secrets)
}

// secretName matches variables whose value is a secret by their name.
var secretName = regexp.MustCompile(`(?i)token|secret|passw|pwd|key|auth|credential|cookie|session|dsn`)

// credentialName matches variables that programs expect a credential in. Others
// of an environment that merely sound like one, such as a session's number, are
// what messages are about.
var credentialName = regexp.MustCompile(`(?i)token|secret|passw|api_?key|access_?key|private_?key|credential`)

// shortestSecret is the length from which a text counts as a secret. Shorter
// ones occur in ordinary text.
const shortestSecret = 6

// newRedactor returns one for a child: written is its server as the entry has
// it, resolved as it was started, with the environment env. Texts that are secrets
// anyway come before.
func newRedactor(secrets []string, written, resolved config.Server, env []string) *redactor {
	secrets = slices.Clone(secrets)
	hide := func(name, text string) {
		// A path is no secret, and often what a message is about.
		if len(text) >= shortestSecret && (secretName.MatchString(name) || !filepath.IsAbs(text)) {
			secrets = append(secrets, text)
		}
	}
	for name, value := range resolved.Env {
		hide(name, value.Reveal())
	}
	for _, assignment := range env {
		if name, value, _ := strings.Cut(assignment, "="); credentialName.MatchString(name) && !filepath.IsAbs(value) {
			hide(name, value)
		}
	}
	for i, arg := range resolved.Args {
		name, value, pair := strings.Cut(arg, "=")
		fromVariable := i >= len(written.Args) || arg != written.Args[i]
		if pair && (fromVariable || secretName.MatchString(name)) {
			hide(name, value)
		}
		option := ""
		if i > 0 && strings.HasPrefix(resolved.Args[i-1], "-") && !strings.Contains(resolved.Args[i-1], "=") {
			option = resolved.Args[i-1]
		}
		if fromVariable || secretName.MatchString(option) {
			hide(option, arg)
		}
	}
	return redactorOf(secrets)
}

// redactorOf returns one for texts that are secrets.
func redactorOf(secrets []string) *redactor {
	// The longest first: another may be a part of it.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, "[redacted]")
	}
	return &redactor{strings.NewReplacer(pairs...)}
}

func (r *redactor) clean(text string) string { return r.replacer.Replace(text) }

// cleanError returns an error that says the same without secrets.
func (r *redactor) cleanError(err error) error {
	text := err.Error()
	if clean := r.clean(text); clean != text {
		return &redactedError{clean, err}
	}
	return err
}

// challengeParams are those of a challenge that are for everybody to see: where
// and for what to get a token (RFC 6750, RFC 9728, and what Entra ID adds).
var challengeParams = []string{"realm", "scope", "error", "error_description", "error_uri", "resource_metadata", "resource", "algs", "authorization_uri", "client_id"}

// cleanChallenge returns what people may see of a challenge. Of addresses that
// is not the query, and of params that are not known it is the name alone: such
// as a nonce, a ticket or a session, they may be worth something.
func (r *redactor) cleanChallenge(c *wire.Challenge) *wire.Challenge {
	if c == nil {
		return nil
	}
	clean := &wire.Challenge{Scheme: c.Scheme}
	if c.Params != nil {
		clean.Params = make(map[string]string, len(c.Params))
	}
	for name, value := range c.Params {
		if u, err := url.Parse(value); err == nil && u.Host != "" {
			u.User, u.RawQuery, u.Fragment = nil, "", ""
			value = u.String()
		}
		if value = r.clean(value); !slices.Contains(challengeParams, name) {
			value = "[redacted]"
		}
		clean.Params[r.clean(name)] = value
	}
	return clean
}

// redactedError is an error with another text.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }
