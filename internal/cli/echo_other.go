//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly && !windows

package cli

import "errors"

func hideInput(int) (restore func(), err error) {
	return nil, errors.New("what is typed here cannot be hidden")
}
