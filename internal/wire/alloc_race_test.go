//go:build race

package wire

// The race detector makes sync.Pool forget some of what it is given.
const poolsForget = true
