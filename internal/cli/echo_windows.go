package cli

import "golang.org/x/sys/windows"

// hideInput has a console not show what is typed, until restore is called.
func hideInput(fd int) (restore func(), err error) {
	console := windows.Handle(fd)
	var shown uint32
	if err := windows.GetConsoleMode(console, &shown); err != nil {
		return nil, err
	}
	if err := windows.SetConsoleMode(console, shown&^windows.ENABLE_ECHO_INPUT); err != nil {
		return nil, err
	}
	return func() { _ = windows.SetConsoleMode(console, shown) }, nil // nothing else can be done
}
