package wire

import (
	"runtime"
	"testing"
)

// bytesPerRun returns how many bytes f allocates, on average over some runs
// after a first one that fills the pools. Where pools forget there is nothing to
// learn from it: f runs once, for the race detector.
func bytesPerRun(f func()) uint64 {
	const runs = 10
	f()
	if poolsForget {
		return 0
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / runs
}

// checkPayloadBytes guards the budget of 1.5 times the payload.
func checkPayloadBytes(t *testing.T, payload int, got uint64) {
	t.Helper()
	if got > uint64(payload)*3/2 {
		t.Errorf("%d bytes allocated for a payload of %d", got, payload)
	}
}
