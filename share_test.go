package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
)

// sampler is what agents of one kind can do; others cannot.
func sampler() patchbay.SessionOptions {
	return patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		Sample: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New("no model")
		},
	}}
}

// rooted is what agents of another kind can do.
func rooted() patchbay.SessionOptions {
	return patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		Roots: func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{"roots":[]}`), nil },
	}}
}

// Agents of one kind share one process, whatever they can do and however the
// host itself was connected before they came. It stays when they leave.
func TestOneKindOfAgentHasOneProcess(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	h := withServers(t, map[string]config.Server{"srv": scripted(lines.Arg("srv"))}, nil)
	awaitState(t, h, "srv", config.Connected)
	hosts := lines.Next("srv")
	first, second := session(t, h, sampler()), session(t, h, sampler())
	tools := len(first.Tools())

	pid := say(t, first, "srv.pid", "")
	hosts.WaitGone(t)
	theirs := lines.Next("srv")
	if say(t, second, "srv.pid", "") != pid {
		t.Error("two sessions that can do the same do not share a process")
	}
	if got := len(second.Tools()); got != tools || tools == 0 {
		t.Errorf("%d tools, %d before", got, tools)
	}
	first.Close()
	second.Close()
	if st := awaitState(t, h, "srv", config.Connected); st.Restarts != 0 {
		t.Errorf("%d restarts", st.Restarts)
	}
	if say(t, session(t, h, sampler()), "srv.pid", "") != pid {
		t.Error("the process did not outlive the sessions")
	}
	select {
	case <-theirs.Gone():
		t.Error("the process is gone")
	default:
	}
}

// Two kinds of agents have two processes as long as both are there.
func TestTwoKindsOfAgentsHaveTwoProcesses(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	h := withServers(t, map[string]config.Server{"srv": scripted(lines.Arg("srv"))}, nil)
	awaitState(t, h, "srv", config.Connected)
	lines.Next("srv")
	a, b := session(t, h, sampler()), session(t, h, rooted())
	first := say(t, a, "srv.pid", "")
	firstLine := lines.Next("srv")
	second := say(t, b, "srv.pid", "")
	secondLine := lines.Next("srv")
	if first == second {
		t.Fatal("agents that can do different things share a process")
	}
	if say(t, a, "srv.pid", "") != first || say(t, b, "srv.pid", "") != second {
		t.Error("a process was replaced though it was needed")
	}
	a.Close()
	firstLine.WaitGone(t)
	if st := awaitState(t, h, "srv", config.Connected); !st.InForce || say(t, b, "srv.pid", "") != second {
		t.Error("the remaining agent lost its process")
	}
	b.Close()
	again := session(t, h, sampler())
	if say(t, again, "srv.pid", "") == second {
		t.Error("another kind of agent got the process of the last one")
	}
	secondLine.WaitGone(t)
}

// A server that nobody has called yet is connected for the agent that is there,
// not for the host first.
func TestAgentBeforeTheServer(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	h := withServers(t, map[string]config.Server{"srv": scripted(lines.Arg("srv"))}, func(o *patchbay.Options) { o.Lazy = true })
	s := session(t, h, sampler())
	if err := h.Connect(t.Context(), "srv"); err != nil {
		t.Fatal(err)
	}
	only := lines.Next("srv")
	say(t, s, "srv.pid", "")
	if err := h.Apply(t.Context(), map[string]config.Server{"late": scripted()}); err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), "late"); err != nil {
		t.Fatal(err)
	}
	say(t, s, "late.pid", "")
	if st, err := h.Server("late"); err != nil || st.Restarts != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	select {
	case <-only.Gone():
		t.Error("the first process was replaced")
	default:
	}
}

// While agents of two kinds come, call and go, no call is lost: each is answered
// by a process that was there for it.
func TestNoCallIsLostInATakeover(t *testing.T) {
	leavesNothing(t)
	h := withServers(t, map[string]config.Server{"srv": scripted()}, nil)
	awaitState(t, h, "srv", config.Connected)
	var agents sync.WaitGroup
	for i := range 4 {
		agents.Go(func() {
			options := sampler()
			if i%2 == 1 {
				options = rooted()
			}
			for range 5 {
				s, err := h.NewSession(options)
				if err != nil {
					t.Error(err)
					return
				}
				var calls sync.WaitGroup
				for range 4 {
					calls.Go(func() {
						r, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.echo", Arguments: json.RawMessage(`{"text":"here"}`)})
						if err != nil {
							t.Error(err)
						} else if m, err := r.ForModel(); err != nil || m.Text != "here" {
							t.Errorf("%q, %v", m.Text, err)
						}
					})
				}
				calls.Wait()
				s.Close()
			}
		})
	}
	agents.Wait()
	if n := len(anyone(t, h).Tools()); n == 0 {
		t.Error("no tools are left")
	}
}

// A call that is under way when its session is closed and another kind of agent
// takes the server over is answered all the same.
func TestCallOutlivesATakeover(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	h := withServers(t, map[string]config.Server{"srv": scripted(lines.Arg("srv"))}, nil)
	awaitState(t, h, "srv", config.Connected)
	hosts := lines.Next("srv")
	s := anyone(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := inFlight(ctx, t, s, "srv")
	s.Close()
	other := session(t, h, sampler())
	say(t, other, "srv.pid", "") // while the call of the first is under way
	select {
	case <-hosts.Gone():
		t.Fatal("the call's process was ended")
	case err := <-call:
		t.Fatalf("the call ended: %v", err)
	default:
	}
	cancel()
	<-call
	hosts.WaitGone(t)
}

// eliciting is what agents can do who answer a server's questions.
func eliciting(answer string) patchbay.SessionOptions {
	return patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		Elicit: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"action":"` + answer + `"}`), nil
		},
	}}
}

// Each session has its own process of a server that is not to be shared, from its
// first call to its end.
func TestServerThatIsNotShared(t *testing.T) {
	leavesNothing(t)
	lines := mcptest.NewLifelines(t)
	server := scripted(lines.Arg("srv"))
	server.Shared = config.SharedNever
	h := withServers(t, map[string]config.Server{"srv": server}, nil)
	awaitState(t, h, "srv", config.Connected)
	hosts := lines.Next("srv")
	a, b := anyone(t, h), anyone(t, h)
	first := say(t, a, "srv.pid", "")
	hosts.WaitGone(t) // nobody uses it
	ofA := lines.Next("srv")
	second := say(t, b, "srv.pid", "")
	ofB := lines.Next("srv")
	if first == second || say(t, a, "srv.pid", "") != first {
		t.Errorf("processes %s and %s", first, second)
	}
	tools := len(b.Tools())
	a.Close()
	ofA.WaitGone(t)
	if say(t, b, "srv.pid", "") != second {
		t.Error("a session lost its process to the end of another")
	}
	b.Close()
	ofB.WaitGone(t)
	c := anyone(t, h)
	if n := len(c.Tools()); n != tools || n == 0 {
		t.Errorf("%d tools, %d before", n, tools)
	}
	if third := say(t, c, "srv.pid", ""); third == first || third == second {
		t.Error("a session got the process of an earlier one")
	}
}

// A server that asks without saying whom, while several agents have calls under
// way, gets no answer. From then on each agent has a process of its own, and is
// asked what it is asked.
func TestServerThatAsksAnybody(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.Lazy = false
	c.declare(map[string]config.Server{"srv": everywhere("-discover=unknown")})
	h := c.open()
	awaitState(t, h, "srv", config.Connected)
	next := c.beside(h, "other", nil)
	a, b := session(t, h, eliciting("accept")), session(t, next, eliciting("decline"))
	shared := say(t, a, "srv.pid", "")
	if say(t, b, "srv.pid", "") != shared || say(t, b, "srv.ask", `{"count":1}`) != "decline" {
		t.Fatal("the agents do not share a process")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	busy := inFlight(ctx, t, a, "srv")
	if got := say(t, b, "srv.ask", `{"count":1}`); got != "cancel" {
		t.Errorf("the answer is %q", got)
	}
	for _, h := range []*patchbay.Host{h, next} {
		st, err := h.Server("srv")
		if err != nil || len(st.Problems) != 1 || st.Problems[0].Severity != config.SeverityWarning {
			t.Errorf("%+v, %v", st.Problems, err)
		}
	}
	first, second := say(t, a, "srv.pid", ""), say(t, b, "srv.pid", "")
	if first == shared || second == shared || first == second {
		t.Errorf("processes %s and %s after %s", first, second, shared)
	}
	own := inFlight(ctx, t, a, "srv")
	if got := say(t, b, "srv.ask", `{"count":1}`); got != "decline" {
		t.Errorf("the answer is %q", got)
	}
	select {
	case err := <-busy:
		t.Errorf("the call of the shared process ended: %v", err)
	default:
	}
	cancel()
	<-busy
	<-own
}
