// Package cli is the command line of Patchbay: one file per command. A command
// parses its flags, calls a control.Client and prints what comes back; whatever
// is more than that belongs to the host.
//
// The process enters through Env and nowhere else: no other package reads
// arguments, environment or standard streams.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/patchbay-mcp/patchbay"
)

// Env is everything a command knows of the process it runs in.
type Env struct {
	Args    []string // without the program's name
	Environ []string
	Dir     string // working directory; empty means unknown
	Home    string // empty means unknown
	Now     func() time.Time

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Executable string // the program's own file; empty means unknown
	Started    string // how it was named when it was started; empty means unknown

	// Handle is a path under which this very program can be started, and read,
	// whatever has become of its file.
	Handle string

	// DaemonTimeout is how long a daemon may take to start; 0 means as long as
	// people would wait.
	DaemonTimeout time.Duration

	// Guard is a command line that runs the hidden guard command of this
	// program; empty means that servers are not guarded.
	Guard []string

	// HideInput has the terminal not show what is typed until restore is called; nil
	// means that there is no terminal.
	HideInput func() (restore func(), err error)

	Interactive bool // both standard input and standard error are a terminal
	Colorful    bool // standard output is a terminal
	Width       int  // columns of that terminal; 0 means unknown
	ErrWidth    int  // columns of the terminal that standard error is; 0 means none
}

// Process returns the environment of this process.
func Process() Env {
	dir, _ := os.Getwd()
	home, _ := patchbay.HomeDir()
	isTerminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	columns := func(f *os.File) int {
		n, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return n
	}
	var guard []string
	self, err := os.Executable()
	handle := self
	if err == nil {
		guard = []string{self, guardName}
	}
	if _, err := os.Stat(ownHandle); runtime.GOOS == "linux" && err == nil {
		handle = ownHandle
	}
	return Env{
		Args: os.Args[1:], Environ: os.Environ(), Dir: dir, Home: home, Now: time.Now,
		Executable: self, Started: os.Args[0], Handle: handle, Guard: guard,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		HideInput:   func() (func(), error) { return hideInput(int(os.Stdin.Fd())) },
		Interactive: isTerminal(os.Stdin) && isTerminal(os.Stderr),
		Colorful:    isTerminal(os.Stdout),
		Width:       columns(os.Stdout), ErrWidth: columns(os.Stderr),
	}
}

// ownHandle is the program that runs, in the eyes of whoever opens it: Linux keeps
// it even when its file is gone.
const ownHandle = "/proc/self/exe"

// getenv finds a variable. The last assignment counts, as it does for a child.
func (e Env) getenv(name string) string {
	for _, entry := range slices.Backward(e.Environ) {
		if k, v, ok := strings.Cut(entry, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// Signals returns a context that ends with the first signal that asks the program
// to end. A second one ends the process at once; whatever servers it has are the
// guard's then.
func Signals(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
			return
		}
		if number, ok := (<-signals).(syscall.Signal); ok {
			os.Exit(128 + int(number)) // as shells have it
		}
		os.Exit(exitError)
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

// Main runs the command that the arguments name and returns its exit code.
func Main(ctx context.Context, env Env) int {
	a := newApp(env)
	root := a.rootCommand()
	root.SetArgs(env.Args)
	cmd, err := root.ExecuteContextC(ctx)
	err = withLonger(cmd, err)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted // whatever that looked like from inside
	}
	if err != nil {
		a.printError(err)
	}
	return exitCode(err)
}
