package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is how wide help is at most: longer lines are hard to read.
const helpWidth = 100

// setHelp makes the help of all commands fit the terminal.
func (a *app) setHelp(root *cobra.Command, groups []commandGroup) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		p := a.printer()
		p.width = min(p.width, helpWidth)
		if cmd == root {
			p.overview(cmd, groups)
		} else {
			p.help(cmd)
		}
		_, _ = fmt.Fprint(cmd.OutOrStdout(), p.String()) // nobody reads it, then
	})
}

// commandGroup is what belongs together in the overview.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// overview is the help of the program: what people come for with a sentence
// each, the rest by name.
func (p *printer) overview(root *cobra.Command, groups []commandGroup) {
	p.line("%s", root.Long)
	p.line("\n" + p.paint("Usage:", bold) + " patchbay <command> [flags]; <command> --help has the flags and examples")
	p.heading(groups[0].title)
	var rows [][]cell
	for _, cmd := range groups[0].commands {
		rows = append(rows, []cell{{text: "  " + cmd.Name()}, {text: cmd.Short}})
	}
	p.rows(rows)
	p.heading("More commands")
	rows = nil
	for _, g := range groups[1:] {
		var names []string
		for _, cmd := range g.commands {
			names = append(names, cmd.Name())
		}
		rows = append(rows, []cell{{text: "  " + g.title}, {text: strings.Join(names, ", ")}})
	}
	p.rows(rows)
	p.heading("Examples")
	p.text(root.Example)
}

// help is the help of one command.
func (p *printer) help(cmd *cobra.Command) {
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	p.text(p.reflow(about))
	p.heading("Usage")
	if cmd.Runnable() {
		p.whole("  %s", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		p.whole("  %s [command]", cmd.CommandPath())
	}
	if len(cmd.Aliases) > 0 {
		p.heading("Aliases")
		p.line("  %s", cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		p.heading("Examples")
		p.text(cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		p.heading("Commands")
		var rows [][]cell
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				rows = append(rows, []cell{{text: "  " + sub.Name()}, {text: sub.Short}})
			}
		}
		p.rows(rows)
	}
	p.flags("Flags", cmd.LocalFlags())
	p.flags("Global Flags", cmd.InheritedFlags())
}

func (p *printer) heading(text string) { p.WriteString("\n" + p.paint(text+":", bold) + "\n") }

func (p *printer) flags(title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		p.heading(title)
		p.WriteString(flags.FlagUsagesWrapped(p.width))
	}
}

// reflow breaks paragraphs anew where the terminal ends. Indented lines are
// tables, and stay.
func (p *printer) reflow(text string) string {
	if p.width == 0 {
		return text
	}
	var out []string
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			out = append(out, wrapWords(strings.Join(paragraph, " "), p.width, p.width)...)
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			flush()
			out = append(out, line)
			continue
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return strings.Join(out, "\n")
}

// completionHelp gives the command that cobra makes an example, as all others
// have one.
func completionHelp(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Example = "  patchbay completion bash > ~/.local/share/bash-completion/completions/patchbay"
		}
	}
}

// nearest is the command whose name is nearest to a word; empty if none is near.
func nearest(parent *cobra.Command, word string) string {
	for distance := range 2 {
		parent.SuggestionsMinimumDistance = distance + 1
		if s := parent.SuggestionsFor(word); len(s) > 0 {
			return s[0]
		}
	}
	return ""
}

// flagError says what is wrong with a flag, and which one may be meant.
func flagError(cmd *cobra.Command, err error) *usageError {
	e := &usageError{message: err.Error(), command: cmd.CommandPath()}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && len(unknown.GetSpecifiedName()) > 1 {
		// Commands have what it takes to compare names.
		names := &cobra.Command{}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
			}
		})
		if name := nearest(names, unknown.GetSpecifiedName()); name != "" {
			e.meant = "Did you mean --" + name + "?"
		}
	}
	return e
}
