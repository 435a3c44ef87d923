package control

import (
	"testing"
	"testing/synctest"
	"time"
)

// A daemon stays as long as somebody uses it, and for a while after the last.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		i := newIdle(time.Minute, func() { ended = true })
		after := func(d time.Duration, want bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if ended != want {
				t.Errorf("ended: %v", ended)
			}
		}
		after(59*time.Second, false)
		first := i.use()
		after(time.Hour, false)
		second := i.use()
		first()
		after(time.Hour, false)
		second()
		after(59*time.Second, false)
		again := i.use()
		after(time.Hour, false)
		again()
		after(61*time.Second, true)
	})
}
