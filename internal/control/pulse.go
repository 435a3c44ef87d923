package control

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A daemon that has said nothing for checkTime is asked whether it is there, and
// left if it has not answered after deadTime: it may have been stopped, or hang.
const (
	checkTime = 10 * time.Second
	deadTime  = 30 * time.Second
)

// pulse notices when the host at the other end of a connection does not answer.
type pulse struct {
	mu    sync.Mutex
	host  wire.Conn
	heard time.Time // when it last said anything
}

// of is whose pulse this is from now on.
func (p *pulse) of(host wire.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host, p.heard = host, time.Now()
}

// beat takes note that the host is there.
func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
}

// watch closes the connection to a host that does not answer, until ctx ends.
func (p *pulse) watch(ctx context.Context) {
	for sleep(ctx, checkTime) == nil {
		p.mu.Lock()
		host, silent := p.host, time.Since(p.heard)
		p.mu.Unlock()
		c, ok := host.(*wire.StreamConn) // as all but those of tests
		switch {
		case !ok || silent < checkTime:
		case silent > deadTime:
			_ = c.Close() // as reading will say
		default:
			soon, stop := context.WithTimeout(ctx, time.Second)
			_ = c.WriteControl(soon, wordThere) // what it cannot be told it does not answer
			stop()
		}
	}
}
