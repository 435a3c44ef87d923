//go:build unix && !linux && !darwin && !freebsd

package control

import "os"

// peerUser trusts the directory, which nobody else can enter.
func peerUser(int) (int, error) { return os.Geteuid(), nil }
