package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// The daemon is a process of its own, whose servers agents and commands use
// through the control socket. This file is how commands find it, and how it is
// started; cmd_daemon.go is what it does.

// options are those of a host of this process that do not depend on what it is
// for.
func (a *app) options() patchbay.Options {
	return patchbay.Options{Dir: a.env.Dir, Home: a.env.Home, Environ: a.env.Environ}
}

// alone reports whether this run must not use the daemon's host, because its own
// would not be the same or because it was told not to.
func (a *app) alone() bool {
	if a.noDaemon || a.env.Dir == "" || len(a.mcpConfig) > 0 || a.strictMCPConfig || a.failOnInvalid {
		return true
	}
	s, err := a.options().UserSettings()
	return err == nil && s.Gateway.Daemon != nil && !*s.Gateway.Daemon
}

// daemonPlace returns where the control socket is, and who this process is to
// those on the other side of it, but for the build.
func (a *app) daemonPlace() (socket string, self control.Identity, err error) {
	self, err = control.Identify("", a.options())
	if info, err := os.Stat(a.env.Handle); err == nil {
		self.Built = info.ModTime()
	}
	return control.SocketPath(self.Directories), self, err
}

// caller is for whom this process wants servers to work.
func (a *app) caller() control.Caller {
	return control.Caller{Dir: a.env.Dir, Environ: a.env.Environ}
}

// build names the build that runs. A version that was not stamped, or with
// uncommitted changes, is that of many builds; then it is the program that tells.
func (a *app) build() string {
	facts := readBuildFacts()
	if facts.Commit != "" && !facts.Modified || strings.HasPrefix(facts.Version, "v") && !strings.HasSuffix(facts.Version, "+dirty") {
		return strings.TrimSpace(facts.Version + " " + facts.Commit)
	}
	f, err := os.Open(a.env.Handle)
	if err != nil {
		return facts.Version
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return facts.Version
	}
	return facts.Version + " " + hex.EncodeToString(sum.Sum(nil)[:6])
}

// attach returns a client of the daemon, nil if there is none or it is not to be
// used. Why one that is there cannot be is told on standard error.
func (a *app) attach(ctx context.Context) *control.Client {
	if a.alone() {
		return nil
	}
	c, err := a.dialDaemon(ctx)
	if err != nil && !errors.Is(err, control.ErrNoDaemon) {
		a.say("not using the daemon that is running: %v", err)
	}
	return c
}

// dialDaemon is attach for those who want no other host.
func (a *app) dialDaemon(ctx context.Context) (*control.Client, error) {
	socket, self, err := a.daemonPlace()
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(socket); errors.Is(err, os.ErrNotExist) {
		return nil, control.ErrNoDaemon // before the program is looked at
	}
	self.Version = a.build()
	return control.Dial(ctx, socket, a.caller(), self)
}

// starter starts the daemon.
func (a *app) starter(socket string, self control.Identity) *control.Starter {
	log := filepath.Join(self.State, "daemon.log")
	return &control.Starter{
		Socket: socket, Program: a.env.Handle, Environ: a.env.Environ, Log: log, Timeout: a.env.DaemonTimeout,
		Args: []string{a.env.Executable, "daemon", "run", "--idle", daemonIdle.String(), "--log", log},
	}
}

// daemonIdle is how long a daemon stays after its last client.
const daemonIdle = 10 * time.Minute

// say tells something that is not what the command was asked for.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		p := a.errorPrinter()
		p.line("patchbay: %s", fmt.Sprintf(format, args...))
		_, _ = io.WriteString(a.env.Stderr, p.String()) // nobody reads it, then
	}
}

// serveStdio serves the client on standard input and output: over the daemon, or
// with servers of this process.
func (a *app) serveStdio(ctx context.Context, f serveFlags, log *slog.Logger) error {
	var own *serving
	defer func() {
		if own != nil {
			own.close()
		}
	}()
	s := &control.Stdio{
		In: a.env.Stdin, Out: closable(a.env.Stdout), Endpoint: f.endpoint, Caller: a.caller(), Say: a.say,
		Views: func() (*control.Views, error) {
			if own != nil {
				return own.views, nil
			}
			opened, err := a.newServing(f, log)
			if err != nil {
				return nil, err
			}
			own = opened
			return own.views, own.offerMetrics(ctx)
		},
	}
	if !a.alone() {
		socket, self, err := a.daemonPlace()
		if err != nil {
			return err
		}
		s.Self, s.Daemon = self, a.starter(socket, self)
	}
	return s.Serve(ctx)
}

// closable makes a stream one that can be closed, if it is not.
func closable(w io.Writer) io.WriteCloser {
	if c, ok := w.(io.WriteCloser); ok {
		return c
	}
	return unclosed{w}
}

type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// answeredByDaemon says who knows what was printed, if that is not this command.
func (p *printer) answeredByDaemon(c *control.Client) {
	if d, ok := c.Daemon(); ok {
		p.line("Answered by the daemon (process %d).", d.PID)
	}
}
