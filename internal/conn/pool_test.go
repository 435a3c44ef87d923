package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

// held is a server as a session reaches it that was just opened.
func held(t *testing.T, m *Manager, p Profile) *Server {
	t.Helper()
	m.Hold(p)
	s, ok := m.Server("srv", p)
	if !ok {
		t.Fatal("no server")
	}
	return s
}

func rich(session string) Profile {
	return Profile{Key: "rich", Kind: "rich", Capabilities: []byte(`{"sampling":{}}`), Session: session}
}

func plain(session string) Profile { return Profile{Session: session} }

// A session that declares something else takes the server over, and the host
// goes on with what is there. What the server offers is known all the time.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		f.set(func() {
			f.init = func(context.Context) error {
				if c := s.Catalog(); c == nil || c.tool("echo") == nil || !c.Cached {
					t.Errorf("during the takeover the catalog is %+v", c)
				}
				return nil
			}
		})
		first, second := held(t, m, rich("1")), held(t, m, rich("2"))
		if f.started() != 1 {
			t.Errorf("%d starts before a call", f.started())
		}
		mustCall(t, first)
		mustCall(t, second)
		mustCall(t, s)
		synctest.Wait()
		wantState(t, s, config.Connected, "")
		if f.started() != 2 {
			t.Errorf("%d starts for one kind of session", f.started())
		}
		m.Release(rich("1"))
		mustCall(t, second)
		m.Release(rich("2"))
		mustCall(t, s)
		time.Sleep(time.Hour)
		if wantState(t, s, config.Connected, ""); f.started() != 2 {
			t.Errorf("%d starts after the sessions are gone", f.started())
		}
		if e := callError(t, call(t.Context(), first)); e.Kind != KindDenied {
			t.Errorf("a closed session: %+v", e)
		}
		mustCall(t, held(t, m, plain("3")))
		if f.started() != 3 {
			t.Errorf("%d starts after a session of another kind", f.started())
		}
	})
}

// Two kinds of sessions have two connections. The additional one ends when it is
// idle, and with the sessions that need it.
func TestTwoKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		p, r := held(t, m, plain("1")), held(t, m, rich("2"))
		mustCall(t, p)
		mustCall(t, r)
		if f.started() != 2 {
			t.Errorf("%d starts", f.started())
		}
		time.Sleep(profileIdle)
		synctest.Wait()
		wantState(t, s, config.Connected, "")
		wantState(t, r, config.Pending, "without a call")
		mustCall(t, r)
		m.Release(plain("1"))
		synctest.Wait()
		if l, _ := m.present("srv", Profile{}); l.key.profile != "rich" || f.started() != 3 {
			t.Errorf("%+v stands for the server, after %d starts", l.key, f.started())
		}
		wantState(t, s, config.Connected, "")
		mustCall(t, r)
		if f.started() != 3 {
			t.Errorf("%d starts", f.started())
		}
	})
}

// A takeover may fail like any other start. What the server offered is not
// forgotten for that, and the next call tries again.
func TestFailureDuringATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		f.set(func() { f.refuse = errors.New("not now") })
		r := held(t, m, rich("1"))
		if e := callError(t, call(t.Context(), r)); e.Kind != KindTransport {
			t.Errorf("%+v", e)
		}
		wantState(t, s, config.Failed, "not now")
		if c := s.Catalog(); c == nil || c.tool("echo") == nil {
			t.Errorf("%+v", c)
		}
		f.set(func() { f.refuse = nil })
		mustCall(t, r)
		mustWait(t, s)
	})
}

// What a session has subscribed to follows it to the next connection of the
// server, and ends with nobody wanting it.
func TestSubscriptionsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		one(t, m, local(f))
		a, b := held(t, m, rich("1")), held(t, m, rich("2"))
		for _, s := range []*Server{a, b} {
			if err := s.Subscribe(t.Context(), "x:y"); err != nil {
				t.Fatal(err)
			}
		}
		m.SetLevel(t.Context(), rich("1"), "", "info")
		synctest.Wait()
		subscribed, levels := f.count("resources/subscribe"), f.count("logging/setLevel")
		changed := local(f)
		changed.ConnectHash = "2"
		mustWait(t, one(t, m, changed))
		if n := f.count("resources/subscribe"); n != subscribed+1 || f.count("logging/setLevel") != levels+1 {
			t.Errorf("%d subscriptions and %d levels on the new connection", n-subscribed, f.count("logging/setLevel")-levels)
		}
		for i, s := range []*Server{a, b} {
			if err := s.Unsubscribe(t.Context(), "x:y"); err != nil || f.count("resources/unsubscribe") != i {
				t.Errorf("%v, unsubscribed %d times", err, f.count("resources/unsubscribe"))
			}
		}
	})
}

// An entry may be made unshared and shared again while sessions are there.
func TestUnshared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		shared, unshared := local(f), local(f)
		unshared.Unshared = true
		s := one(t, m, shared)
		a, b := held(t, m, plain("1")), held(t, m, plain("2"))
		for i, step := range []struct {
			target Target
			starts int
		}{{shared, 1}, {unshared, 3}, {shared, 4}, {unshared, 6}} {
			m.Apply(map[string]Target{"srv": step.target})
			mustCall(t, a)
			mustCall(t, b)
			mustCall(t, a)
			mustCall(t, s)
			if f.started() != step.starts {
				t.Errorf("step %d: %d starts, want %d", i, f.started(), step.starts)
			}
		}
		m.Release(plain("1"))
		m.Release(plain("2"))
		synctest.Wait()
		wantState(t, s, config.Pending, "")
		m.pool.mu.Lock()
		defer m.pool.mu.Unlock()
		for _, up := range m.pool.upstreams {
			if len(up.lines) != 1 {
				t.Errorf("%d lines, of sessions that are gone", len(up.lines))
			}
		}
	})
}

// Managers beside each other share a connection whatever they call the server,
// unless one of them has two servers that are the same: then so have the others.
func TestBeside(t *testing.T) {
	r := newRemote(t)
	m := newManager(t, Options{})
	one(t, m, r.target())
	next, err := m.Beside(Options{Capabilities: []byte(`{"sampling":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	initialized := func(want int) {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := r.requests["initialize"]; n != want {
			t.Errorf("connected %d times, want %d", n, want)
		}
	}
	server := func(m *Manager, name string, p Profile) *Server {
		t.Helper()
		s, ok := m.Server(name, p)
		if !ok {
			t.Fatalf("no server %s", name)
		}
		mustCall(t, s)
		return s
	}
	s := server(m, "srv", Profile{})
	next.Apply(map[string]Target{"mine": r.target(), "other": r.target()})
	server(next, "mine", Profile{})
	server(next, "other", Profile{})
	initialized(2)
	m.Apply(map[string]Target{"srv": r.target(), "too": r.target()})
	server(m, "too", Profile{})
	initialized(2)

	// The same key means what each declares itself.
	m.Hold(plain("1"))
	next.Hold(plain("2"))
	for range 2 {
		server(m, "srv", plain("1"))
		server(next, "mine", plain("2"))
	}
	initialized(3)
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	mustCall(t, s)
	initialized(3)
	if _, err := next.Beside(Options{}); err == nil {
		t.Error("beside a manager that is closed")
	}
}

// A session may come to declare something else: a server that was not connected
// yet is connected for that, and what the session has asked for goes with it.
func TestSessionDeclaresSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		target := local(f)
		target.Lazy = true
		s := one(t, m, target)
		other := Profile{Key: "other", Session: "1"}
		move := func(was, is Profile) {
			m.Hold(is)
			m.Release(was)
		}
		m.Hold(plain("1"))
		move(plain("1"), rich("1"))
		mustCall(t, s)
		r, _ := m.Server("srv", rich("1"))
		if err := r.Subscribe(t.Context(), "x:y"); err != nil || f.started() != 1 {
			t.Errorf("%v, %d starts", err, f.started())
		}
		move(rich("1"), other)
		o, _ := m.Server("srv", other)
		mustCall(t, o)
		mustWait(t, s)
		if f.started() != 2 || f.count("resources/subscribe") != 2 {
			t.Errorf("%d starts, %v", f.started(), f.requests)
		}
		if err := o.Unsubscribe(t.Context(), "x:y"); err != nil || f.count("resources/unsubscribe") != 1 {
			t.Errorf("%v, %v", err, f.requests)
		}
	})
}

// The host reconnects a server for all that use it.
func TestReconnectIsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		p, r := held(t, m, plain("1")), held(t, m, rich("2"))
		mustCall(t, p)
		mustCall(t, r)
		if err := s.Reconnect(t.Context()); err != nil || f.started() != 3 {
			t.Errorf("%v, %d starts", err, f.started())
		}
		mustCall(t, p)
		mustCall(t, r)
		if f.started() != 4 {
			t.Errorf("%d starts", f.started())
		}
	})
}

// Whatever sessions and managers do at the same time, as long as the server is
// the same no call is lost, and the end of the last manager is that of all.
func TestManyHands(t *testing.T) {
	r := newRemote(t)
	first := newManager(t, Options{})
	managers := []*Manager{first}
	for range 2 {
		m, err := first.Beside(Options{Capabilities: []byte(`{"roots":{}}`)})
		if err != nil {
			t.Fatal(err)
		}
		managers = append(managers, m)
	}
	unshared := r.target()
	unshared.Unshared = true
	var hands sync.WaitGroup
	for i, m := range managers {
		one(t, m, r.target())
		for j := range 3 {
			hands.Go(func() {
				for k := range 15 {
					p := plain(fmt.Sprint(i, j, k))
					if (j+k)%2 == 0 {
						p = rich(p.Session)
					}
					m.Hold(p)
					s, _ := m.Server("srv", p)
					if err := call(t.Context(), s); err != nil {
						t.Error(err)
					}
					if j == 0 { // only one at a time changes what a manager wants
						m.Apply(map[string]Target{"srv": []Target{r.target(), unshared}[k%2]})
					}
					if i == 2 && k == 10 {
						if l, _ := m.present("srv", p); l != nil {
							l.shared.Split("it asked anybody")
						}
					}
					if err := call(t.Context(), s); err != nil {
						t.Error(err)
					}
					m.Release(p)
				}
			})
		}
	}
	hands.Wait()
	for _, m := range managers {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	p := first.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.upstreams)+len(p.managers) != 0 {
		t.Errorf("left over: %v, %v", p.upstreams, p.managers)
	}
}

// The log level that a kind of session asked for is forgotten with the last of
// them: a gateway sees many.
func TestLevelsAreForgotten(t *testing.T) {
	m := newManager(t, Options{})
	for _, p := range []Profile{rich("1"), rich("2")} {
		m.Hold(p)
		m.SetLevel(t.Context(), p, "", "info")
	}
	m.Release(rich("1"))
	if len(m.levels) == 0 {
		t.Error("the level of a session that is there is forgotten")
	}
	m.Release(rich("2"))
	if len(m.levels) != 0 {
		t.Errorf("%v is kept for nobody", m.levels)
	}
}
