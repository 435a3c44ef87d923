package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// maxExpanded bounds one expanded value: far above what a command line or a
// header can carry.
const maxExpanded = 1 << 20

// maxQuoted bounds a value that a problem may quote from.
const maxQuoted = 4 << 10

// Vars is what placeholders stand for.
type Vars struct {
	Lookup        func(name string) (value string, set bool) // environment variables; nil: none is set
	WorkspaceRoot string                                     // empty: no workspace
	Home          string
	OS            string // as in runtime.GOOS

	File  func(path string) (content string, err error)  // for {file:path}; nil: unsupported
	Input func(id string) (answer string, answered bool) // for ${input:id}; nil: unanswered
}

// Expand replaces the placeholders in a server's values by what they stand for
// in dialect d. What comes out may hold secrets in any of its strings; it goes
// to the child or to the wire and is never shown.
//
// A value's content is never looked at again: a variable that holds ${X} or
// !command stays that text. Text that a shell will run (a `!command` value, a
// headersHelper) is left to that shell, so that no variable's content becomes
// code.
//
// An unset variable means what it means to the product: the text stays, or is
// empty, or the entry fails. But a placeholder never goes on the wire: where it
// would stay, the header is left out and the entry says so, and a URL or a
// credential is an error. Pointers of the problems are relative to the entry,
// in the names of Server.
func Expand(s Server, d Dialect, v Vars) (Server, []Problem) {
	x := &expansion{dialect: d, grammar: dialects[d], vars: v, reported: map[Problem]bool{}}
	out := mapStrings(s, x.value)
	x.notEmpty(Slot{[]string{"command"}, asProgram}, s.Command, out.Command)
	x.notEmpty(Slot{[]string{"url"}, asURL}, s.URL, out.URL)
	return out, x.problems
}

type expansion struct {
	dialect  Dialect
	grammar  grammar
	vars     Vars
	problems []Problem
	reported map[Problem]bool
}

// leftover matches a placeholder that nobody understood.
var leftover = regexp.MustCompile(`\$\{[^{}]*\}`)

// value expands one string; keep is false if its member is to be left out.
func (x *expansion) value(at Slot, text string) (expanded string, keep bool) {
	if at.runsInShell(x.dialect, text) {
		x.checkShellText(at, text)
		return text, true
	}
	// Foreign text may be part of a password: it is quoted only where showing
	// the value would show it too.
	quote := sync.OnceValue(func() bool {
		return len(text) < maxQuoted && !strings.Contains(NewSecret(text).Mask(), redacted)
	})
	var out, written strings.Builder // written: what the file itself says, without the content of variables
	resolved := true
	for _, p := range x.dialect.parse(text) {
		content, fromFile, ok := x.part(at, p, quote)
		resolved = resolved && ok
		if out.Len()+len(content) > maxExpanded {
			x.report(SeverityError, at, fmt.Sprintf("%s expands to more than %d bytes", at, maxExpanded), "")
			return "", false
		}
		out.WriteString(content)
		if fromFile {
			written.WriteString(content)
		} else {
			written.WriteByte(0)
		}
	}
	if !at.leavesMachine() {
		return out.String(), true
	}
	if resolved && leftover.MatchString(written.String()) {
		x.unresolved(at, "a placeholder inside another is not expanded")
		resolved = false
	}
	if !resolved {
		return "", false
	}
	return out.String(), true
}

// part evaluates one part of a value. fromFile tells whether the content was
// written in the file itself; ok is false if a placeholder stays in it.
func (x *expansion) part(at Slot, p part, quote func() bool) (content string, fromFile, ok bool) {
	switch p.kind {
	case literal:
		return p.text, true, true
	case escape:
		return p.name, false, true
	case windowsOnly:
		if x.vars.OS != "windows" {
			return p.text, true, true
		}
		return x.variable(at, p)
	case variable:
		return x.variable(at, p)
	case workspaceRoot, workspaceName, userHome, separator:
		content = x.fixed(p.kind)
		if content == "" {
			x.unresolved(at, p.text+" has no value here")
			return p.text, true, false
		}
		return content, false, true
	case file:
		return x.file(at, p)
	case input:
		if x.vars.Input != nil {
			if answer, ok := x.vars.Input(p.name); ok {
				return answer, false, true
			}
		}
		x.report(SeverityError, at, fmt.Sprintf("%s asks for the input %q, which is not answered", at, p.name), "")
		return p.text, true, false
	case command:
		x.report(SeverityError, at, fmt.Sprintf("%s takes its value from a command inside the text, which is never run", at),
			"put the value in a variable, or move the server into Patchbay's own file and write \"!command\" there")
		return p.text, true, false
	default:
		x.unknown(at, p, quote)
		return p.text, true, x.dialect == DialectNone && !at.leavesMachine()
	}
}

func (x *expansion) variable(at Slot, p part) (content string, fromFile, ok bool) {
	set := false
	if x.vars.Lookup != nil {
		content, set = x.vars.Lookup(p.name)
	}
	switch {
	case p.hasFallback && (!set || content == "" && x.grammar.emptyIsUnset):
		return p.fallback, true, true
	case set:
		return content, false, true
	}
	x.unset(at, p, p.name+" is not set")
	if x.grammar.unset == emptyText {
		return "", true, true
	}
	return p.text, true, false
}

func (x *expansion) fixed(kind partKind) string {
	switch kind {
	case workspaceRoot:
		return x.vars.WorkspaceRoot
	case workspaceName:
		if x.vars.WorkspaceRoot == "" {
			return ""
		}
		return filepath.Base(x.vars.WorkspaceRoot)
	case userHome:
		return x.vars.Home
	default:
		if x.vars.OS == "windows" {
			return `\`
		}
		return "/"
	}
}

func (x *expansion) file(at Slot, p part) (content string, fromFile, ok bool) {
	path := p.name
	if rest, ok := strings.CutPrefix(path, "~/"); ok && x.vars.Home != "" {
		path = filepath.Join(x.vars.Home, rest)
	}
	err := fmt.Errorf("files are not read here")
	if x.vars.File != nil {
		content, err = x.vars.File(path)
	}
	if err != nil {
		x.report(SeverityError, at, fmt.Sprintf("%s takes its value from the file %s, which cannot be read: %v", at, Escape(p.name), err), "")
		return p.text, true, false
	}
	return strings.TrimSpace(content), false, true
}

// unset reports a placeholder that stands for nothing, in the severity that
// fits what becomes of it.
func (x *expansion) unset(at Slot, p part, what string) {
	hint := ""
	if p.kind == variable || p.kind == windowsOnly {
		hint = "set " + p.name + " in the environment"
		if x.dialect.hasDefaults() {
			hint += ", or write ${" + p.name + ":-default}"
		}
	}
	switch x.grammar.unset {
	case failEntry:
		x.report(SeverityError, at, fmt.Sprintf("%s, but %s needs it", what, at), hint)
	case emptyText:
		x.report(SeverityWarning, at, fmt.Sprintf("%s: it is empty in %s", what, at), hint)
	default:
		x.unresolved(at, what, hint)
	}
}

// unresolved reports a placeholder that would stay in the value.
func (x *expansion) unresolved(at Slot, what string, hint ...string) {
	h := strings.Join(hint, "")
	switch {
	case x.grammar.unset == failEntry, at.use == asURL, at.use == asSecret, at.use == asLogin, at.use == asProgram:
		x.report(SeverityError, at, fmt.Sprintf("%s, but %s needs it", what, at), h)
	case at.use == asHeader:
		x.report(SeverityWarning, at, fmt.Sprintf("%s: %s is left out", what, at), h)
	default:
		x.report(SeverityWarning, at, fmt.Sprintf("%s: the text stays as it is in %s", what, at), h)
	}
}

// unknown reports what looks like a placeholder and is none of the dialect's.
func (x *expansion) unknown(at Slot, p part, quote func() bool) {
	what := "a placeholder of another format"
	if at.use == asProgram || at.use == asURL || quote() {
		what = Escape(p.text)
	}
	what += " means nothing here"
	switch {
	case x.dialect == DialectNone && !at.leavesMachine(): // it is literal, and harmless
	case x.grammar.strict:
		x.report(SeverityError, at, fmt.Sprintf("%s (in %s)", what, at), x.literalHint())
	default:
		x.unresolved(at, what)
	}
}

func (x *expansion) literalHint() string {
	if x.dialect == DialectPatchbay {
		return "known are ${VAR}, ${VAR:-default}, ${env:VAR} and ${workspaceRoot}; write $${ for a literal ${"
	}
	return ""
}

// checkShellText reports what a shell would not understand in a text that only
// our own files put there, and variables that are missing from it.
func (x *expansion) checkShellText(at Slot, text string) {
	if x.grammar.unset != failEntry {
		return
	}
	for _, p := range x.dialect.parse(text) {
		switch {
		case p.kind == variable && strings.HasPrefix(p.text, "${env:"):
			x.report(SeverityError, at, fmt.Sprintf("%s runs in a shell, which does not know %s", at, p.text), "write ${"+p.name+"}")
		case p.kind == variable:
			x.variable(at, p)
		case p.kind == workspaceRoot:
			x.report(SeverityError, at, fmt.Sprintf("%s runs in a shell, which does not know %s", at, p.text), "it runs in that directory: write $PWD")
		}
	}
}

// notEmpty reports a value that vanished.
func (x *expansion) notEmpty(at Slot, before, after string) {
	said := func(p Problem) bool { return p.Pointer == at.Pointer() && p.Severity == SeverityError }
	if before != "" && after == "" && !slices.ContainsFunc(x.problems, said) {
		x.report(SeverityError, at, at.String()+" is empty once its variables are replaced", "")
	}
}

func (x *expansion) report(sev Severity, at Slot, message, hint string) {
	p := Problem{Severity: sev, Pointer: at.Pointer(), Message: message, Hint: hint}
	if !x.reported[p] {
		x.reported[p] = true
		x.problems = append(x.problems, p)
	}
}
