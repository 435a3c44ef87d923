package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// addWizard asks for what `add` would have been told, one line at a time. Each
// answer is checked before the next question.
func (a *app) addWizard(ctx context.Context) error {
	fmt.Fprintln(a.env.Stderr, "Add an MCP server. An empty line takes the answer in brackets; Ctrl-C leaves.")
	w := wizard{app: a, ctx: ctx}
	name := w.until("Name: ", "", func(s string) error { return config.CheckName(s) })
	target := w.until("Command line or URL: ", "", func(s string) error {
		if s == "" {
			return fmt.Errorf("a command or a URL is needed")
		}
		_, err := splitCommand(s)
		return err
	})
	var s config.Server
	if isURL(target) {
		s.URL = target
		s.Type = config.Transport(w.until("Type, http or sse [http]: ", "http", oneOf("http", "sse")))
		s.Headers = w.pairs("Header as \"Key: value\", empty for none: ", ":=", "-H", `Key: value`)
	} else if words, err := splitCommand(target); err == nil && len(words) > 0 {
		s.Type, s.Command, s.Args = config.Stdio, words[0], words[1:]
		s.Env = w.pairs("Environment variable as KEY=value, empty for none: ", "=", "-e", "KEY=value")
	}
	scope := w.until("Scope, local (this project), user (all projects) or project (shared) [local]: ", "local", oneOf("local", "user", "project"))
	if w.err != nil {
		return w.err
	}
	p := a.errorPrinter()
	p.summary(name, scope, s)
	fmt.Fprint(a.env.Stderr, p.String())
	answer, err := a.ask(ctx, "Add it? [Y/n] ")
	if err != nil {
		return err
	}
	if answer = strings.ToLower(answer); a.ended || answer != "" && answer != "y" && answer != "yes" {
		hint := ""
		if len(s.Env)+len(s.Headers) > 0 { // which are secrets more often than not
			hint = "; its variables and headers have to be given anew"
			s.Env, s.Headers = nil, nil
		}
		return &patchbay.Error{
			Kind: patchbay.KindDenied, Message: "Nothing was added.",
			Hint: "To add it after all: patchbay add-json -s " + scope + " " + shellName(name) + " " + shellQuote(string(config.EncodeServer(s))) + hint,
		}
	}
	return a.addTyped(ctx, patchbay.AddRequest{Name: name, Scope: config.Scope(scope)}, s, nil)
}

// summary shows what is about to be added.
func (p *printer) summary(name, scope string, s config.Server) {
	p.line("")
	p.field("Name", config.Escape(name))
	p.field("Scope", scope)
	p.field("Type", string(s.Type))
	p.field("Target", config.Escape(s.Target()))
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		p.field("Variable", config.Escape(k))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Headers)) {
		p.field("Header", config.Escape(k))
	}
}

// wizard asks questions until one fails to be answered at all.
type wizard struct {
	app *app
	ctx context.Context // of the one run it lives for
	err error
}

// until repeats a question until the answer is acceptable.
func (w *wizard) until(question, fallback string, check func(string) error) string {
	for w.err == nil {
		if w.app.ended { // nobody will answer any more
			w.err = &usageError{message: "the input ended before all questions were answered", command: "patchbay add"}
			break
		}
		answer, err := w.app.ask(w.ctx, question)
		if err != nil {
			w.err = err
			return ""
		}
		if answer == "" {
			answer = fallback
		}
		if err = check(answer); err == nil {
			return answer
		}
		fmt.Fprintf(w.app.env.Stderr, "  %s\n", config.Escape(err.Error()))
	}
	return ""
}

// pairs asks for keys and values until an empty line.
func (w *wizard) pairs(question, separators, flag, want string) map[string]config.Secret {
	all := map[string]config.Secret{}
	for {
		answer := w.until(question, "", func(s string) error {
			if s == "" {
				return nil
			}
			if _, err := pairs([]string{s}, separators, flag, want); err != nil {
				return fmt.Errorf("please write it as %s, or nothing to go on", want)
			}
			return nil
		})
		if answer == "" || w.err != nil {
			return all
		}
		one, _ := pairs([]string{answer}, separators, flag, want) // checked above
		for k, v := range one {
			all[k] = v
		}
	}
}

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		for _, w := range words {
			if s == w {
				return nil
			}
		}
		return fmt.Errorf("expected one of: %s", strings.Join(words, ", "))
	}
}

// splitCommand splits a typed command line into words at spaces, with quotes
// and backslashes as a shell has them. Nothing is expanded.
func splitCommand(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	escaped := false
	for _, r := range s {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("unfinished quote in %q", s)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
