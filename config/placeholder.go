package config

import "strings"

// Dialect names a product's placeholder syntax and what an unset variable means
// in it.
type Dialect string

const (
	DialectPatchbay Dialect = "patchbay" // ${VAR} ${VAR:-default} ${env:VAR} ${workspaceRoot}; unset is an error; values resolve
	DialectOMP      Dialect = "omp"      // oh-my-pi, pi, xcsh: ${X} ${X:-default}; unset stays; values resolve
	DialectClaude   Dialect = "claude"   // ${VAR} ${VAR:-default}; unset stays, with a warning
	DialectElectric Dialect = "electric" // ${VAR} ${env:VAR} ${workspaceRoot}; unset is an error
	DialectCursor   Dialect = "cursor"   // ${env:X} ${workspaceFolder} ${workspaceFolderBasename} ${userHome} ${pathSeparator} ${/}
	DialectVSCode   Dialect = "vscode"   // ${input:id} ${env:X} ${workspaceFolder} ${userHome}
	DialectEnvOnly  Dialect = "env"      // ${env:X} ${workspaceFolder}: Windsurf, Roo Code
	DialectGemini   Dialect = "gemini"   // $X ${X}, %X% on Windows; unset is empty: Gemini, Qwen
	DialectOpencode Dialect = "opencode" // {env:X} {file:path}; unset is empty
	DialectShell    Dialect = "shell"    // $X ${X} and $(command), which never runs: Crush
	DialectDollar   Dialect = "dollar"   // $X ${X}; unset stays: Amp, Goose
	DialectBraces   Dialect = "braces"   // ${X}; unset stays: Kiro
	DialectSecrets  Dialect = "secrets"  // ${{ secrets.X }}: Continue
	DialectMcporter Dialect = "mcporter" // $env:X ${X} ${X:-default}
	DialectNone     Dialect = "none"     // values are literal
)

// ResolvesValues reports whether a whole env, header or auth value of the
// dialect may be a `!command` or the name of a variable.
func (d Dialect) ResolvesValues() bool { return d == DialectPatchbay || d == DialectOMP }

// UnsetIsError reports whether an entry of the dialect cannot be used while a
// variable it refers to is not set.
func (d Dialect) UnsetIsError() bool { return dialects[d].unset == failEntry }

// Variable writes a variable of the host as a placeholder of the dialect, if it
// has any.
func (d Dialect) Variable(name string) (text string, ok bool) {
	for _, text := range []string{"${env:" + name + "}", "${" + name + "}", "{env:" + name + "}"} {
		if parts := d.parse(text); len(parts) == 1 && parts[0].kind == variable && parts[0].name == name {
			return text, true
		}
	}
	return "", false
}

// whenUnset is what a dialect does with a variable that is not set.
type whenUnset uint8

const (
	keepText  whenUnset = iota // the placeholder stays as it is written
	emptyText                  // it becomes the empty string
	failEntry                  // the entry cannot be used
)

// grammar is one dialect: the placeholders it knows and how it reads them.
type grammar struct {
	syntaxes []syntax
	unset    whenUnset

	// emptyIsUnset: ${X:-default} gives the default for an empty X too, as in a
	// POSIX shell.
	emptyIsUnset bool

	// strict: what looks like a placeholder and is none of the dialect's is an
	// error, not text.
	strict bool
}

// hasDefaults reports whether ${X:-default} is a placeholder.
func (d Dialect) hasDefaults() bool {
	parts := d.parse("${X:-d}")
	return len(parts) == 1 && parts[0].kind == variable
}

// dialects is the table of all dialects; one that is missing has no
// placeholders. Where a product's handling of an unset variable is not known,
// the text stays.
var dialects = map[Dialect]grammar{
	DialectPatchbay: {unset: failEntry, emptyIsUnset: true, strict: true, syntaxes: []syntax{
		escaped("$${", "${"), word("workspaceRoot", workspaceRoot), braced, bracedEnv}},
	DialectOMP:      {unset: keepText, emptyIsUnset: true, syntaxes: []syntax{braced}},
	DialectClaude:   {unset: keepText, syntaxes: []syntax{braced}},
	DialectElectric: {unset: failEntry, strict: true, syntaxes: []syntax{word("workspaceRoot", workspaceRoot), bracedNoDefault, bracedEnv}},
	DialectCursor:   {unset: keepText, syntaxes: editorSyntaxes},
	DialectVSCode:   {unset: emptyText, syntaxes: append([]syntax{bracedInput}, editorSyntaxes...)},
	DialectEnvOnly:  {unset: keepText, syntaxes: []syntax{bracedEnv, word("workspaceFolder", workspaceRoot)}},
	DialectGemini:   {unset: emptyText, syntaxes: []syntax{braced, bare, percent}},
	DialectOpencode: {unset: emptyText, syntaxes: []syntax{curly("{env:", variable), curly("{file:", file)}},
	DialectShell: {unset: emptyText, emptyIsUnset: true, strict: true, syntaxes: []syntax{
		escaped(`\$`, "$"), escaped(`\\`, `\`), escaped("\\`", "`"), substitution, shellBraced, bare}},
	DialectDollar:   {unset: keepText, syntaxes: []syntax{bracedNoDefault, bare}},
	DialectBraces:   {unset: keepText, syntaxes: []syntax{bracedNoDefault}},
	DialectSecrets:  {unset: keepText, syntaxes: []syntax{secretsExpression}},
	DialectMcporter: {unset: keepText, emptyIsUnset: true, syntaxes: []syntax{braced, dollarEnv}},
}

var editorSyntaxes = []syntax{
	bracedEnv, word("workspaceFolder", workspaceRoot), word("workspaceFolderBasename", workspaceName),
	word("userHome", userHome), word("pathSeparator", separator), word("/", separator),
}

// part is a stretch of a value: literal text, or one placeholder. The texts of
// a value's parts, joined, are the value.
type part struct {
	kind partKind
	text string // as written
	name string // of the variable, file or input; for escape, what it stands for

	fallback    string // what follows :-
	hasFallback bool
}

type partKind uint8

const (
	literal       partKind = iota
	escape                 // a way to write text that would be a placeholder
	variable               // of the host's environment
	windowsOnly            // %X%, a variable on Windows and text elsewhere
	workspaceRoot          // the directory of the workspace
	workspaceName          // its last element
	userHome               // the home directory
	separator              // of paths
	file                   // the content of a file
	input                  // what the user answers
	command                // the output of a command, which never runs
	unknown                // looks like a placeholder, but the dialect has no such
)

// parse splits a value into its parts. It takes time linear in the value: each
// syntax looks ahead only over bytes it then consumes, or that the next one
// will not look at again.
func (d Dialect) parse(s string) []part {
	g := dialects[d]
	lastBrace := strings.LastIndexByte(s, '}') // so that an unclosed ${ does not search the rest each time
	var parts []part
	for start, i := 0, 0; ; i++ {
		next := strings.IndexAny(s[i:], "${%\\`")
		if next < 0 {
			if start < len(s) {
				parts = append(parts, part{text: s[start:]})
			}
			return parts
		}
		i += next
		p, ok := g.match(s[i:], i < lastBrace)
		if !ok {
			continue
		}
		if start < i {
			parts = append(parts, part{text: s[start:i]})
		}
		parts = append(parts, p)
		start = i + len(p.text)
		i = start - 1
	}
}

// match finds the placeholder at the beginning of s. closes tells whether a
// closing brace follows at all.
func (g grammar) match(s string, closes bool) (part, bool) {
	for _, m := range g.syntaxes {
		if p, ok := m(s, closes); ok {
			return p, true
		}
	}
	if closes {
		return notOurs(s)
	}
	return part{}, false
}

// syntax matches one form of placeholder at the beginning of a text. It must
// not search for a closing brace unless closes is set.
type syntax func(s string, closes bool) (part, bool)

// braced is ${NAME} and ${NAME:-default}; the default runs to the next brace.
func braced(s string, closes bool) (part, bool) { return bracedUntil(s, closes, "}") }

// shellBraced is the same with a default that a shell would take as it is.
func shellBraced(s string, closes bool) (part, bool) { return bracedUntil(s, closes, "}$`\\\"'") }

// bracedNoDefault is ${NAME}.
func bracedNoDefault(s string, closes bool) (part, bool) { return bracedUntil(s, closes, "") }

// bracedUntil matches ${NAME}, and ${NAME:-default} where the first of the
// stops after :- is the closing brace.
func bracedUntil(s string, closes bool, stops string) (part, bool) {
	rest, ok := strings.CutPrefix(s, "${")
	name := leadingName(rest)
	if !ok || !closes || name == "" {
		return part{}, false
	}
	p := part{kind: variable, name: name}
	rest = rest[len(name):]
	if after, ok := strings.CutPrefix(rest, ":-"); ok {
		end := strings.IndexAny(after, stops)
		if end < 0 {
			return part{}, false
		}
		p.fallback, p.hasFallback, rest = after[:end], true, after[end:]
	}
	if !strings.HasPrefix(rest, "}") {
		return part{}, false
	}
	p.text = s[:len(s)-len(rest)+1]
	return p, true
}

// bracedEnv is ${env:NAME}.
func bracedEnv(s string, closes bool) (part, bool) {
	rest, ok := strings.CutPrefix(s, "${env:")
	name := leadingName(rest)
	if !ok || name == "" || !strings.HasPrefix(rest[len(name):], "}") {
		return part{}, false
	}
	return part{kind: variable, name: name, text: s[:len("${env:")+len(name)+1]}, true
}

// bracedInput is ${input:id}.
func bracedInput(s string, closes bool) (part, bool) {
	if !closes || !strings.HasPrefix(s, "${input:") {
		return part{}, false
	}
	p, ok := notOurs(s)
	p.kind, p.name = input, strings.TrimSuffix(strings.TrimPrefix(p.text, "${input:"), "}")
	return p, ok && p.name != ""
}

// word is ${name} for a fixed name.
func word(name string, kind partKind) syntax {
	text := "${" + name + "}"
	return func(s string, _ bool) (part, bool) {
		return part{kind: kind, name: name, text: text}, strings.HasPrefix(s, text)
	}
}

// escaped is a fixed text that stands for another.
func escaped(text, meaning string) syntax {
	return func(s string, _ bool) (part, bool) {
		return part{kind: escape, name: meaning, text: text}, strings.HasPrefix(s, text)
	}
}

// bare is $NAME.
func bare(s string, _ bool) (part, bool) {
	rest, ok := strings.CutPrefix(s, "$")
	name := leadingName(rest)
	return part{kind: variable, name: name, text: "$" + name}, ok && name != ""
}

// dollarEnv is $env:NAME.
func dollarEnv(s string, _ bool) (part, bool) {
	rest, ok := strings.CutPrefix(s, "$env:")
	name := leadingName(rest)
	return part{kind: variable, name: name, text: "$env:" + name}, ok && name != ""
}

// percent is %NAME%.
func percent(s string, _ bool) (part, bool) {
	rest, ok := strings.CutPrefix(s, "%")
	name := leadingName(rest)
	if !ok || name == "" || !strings.HasPrefix(rest[len(name):], "%") {
		return part{}, false
	}
	return part{kind: windowsOnly, name: name, text: "%" + name + "%"}, true
}

// curly is {prefix:argument}.
func curly(prefix string, kind partKind) syntax {
	return func(s string, closes bool) (part, bool) {
		rest, ok := strings.CutPrefix(s, prefix)
		if !ok || !closes {
			return part{}, false
		}
		name, _, _ := strings.Cut(rest, "}")
		return part{kind: kind, name: name, text: s[:len(prefix)+len(name)+1]}, name != ""
	}
}

// secretsExpression is ${{ secrets.NAME }}.
func secretsExpression(s string, closes bool) (part, bool) {
	if !closes || !strings.HasPrefix(s, "${{") {
		return part{}, false
	}
	p, ok := notOurs(s)
	name, isSecret := strings.CutPrefix(strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(p.text, "${{"), "}}")), "secrets.")
	p.kind, p.name = variable, name
	return p, ok && isSecret && name != "" && !strings.ContainsAny(name, " \t")
}

// substitution is $(command) or `command`, to the matching end or that of the
// text.
func substitution(s string, _ bool) (part, bool) {
	end := len(s)
	switch {
	case strings.HasPrefix(s, "$("):
		depth := 0
		for i := 1; i < len(s); i++ {
			if s[i] == '(' {
				depth++
			} else if s[i] == ')' {
				if depth--; depth == 0 {
					end = i + 1
					break
				}
			}
		}
	case strings.HasPrefix(s, "`"):
		if i := strings.IndexByte(s[1:], '`'); i >= 0 {
			end = i + 2
		}
	default:
		return part{}, false
	}
	return part{kind: command, text: s[:end]}, true
}

// notOurs is ${anything} or ${{ anything }}, with no placeholder inside.
func notOurs(s string) (part, bool) {
	rest, ok := strings.CutPrefix(s, "${")
	if !ok {
		return part{}, false
	}
	closing := "}"
	if strings.HasPrefix(rest, "{") {
		rest, closing = rest[1:], "}}"
	}
	body := strings.IndexAny(rest, "{}$")
	if body < 0 || !strings.HasPrefix(rest[body:], closing) {
		return part{}, false
	}
	return part{kind: unknown, text: s[:len(s)-len(rest)+body+len(closing)]}, true
}

// leadingName returns the name of a variable at the beginning of s.
func leadingName(s string) string {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return s[:i]
		}
	}
	return s
}
