//go:build !unix

package discover

// openFlags: no path of this system makes an open wait.
const openFlags = 0
