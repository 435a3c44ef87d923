package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// The first `patchbay serve` of a user is the daemon: other commands use its
// servers through the control socket. This file is how commands find it, and how
// serve becomes it.

// alone reports whether this run must not use the daemon's host, because its own
// would not be the same or because it was told not to.
func (a *app) alone() bool {
	return a.noDaemon || a.env.Dir == "" || len(a.mcpConfig) > 0 || a.strictMCPConfig || a.failOnInvalid
}

// daemonPlace returns where the control socket is, and who this process is to
// those on the other side of it.
func (a *app) daemonPlace() (socket string, self control.Identity, err error) {
	facts := readBuildFacts()
	version := strings.TrimSpace(facts.Version + " " + facts.Commit)
	self, err = control.Identify(version, patchbay.Options{Dir: a.env.Dir, Home: a.env.Home, Environ: a.env.Environ})
	return control.SocketPath(self.Directories), self, err
}

// caller is for whom this process wants servers to work.
func (a *app) caller() control.Caller {
	return control.Caller{Dir: a.env.Dir, Environ: a.env.Environ}
}

// attach returns a client of the daemon, nil if there is none or it is not to be
// used. Why one that is there cannot be is told on standard error.
func (a *app) attach(ctx context.Context) *control.Client {
	if a.alone() {
		return nil
	}
	socket, self, err := a.daemonPlace()
	if err != nil {
		return nil // the command's own host will say so
	}
	c, err := control.Dial(ctx, socket, a.caller(), self)
	if err != nil && !errors.Is(err, control.ErrNoDaemon) {
		a.say("not using the daemon that is running: %v", err)
	}
	return c
}

// say tells something that is not what the command was asked for.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		p := &printer{width: a.env.ErrWidth}
		p.line("patchbay: %s", fmt.Sprintf(format, args...))
		_, _ = io.WriteString(a.env.Stderr, p.String()) // nobody reads it, then
	}
}

// becomeDaemon serves the views, and what is the daemon's own, on the control
// socket until ctx ends. Wait returns when everything on it has ended. That
// another process is the daemon is an error, control.ErrOwned.
func (a *app) becomeDaemon(ctx context.Context, d control.Daemon) (wait func() error, err error) {
	path, self, err := a.daemonPlace()
	if err != nil {
		return nil, err
	}
	socket, err := control.Own(path)
	if err != nil {
		return nil, err
	}
	d.Identity = self
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, socket) }()
	return func() error { return <-served }, nil
}

// serveStdio serves the client on standard input and output: over the daemon if
// there is one, else with a view of its own, as the daemon.
func (a *app) serveStdio(ctx context.Context, endpoint string, d control.Daemon) error {
	path, self, err := a.daemonPlace()
	if err != nil {
		return err
	}
	if a.alone() {
		path = ""
	}
	d.Identity = self
	s := &control.Stdio{
		In: a.env.Stdin, Out: closable(a.env.Stdout), Endpoint: endpoint, Caller: a.caller(),
		Socket: path, Daemon: d, Say: a.say,
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
