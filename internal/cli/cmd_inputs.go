package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) inputsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inputs <name>",
		Short: "Answer what a server's entry asks for",
		Long: `Ask for the values that a server's entry leaves to its user: ${input:id} in files
of VS Code. Passwords are not shown while they are typed, nor anywhere later.

The daemon keeps the answers in its memory, for this entry of this file and until
it ends, and all agents use them. They are written nowhere. An empty line takes
what is in brackets.`,
		Example: `  patchbay inputs github`,
		Args:    exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				return a.changeEach(args, func(name string) (patchbay.Change, error) { return a.giveInputs(cmd.Context(), c, name) })
			})
		},
		ValidArgsFunction: onlyFirst(a.servers(func(_ []string, s patchbay.ServerStatus) bool { return s.InForce && len(s.Inputs) > 0 })),
	}
}

// giveInputs asks for what a server needs and has the daemon keep it.
func (a *app) giveInputs(ctx context.Context, c *control.Client, name string) (patchbay.Change, error) {
	s, err := c.Server(ctx, name, false)
	if err != nil {
		return patchbay.Change{}, err
	}
	// What cannot be asked about is said before anything else: nil answers nothing.
	if !s.NeedsInput() {
		if _, err := c.GiveInputs(ctx, s.Name, nil); err != nil {
			return patchbay.Change{}, err
		}
	}
	daemon, kept := c.Daemon()
	if !kept {
		return patchbay.Change{}, errNotKept(s.Name, a.alone())
	}
	if !a.env.Interactive {
		return patchbay.Change{}, &patchbay.Error{
			Kind: patchbay.KindNeedsInput, Message: fmt.Sprintf("Server %q asks for input, and there is no terminal to ask on.", s.Name),
			Hint: "Run patchbay inputs " + shellName(s.Name) + " on a terminal.",
		}
	}
	answers := map[string]string{}
	for _, in := range s.Inputs {
		answer, given, err := a.askInput(ctx, in)
		if err != nil {
			return patchbay.Change{}, err
		}
		if given {
			answers[in.ID] = answer
		}
	}
	change, err := c.GiveInputs(ctx, s.Name, answers)
	if err == nil {
		change.Note = fmt.Sprintf("the daemon (process %d) keeps it in memory until it ends", daemon.PID)
	}
	return change, err
}

// errNotKept is why nobody is asked where nobody would remember the answer.
func errNotKept(name string, alone bool) error {
	e := &patchbay.Error{
		Kind: patchbay.KindNeedsInput, Message: "No daemon is running, and only a daemon keeps answers.",
		Hint: "Run patchbay daemon start, then patchbay inputs " + shellName(name) + ".",
	}
	if alone {
		e.Message = "Only a daemon keeps answers, and none is used here."
		e.Hint = "Leave out --no-daemon and its like, and \"daemon\": false in \"gateway\" of settings.json."
	}
	return e
}

// askInput asks for one input until the answer is one. given is false if it is
// left as it is, or gets its default.
func (a *app) askInput(ctx context.Context, in patchbay.InputStatus) (answer string, given bool, err error) {
	if in.Description != "" {
		fmt.Fprintf(a.env.Stderr, "%s\n", config.Escape(in.Description))
	}
	for i, o := range in.Options {
		fmt.Fprintf(a.env.Stderr, "  %d  %s\n", i+1, config.Escape(optionText(o)))
	}
	hint, ask := "", a.ask
	switch {
	case in.Given:
		hint = " [as it is]"
	case in.Default != "":
		hint = " [" + config.Escape(in.Default) + "]"
	case in.Optional:
		hint = " [the default]"
	}
	if in.Password {
		ask = a.askHidden
	}
	for {
		answer, err = ask(ctx, config.Escape(in.ID)+hint+": ")
		switch {
		case err != nil:
			return "", false, err
		case a.ended && answer == "": // which is nobody's answer
			return "", false, errInterrupted
		case answer == "" && (in.Given || in.Optional):
			return "", false, nil
		}
		if answer = picked(in.Options, answer); in.Takes(answer) {
			return answer, true, nil
		}
		if a.ended {
			return "", false, errInterrupted
		}
		fmt.Fprintf(a.env.Stderr, "  Answer with one of the numbers.\n")
	}
}

func optionText(o config.InputOption) string {
	if o.Label == "" || o.Label == o.Value {
		return o.Value
	}
	return o.Label + " (" + o.Value + ")"
}

// picked is the option that somebody means by a number, a label or a value; the
// text itself if there are none.
func picked(options []config.InputOption, text string) string {
	if slices.ContainsFunc(options, func(o config.InputOption) bool { return o.Value == text }) {
		return text
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(options) {
		return options[n-1].Value
	}
	for _, o := range options {
		if o.Label != "" && strings.EqualFold(o.Label, text) {
			return o.Value
		}
	}
	return text
}
