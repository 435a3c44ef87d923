package control

import (
	"sync"
	"time"
)

// idle notices when nobody has used something for some time.
type idle struct {
	after time.Duration // 0 means never

	mu    sync.Mutex
	users int
	timer *time.Timer
}

// newIdle begins unused; end is called, from a goroutine of its own, when it has
// been so for the time.
func newIdle(after time.Duration, end func()) *idle {
	i := &idle{after: after}
	if after > 0 {
		i.timer = time.AfterFunc(after, end)
	}
	return i
}

// use counts one user more, until done is called.
func (i *idle) use() (done func()) {
	if i.timer == nil {
		return func() {}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.users++
	i.timer.Stop()
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.users--; i.users == 0 {
			i.timer.Reset(i.after)
		}
	}
}

func (i *idle) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}
