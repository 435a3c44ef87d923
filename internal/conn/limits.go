package conn

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

// Limits bound the processes of all Managers that stand beside each other. 0 means
// the default of each.
type Limits struct {
	Processes int // of all servers together
	Starts    int // that are under way at the same time
}

const (
	defaultProcesses = 256
	defaultStarts    = 32

	// startTime is how long a start counts that hangs: it must not hold up others.
	startTime = 5 * time.Second

	// Of one server no more than mostIdle processes are kept that nobody has used
	// for idleTime.
	mostIdle = 8
	idleTime = time.Minute
)

// Limit sets the limits, for all Managers that stand beside this one.
func (m *Manager) Limit(l Limits) {
	m.pool.mu.Lock()
	m.pool.most = l.Processes
	m.pool.mu.Unlock()
	m.pool.starts.limit(l.Starts)
}

// admit waits until a process may be started, and says why it may not be. done is
// to be called when it has started, or has failed to.
func (s *line) admit(ctx context.Context, t Target) (done func(), err error) {
	if t.Entry.Server.Transport() != config.Stdio {
		return func() {}, nil
	}
	if done, err = s.pool.starts.begin(ctx); err == nil {
		if err = s.pool.makeRoom(s); err != nil {
			done()
		}
	}
	return done, err
}

// starts are the starts of processes that are under way. Those that have to wait
// take turns.
type starts struct {
	mu       sync.Mutex
	most     int // 0 means defaultStarts
	underWay int
	waiting  []chan struct{}
}

func (s *starts) limit(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	s.next()
}

// next lets those begin for whom there is room; s.mu is held.
func (s *starts) next() {
	most := s.most
	if most == 0 {
		most = defaultStarts
	}
	for s.underWay < most && len(s.waiting) > 0 {
		s.underWay++
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

// begin waits for a place. One that is not given back is free again after a while.
func (s *starts) begin(ctx context.Context) (done func(), err error) {
	turn := make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, turn)
	s.next()
	s.mu.Unlock()
	end := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.underWay--
		s.next()
	}
	select {
	case <-turn:
		end = sync.OnceFunc(end)
		timer := time.AfterFunc(startTime, end)
		return func() {
			timer.Stop()
			end()
		}, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	at := slices.Index(s.waiting, turn)
	if at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	s.mu.Unlock()
	if at < 0 { // its turn came meanwhile
		end()
	}
	return func() {}, context.Cause(ctx)
}

// makeRoom ends processes that nobody uses, if there are too many for another one.
// If there are none such, only a server's first process may be started: nobody
// is to be without a server because of others.
func (p *pool) makeRoom(s *line) error {
	p.mu.Lock()
	defer p.unlock()
	p.endIdle()
	most := p.most
	if most == 0 {
		most = defaultProcesses
	}
	running, idle := p.processes(s)
	if len(running) < most {
		return nil
	}
	if len(idle) > 0 {
		idle[0].line.rest()
		return nil
	}
	s.mu.Lock()
	extra := s.extra
	s.mu.Unlock()
	if !extra {
		return nil
	}
	return &failure{kind: KindServer, err: fmt.Errorf("%d processes of servers run already, and it has one that this session cannot share; end an agent, or raise limits.processes in settings.json", len(running))}
}

// endIdle ends the processes of each server that nobody has used for a while, the
// oldest first, above so many, and does so again as long as there may be such;
// p.mu is held.
func (p *pool) endIdle() {
	running, idle := p.processes(nil)
	if p.idleCheck == nil && len(running) >= mostIdle && len(p.managers) > 0 {
		p.idleCheck = time.AfterFunc(idleTime, func() {
			p.mu.Lock()
			defer p.unlock()
			p.idleCheck = nil
			p.endIdle()
		})
	}
	count := map[string]int{}
	for _, i := range idle {
		if time.Since(i.since) >= idleTime && i.server != "" {
			count[i.server]++
		}
	}
	for _, i := range idle {
		if time.Since(i.since) >= idleTime && count[i.server] > mostIdle {
			count[i.server]--
			i.line.rest()
		}
	}
}

// idleProcess is a process that nobody uses.
type idleProcess struct {
	line   *line
	server string // the same for all processes of one
	since  time.Time
}

// processes returns the lines other than one that have a process, and those of
// them that nobody uses, the oldest first; p.mu is held.
func (p *pool) processes(but *line) (running []*line, idle []idleProcess) {
	for _, up := range p.upstreams {
		for _, l := range up.lines {
			if l == but {
				continue
			}
			runs, unused, since := l.process()
			if runs {
				running = append(running, l)
			}
			if unused {
				idle = append(idle, idleProcess{l, up.lead().target.CatalogKey, since})
			}
		}
	}
	slices.SortFunc(idle, func(a, b idleProcess) int { return a.since.Compare(b.since) })
	return running, idle
}

// process reports whether the line has a process, and whether nobody uses it and
// since when. One that a session has for itself may hold something of its.
func (s *line) process() (runs, idle bool, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	connected := s.state.State == config.Connected
	if s.target.Entry.Server.Transport() != config.Stdio || !connected && s.state.State != config.Connecting {
		return false, false, since
	}
	l := s.state.link
	if l == nil || !connected || l.users > 0 || s.wanted || s.own || len(s.subscribed) > 0 {
		return true, false, since
	}
	return true, true, later(l.since, l.lastUse)
}
