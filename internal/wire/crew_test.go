package wire

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestCrew: who has nothing to do is there for the next, but not everybody, and
// nobody stays when it is over.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		started, there := 0, atomic.Int32{}
		start := func(work func()) {
			started++
			there.Add(1)
			go func() {
				defer there.Add(-1)
				work()
			}()
		}
		c := newCrew(end, start)
		for range 3 {
			c.do(func() {})
			synctest.Wait()
		}
		if started != 1 {
			t.Errorf("%d goroutines for one function after the other", started)
		}
		const many = 3 * maxResting
		ran, gate := atomic.Int32{}, make(chan struct{})
		for range many {
			c.do(func() { ran.Add(1); <-gate })
		}
		synctest.Wait()
		if started != many || ran.Load() != many {
			t.Errorf("%d functions ran on %d goroutines, want %d at the same time", ran.Load(), started, many)
		}
		close(gate)
		synctest.Wait()
		if n := there.Load(); n != maxResting {
			t.Errorf("%d goroutines rest, want %d", n, maxResting)
		}
		close(end)
		synctest.Wait()
		if n := there.Load(); n != 0 {
			t.Errorf("%d goroutines stay at the end", n)
		}
	})
}
