package control

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Stdio serves one MCP client on a pair of streams: as a client of the daemon,
// which is started if there is none, or with servers of this process where no
// daemon can be used. Whoever loses its daemon does the same again.
type Stdio struct {
	In       io.Reader
	Out      io.WriteCloser
	Endpoint string // what the client gets to see; empty means everything
	Caller   Caller // for whom it is served

	Daemon *Starter // nil means servers of this process
	Self   Identity // of which the version is of no interest

	// Views opens the servers of this process, when they are needed; whoever made
	// this closes them.
	Views func() (*Views, error)

	Say func(format string, args ...any) // tells the person what the client does not notice

	own     sync.WaitGroup // what is served with servers of this process
	useless int            // how many daemons in a row have said nothing to the client
}

// Serve returns when the client has gone. The end of ctx counts as the end of
// the client's input: what is under way is finished, for ten seconds at most.
func (s *Stdio) Serve(ctx context.Context) error {
	client := wire.NewStreamConn(s.In, s.Out, &wire.StreamOptions{MaxBatch: maxBatch})
	ctx, stop := s.outlive(ctx, client)
	defer s.own.Wait()
	defer stop()
	attached, err := s.join(ctx, true)
	switch {
	case err != nil:
		client.Close()
		return err
	case attached != nil:
		return (&Relay{Client: client, Next: s.next, Say: s.Say}).Run(ctx, attached)
	}
	v, release, err := s.view(ctx)
	if err != nil {
		client.Close()
		return err
	}
	defer release()
	if v.Needs != nil {
		s.own.Go(func() { s.tell(v.Needs(ctx)) })
	}
	return v.Attach(ctx, client, s.Endpoint)
}

// outlive returns a context that ends some time after ctx. At the end of ctx the
// client is heard no more.
func (s *Stdio) outlive(ctx context.Context, client *wire.StreamConn) (context.Context, context.CancelFunc) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := context.AfterFunc(ctx, func() {
		client.CloseRead()
		patience := time.NewTimer(leaveTime)
		defer patience.Stop()
		select {
		case <-patience.C:
			end()
		case <-life.Done():
		}
	})
	return life, func() {
		ended()
		end()
	}
}

// maxBatch is the longest batch of messages a client may send.
const maxBatch = 50

// view opens the servers of this process.
func (s *Stdio) view(ctx context.Context) (*View, func(), error) {
	views, err := s.Views()
	if err != nil {
		return nil, nil, err
	}
	return views.View(ctx, s.Caller)
}

func (s *Stdio) tell(needs []string) {
	for _, text := range needs {
		s.Say("%s", text)
	}
}

// join attaches to the daemon, which is started if there is none. It returns nil
// if none can be used: then this process serves its client itself. The first
// time, the daemon of an earlier build is replaced by one of this; whoever loses
// its daemon takes the next as it is, or two builds would replace each other's
// for ever.
func (s *Stdio) join(ctx context.Context, first bool) (attached wire.Conn, err error) {
	if s.Daemon == nil {
		return nil, nil
	}
	err = s.Daemon.Reach(ctx, func() error {
		attached, err = s.attach(ctx, first)
		return err
	})
	failed, notStarted := errors.AsType[*StartError](err)
	refused, answered := errors.AsType[*patchbay.Error](err)
	switch {
	case err == nil:
		return attached, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case answered && refused.Kind == patchbay.KindNotFound: // which is so everywhere
		return nil, err
	case notStarted:
		s.Say("%v; this session has servers of its own", failed)
	default:
		s.Say("not using the daemon that is running: %v", err)
	}
	return nil, nil
}

// attach makes a connection to the daemon.
func (s *Stdio) attach(ctx context.Context, replace bool) (wire.Conn, error) {
	var daemon Identity
	conn, err := reach(ctx, s.Daemon.Socket, s.Caller, func(other Identity) string {
		daemon = other
		return s.Self.apart(other)
	})
	if err != nil {
		return nil, orGone(err)
	}
	if replace && !daemon.Foreground && daemon.Built.Before(s.Self.Built) {
		conn.Close()
		if err := askToEnd(ctx, s.Daemon.Socket, false); err != nil {
			return nil, err
		}
		return nil, ErrNoDaemon
	}
	ctx, stop := context.WithTimeoutCause(ctx, attachTime, silent(s.Daemon.Socket))
	defer stop()
	return attach(ctx, conn, s.Endpoint)
}

// attachTime is how long a daemon may take until a client is attached: it opens
// the client's project first.
const attachTime = 30 * time.Second

// mostUseless is how many daemons in a row may end before they have said anything
// to the client.
const mostUseless = 3

// next finds another host when the daemon has ended.
func (s *Stdio) next(ctx context.Context, ofUse bool) (wire.Conn, error) {
	if s.useless++; ofUse {
		s.useless = 0
	}
	if s.useless >= mostUseless {
		s.Daemon = nil
	}
	attached, err := s.join(ctx, false)
	if err != nil {
		return nil, err
	}
	if attached != nil {
		s.Say("the daemon ended; attached to the one that took its place")
		return attached, nil
	}
	v, release, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	s.Say("the daemon ended; this session goes on with servers of its own")
	here, there := pipes()
	s.own.Go(func() {
		defer release()
		if err := v.Attach(ctx, there, s.Endpoint); err != nil {
			s.Say("%v", err)
		}
	})
	return here, nil
}

// pipes returns the two ends of a connection within the process, of which each
// can close the direction in which it writes.
func pipes() (here *wire.StreamConn, there *daemonConn) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return wire.NewStreamConn(r1, w2, &wire.StreamOptions{Control: true}), newDaemonConn(r2, w1)
}
