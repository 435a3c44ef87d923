package mcptest

import "testing"

// Allocations returns how often f allocates: the least of several measurements,
// each of which also counts what the rest of the process does meanwhile.
func Allocations(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
