package wire

import "sync/atomic"

// A crew runs functions on goroutines, some of which stay for the next one. A
// handler calls deeply, and a new goroutine has a small stack: that it grows anew
// for each request costs more than all else about the goroutine.
type crew struct {
	end     <-chan struct{} // closed when nobody needs it any more
	next    chan func()     // to a goroutine that rests
	resting atomic.Int32
}

// maxResting is how many goroutines of a crew wait for something to do.
const maxResting = 8

func newCrew(end <-chan struct{}) *crew { return &crew{end: end, next: make(chan func())} }

// do has a goroutine run f: one that rests, or else one that start starts.
func (c *crew) do(f func(), start func(work func())) {
	select {
	case c.next <- f:
	default:
		start(func() { c.work(f) })
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
