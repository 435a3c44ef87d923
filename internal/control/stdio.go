package control

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Stdio serves one MCP client on a pair of streams: as a client of the daemon if
// there is one that may be used, else with a host of this process, which is the
// daemon from then on. Whoever loses its daemon does the same again, so that
// clients share their servers as long as one of them is there.
type Stdio struct {
	In       io.Reader
	Out      io.WriteCloser
	Endpoint string // what the client gets to see; empty means everything
	Caller   Caller // for whom it is served

	Socket string // path; empty means that this process stays by itself
	Daemon Daemon // what this process is, if it has to be one

	Say func(format string, args ...any) // tells the person what the client does not notice

	own  sync.WaitGroup // the daemon that this process is, and what it serves here
	lost int            // how many daemons in a row were of no use
}

// Serve returns when the client has gone. The end of ctx counts as the end of
// the client's input: what is under way is finished, for ten seconds at most.
// The views of the daemon stay open.
func (s *Stdio) Serve(ctx context.Context) error {
	client := wire.NewStreamConn(s.In, s.Out, &wire.StreamOptions{MaxBatch: maxBatch})
	ctx, stop := s.outlive(ctx, client)
	defer s.own.Wait()
	defer stop()
	attached, err := s.join(ctx)
	switch {
	case err != nil:
		client.Close()
		return err
	case attached != nil:
		return (&Relay{Client: client, Next: s.next}).Run(ctx, attached)
	}
	v, release, err := s.Daemon.Views.View(ctx, s.Caller)
	if err != nil {
		client.Close()
		return err
	}
	defer release()
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

// How long to wait for another process that is about to become the daemon.
const (
	joinTime  = 3 * time.Second
	joinPause = 20 * time.Millisecond
)

// join attaches to the daemon. If there is none, or none that fits, it returns
// nil and this process serves its client itself; if there was none it is the
// daemon now.
func (s *Stdio) join(ctx context.Context) (wire.Conn, error) {
	if s.Socket == "" {
		return nil, nil
	}
	for deadline := time.Now().Add(joinTime); ; {
		attached, err := s.attach(ctx)
		if err == nil {
			return attached, nil
		}
		if !errors.Is(err, ErrNoDaemon) {
			s.Say("not using the daemon that is running: %v", err)
			return nil, ctx.Err()
		}
		socket, err := Own(s.Socket)
		switch {
		case err == nil:
			s.own.Go(func() {
				if err := s.Daemon.Serve(ctx, socket); err != nil {
					s.Say("the control socket: %v", err)
				}
			})
			return nil, nil
		case !errors.Is(err, ErrOwned) || time.Now().After(deadline):
			s.Say("other commands cannot use the servers of this process: %v", err)
			return nil, ctx.Err()
		}
		pause := time.NewTimer(joinPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// attach makes a connection to the daemon.
func (s *Stdio) attach(ctx context.Context) (wire.Conn, error) {
	c, err := Dial(ctx, s.Socket, s.Caller, s.Daemon.Identity)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Attach(ctx, s.Endpoint)
}

// useless is how many daemons in a row may end before they have said anything to
// the client.
const useless = 3

// next finds another host when the daemon has ended.
func (s *Stdio) next(ctx context.Context, ofUse bool) (wire.Conn, error) {
	if s.lost++; ofUse {
		s.lost = 0
	}
	if s.lost >= useless {
		s.Socket = ""
	}
	attached, err := s.join(ctx)
	if err != nil {
		return nil, err
	}
	if attached != nil {
		s.Say("the daemon ended; attached to the one that took its place")
		return attached, nil
	}
	v, release, err := s.Daemon.Views.View(ctx, s.Caller)
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
func pipes() (here, there *wire.StreamConn) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return wire.NewStreamConn(r1, w2, nil), wire.NewStreamConn(r2, w1, nil)
}
