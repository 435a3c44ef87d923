package wire

import (
	"context"
	"math"
	"time"
)

// callClock cancels a call when the other side is silent for longer than its
// Timeout, without waiting for us, or when it takes longer than its MaxTimeout
// in all. A nil clock measures nothing.
type callClock struct {
	method         string
	timeout, whole time.Duration
	end            time.Time // of the whole
	timer          *time.Timer
}

// newCallClock starts a clock if the call has a limit. lastAsked tells when the
// other side last waited for us.
func newCallClock(c *Call, lastAsked func() time.Time, cancel context.CancelCauseFunc) *callClock {
	if c.Timeout <= 0 && c.MaxTimeout <= 0 {
		return nil
	}
	k := &callClock{method: c.Method, timeout: c.Timeout, whole: c.MaxTimeout}
	if k.whole <= 0 {
		k.whole = max(defaultMaxTimeout, k.timeout)
	}
	if k.timeout <= 0 {
		k.timeout = k.whole
	}
	k.end = time.Now().Add(k.whole)
	k.timer = time.AfterFunc(math.MaxInt64, func() {
		if left := silenceLeft(lastAsked(), k.timeout, k.end); left > 0 {
			k.timer.Reset(left)
			return
		}
		cancel(k.expired())
	})
	k.renew()
	return k
}

// silenceLeft is how much longer the other side may be silent if it waited for
// us until then; a call is over at its end in any case.
func silenceLeft(lastAsked time.Time, timeout time.Duration, end time.Time) time.Duration {
	return min(time.Until(lastAsked.Add(timeout)), time.Until(end))
}

func (k *callClock) patience() time.Duration { return min(k.timeout, time.Until(k.end)) }

func (k *callClock) expired() error {
	after := k.timeout
	if !time.Now().Before(k.end) {
		after = k.whole
	}
	return &TimeoutError{Method: k.method, After: after}
}

// renew lets the silence begin anew.
func (k *callClock) renew() {
	if k != nil {
		k.timer.Reset(k.patience())
	}
}

func (k *callClock) stop() {
	if k != nil {
		k.timer.Stop()
	}
}
