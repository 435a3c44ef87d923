package wire

import (
	"runtime"
	"testing"
)

// bytesPerRun returns how many bytes f allocates, on average over some runs
// after a first one that fills the pools.
func bytesPerRun(f func()) uint64 {
	const runs = 10
	f()
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
	budget := uint64(payload) * 3 / 2
	if poolsForget {
		budget = uint64(payload) * 3
	}
	if got > budget {
		t.Errorf("%d bytes allocated for a payload of %d", got, payload)
	}
}
