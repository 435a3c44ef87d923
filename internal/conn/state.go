package conn

import (
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Status is how a server stands at one moment.
type Status struct {
	State  config.State
	Reason string    // why; when connected, what is wrong nevertheless
	Kind   Kind      // of what went wrong, in Failed and NeedsAuth
	Since  time.Time // it is in this state

	Attempt   int       // failures in a row so far
	NextRetry time.Time // zero if it is not tried again by itself
	Restarts  int       // how often it was connected again

	Opening   *wire.Opening   // what it said of itself; nil unless it is connected
	Challenge *wire.Challenge // what it wants, in NeedsAuth; nil if it did not say
	Stderr    string          // the last lines of a child that failed, without our secrets

	Stray string // the first text that it printed where only messages belong; empty if none

	Warnings []config.Problem // about values of the entry that were left out or kept as they are

	Steps []Step // of the last dial, as far as it came

	ToolsFromCache bool   // the catalog is one of an earlier time
	Last           *Known // how an earlier process found it; nil if that is not known, or this one has tried

	// Seq grows with every change of any server.
	Seq uint64
}

// Step is a part of the way to a connection.
type Step struct {
	Name string // one of the constants
	Took time.Duration
}

// The steps of a dial, in order.
const (
	StepResolved  = "resolved"  // placeholders are expanded, secrets are obtained
	StepStarted   = "started"   // there is a child; other servers have none
	StepConnected = "connected" // the handshake is done
	StepListed    = "listed"    // what the server offers is known
)

// state is all that is known of a server's connection. It changes only in
// line.update.
type state struct {
	Status

	// link is the connection that calls use; nil if there is none. It is there
	// as soon as the handshake is done, while the state is still Connecting.
	link *link

	// failure is why the state is Failed or NeedsAuth.
	failure *failure

	// changed is closed with the next change.
	changed chan struct{}
}

// moves are the legal ones, besides two that every state may make: to itself,
// when only the circumstances change, and back to Pending, when its target is
// replaced or everything begins anew. A server that is kept off leaves that
// state no other way.
var moves = map[config.State][]config.State{
	config.Pending:    {config.Connecting, config.Disabled, config.NeedsApproval, config.Failed},
	config.Connecting: {config.Connected, config.NeedsAuth, config.Failed},
	config.Connected:  {config.NeedsAuth, config.Failed},
	config.NeedsAuth:  {config.Connecting},
	config.Failed:     {config.Connecting},
}

func mayMove(from, to config.State) bool {
	return to == from || to == config.Pending || slices.Contains(moves[from], to)
}

// update is the one place where the state changes. s.mu is held; the caller
// tells the Managers when it has let go. A move that is not in the table is a mistake of
// ours: it is logged and does not take place.
func (s *line) update(change func(*state)) {
	next := s.state
	change(&next)
	if !mayMove(s.state.State, next.State) {
		s.log.Error("illegal move", "from", s.state.State, "to", next.State)
		return
	}
	if next.State != s.state.State {
		next.Since = time.Now()
		s.log.Debug("state", "from", s.state.State, "to", next.State, "reason", next.Reason)
	}
	next.Seq = s.pool.seq.Add(1)
	next.changed = make(chan struct{})
	close(s.state.changed)
	s.state = next
}
