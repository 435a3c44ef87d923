//go:build !race

package wire

const poolsForget = false
