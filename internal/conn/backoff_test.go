package conn

import (
	"errors"
	"testing"
	"time"
)

func TestRetry(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	plain := &failure{err: errors.New("no")}

	var r retry
	for i, want := range []time.Duration{500, 1000, 2000, 4000, 8000} {
		want *= time.Millisecond
		for _, noise := range []float64{0, 0.5, 0.999} {
			r := r
			r.failed(now, plain, noise)
			if got := r.next.Sub(now); got < want*8/10 || got >= want*12/10 {
				t.Errorf("failure %d, noise %v: next after %v", i+1, noise, got)
			}
		}
		r.failed(now, plain, 0.5)
		if got := r.next.Sub(now); got != want || r.tooSoon(now) || r.earliest.After(now) {
			t.Errorf("failure %d: next after %v, want %v; earliest %v", i+1, got, want, r.earliest.Sub(now))
		}
	}
	r.failed(now, plain, 0.5)
	if !r.next.IsZero() || r.earliest.Sub(now) != brakeDistance || r.tooSoon(now) {
		t.Errorf("after the last try: %+v", r)
	}

	r.lasted(steadyAfter - 1)
	if r.failures != 6 {
		t.Errorf("a short life made it %d failures", r.failures)
	}
	r.lasted(steadyAfter)
	if r != (retry{}) {
		t.Errorf("a long life left %+v", r)
	}

	r.failed(now, &failure{err: errors.New("no"), permanent: true}, 0)
	if !r.next.IsZero() || r.earliest.After(now) {
		t.Errorf("permanent: %+v", r)
	}

	r = retry{}
	r.failed(now, &failure{err: errors.New("no"), retryAfter: time.Minute}, 0)
	if r.next.Sub(now) != time.Minute || r.earliest.Sub(now) != time.Minute || !r.tooSoon(now) || r.tooSoon(now.Add(time.Minute-brakeDistance)) {
		t.Errorf("asked for patience: %+v", r)
	}
}
