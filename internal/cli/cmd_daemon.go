package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) daemonCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Start, stop or show the process whose servers all agents share",
		Long: `The daemon is a process of its own that has the servers of all agents, so that
ten of them share one process of each server. "patchbay serve --stdio" starts it
if none runs, and it ends ten minutes after its last client. Its log is
daemon.log in the state directory.

Nobody depends on it: with --no-daemon, or "daemon": false in "gateway" of
settings.json, every agent and command has servers of its own.`,
		Example: `  patchbay daemon start
  patchbay daemon status
  patchbay daemon stop`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "start", Short: "Start the daemon if none runs",
			Example: `  patchbay daemon start`,
			Args:    exactly(), ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.startDaemon(cmd.Context()) },
		},
		&cobra.Command{
			Use: "stop", Short: "End the daemon, when what is under way is done",
			Long: `Calls under way may finish, for 10 seconds at most. Agents that are attached lose
nothing: each goes on with the daemon that the first of them starts.`,
			Example: `  patchbay daemon stop`,
			Args:    exactly(), ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.stopDaemon(cmd.Context()) },
		},
		&cobra.Command{
			Use: "status", Short: "Show the daemon and who uses it",
			Example: `  patchbay daemon status --json`,
			Args:    exactly(), ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.showStatus(cmd.Context()) },
		},
		a.daemonRunCommand(),
	)
	return cmd
}

func (a *app) daemonRunCommand() *cobra.Command {
	var idle time.Duration
	var log string
	cmd := &cobra.Command{
		Use: "run", Short: "Be the daemon, until told to end",
		Long: `Be the daemon in the foreground, as a service manager starts it. If another
daemon runs, this one waits for its end.`,
		Example: `  patchbay daemon run`,
		Args:    exactly(), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if log != "" {
				file, err := control.OpenLog(log)
				if err != nil {
					return err
				}
				a.env.Stderr = file
			}
			logger, err := a.logger(cmd, "warn")
			if err != nil {
				return err
			}
			return a.runDaemon(cmd.Context(), idle, logger)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&idle, "idle", 0, "end when nobody has used it for this `duration`")
	flags.StringVar(&log, "log", "", "`file` to log to")
	for _, name := range []string{"idle", "log"} { // for the one that is started by itself
		_ = flags.MarkHidden(name) // they exist
	}
	return cmd
}

func (a *app) runDaemon(ctx context.Context, idle time.Duration, log *slog.Logger) error {
	defer runtime.KeepAlive(make([]byte, ballast))
	settings, err := a.options().UserSettings()
	if err != nil {
		return err
	}
	if a.env.getenv("GOMEMLIMIT") == "" { // the garbage collector works harder before that
		debug.SetMemoryLimit(settings.Gateway.MemoryLimit() + ballast)
	}
	path, self, err := a.daemonPlace()
	if err != nil {
		return err
	}
	self.Version = a.build()
	socket, err := a.ownSocket(ctx, path, idle > 0)
	if err != nil {
		return err
	}
	s, err := a.newServing(serveFlags{stdio: true}, log)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	d := s.daemon()
	d.Identity, d.Idle = self, idle
	release, err := d.Serve(ctx, socket)
	s.close()
	release()
	return err
}

// ownSocket makes this process the daemon: a service when its turn comes, one
// that was started for a client soon or not at all.
func (a *app) ownSocket(ctx context.Context, path string, soon bool) (*control.Socket, error) {
	const turn = 3 * time.Second // that a daemon needs to give up its socket
	waited := false
	for deadline := time.Now().Add(turn); ; {
		socket, err := control.Own(path)
		if !errors.Is(err, control.ErrOwned) || soon && time.Now().After(deadline) {
			return socket, err
		}
		pause := 20 * time.Millisecond
		if !soon && time.Now().After(deadline) {
			if pause = time.Second; !waited {
				waited = true
				a.say("another daemon is running; this one waits for its end")
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// daemonReport is what the commands about the daemon print as JSON.
type daemonReport struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
	Started bool   `json:"started,omitempty"` // by this command
	Stopped bool   `json:"stopped,omitempty"`
	Clients int    `json:"clients,omitempty"` // that were attached
	Log     string `json:"log"`
}

func (a *app) startDaemon(ctx context.Context) error {
	if a.alone() {
		return &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: "No daemon is used here.", Hint: "Leave out --no-daemon and its like, and \"daemon\": false in \"gateway\" of settings.json."}
	}
	c, started, err := a.reachDaemon(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	d, _ := c.Daemon()
	return a.print(daemonReport{PID: d.PID, Version: d.Version, Started: started, Log: a.starter("", d).Log}, func(p *printer) {
		if started {
			p.line("Started the daemon (process %d). It ends ten minutes after its last client.", d.PID)
		} else {
			p.line("The daemon is running (process %d).", d.PID)
		}
	})
}

// reachDaemon returns a client of the daemon, which is started if none runs.
func (a *app) reachDaemon(ctx context.Context) (c *control.Client, started bool, err error) {
	socket, self, err := a.daemonPlace()
	if err != nil {
		return nil, false, err
	}
	self.Version = a.build()
	err = a.starter(socket, self).Reach(ctx, func() (err error) {
		c, err = control.Dial(ctx, socket, a.caller(), self)
		started = started || errors.Is(err, control.ErrNoDaemon)
		return err
	})
	if _, ok := errors.AsType[*control.StartError](err); err != nil && !ok {
		err = cannotUse(err)
	}
	return c, started, err
}

func cannotUse(err error) error {
	return &patchbay.Error{Kind: patchbay.KindDenied, Message: "The daemon that is running cannot be used: " + err.Error() + "."}
}

var errNoDaemon = &patchbay.Error{Kind: patchbay.KindNotFound, Message: "No daemon is running.", Hint: "`patchbay serve --stdio` and `patchbay daemon start` start it."}

// anyDaemon returns a client of the daemon, whichever build it is.
func (a *app) anyDaemon(ctx context.Context) (*control.Client, error) {
	socket, self, err := a.daemonPlace()
	if err != nil {
		return nil, err
	}
	c, err := control.DialAny(ctx, socket, a.caller(), self)
	switch {
	case errors.Is(err, control.ErrNoDaemon):
		return nil, errNoDaemon
	case err != nil:
		return nil, cannotUse(err)
	}
	return c, nil
}

func (a *app) stopDaemon(ctx context.Context) error {
	c, err := a.anyDaemon(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	d, _ := c.Daemon()
	status, err := c.Status(ctx)
	if err == nil {
		err = c.Stop(ctx)
	}
	if err != nil {
		return err
	}
	return a.print(daemonReport{PID: d.PID, Version: d.Version, Stopped: true, Clients: len(status.Clients), Log: a.starter("", d).Log}, func(p *printer) {
		p.line("The daemon has ended (process %d).", d.PID)
		if n := len(status.Clients); n > 0 {
			p.line("%s attached: agents go on with the daemon that the first of them starts.", count(n, "agent was", "agents were"))
		}
	})
}

func (a *app) showStatus(ctx context.Context) error {
	c, err := a.anyDaemon(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	return a.print(status, func(p *printer) { p.daemonStatus(status, a.env.Now()) })
}

func (p *printer) daemonStatus(s control.Status, now time.Time) {
	p.line("Daemon, process %d, version %s, for %v", s.PID, s.Version, now.Sub(s.Started).Round(time.Second))
	var rows [][]cell
	for _, c := range s.Clients {
		name := c.Name
		if name == "" {
			name = "not known yet"
		}
		rows = append(rows, []cell{{text: name}, {text: strconv.Itoa(c.PID)}, {text: p.path(c.Dir)}, {text: c.Endpoint}, {text: now.Sub(c.Since).Round(time.Second).String()}})
	}
	p.line("")
	if len(rows) == 0 {
		p.line("No agent is attached.")
	} else {
		p.table([]string{"AGENT", "PROCESS", "DIRECTORY", "ENDPOINT", "FOR"}, rows)
	}
	for _, l := range s.Listeners {
		p.line("Serving %s for process %d in %s.", l.URL+"/mcp", l.PID, p.path(l.Dir))
	}
	p.line("")
	if rows = nil; len(s.Servers) == 0 {
		p.line("No process of a server is running.")
		return
	}
	for _, sp := range s.Servers {
		var dirs, users []string
		for _, dir := range sp.Dirs {
			dirs = append(dirs, p.path(dir))
		}
		for _, u := range sp.Users {
			users = append(users, userName(u))
		}
		rows = append(rows, []cell{{text: sp.Server}, {text: strconv.Itoa(sp.PID)}, {text: cmp.Or(strings.Join(users, ", "), "nobody")}, {text: strings.Join(dirs, ", ")}})
	}
	p.table([]string{"SERVER", "PROCESS", "AGENTS", "DIRECTORIES"}, rows)
	p.severalProcesses(s.Servers)
}

// userName is whose session uses a process.
func userName(u patchbay.ProcessUser) string {
	if u.PID == 0 {
		return u.Name
	}
	return fmt.Sprintf("%s (%d)", u.Name, u.PID)
}

// severalProcesses says why a server has more than one process.
func (p *printer) severalProcesses(all []control.ServerProcess) {
	first := true
	for _, sp := range all {
		if sp.Unlike == nil {
			continue
		}
		if first {
			p.line("\nAgents share the process of a server unless it would not be the same for them:")
			first = false
		}
		if difference := sp.Unlike.String(); difference != "" {
			p.line("  %s %d differs from %d in: %s", sp.Server, sp.PID, sp.Unlike.PID, difference)
		} else {
			p.line("  %s %d is the same as %d: one of them ends when nobody uses it", sp.Server, sp.PID, sp.Unlike.PID)
		}
	}
}
