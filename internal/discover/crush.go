package discover

import (
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// crushServer reads a server of Crush's JSON, where any value may be a line for
// the shell. Its time is seconds, and bounds the connecting.
func crushServer(_ *doc, f *config.Fields, e *config.Entry) {
	s := &e.Server
	*s = config.Server{
		Type:           transport(f.String("type")),
		Command:        f.String("command"),
		Args:           f.Strings("args"),
		Env:            f.Secrets("env"),
		URL:            f.String("url"),
		Headers:        f.Secrets("headers"),
		Enabled:        switchedOn(f),
		ConnectTimeout: f.Millis("timeout", 1000),
		EnabledTools:   f.Strings("enabled_tools"),
		DisabledTools:  f.Strings("disabled_tools"),
		OAuth:          oauthHints(f, "oauth"),
	}
	id, secret, port := f.String("oauth_client_id"), f.Secret("oauth_client_secret"), f.Int("oauth_callback_port", 1, 65535)
	if s.OAuth == nil && (id != "" || port != 0) {
		s.OAuth = &config.OAuth{}
	}
	if s.OAuth != nil {
		s.OAuth.ClientID, s.OAuth.ClientSecret, s.OAuth.CallbackPort = id, secret, port
	}
	e.Executes = substitutions(f.Node)
}

// substitutions lists the commands in $(…) anywhere in a value's texts.
func substitutions(n config.Node) []string {
	var out []string
	for text := n.Text; ; {
		_, after, found := strings.Cut(text, "$(")
		if !found {
			break
		}
		depth, end := 1, len(after)
		for i := 0; i < len(after) && depth > 0; i++ {
			switch after[i] {
			case '(':
				depth++
			case ')':
				if depth--; depth == 0 {
					end = i
				}
			}
		}
		out = append(out, after[:end])
		text = after[end:]
	}
	for _, it := range n.Items {
		out = append(out, substitutions(it)...)
	}
	for _, m := range n.Members {
		out = append(out, substitutions(m.Value)...)
	}
	return out
}

// crushScript reports the servers a crushrc would add. It is a shell script:
// only running it would tell what it configures, and it is not run.
func crushScript(d *doc, text []byte) {
	other := 0
	for _, c := range shellCommands(string(text)) {
		if len(c.words) < 3 || c.words[0] != "mcp" || c.words[1] != "add" {
			other++
			continue
		}
		d.problems = append(d.problems, config.Problem{
			Severity: config.SeverityNote, File: d.path, Line: c.line,
			Message: fmt.Sprintf("not imported: mcp add %q in a shell script, which is never run", c.words[2]),
			Hint:    "add the server with patchbay add",
		})
		if len(d.problems) >= config.MaxProblems {
			return
		}
	}
	if other > 0 {
		d.problems = append(d.problems, config.Problem{
			Severity: config.SeverityNote, File: d.path, Message: fmt.Sprintf("not imported: %s of a shell script, which is never run", otherCommands(other)),
		})
	}
}

// shellCommand is one line of a script, as far as its words are plain.
type shellCommand struct {
	words []string
	line  int
}

// shellCommands splits a script into commands and words: quotes, comments, and
// lines continued with a backslash. It expands nothing and knows no keywords.
func shellCommands(text string) []shellCommand {
	var out []shellCommand
	var words []string
	var word strings.Builder
	line, start, inWord, quote := 1, 1, false, byte(0)
	endWord := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			out = append(out, shellCommand{words, start})
			words = nil
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\n' {
			line++
		}
		if !inWord && len(words) == 0 {
			start = line
		}
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			if text[i] == '\n' {
				line++
			} else {
				word.WriteByte(text[i])
				inWord = true
			}
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '#' && !inWord:
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case c == '\n' || c == ';' || c == '&' || c == '|':
			endCommand()
		case c == ' ' || c == '\t' || c == '\r':
			endWord()
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
	return out
}

func otherCommands(n int) string {
	if n == 1 {
		return "another command"
	}
	return fmt.Sprintf("%d other commands", n)
}
