package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/proc"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	// exitPatience is how long a child whose output has ended may take to
	// exit, so that its status can be told. It takes a few milliseconds, unless
	// the machine is very busy.
	exitPatience = time.Second

	shownStderr = 20 // lines of a child that failed
)

// process is the child of a connection.
type process struct {
	child  *proc.Child
	redact *redactor
}

// dialChild starts a child and connects to its standard streams.
func (s *line) dialChild(ctx context.Context, m *Manager, t Target, l *link) error {
	server, err := s.resolve(ctx, m, t)
	if err != nil {
		return err
	}
	s.took(l, StepResolved)
	dir := server.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(cmp.Or(t.Dir, m.opts.Vars.WorkspaceRoot), dir)
	}
	env := childEnv(m.opts.Environ, t.InheritAll, server)
	child, err := startChecked(proc.Spec{Path: server.Command, Args: server.Args, Dir: dir, Env: env, Guard: s.pool.guard}, t.Check)
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if err != nil {
		return &failure{kind: KindTransport, permanent: willNeverStart(err), err: err}
	}
	s.took(l, StepStarted)
	l.process = &process{child, newRedactor(l.answers, t.Entry.Server, server, env)}
	s.mu.Lock()
	s.child = l.process
	s.mu.Unlock()

	conn := wire.NewStreamConn(child.Stdout, child.Stdin, &wire.StreamOptions{MaxBatch: maxBatch})
	err = s.connect(ctx, m, t, l, wire.Stream(conn, s.peerOptions(l)))
	if err != nil {
		return l.process.explain(err)
	}
	return nil
}

// startChecked starts a child, if what it would run is what may be.
func startChecked(spec proc.Spec, check func(file string) (again func() error, err error)) (*proc.Child, error) {
	if check == nil {
		return proc.Start(spec)
	}
	denied := func(err error) error { return &failure{kind: KindDenied, permanent: true, err: err} }
	file, err := spec.LookUp()
	if err != nil {
		return nil, err
	}
	spec.File = file
	if !filepath.IsAbs(file) {
		spec.File = filepath.Join(spec.Dir, file)
	}
	again, err := check(spec.File)
	if err != nil {
		return nil, denied(err)
	}
	child, err := proc.Start(spec)
	if err != nil {
		return nil, err
	}
	if err := again(); err != nil {
		_ = child.Close() // what cannot be killed is not ours to mend
		return nil, denied(err)
	}
	return child, nil
}

// willNeverStart reports whether a command will not start the next time either,
// as it might when the system was just short of something.
func willNeverStart(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC)
}

func (p *process) close() { _ = p.child.Close() } // what cannot be killed is not ours to mend

func (p *process) logs() string { return p.redact.clean(p.child.Stderr()) }

// explain says why a connection to the child failed, in terms of the child.
func (p *process) explain(err error) error {
	f := *classify(err)
	if errors.Is(err, wire.ErrClosed) && !errors.Is(err, wire.ErrNoise) {
		f.err = p.exit()
	}
	f.stderr = strings.TrimRight(p.redact.clean(p.child.StderrTail(shownStderr)), "\n")
	if line := tellingLine(f.stderr); line != "" {
		f.err = fmt.Errorf("%w; it wrote: %s", f.err, shorten(line))
	}
	f.err = p.redact.cleanError(f.err) // the child may have answered with what it was given
	return &f
}

// errEnded says that a child has ended by itself.
var errEnded = errors.New("the server exited")

// exit says how the child ended, if it has.
func (p *process) exit() error {
	timer := time.NewTimer(exitPatience)
	defer timer.Stop()
	select {
	case <-p.child.Done():
		if err := p.child.Err(); err != nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		return errEnded
	case <-timer.C:
		return errors.New("the server closed its output")
	}
}

// shorten cuts one line of foreign text to what fits into a message.
func shorten(line string) string {
	const most = 300
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, line)
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}
