package wire

import "sync/atomic"

// A crew runs functions on goroutines, some of which stay for the next one. A
// handler calls deeply, and a new goroutine has a small stack: that it grows anew
// for each request costs more than all else about the goroutine.
type crew struct {
	end     <-chan struct{}   // closed when nobody needs it any more
	start   func(work func()) // starts a goroutine
	next    chan func()       // to one that rests
	resting atomic.Int32
}

// maxResting is how many goroutines of a crew wait for something to do.
const maxResting = 8

// newCrew returns a crew whose goroutines start starts; nil means that nobody
// waits for them.
func newCrew(end <-chan struct{}, start func(work func())) *crew {
	if start == nil {
		start = func(work func()) { go work() }
	}
	return &crew{end: end, start: start, next: make(chan func())}
}

// do has a goroutine run f: one that rests, or else a new one.
func (c *crew) do(f func()) {
	select {
	case c.next <- f:
	default:
		c.start(func() { c.work(f) })
	}
}

func (c *crew) work(f func()) {
	for {
		f()
		if c.resting.Add(1) > maxResting {
			c.resting.Add(-1)
			return
		}
		select {
		case f = <-c.next:
			c.resting.Add(-1)
		case <-c.end:
			return
		}
	}
}
