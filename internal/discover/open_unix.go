//go:build unix

package discover

import "syscall"

// openFlags keep an open from waiting for the other end of a pipe, and from
// making a terminal ours.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY
