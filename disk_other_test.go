//go:build !unix

package patchbay_test

// diskRoles are for tests that need signals and limits of Unix.
var diskRoles map[string]func(home string)
