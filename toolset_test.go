package patchbay_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay"
)

// What a thousand tools are to a session is kept once for all sessions that
// select the same.
func TestEqualSessionsShareTheirTools(t *testing.T) {
	c := newComputer(t)
	c.opts.Lazy = false
	c.opts.InProcess = map[string]patchbay.LocalServer{}
	for i := range 50 {
		c.opts.InProcess[fmt.Sprintf("server%d", i)] = newLean(20)
	}
	h := c.open()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	open := func(o patchbay.SessionOptions) int {
		t.Helper()
		s, err := h.NewSession(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return len(s.Tools())
	}
	open(patchbay.SessionOptions{})
	const sessions, most = 100, 64 << 10
	before := heap()
	for range sessions {
		open(patchbay.SessionOptions{})
	}
	if each := (heap() - before) / sessions; each > most {
		t.Errorf("a further session takes %d bytes, want at most %d", each, most)
	}
	for _, other := range []struct {
		options patchbay.SessionOptions
		want    int
	}{
		{patchbay.SessionOptions{Servers: []string{}}, 0}, // which is not nil
		{patchbay.SessionOptions{Servers: []string{"server1", "server2"}}, 40},
		{patchbay.SessionOptions{Tools: []string{"mcp__server1__*"}}, 20},
		{patchbay.SessionOptions{DisallowedTools: []string{"mcp__server1__*"}}, 980},
		{patchbay.SessionOptions{}, 1000},
	} {
		if got := open(other.options); got != other.want {
			t.Errorf("%+v: %d tools, want %d", other.options, got, other.want)
		}
	}
}

// heap is how many bytes are in use.
func heap() int {
	runtime.GC()
	runtime.GC() // what has a finalizer takes two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
