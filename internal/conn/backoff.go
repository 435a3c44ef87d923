package conn

import (
	"math/rand/v2"
	"time"
)

// How a server that fails is tried again.
const (
	firstDelay = 500 * time.Millisecond // doubled with each failure in a row
	maxTries   = 5                      // by itself; after that only when someone calls, or slowly

	// slowDelay is between the tries of a server of which nobody knows what it
	// offers, so that nobody can call it. It is doubled up to slowestDelay.
	slowDelay    = time.Minute
	slowestDelay = 5 * time.Minute

	// steadyAfter is how long a connection must have lasted to count as good.
	// One that ends earlier is one more failure in a row.
	steadyAfter = 10 * time.Second

	// brakeDistance is between the starts of a server that has used up its
	// tries, however often it is called.
	brakeDistance = 2 * time.Second

	// authPause is how long a server that refused its credentials is left alone.
	// Somebody who calls it later has it dialled once more: it may have refused
	// them because of a trouble of its own.
	authPause = 5 * time.Minute
)

// retry decides when a server is dialled again after it has failed.
type retry struct {
	failures int       // in a row
	next     time.Time // when it is dialled by itself; zero means not
	earliest time.Time // before that it is not dialled for anybody
	slow     bool      // next is for sessions that are open, and for nothing if none is
}

// failed takes note of a failure at a time. Noise is in [0, 1).
func (r *retry) failed(now time.Time, f *failure, noise float64) {
	r.failures++
	r.next, r.earliest, r.slow = time.Time{}, now.Add(f.retryAfter), false
	if r.failures > maxTries {
		r.earliest = later(r.earliest, now.Add(brakeDistance))
		return
	}
	if f.permanent {
		return
	}
	delay := firstDelay << (r.failures - 1)
	delay = time.Duration(float64(delay) * (0.8 + 0.4*noise))
	r.next = later(r.earliest, now.Add(delay))
}

// goOn has a server that has used up its tries dialled by itself all the same, now
// and then.
func (r *retry) goOn(now time.Time, noise float64) {
	delay := slowDelay
	for n := r.failures - maxTries; n > 1 && delay < slowestDelay; n-- {
		delay *= 2
	}
	delay = time.Duration(float64(min(delay, slowestDelay)) * (0.8 + 0.2*noise))
	r.next, r.slow = later(r.earliest, now.Add(delay)), true
}

// lasted takes note that a connection has ended after some time.
func (r *retry) lasted(life time.Duration) {
	if life >= steadyAfter {
		*r = retry{}
	}
}

// tooSoon reports whether a caller would have to wait too long for the next
// dial: then the last failure is a better answer.
func (r *retry) tooSoon(now time.Time) bool { return r.earliest.Sub(now) > brakeDistance }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func jitter() float64 { return rand.Float64() }
