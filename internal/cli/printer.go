package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf16"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// printer collects the text of a command. Whatever comes from a file is
// escaped, so that no configuration can steer the terminal.
type printer struct {
	strings.Builder
	color     bool
	symbols   bool // besides words
	width     int  // of the terminal, in columns; 0 means that there is none
	home, dir string

	spell func(text string) string // as the program was started; nil means as it is called
}

// printer is for standard output.
func (a *app) printer() *printer {
	dumb := a.lookup("TERM") == "dumb"
	return &printer{
		color:   a.env.Colorful && !a.noColor && a.lookup("NO_COLOR") == "" && !dumb,
		symbols: a.env.Colorful && !dumb,
		width:   a.env.Width, home: a.env.Home, dir: a.env.Dir, spell: a.spelling(),
	}
}

// errorPrinter is for standard error.
func (a *app) errorPrinter() *printer {
	return &printer{width: a.env.ErrWidth, spell: a.spelling()}
}

// spelling returns what has texts name commands in a way that works where the
// program was started; nil if its name is enough.
func (a *app) spelling() func(string) string {
	started := a.itself().started(a.env.Started)
	if started == programName || a.mentioned == nil {
		return nil
	}
	return func(text string) string {
		return a.mentioned.ReplaceAllString(text, "${1}"+strings.ReplaceAll(started, "$", "$$")+" ${2}")
	}
}

func (a *app) lookup(name string) string {
	for i := len(a.env.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(a.env.Environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// writeJSON writes a value in JSON. Characters that would steer or deceive a
// terminal are escaped, as JSON allows for every character.
func writeJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	var out strings.Builder
	for _, r := range text.String() {
		switch {
		case r < 0x7f || config.Escape(string(r)) == string(r): // JSON escapes the controls below
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// line writes one line, broken between words where the terminal ends; arguments
// are escaped.
func (p *printer) line(format string, args ...any) {
	text := escaped(format, args)
	if p.spell != nil {
		text = p.spell(text)
	}
	for l := range strings.SplitSeq(text, "\n") {
		p.WriteString(wrapped(l, p.width) + "\n")
	}
}

// whole writes one line that somebody will copy: nothing breaks it.
func (p *printer) whole(format string, args ...any) {
	p.WriteString(escaped(format, args) + "\n")
}

func escaped(format string, args []any) string {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = config.Escape(s)
		}
	}
	return fmt.Sprintf(format, args...)
}

type style string

const (
	plain  style = ""
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	bold   style = "1"
)

func (p *printer) paint(s string, st style) string {
	if !p.color || st == plain {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

// path shortens a path for reading: relative to the working directory, or to
// the home directory.
func (p *printer) path(path string) string {
	const separator = string(filepath.Separator)
	if rest, ok := strings.CutPrefix(path, p.dir+separator); ok && p.dir != "" && p.dir != p.home {
		return rest
	}
	if rest, ok := strings.CutPrefix(path, p.home+separator); ok && p.home != "" {
		return "~" + separator + rest
	}
	return path
}

// place renders where an entry is declared.
func (p *printer) place(o config.Origin) string {
	if o.Line == 0 {
		return p.path(o.File)
	}
	return fmt.Sprintf("%s:%d", p.path(o.File), o.Line)
}

// stateCell renders the state of a declaration, always as a word.
func (p *printer) stateCell(s patchbay.ServerStatus) cell {
	symbol, c := p.stateSymbol(s), cell{text: string(s.State)}
	switch {
	case s.Skip != "":
		c.text = "skipped"
	case s.ShadowedBy != nil:
		c.text = "shadowed"
	}
	return cell{text: symbol.text + c.text, style: symbol.style}
}

// stateSymbol is what stands before a state on a terminal.
func (p *printer) stateSymbol(s patchbay.ServerStatus) cell {
	c := cell{text: "○ "}
	switch {
	case s.Skip != "" || s.ShadowedBy != nil || s.State == config.Disabled:
		c = cell{text: "- ", style: dim}
	case s.State == config.Connected:
		c = cell{text: "✓ ", style: green}
	case s.State == config.Failed:
		c = cell{text: "✗ ", style: red}
	case s.State == config.NeedsApproval || s.State == config.NeedsAuth:
		c = cell{text: "! ", style: yellow}
	}
	if !p.symbols {
		c.text = ""
	}
	return c
}

// problem renders what is wrong, with its place.
func (p *printer) problem(pr config.Problem) string {
	pr.File = p.path(pr.File)
	return pr.String()
}

// problems lists what is wrong, with places and hints.
func (p *printer) problems(problems []config.Problem) {
	for _, pr := range problems {
		st := yellow
		if pr.Severity == config.SeverityError {
			st = red
		}
		if pr.Severity == config.SeverityNote {
			st = dim
		}
		p.line("  "+p.paint("%s", st)+" %s", string(pr.Severity)+":", p.problem(pr))
		if pr.Hint != "" {
			p.line("    %s", pr.Hint)
		}
	}
}

// wrong says what is wrong with files as a whole, if anything is: what they were
// meant to say is missing, and nothing that is there shows it.
func (p *printer) wrong(problems []config.Problem) {
	if len(problems) > 0 {
		p.line("\nWrong in your files; patchbay doctor shows all:")
		p.problems(problems)
	}
}

// changes reports what was done to which file.
func (p *printer) change(c patchbay.Change) {
	verb := strings.ToUpper(c.Action[:1]) + c.Action[1:]
	if c.DryRun && c.Action == "imported" {
		verb = "Would import"
	}
	if c.Name == patchbay.ProjectHooks {
		p.line("%s the project's hooks%s", verb, note(c.Note))
	} else {
		p.line("%s %q (%s scope)%s", verb, c.Name, string(c.Scope), note(c.Note))
	}
	if c.File != "" && c.Action != "unchanged" && !c.DryRun {
		p.line("File modified: %s", p.path(c.File))
	}
}

func note(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// text writes a text that is safe as it is, and sees to it that it ends a line.
func (p *printer) text(s string) {
	p.WriteString(s)
	if !strings.HasSuffix(s, "\n") {
		p.WriteByte('\n')
	}
}

// about is a field with what a server says of something: as much of its first line
// as the terminal has room for, or the beginning.
func (p *printer) about(text string) cell {
	if p.width == 0 {
		return cell{text: firstLine(text), style: dim}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return cell{text: strings.TrimRight(line, "\r"), style: dim, cut: true}
}

// field writes a name and a value, which has its own column and is safe to print.
func (p *printer) field(name, value string) {
	const column = 14
	lines := []string{value}
	if p.width >= column+20 {
		lines = wrapWords(lines[0], p.width-column, p.width-column)
	}
	p.WriteString(name + ":" + strings.Repeat(" ", max(column-1-len(name), 1)))
	p.WriteString(strings.Join(lines, "\n"+strings.Repeat(" ", column)) + "\n")
}

// block writes a text of several lines, each escaped and indented.
func (p *printer) block(indent, text string) {
	for _, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		p.whole(indent+"%s", strings.ReplaceAll(l, "\t", "    "))
	}
}

// jsonBlock writes a JSON value, indented.
func (p *printer) jsonBlock(indent string, value json.RawMessage) {
	var pretty bytes.Buffer
	if json.Indent(&pretty, value, "", "  ") == nil {
		p.block(indent, pretty.String())
	}
}

// foreign is a text that a server wrote and a person asked for: as it is for a
// file or a program, escaped for a terminal.
func (a *app) foreign(text string) string {
	if !a.env.Colorful {
		return text
	}
	return escapeLines(text)
}

// escapeLines escapes a text and leaves its lines and columns.
func escapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		columns := strings.Split(strings.TrimSuffix(l, "\r"), "\t")
		for j, c := range columns {
			columns[j] = config.Escape(c)
		}
		lines[i] = strings.Join(columns, "\t")
	}
	return strings.Join(lines, "\n")
}
