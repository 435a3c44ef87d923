package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// armed counts how often a deadline reaches the conn.
type armed struct {
	net.Conn
	times int
}

func (a *armed) SetReadDeadline(t time.Time) error {
	a.times++
	return a.Conn.SetReadDeadline(t)
}

// A deadline holds to the moment, however it was set before.
func TestLazyDeadline(t *testing.T) {
	for _, c := range []struct {
		name string
		set  []time.Duration // 0 means none
		want time.Duration   // 0 means never
	}{
		{"one", []time.Duration{30 * time.Second}, 30 * time.Second},
		{"moved on", []time.Duration{5 * time.Second, 0, 90 * time.Second}, 90 * time.Second},
		{"moved forward", []time.Duration{90 * time.Second, 5 * time.Second}, 5 * time.Second},
		{"taken away", []time.Duration{5 * time.Second, 0}, 0},
		{"taken away after it was past", []time.Duration{-time.Hour, 0}, 0},
		{"set after it was past", []time.Duration{-time.Hour, 0, 30 * time.Second}, 30 * time.Second},
		{"past", []time.Duration{5 * time.Second, -time.Hour}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				conn := &lazyConn{Conn: ours}
				for _, d := range c.set {
					var at time.Time
					if d != 0 {
						at = time.Now().Add(d)
					}
					if err := conn.SetDeadline(at); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				if c.want == 0 {
					go func() {
						time.Sleep(time.Hour)
						theirs.Write([]byte("x"))
						io.ReadFull(theirs, make([]byte, 3))
					}()
					if n, err := conn.Read(make([]byte, 8)); n != 1 || err != nil {
						t.Errorf("read %d, %v", n, err)
					}
					if n, err := conn.Write([]byte("abc")); n != 3 || err != nil {
						t.Errorf("wrote %d, %v", n, err)
					}
				} else {
					_, readErr := conn.Read(make([]byte, 8))
					_, writeErr := conn.Write([]byte("abc"))
					if took := time.Since(start); took != max(c.want, 0) || !errors.Is(readErr, os.ErrDeadlineExceeded) || !errors.Is(writeErr, os.ErrDeadlineExceeded) {
						t.Errorf("%v, %v after %v", readErr, writeErr, took)
					}
				}
				conn.Close()
				theirs.Close()
			})
		})
	}
}

// A reader that waits already is woken by a deadline that comes before the one
// it knows, which is how net/http ends it.
func TestLazyDeadlineWakesReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		conn := &lazyConn{Conn: ours}
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		woken := make(chan error)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			woken <- err
		}()
		synctest.Wait()
		conn.SetReadDeadline(time.Unix(1, 0))
		if err := <-woken; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

// The deadlines of one request after another hardly ever reach the conn.
func TestLazyDeadlineIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		below := &armed{Conn: ours}
		conn := &lazyConn{Conn: below}
		go func() {
			for range 100 {
				theirs.Write([]byte("x"))
				time.Sleep(100 * time.Millisecond)
			}
			theirs.Close()
		}()
		for {
			for _, d := range []time.Duration{5 * time.Second, 30 * time.Second, 90 * time.Second} {
				conn.SetReadDeadline(time.Now().Add(d))
				conn.SetReadDeadline(time.Time{})
			}
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				break
			}
		}
		if below.times > 5 {
			t.Errorf("300 deadlines in ten seconds reached the conn %d times", below.times)
		}
		conn.Close()
	})
}
