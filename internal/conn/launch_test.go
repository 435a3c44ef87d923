package conn

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestRedactor(t *testing.T) {
	written := config.Server{Args: []string{"serve", "--token=${T}", "${WHERE}", "--api-key", "literal-key", "plainword"}}
	resolved := config.Server{
		Args: []string{"serve", "--token=from-variable", "/home/me/work", "--api-key", "literal-key", "plainword"},
		Env: map[string]config.Secret{
			"API_KEY": config.NewSecret("abcdef"), "OTHER": config.NewSecret("abcdefghij"), "SHORT": config.NewSecret("on"),
			"DATA": config.NewSecret("/srv/data"), "KEY_FILE": config.NewSecret("/srv/key"),
		},
	}
	r := newRedactor(nil, written, resolved, []string{"GITHUB_TOKEN=inherited-token", "EDITOR=emacs-nox", "TOKEN_FILE=/srv/token"})
	for text, want := range map[string]string{
		"abcdefghij and abcdef":            "[redacted] and [redacted]",
		"inherited-token of emacs-nox":     "[redacted] of emacs-nox",
		"no file /srv/token":               "no file /srv/token",
		"switched on":                      "switched on",
		"no file /srv/data/x":              "no file /srv/data/x",
		"no file /srv/key":                 "no file [redacted]",
		"bad token from-variable":          "bad token [redacted]",
		"bad flag --token=from-variable":   "bad flag [redacted]",
		"key literal-key in /home/me/work": "key [redacted] in /home/me/work",
		"serve plainword":                  "serve plainword",
	} {
		if got := r.clean(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
