package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// app is one run of the program: its environment and the flags every command
// shares.
type app struct {
	env Env
	in  *bufio.Reader

	json, quiet, noColor           bool
	mcpConfig                      []string
	strictMCPConfig, failOnInvalid bool
	noDaemon                       bool

	mentioned *regexp.Regexp // commands of this program in a text

	asking sync.Mutex       // one question at a time, where several may come up
	typed  chan typedAnswer // a line that is being waited for; nil if none is
	ended  bool             // the input has
}

func newApp(env Env) *app { return &app{env: env, in: bufio.NewReader(env.Stdin)} }

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "patchbay",
		Short: "A patch bay for agents' tools",
		Long:  "Patchbay offers the MCP servers of every product on this machine to any agent.",
		Example: `  patchbay install claude-code
  patchbay add files -- npx -y @acme/files ~/notes`,
		Version: version(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.SetOut(a.env.Stdout)
	root.SetErr(a.env.Stderr)
	root.SetIn(a.env.Stdin)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err) })
	root.SetVersionTemplate("patchbay {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print JSON with a stable schema")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print errors only")
	flags.BoolVar(&a.noColor, "no-color", false, "print no colours (also: NO_COLOR)")
	flags.StringArrayVar(&a.mcpConfig, "mcp-config", nil, "read servers from this `file` too, trusted like your own (repeatable)")
	flags.BoolVar(&a.strictMCPConfig, "strict-mcp-config", false, "servers of the --mcp-config files and no others; settings hold")
	flags.BoolVar(&a.failOnInvalid, "fail-on-invalid", false, "fail if any entry or file is invalid")
	flags.BoolVar(&a.noDaemon, "no-daemon", false, "servers of its own even if a daemon is running, and start none")
	help := helpCommand(root)
	groups := []commandGroup{
		{"Start here", []*cobra.Command{
			a.serveCommand(), a.installCommand(), a.listCommand(), a.addCommand(), a.approveCommand(), a.testCommand(),
			a.toolsCommand(), a.callCommand(), a.doctorCommand(),
		}},
		{"See", []*cobra.Command{a.statusCommand(), a.getCommand(), a.whyCommand(), a.logsCommand(), a.resourcesCommand(), a.readCommand(), a.promptsCommand(), a.promptCommand()}},
		{"Change", []*cobra.Command{a.addJSONCommand(), a.importCommand(), a.inputsCommand(), a.enableCommand(), a.disableCommand(), a.shareCommand(), a.renameCommand(), a.removeCommand()}},
		{"Allow", []*cobra.Command{a.rejectCommand(), a.resetCommand()}},
		{"Operate", []*cobra.Command{a.daemonCommand(), a.tokenCommand(), a.uninstallCommand(), a.adoptCommand(), a.releaseCommand(), a.reconnectCommand(), a.reloadCommand(), a.versionCommand(), help}},
	}
	var names []string
	for _, g := range groups {
		root.AddCommand(g.commands...)
		for _, cmd := range g.commands {
			names = append(names, cmd.Name())
		}
	}
	a.mentioned = regexp.MustCompile(`(^|[\s(\x60])patchbay ((?:` + strings.Join(names, "|") + `)\b|--help)`)
	root.AddCommand(guardCommand())
	root.SetHelpCommand(help)
	completionHelp(root)
	a.setHelp(root, groups)
	return root
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [command]",
		Short:   "Help about any command",
		Example: `  patchbay help add`,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, args[0])
			}
			return cmd.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, cmd := range root.Commands() {
				if len(args) == 0 && cmd.IsAvailableCommand() {
					names = append(names, cmd.Name()+"\t"+cmd.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func unknownCommand(root *cobra.Command, name string) error {
	message := fmt.Sprintf("unknown command %q", name)
	e := &usageError{message: message, command: root.CommandPath()}
	if meant := nearest(root, name); meant != "" {
		e.meant = "Did you mean " + meant + "?"
	}
	return e
}

// exactly demands that a command gets just the arguments it names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef(cmd.CommandPath(), "missing argument: %s", names[len(args)])
		case len(args) > len(names):
			return usagef(cmd.CommandPath(), "unexpected argument: %q", args[len(names)])
		}
		return nil
	}
}

// atMostOne allows one argument.
func atMostOne() cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef(cmd.CommandPath(), "unexpected argument: %q", args[1])
		}
		return nil
	}
}

// atLeastOne demands one argument or more.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef(cmd.CommandPath(), "missing argument: %s", name)
		}
		return nil
	}
}

// namesUnless demands one argument or more, or the flag in their place.
func namesUnless(flag *bool, name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if *flag && len(args) > 0 {
			return usagef(cmd.CommandPath(), "--%s takes no names", name)
		}
		if *flag {
			return nil
		}
		return atLeastOne("name")(cmd, args)
	}
}

// open returns a client of a host for this directory: the daemon's if there is
// one, else one of this process, which connects to nobody by itself; guard is
// the command line of the process that looks after the servers it is asked to
// start.
func (a *app) open(ctx context.Context, guard []string) (*control.Client, func(), error) {
	if a.strictMCPConfig && len(a.mcpConfig) == 0 {
		return nil, nil, usagef("patchbay", "--strict-mcp-config needs at least one --mcp-config FILE")
	}
	if c := a.attach(ctx); c != nil {
		return c, c.Close, nil
	}
	h, err := patchbay.Open(ctx, patchbay.Options{
		Dir: a.env.Dir, Home: a.env.Home, Environ: a.env.Environ, Now: a.env.Now,
		Lazy:  true, // a command connects what it names
		Files: a.mcpConfig, StrictConfig: a.strictMCPConfig, FailOnInvalid: a.failOnInvalid,
		Guard: guard, Version: readBuildFacts().Version, UI: a.ui(),
	})
	if err != nil {
		return nil, nil, err
	}
	return control.InProcess(h), func() { _ = h.Close() }, nil
}

// withClient runs the work of a command that connects to no server.
func (a *app) withClient(ctx context.Context, work func(*control.Client) error) error {
	c, closeHost, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	defer closeHost()
	return work(c)
}

// print writes the result of a command: as JSON if asked for, else with text,
// unless the run is to be quiet.
func (a *app) print(result any, text func(p *printer)) error {
	if a.json {
		return writeJSON(a.env.Stdout, result)
	}
	if a.quiet {
		return nil
	}
	p := a.printer()
	text(p)
	_, err := io.WriteString(a.env.Stdout, p.String())
	return err
}

// changeEach does something to each of the servers named and reports each change
// as it is made; as JSON all at the end. It stops at the first that fails, and
// then an error in JSON says what was done before.
func (a *app) changeEach(names []string, change func(name string) (patchbay.Change, error)) error {
	changes := []patchbay.Change{}
	for _, name := range names {
		c, err := change(name)
		if err != nil {
			return &partialError{err, changes}
		}
		changes = append(changes, c)
		if a.json {
			continue
		}
		if err := a.print(c, func(p *printer) { p.change(c) }); err != nil {
			return err
		}
	}
	if a.json {
		return a.print(changes, nil)
	}
	return nil
}

// partialError is an error after some changes were made.
type partialError struct {
	error
	changes []patchbay.Change
}

func (e *partialError) Unwrap() error { return e.error }

// printError writes an error as `patchbay: what happened`, its details and a
// hint; as JSON on standard output if the run prints JSON.
func (a *app) printError(err error) {
	if errors.Is(err, errReported) {
		return
	}
	e := asError(err)
	usage, isUsage := errors.AsType[*usageError](err)
	if isUsage {
		e.Kind, e.Hint = "usage", strings.TrimSpace(fmt.Sprintf("%s Run `%s --help` for usage.", usage.meant, usage.command))
	}
	if a.json {
		result := map[string]any{"error": e}
		if p, ok := errors.AsType[*partialError](err); ok && len(p.changes) > 0 {
			result["changes"] = p.changes
		}
		_ = a.print(result, nil)
		return
	}
	p := a.errorPrinter()
	// Nothing is said twice: one problem stands in the message, several below it.
	message := e.Message
	if len(e.Problems) > 1 {
		if at := strings.Index(message, e.Problems[0].Message); at > 0 {
			message = strings.TrimSpace(message[:at])
		}
	}
	p.line("patchbay: %s", message)
	for _, pr := range e.Problems {
		text := pr.String()
		if strings.Contains(message, problemText(pr)) {
			text = strings.TrimSpace(pr.Place() + " (at " + cmp.Or(pr.Pointer, "/") + ")")
		}
		p.line("  %s", text)
		if pr.Hint != "" {
			p.line("    %s", pr.Hint)
		}
	}
	if e.Hint != "" {
		p.line("%s", e.Hint)
	}
	_, _ = io.WriteString(a.env.Stderr, p.String()) // nobody reads it, then
}

// problemText is what a problem is, without the server's name.
func problemText(pr config.Problem) string {
	if name, text, ok := strings.Cut(pr.Message, `": `); ok && strings.HasPrefix(name, `Server "`) {
		return text
	}
	return pr.Message
}

// typedAnswer is a line of the input.
type typedAnswer struct {
	line string
	err  error
}

// ask prints a question on standard error and reads one line. The end of the
// input counts as an empty answer.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	line, err := a.askLine(ctx, question)
	return strings.TrimSpace(line), err
}

// askLine is ask for a line as it is, without its end.
func (a *app) askLine(ctx context.Context, question string) (string, error) {
	fmt.Fprint(a.env.Stderr, question)
	// Nothing ends a read from a terminal but a line. Who does not wait for one
	// leaves the reading to the next question, or to the end of the process.
	if a.typed == nil {
		typed := make(chan typedAnswer, 1)
		a.typed = typed
		go func() {
			line, err := a.in.ReadString('\n')
			typed <- typedAnswer{line, err}
		}()
	}
	select {
	case got := <-a.typed:
		a.typed = nil
		if errors.Is(got.err, io.EOF) {
			fmt.Fprintln(a.env.Stderr)
			a.ended, got.err = true, nil
		}
		return strings.TrimRight(got.line, "\r\n"), got.err
	case <-ctx.Done():
		fmt.Fprintln(a.env.Stderr)
		return "", errInterrupted
	}
}

// askHidden is ask for what must not be seen.
func (a *app) askHidden(ctx context.Context, question string) (string, error) {
	if a.env.HideInput == nil {
		return "", errors.New("there is no terminal to type it on")
	}
	restore, err := a.env.HideInput() // before anybody is asked to type
	if err != nil {
		return "", err
	}
	defer restore()
	line, err := a.askLine(ctx, question)
	if err == nil && !a.ended {
		fmt.Fprintln(a.env.Stderr) // the one that was typed does not show either
	}
	return line, err
}

var errInterrupted = errors.New("interrupted")

// confirm asks for a yes; anything else is a no.
func (a *app) confirm(ctx context.Context, question string) (bool, error) {
	answer, err := a.ask(ctx, question+" [y/N] ")
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", err
}
