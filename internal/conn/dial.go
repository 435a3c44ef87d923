package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	connectLimit = 30 * time.Second // from the entry to the end of the handshake

	// maxBatch is how many messages a server may put into a batch.
	maxBatch = 1000

	// serverRequestsPerSecond is how many requests a server may send us.
	serverRequestsPerSecond = 50
)

// dial connects to the target of a Manager. ctx bounds the dial, not the
// connection. There is a link in any case, which has to be ended.
func (s *line) dial(ctx context.Context, m *Manager, t Target) (*link, error) {
	limit := connectLimit
	if ms := t.Entry.Server.ConnectTimeout; ms != nil {
		limit = time.Duration(*ms) * time.Millisecond
	}
	if limit > 0 {
		var stop func()
		ctx, stop = s.dialWithin(ctx, limit)
		defer stop()
	}
	answers := hiddenAnswers(t.Inputs)
	l := newLink()
	l.preferLegacy, l.answers = s.profile.Legacy, answers
	switch {
	case t.Local != nil:
		return l, s.dialLocal(ctx, m, t, l)
	case t.Entry.Server.Transport() == config.Stdio:
		err := s.dialChild(ctx, m, t, l)
		if l.preferLegacy && l.process != nil && l.client == nil && ctx.Err() == nil && errors.Is(err, errEnded) {
			// It may have died of the question, which is nothing it will be asked again.
			l.close()
			l = newLink()
			l.answers = answers
			err = s.dialChild(ctx, m, t, l)
		}
		return l, err
	case t.Entry.Server.Transport() == config.InProcess:
		return l, &failure{kind: KindConfig, permanent: true, err: errors.New("the program that runs Patchbay has no such server")}
	default:
		return l, s.dialHTTP(ctx, m, t, l)
	}
}

// dialWithin bounds a dial, by more than the limit if somebody who waits for it
// has said so.
func (s *line) dialWithin(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	begin := time.Now()
	var timer *time.Timer
	s.mu.Lock()
	defer s.mu.Unlock()
	timer = time.AfterFunc(max(limit, s.patience), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		longest := max(limit, s.patience)
		if left := longest - time.Since(begin); left > 0 {
			timer.Reset(left)
			return
		}
		cancel(&ConnectTimeout{s.name, longest})
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// ConnectTimeout says that connecting took too long. It is
// context.DeadlineExceeded to errors.Is.
type ConnectTimeout struct {
	server string
	limit  time.Duration
}

func (e *ConnectTimeout) Error() string {
	return fmt.Sprintf("Connection to MCP server %q timed out after %dms", e.server, e.limit.Milliseconds())
}

// Is reports that it is an exceeded deadline.
func (e *ConnectTimeout) Is(target error) bool { return target == context.DeadlineExceeded }

// timeoutKey is under which a context has how long its owner wants to wait.
type timeoutKey struct{}

// WithTimeout returns a context for somebody who has said how long connecting and
// the request that follows may take, whatever the entry says. It does not end by
// itself.
func WithTimeout(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, timeoutKey{}, limit)
}

// Timeout is the limit of WithTimeout; 0 if there is none.
func Timeout(ctx context.Context) time.Duration {
	limit, _ := ctx.Value(timeoutKey{}).(time.Duration)
	return limit
}

// connect performs the handshake. What it cost before belongs to the dial too,
// so the context is its only limit.
func (s *line) connect(ctx context.Context, m *Manager, t Target, l *link, transport wire.Transport) error {
	const unlimited = 24 * time.Hour
	options := &wire.ClientOptions{
		Info:         m.opts.Info,
		Capabilities: s.profile.Capabilities,
		Changed:      l.changes.add,
		PreferLegacy: l.preferLegacy,
		Eras:         &s.pool.eras,
		EraKey:       s.eraKey(t),
		Timeout:      unlimited,
		Logger:       s.log,
	}
	if s.pool.handler != nil {
		options.Handler = s.pool.handler(&s.shared)
	}
	s.catalog() // it may know how the server wants to be spoken to
	var err error
	if l.client, err = wire.Connect(ctx, transport, options); err != nil {
		return err
	}
	l.since = time.Now()
	s.took(l, StepConnected)
	s.showedEra(l.client.Opening().Era)
	return nil
}

// showedEra takes note that the server serves one era only, if it was not spoken
// to in the one that was preferred.
func (s *line) showedEra(era wire.Era) {
	if (era == wire.Legacy) == s.profile.Legacy {
		return
	}
	s.pool.mu.Lock()
	known := s.up.oneEra
	s.pool.mu.Unlock()
	if !known {
		s.up.learn(func() { s.up.oneEra = true })
	}
}

func (s *line) eraKey(t Target) string {
	if t.CatalogKey != "" {
		return t.CatalogKey
	}
	return "name " + s.name + " " + t.ConnectHash
}

func (s *line) peerOptions(l *link) *wire.PeerOptions {
	return &wire.PeerOptions{
		Logger:            s.log,
		RequestsPerSecond: serverRequestsPerSecond,
		OnGarbage: func(g *wire.Garbage) {
			s.log.Debug("the server printed what is no message", "bytes", g.Size, "error", g.Err)
			if g.Asks.IsZero() && g.Answers.IsZero() {
				s.strayed(l, string(g.Text))
			}
		},
	}
}

// strayed takes note of the first text that a server prints among its messages.
func (s *line) strayed(l *link, text string) {
	if l.strayed.Swap(true) {
		return
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if l.process != nil {
		text = l.process.redact.clean(text)
	}
	s.mu.Lock()
	if s.state.State == config.Connecting || s.state.link == l {
		s.update(func(st *state) { st.Stray = shorten(text) })
	}
	s.mu.Unlock()
	s.up.changed()
}

// localServer is a server in this process while it serves one connection.
type localServer struct {
	log  *slog.Logger
	end  context.CancelFunc
	done chan struct{} // closed when it has returned: err is set
	err  error
}

// localPatience is how long a server in this process may take to return. There
// is no way to end one that does not, as there is with a child.
const localPatience = 5 * time.Second

// dialLocal connects to a server in this process.
func (s *line) dialLocal(ctx context.Context, m *Manager, t Target, l *link) error {
	ours, theirs := net.Pipe()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	l.local = &localServer{log: s.log, end: end, done: make(chan struct{})}
	go func() {
		defer close(l.local.done)
		l.local.err = s.serveLocal(life, t.Local, theirs)
		theirs.Close()
	}()
	conn := wire.NewStreamConn(ours, ours, &wire.StreamOptions{MaxBatch: maxBatch})
	return l.local.explain(s.connect(ctx, m, t, l, wire.Stream(conn, s.peerOptions(l))))
}

// explain says why a connection has ended, in terms of the server.
func (ls *localServer) explain(err error) error {
	if !errors.Is(err, wire.ErrClosed) {
		return err
	}
	timer := time.NewTimer(exitPatience)
	defer timer.Stop()
	select {
	case <-ls.done:
	case <-timer.C:
		return err
	}
	if ls.err != nil {
		return &failure{kind: KindTransport, err: fmt.Errorf("the server ended: %w", ls.err)}
	}
	return &failure{kind: KindTransport, err: errors.New("the server ended")}
}

// close has the server return, and waits for it.
func (ls *localServer) close() {
	ls.end()
	timer := time.NewTimer(localPatience)
	defer timer.Stop()
	select {
	case <-ls.done:
	case <-timer.C:
		ls.log.Warn("a server in this process does not return; nobody waits for it any longer")
	}
}

// serveLocal turns a panic of a local server into an error: it is a server like
// any other, and ends alone.
func (s *line) serveLocal(ctx context.Context, serve func(context.Context, io.ReadWriteCloser) error, rw io.ReadWriteCloser) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Warn("a server in this process panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return serve(ctx, rw)
}
