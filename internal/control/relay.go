package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Relay carries the messages of one MCP client to a daemon and back. If the
// daemon dies, the client is taken to another host: what it has said that still
// holds is said again there (replay.go), what was under way is asked again where
// that does no harm, and answered with an error where it might.
type Relay struct {
	Client wire.Conn // to the client; closed in the end

	// Next returns a connection to whoever serves the client from now on. It is
	// called after a connection has ended though the client is still there; of
	// use is whether the client got anything out of that.
	Next func(ctx context.Context, ofUse bool) (wire.Conn, error)

	Say func(format string, args ...any) // tells the person what the daemon says to it; nil means nobody

	mu     sync.Mutex // held while the client is taken to another host
	server wire.Conn
	left   bool // the client has ended its side
	ofUse  bool // the present host has said something to the client
	said   transcript
	pulse  pulse
}

// leaveTime is what calls under way get after the client has ended its side. A
// daemon cancels them before that.
const leaveTime = 10 * time.Second

// Run serves the client over the connection to the daemon until the client has
// gone or ctx has ended. The error says why there is nobody left to serve it.
func (r *Relay) Run(ctx context.Context, daemon wire.Conn) error {
	r.server, r.said = daemon, newTranscript()
	r.pulse.of(daemon)
	life, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var work sync.WaitGroup
	work.Go(func() {
		r.up(life)
		r.leave()
		// Answers on their way still arrive, but not for ever.
		patience := time.NewTimer(leaveTime)
		defer patience.Stop()
		select {
		case <-patience.C:
			stop(nil)
		case <-life.Done():
		}
	})
	work.Go(func() { stop(r.down(life)) })
	work.Go(func() { r.pulse.watch(life) })
	<-life.Done()
	// Both sides are told, so that whoever reads or writes ends.
	r.leave()
	r.Client.Close()
	r.current().Close()
	work.Wait()
	err := context.Cause(life)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (r *Relay) current() wire.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server
}

// leave tells the host that the client will say nothing more.
func (r *Relay) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left {
		return
	}
	r.left = true
	if half, ok := r.server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // if it is gone, reading will say
	}
}

// up carries what the client says, until it has no more to say.
func (r *Relay) up(ctx context.Context) {
	for {
		m, err := r.Client.Read()
		if garbage, ok := errors.AsType[*wire.Garbage](err); ok {
			if err := r.Client.Write(ctx, notUnderstood(garbage)); err != nil {
				return
			}
			continue
		}
		if err != nil {
			return
		}
		r.mu.Lock() // waits while the client is taken to another host
		server := r.server
		m, ok := r.said.byClient(m)
		r.mu.Unlock()
		if ok && server.Write(ctx, m) != nil { // it is gone, as reading will say
			r.unsent(server, m.ID)
		}
	}
}

// unsent takes note that a host never got a request. If the client has been
// taken to another meanwhile, there is nothing to note: the request was dealt
// with as one that might have arrived.
func (r *Relay) unsent(server wire.Conn, id wire.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.said.requests[id]; q != nil && r.server == server {
		q.refused = true
	}
}

// notUnderstood is the answer to what is no message.
func notUnderstood(g *wire.Garbage) wire.Message {
	if bad, ok := errors.AsType[*wire.ParseError](g.Err); ok {
		return bad.Reply()
	}
	return (&wire.ParseError{Code: wire.CodeInvalidRequest, Reason: g.Err.Error()}).Reply()
}

// down carries what the host says, and the client to another host when this one
// has gone. It returns nil when the client wants to hear no more.
func (r *Relay) down(ctx context.Context) error {
	for {
		m, err := r.current().Read()
		r.pulse.beat()
		if r.heed(err) {
			continue
		}
		if err != nil {
			if err := r.move(ctx, err); err != nil {
				return err
			}
			continue
		}
		if err := r.hand(ctx, m); err != nil {
			return err
		}
	}
}

// heed takes note of what is read from a host and is no message. It reports
// whether there is more to read.
func (r *Relay) heed(err error) bool {
	if _, ok := errors.AsType[*wire.Garbage](err); ok {
		return true
	}
	line, ok := errors.AsType[*wire.ControlLine](err)
	if !ok {
		return false
	}
	if text, ok := strings.CutPrefix(line.Text, wordSay); ok && r.Say != nil {
		r.Say("%s", text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said.byDaemon(line.Text)
	r.dismiss()
	return true
}

// dismiss leaves a host that is about to end and has nothing left to answer;
// r.mu is held.
func (r *Relay) dismiss() {
	if r.said.dismissed() {
		_ = r.server.Close() // there is no point in waiting for its end
	}
}

// hand hands a message of the host to the client, if it is meant for it.
func (r *Relay) hand(ctx context.Context, m wire.Message) error {
	r.mu.Lock()
	m, ok := r.said.byHost(m)
	if !ok {
		r.dismiss()
	}
	r.ofUse = r.ofUse || ok
	news := r.said.news
	r.said.news = nil
	r.mu.Unlock()
	if ok {
		if err := r.Client.Write(ctx, m); err != nil {
			return err
		}
	}
	for _, m := range news {
		if err := r.Client.Write(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// move takes the client to another host.
func (r *Relay) move(ctx context.Context, why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.Close() // it is gone
	if r.left || ctx.Err() != nil {
		return context.Canceled
	}
	over := r.said.moved()
	if err := r.answer(ctx, over); err != nil {
		return err
	}
	next, err := r.Next(ctx, r.ofUse)
	if err != nil {
		for _, m := range over.again {
			if q := r.said.requests[m.ID]; q != nil {
				_ = r.Client.Write(ctx, q.lost()) // the last thing it hears
			}
		}
		return fmt.Errorf("the connection to the daemon ended (%w), and there is no other host: %w", why, err)
	}
	r.server, r.ofUse = next, false
	r.pulse.of(next)
	defer context.AfterFunc(ctx, func() { next.Close() })() // whatever it is waited for
	return r.replay(ctx, over)
}

// answer tells the client what became of what was under way and must not be
// done twice.
func (r *Relay) answer(ctx context.Context, over leftover) error {
	for _, m := range over.answers {
		if err := r.Client.Write(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// replay says again to a new host what still holds, and asks again what can be.
// A host that ends meanwhile is noticed when it is next read from.
func (r *Relay) replay(ctx context.Context, over leftover) error {
	if over.initialize != nil {
		if err := r.server.Write(ctx, *over.initialize); err != nil {
			return nil
		}
		// Nothing may be said before that is answered.
		for answered := false; !answered; {
			m, err := r.server.Read()
			r.pulse.beat()
			if _, ok := errors.AsType[*wire.Garbage](err); ok {
				continue
			}
			if line, ok := errors.AsType[*wire.ControlLine](err); ok && line.Text != wordFarewell && !strings.HasPrefix(line.Text, wordRefused) {
				continue // it has time
			}
			if err != nil { // or it is about to end
				_ = r.server.Close()
				return nil // the next Read says so again
			}
			answered = m.Kind() == wire.KindResponse && m.ID == over.initialize.ID
			if m, ok := r.said.byHost(m); ok {
				if err := r.Client.Write(ctx, m); err != nil {
					return err
				}
			}
		}
	}
	for _, m := range over.again {
		if err := r.server.Write(ctx, m); err != nil {
			return nil
		}
		if q := r.said.requests[m.ID]; q != nil {
			q.repeated = q.repeated || !q.refused
			q.refused = false
		}
	}
	for _, m := range over.news {
		if err := r.Client.Write(ctx, m); err != nil {
			return err
		}
	}
	return nil
}
