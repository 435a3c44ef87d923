package lane

import (
	"context"
	"slices"
	"sync"
)

// A requestContext is the context of one request. Most requests are over before
// anybody waits for the end of theirs, so it makes nothing that is only for that
// until somebody does.
type requestContext struct {
	context.Context // of the connection, whose end conn.leave passes on

	mu    sync.Mutex
	err   error
	done  chan struct{} // nil until somebody waits
	after []*func()
}

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc is how package context arranges, where it finds this method, that
// something happens when the context ends.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.after = append(c.after, &f)
	return func() bool { return c.forget(&f) }
}

// forget reports whether f was still to be called.
func (c *requestContext) forget(f *func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.after, f)
	if i >= 0 {
		c.after = slices.Delete(c.after, i, i+1)
	}
	return i >= 0
}

// end ends the context, unless it has ended.
func (c *requestContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	for _, f := range c.after {
		go (*f)()
	}
	c.after = nil
}
