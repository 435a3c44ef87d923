package lane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A requestContext is to package context what one of its own is.
func TestRequestContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		parent := context.WithValue(t.Context(), key{}, "value")
		c := &requestContext{Context: parent}
		child, stop := context.WithTimeout(c, time.Hour)
		defer stop()
		early, late := make(chan struct{}), make(chan struct{})
		context.AfterFunc(c, func() { close(early) })
		given := context.AfterFunc(c, func() { t.Error("called after it was taken back") })
		if !given() || given() {
			t.Error("taking back does not succeed exactly once")
		}
		if c.Err() != nil || child.Err() != nil || c.Value(key{}) != "value" {
			t.Errorf("at first: %v, %v, %v", c.Err(), child.Err(), c.Value(key{}))
		}
		waits := make(chan struct{})
		go func() {
			<-c.Done()
			close(waits)
		}()
		synctest.Wait()

		end := errors.New("the end")
		c.end(end)
		c.end(context.Canceled) // which makes no difference
		<-waits
		<-early
		<-child.Done()
		if c.Err() != end || child.Err() != end || context.Cause(c) != end {
			t.Errorf("at the end: %v, %v, %v", c.Err(), child.Err(), context.Cause(c))
		}
		if context.AfterFunc(c, func() { close(late) })() {
			t.Error("what was called could be taken back")
		}
		<-late
		never := &requestContext{Context: parent}
		never.end(end)
		<-never.Done() // asked for afterwards
	})
}
