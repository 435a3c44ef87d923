package patchbay_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// Applying what is in force already changes nothing; applying something else
// restarts what is different and nothing more.
func TestApplyKeepsConnections(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.Lazy = false
	h := c.open()
	s := anyone(t, h)
	apply := func(servers map[string]config.Server) {
		t.Helper()
		if err := h.Apply(t.Context(), servers); err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	apply(map[string]config.Server{"a": scripted(), "b": scripted()})
	a, b := say(t, s, "a.pid", ""), say(t, s, "b.pid", "")

	apply(map[string]config.Server{"a": scripted(), "b": scripted()})
	if say(t, s, "a.pid", "") != a || say(t, s, "b.pid", "") != b {
		t.Error("applying the same restarted a server")
	}
	for _, st := range h.Servers() {
		if st.State != config.Connected || st.Restarts != 0 {
			t.Errorf("%s is %s after %d restarts", st.Name, st.State, st.Restarts)
		}
	}
	apply(map[string]config.Server{"a": scripted("-banner=1"), "c": scripted()})
	if say(t, s, "a.pid", "") == a {
		t.Error("a server with other arguments kept its process")
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "b.pid"}); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("a server that is not there any more: %v", err)
	}
	bad := map[string]config.Server{"a": scripted(), "c": {}, "": scripted()}
	if e := asError(t, h.Apply(t.Context(), bad)); e.Kind != patchbay.KindConfigInvalid || len(e.Problems) != 2 {
		t.Errorf("%#v", e)
	}
	if got := say(t, s, "c.echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("what was refused had an effect: %q", got)
	}
}

// Closing a host ends its servers and all that waits for them.
func TestClose(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	h := withServers(t, map[string]config.Server{"up": scripted(lines.Arg("up")), "hangs": scripted("-start=hang", lines.Arg("hangs"))}, func(o *patchbay.Options) {
		o.Guard = self(t, "guard")
	})
	s := anyone(t, h)
	awaitState(t, h, "up", config.Connected)
	up, hangs := lines.Next("up"), lines.Next("hangs")
	calls := []<-chan error{inFlight(t.Context(), t, s, "up")}
	waits := make(chan error, 1)
	go func() {
		_, err := s.Forward(t.Context(), "hangs", "ping", nil)
		waits <- err
	}()
	calls = append(calls, waits)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for range h.Watch(t.Context()) {
		}
	}()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for _, line := range []*mcptest.Lifeline{up, hangs} {
		line.WaitGone(t)
	}
	for i, call := range calls {
		if err := <-call; err == nil {
			t.Errorf("call %d was answered", i)
		}
	}
	<-watched
	if err := h.Close(); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "up.echo"}); err == nil {
		t.Error("a closed host makes calls")
	}
	if err := h.Reload(t.Context()); err != nil {
		t.Errorf("reload: %v", err)
	}
	h.Servers()
}
