// Package secret obtains the values that a configuration only points at: the
// output of a `!command`, a variable named by a whole value, the variables of
// an envFile, the headers that a program prints. It runs commands and reads the
// environment it is given; nothing in it is called before an entry is trusted.
//
// No error or problem of this package holds a value, or what a command printed.
package secret

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/proc"
)

const (
	commandTimeout = 10 * time.Second
	maxOutput      = 64 << 10

	// retryAfter is how long a command that failed is not run again, so that a
	// broken credential helper is not stormed.
	retryAfter = 30 * time.Second
)

var (
	errNotAllowed = errors.New("commands are not run for this file")
	errNothing    = errors.New("it printed nothing")
	errClosed     = errors.New("the resolver is closed")
)

// Options says what a Resolver works with.
type Options struct {
	Lookup func(name string) (value string, set bool) // environment variables; nil: none is set
	Dir    string                                     // where commands run
	Env    []string                                   // all of their environment
}

// Resolver resolves values. Each command runs once: the callers that want its
// output meanwhile share the run, and later ones get what it printed, until that
// is forgotten. It is safe for concurrent use.
type Resolver struct {
	opts Options
	run  func(ctx context.Context, command string) ([]byte, error)

	ctx  context.Context // of the commands, which belong to no single caller
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	calls  map[string]*call
}

// call is one run of a command. Its result may be read once done is closed.
type call struct {
	done  chan struct{}
	value config.Secret
	err   error
	ended time.Time
}

// New returns a Resolver. Close it.
func New(o Options) *Resolver {
	if o.Lookup == nil {
		o.Lookup = func(string) (string, bool) { return "", false }
	}
	r := &Resolver{opts: o, calls: map[string]*call{}}
	r.run = func(ctx context.Context, command string) ([]byte, error) { return r.shell(ctx, command) }
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close ends the commands that still run, and returns when they are gone.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	r.wg.Wait()
}

// Resolve returns what a value stands for: the trimmed output of a `!command`,
// else the environment variable of that name if it is set and not empty, else
// the value itself.
func (r *Resolver) Resolve(ctx context.Context, value config.Secret, allowCommand bool) (config.Secret, error) {
	command, isCommand := strings.CutPrefix(value.Reveal(), "!")
	switch {
	case isCommand && !allowCommand:
		return config.Secret{}, errNotAllowed
	case isCommand:
		return r.start(command).wait(ctx)
	}
	if v, ok := r.opts.Lookup(value.Reveal()); ok && v != "" {
		return config.NewSecret(v), nil
	}
	return value, nil
}

// start returns the run of a command, beginning one unless there is a result
// that still counts.
func (r *Resolver) start(command string) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[command]; c != nil && !c.expired() {
		return c
	}
	c := &call{done: make(chan struct{})}
	if r.closed {
		c.err = errClosed
		close(c.done)
		return c
	}
	r.calls[command] = c
	r.wg.Go(func() {
		defer close(c.done)
		out, err := r.run(r.ctx, command)
		c.value, c.err, c.ended = config.NewSecret(strings.TrimSpace(string(out))), err, time.Now()
		if err == nil && c.value.IsZero() {
			c.err = errNothing
		}
	})
	return c
}

// Forget has the commands of an entry run again when their values are next wanted,
// unless they have ended since a time or still run. It reports whether there are
// any to run again.
func (r *Resolver) Forget(e config.Entry, since time.Time) (any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	config.MapValues(e.Server, func(_ config.Slot, value config.Secret) (config.Secret, bool) {
		if command, ok := strings.CutPrefix(value.Reveal(), "!"); ok {
			if c := r.calls[command]; c != nil && c.over() && c.ended.Before(since) {
				delete(r.calls, command)
				any = true
			}
		}
		return value, true
	})
	return any
}

// over reports whether the run has ended.
func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// expired reports whether the run failed so long ago that it is worth another.
func (c *call) expired() bool {
	return c.over() && c.err != nil && time.Since(c.ended) >= retryAfter
}

// wait returns the result of the run. A caller that gives up leaves the run to
// the others.
func (c *call) wait(ctx context.Context) (config.Secret, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return config.Secret{}, context.Cause(ctx)
	}
	if c.err != nil {
		return config.Secret{}, fmt.Errorf("its command failed: %w", c.err)
	}
	return c.value, nil
}

// shell runs a command line with the resolver's environment and more.
func (r *Resolver) shell(ctx context.Context, command string, more ...string) ([]byte, error) {
	sh := "/bin/sh"
	if runtime.GOOS == "windows" {
		sh = "sh" // as Git for Windows brings it along
	}
	env := append(append([]string{}, r.opts.Env...), more...)
	return proc.Output(ctx, proc.Spec{Path: sh, Args: []string{"-c", command}, Dir: r.opts.Dir, Env: env, MaxOutput: maxOutput, Timeout: commandTimeout})
}
