package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestConnectsAndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		s := one(t, m, local(&fake{}))
		mustWait(t, s)
		st := wantState(t, s, config.Connected, "")
		if st.Opening == nil || st.Opening.Version != "2025-11-25" || st.ToolsFromCache || st.Restarts != 0 {
			t.Errorf("status %+v", st)
		}
		if len(st.Steps) != 2 || st.Steps[0].Name != StepConnected || st.Steps[1].Name != StepListed {
			t.Errorf("steps %+v", st.Steps)
		}
		if c := s.Catalog(); c == nil || len(c.Tools) != 1 || c.Cached || c.Instructions != "be kind" {
			t.Errorf("catalog %+v", c)
		}
		mustCall(t, s)
	})
}

// A server that hangs delays nobody else, and no call of Apply.
func TestStartIsParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		want := map[string]Target{"hangs": local(&fake{init: forever}), "dies": local(&fake{refuse: errors.New("no")})}
		for i := range 20 {
			want[fmt.Sprint("good", i)] = local(&fake{})
		}
		begin := time.Now()
		m.Apply(want)
		if took := time.Since(begin); took != 0 {
			t.Errorf("Apply took %v", took)
		}
		synctest.Wait()
		for name, st := range statuses(m) {
			switch {
			case strings.HasPrefix(name, "good") && st.State != config.Connected,
				name == "hangs" && st.State != config.Connecting,
				name == "dies" && st.State != config.Failed:
				t.Errorf("%s is %s", name, st.State)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("connecting took %v", took)
		}
	})
}

// An impatient caller neither cancels the dial nor gets another one; others wait
// for it.
func TestCallWaitsForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{init: func(ctx context.Context) error { sleep(ctx, 5*second); return nil }}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		begin := time.Now()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				if err := call(t.Context(), s); err != nil {
					t.Error(err)
				}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		e := callError(t, call(ctx, s))
		if e.Kind != KindTimeout || !e.RetrySafe || !errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("impatient: %+v", e)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := call(canceled, s); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		callers.Wait()
		if took := time.Since(begin); took != 5*second || f.started() != 1 {
			t.Errorf("%v and %d starts", took, f.started())
		}
	})
}

func TestSlowStart(t *testing.T) {
	for _, test := range []struct {
		takes time.Duration
		limit *int64
		state config.State
	}{
		{29 * second, nil, config.Connected},
		{31 * second, nil, config.Failed},
		{3 * second, new(int64(2000)), config.Failed},
		{time.Hour, new(int64(0)), config.Connected},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{init: func(ctx context.Context) error { sleep(ctx, test.takes); return nil }}
			target := local(f)
			target.Entry.Server.ConnectTimeout = test.limit
			m := newManager(t, Options{})
			s := one(t, m, target)
			err := s.Wait(t.Context())
			st := wantState(t, s, test.state, "")
			if test.state == config.Connected {
				return
			}
			limit := connectLimit
			if test.limit != nil {
				limit = time.Duration(*test.limit) * time.Millisecond
			}
			want := fmt.Sprintf(`Connection to MCP server "srv" timed out after %dms`, limit.Milliseconds())
			if e := callError(t, err); e.Kind != KindTimeout || st.Reason != want || e.Err.Error() != want {
				t.Errorf("%+v, status %+v", e, st)
			}
		})
	}
}

func TestCrashedServerIsBackForTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		begin := time.Now()
		for range 3 {
			f.die()
			synctest.Wait()
			st := wantState(t, s, config.Failed, "the server ended: gone")
			if st.NextRetry.IsZero() || !st.ToolsFromCache || st.Opening != nil {
				t.Errorf("%+v", st)
			}
			mustCall(t, s)
			mustWait(t, s)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("calls took %v", took)
		}
		if st := wantState(t, s, config.Connected, ""); st.Restarts != 3 || f.started() != 4 {
			t.Errorf("%d restarts, %d starts", st.Restarts, f.started())
		}
	})
}

func TestCrashedServerIsBackByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		time.Sleep(time.Minute)
		f.die()
		synctest.Wait()
		if st := wantState(t, s, config.Failed, ""); st.Attempt != 1 || time.Until(st.NextRetry) > second {
			t.Errorf("%+v", st)
		}
		time.Sleep(second)
		synctest.Wait()
		wantState(t, s, config.Connected, "")
	})
}

// A server that cannot be connected is tried six times in all, further and
// further apart. After that only calls make it try, and not all of them.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{refuse: errors.New("no")}
		m := newManager(t, Options{})
		var starts []time.Duration
		begin := time.Now()
		target := local(f)
		target.Local = func(ctx context.Context, rw io.ReadWriteCloser) error {
			f.set(func() { starts = append(starts, time.Since(begin)) })
			return f.serve(ctx, rw)
		}
		s := one(t, m, target)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(starts) != 1+maxTries {
			t.Fatalf("starts %v", starts)
		}
		for i, delay := 1, firstDelay; i < len(starts); i, delay = i+1, 2*delay {
			if gap := starts[i] - starts[i-1]; gap < delay*8/10 || gap > delay*12/10 {
				t.Errorf("start %d came %v after the one before", i, gap)
			}
		}
		st := wantState(t, s, config.Failed, "the server ended: no")
		if !st.NextRetry.IsZero() || st.Attempt != 1+maxTries {
			t.Errorf("%+v", st)
		}

		called := time.Now()
		for range 3 {
			if e := callError(t, call(t.Context(), s)); e.Kind != KindTransport || !e.RetrySafe {
				t.Errorf("%+v", e)
			}
		}
		if len(starts) != 1+maxTries+3 || time.Since(called) != 2*brakeDistance {
			t.Errorf("starts %v, calls took %v", starts, time.Since(called))
		}
		f.set(func() { f.refuse = nil })
		if err := s.Reconnect(t.Context()); err != nil || time.Since(called) != 2*brakeDistance {
			t.Errorf("reconnect: %v after %v", err, time.Since(called))
		}
	})
}

// A server of which nobody knows what it offers is tried on, minutes apart, as
// long as a session is open: nobody else could have it tried.
func TestUnknownServerIsTriedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{refuse: errors.New("no")}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		time.Sleep(time.Hour)
		synctest.Wait()
		if f.started() != 1+maxTries {
			t.Errorf("%d starts without a session", f.started())
		}
		p := Profile{Key: "{}", Session: "1"}
		m.Hold(p)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := f.started() - 1 - maxTries; n < 12 || n > 20 {
			t.Errorf("%d starts in an hour with a session", n)
		}
		f.set(func() { f.refuse = nil })
		time.Sleep(slowestDelay)
		synctest.Wait()
		wantState(t, s, config.Connected, "")

		// Now it is known what it offers, and a call is reason enough.
		f.set(func() { f.refuse = errors.New("no") })
		f.die()
		before := f.started()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := f.started() - before; n != maxTries {
			t.Errorf("%d starts of a server that is known", n)
		}
		m.Release(p)
	})
}

// A server that connects and dies is given up like one that does not connect.
func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.list = func(context.Context, string) (string, error) {
			time.AfterFunc(second, f.die)
			return `{"tools":[]}`, nil
		}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		time.Sleep(time.Hour)
		if f.started() != 1+maxTries {
			t.Errorf("%d starts", f.started())
		}
		wantState(t, s, config.Failed, "")
		f.set(func() { f.list = nil })
		mustCall(t, s)
		time.Sleep(steadyAfter)
		f.die()
		time.Sleep(2 * firstDelay)
		synctest.Wait()
		wantState(t, s, config.Connected, "")
	})
}

func TestLazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		target := local(f)
		target.Lazy = true
		m := newManager(t, Options{})
		s := one(t, m, target)
		time.Sleep(time.Hour)
		mustWait(t, s) // which starts nothing
		wantState(t, s, config.Pending, "")
		if err := s.Notify(t.Context(), "notifications/roots/list_changed", nil); err != nil || f.started() != 0 {
			t.Errorf("%v, %d starts", err, f.started())
		}
		mustCall(t, s)
		mustWait(t, s)
		wantState(t, s, config.Connected, "")
	})
}

// A server that is connected on the first call is connected once before, to be
// listed, unless its lists are known or it may not be used.
func TestLazyIsListed(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		about  string
		change func(*Target)
		starts int
	}{
		{"one that may not be used", func(target *Target) { target.State = config.NeedsApproval }, 0},
		{"one of which nothing is known", func(*Target) {}, 1},
		{"one whose lists were saved", func(*Target) {}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			target := keyed(f, "key")
			target.Lazy, target.List = true, true
			tt.change(&target)
			m := newManager(t, Options{CacheDir: dir})
			s := one(t, m, target)
			_ = s.Wait(t.Context()) // the first says why it is not there
			time.Sleep(time.Hour)
			if f.started() != tt.starts || f.running() {
				t.Errorf("%s: %d starts, running %v", tt.about, f.started(), f.running())
			}
			if target.off() {
				return
			}
			wantState(t, s, config.Pending, "")
			if c := s.Catalog(); c == nil || len(c.Tools) != 1 {
				t.Errorf("%s: listed %+v", tt.about, c)
			}
			mustCall(t, s)
			time.Sleep(time.Hour)
			wantState(t, s, config.Connected, "")
		})
	}
}

// One that is called while it is being listed stays.
func TestLazyIsCalledWhenListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listing := make(chan struct{})
		f := &fake{list: func(context.Context, string) (string, error) {
			<-listing
			return `{"tools":[{"name":"echo","inputSchema":{}}]}`, nil
		}}
		target := local(f)
		target.Lazy, target.List = true, true
		s := one(t, newManager(t, Options{}), target)
		synctest.Wait()
		wantState(t, s, config.Connecting, "")
		mustCall(t, s)
		close(listing)
		time.Sleep(time.Hour)
		wantState(t, s, config.Connected, "")
		if f.started() != 1 {
			t.Errorf("%d starts", f.started())
		}
	})
}

func TestLazyNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := local(&fake{})
		target.Lazy = true
		m := newManager(t, Options{})
		one(t, m, target)
		target.Lazy = false
		s := one(t, m, target)
		synctest.Wait()
		wantState(t, s, config.Connected, "")
	})
}

func TestIdleStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		target := local(f)
		target.IdleStop = time.Minute
		m := newManager(t, Options{})
		s := one(t, m, target)
		mustWait(t, s)
		time.Sleep(time.Minute - 1)
		mustCall(t, s) // begins the minute anew
		time.Sleep(time.Minute - 1)
		wantState(t, s, config.Connected, "")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantState(t, s, config.Pending, "without a call")
		if !s.Status().ToolsFromCache || len(s.Catalog().Tools) != 1 {
			t.Errorf("%+v", s.Catalog())
		}
		time.Sleep(time.Hour)
		if f.started() != 1 {
			t.Errorf("%d starts", f.started())
		}
		mustCall(t, s)
		mustWait(t, s)
		if st := wantState(t, s, config.Connected, ""); st.Attempt != 0 || f.started() != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// As long as a call is under way, a resource subscribed to, or the limit not
// set, a server is not idle.
func TestNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.call = slowly(5 * time.Minute)
		target := local(f)
		target.IdleStop = time.Minute
		target.Entry.Server.Timeout = new(int64(0))
		m := newManager(t, Options{})
		s := one(t, m, target)
		mustCall(t, s)
		wantState(t, s, config.Connected, "")
		if err := s.Subscribe(t.Context(), "x:y"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		wantState(t, s, config.Connected, "")
		if err := s.Unsubscribe(t.Context(), "x:y"); err != nil {
			t.Fatal(err)
		}
		target.IdleStop = 0
		m.Apply(map[string]Target{"srv": target})
		time.Sleep(time.Hour)
		wantState(t, s, config.Connected, "")
		target.IdleStop = 10 * second
		m.Apply(map[string]Target{"srv": target})
		synctest.Wait()
		wantState(t, s, config.Pending, "")
		if f.started() != 1 {
			t.Errorf("%d starts", f.started())
		}
	})
}

// A subscription and the log level survive the connection.
func TestSubscriptionsAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		if err := s.Subscribe(t.Context(), "x:y"); err != nil {
			t.Fatal(err)
		}
		m.SetLevel(t.Context(), Profile{}, "srv", "info")
		f.die()
		time.Sleep(second)
		synctest.Wait()
		wantState(t, s, config.Connected, "")
		if f.count("resources/subscribe") != 2 || f.count("logging/setLevel") != 2 {
			t.Errorf("%v", f.requests)
		}
	})
}

// What is applied again or changed elsewhere disturbs no call under way.
func TestApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, other, third := &fake{call: slowly(20 * second)}, &fake{}, &fake{}
		m := newManager(t, Options{})
		want := map[string]Target{"slow": local(slow), "other": local(other), "third": local(third)}
		m.Apply(want)
		s, _ := m.Server("slow", Profile{})
		answered := make(chan error, 1)
		go func() { answered <- call(t.Context(), s) }()
		synctest.Wait()

		changed := local(other)
		changed.ConnectHash = "2"
		m.Apply(map[string]Target{"slow": local(slow), "other": changed})
		m.Apply(map[string]Target{"slow": local(slow), "other": changed})
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if slow.started() != 1 || other.started() != 2 || third.started() != 1 {
			t.Errorf("starts: %d, %d, %d", slow.started(), other.started(), third.started())
		}
		if _, ok := m.Server("third", Profile{}); ok {
			t.Error("third is still there")
		}

		go func() { answered <- call(t.Context(), s) }()
		synctest.Wait()
		off := local(slow)
		off.State, off.Reason = config.Disabled, "by the user"
		m.Apply(map[string]Target{"slow": off})
		if e := callError(t, <-answered); e.Kind != KindTransport || e.RetrySafe {
			t.Errorf("the call under way: %+v", e)
		}
		wantState(t, s, config.Disabled, "by the user")
		if e := callError(t, call(t.Context(), s)); e.Kind != KindDenied || !strings.Contains(e.Error(), "disabled: by the user") {
			t.Errorf("%+v", e)
		}
		m.Apply(map[string]Target{"slow": local(slow)})
		mustWait(t, s)
		m.Apply(nil)
		if e := callError(t, call(t.Context(), s)); e.Kind != KindDenied || len(statuses(m)) != 0 {
			t.Errorf("%+v", e)
		}
	})
}

// A caller that waits when the target is replaced gets the new server, even if
// that is one which is connected for callers only.
func TestReplacedWhileWaiting(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newManager(t, Options{})
			s := one(t, m, local(&fake{init: forever}))
			answered := make(chan error, 1)
			go func() { answered <- call(t.Context(), s) }()
			synctest.Wait()
			target := local(&fake{})
			target.ConnectHash, target.Lazy = "2", lazy
			one(t, m, target)
			if err := <-answered; err != nil {
				t.Error(err)
			}
		})
	}
}

// However often and fast targets change, what is off is not started, and the
// last one counts.
func TestTargetsChangeFast(t *testing.T) {
	m := newManager(t, Options{})
	f := &fake{}
	on, off := local(f), local(f)
	off.State = config.Disabled
	off.Local = func(context.Context, io.ReadWriteCloser) error {
		t.Error("started though it is off")
		return nil
	}
	var callers sync.WaitGroup
	s := one(t, m, on)
	for range 4 {
		callers.Go(func() {
			for range 300 {
				_ = call(t.Context(), s) // must return
			}
		})
	}
	for i := range 300 {
		on.ConnectHash = fmt.Sprint(i)
		m.Apply(map[string]Target{"srv": off})
		m.Apply(map[string]Target{"srv": on})
	}
	callers.Wait()
	mustCall(t, s)
}

func TestKeptOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for state, kind := range map[config.State]Kind{config.Disabled: KindDenied, config.NeedsApproval: KindDenied, config.Failed: KindConfig} {
			f := &fake{}
			target := local(f)
			target.State, target.Reason = state, "because"
			m := newManager(t, Options{})
			s := one(t, m, target)
			wantState(t, s, state, "because")
			for name, err := range map[string]error{"wait": s.Wait(t.Context()), "call": call(t.Context(), s), "reconnect": s.Reconnect(t.Context())} {
				if e := callError(t, err); e.Kind != kind || !strings.Contains(e.Error(), "because") {
					t.Errorf("%s in %s: %v", name, state, e)
				}
			}
			time.Sleep(time.Hour)
			if f.started() != 0 {
				t.Errorf("%s: %d starts", state, f.started())
			}
		}
	})
}

func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		if err := s.Reconnect(t.Context()); err != nil || f.started() != 2 {
			t.Errorf("%v, %d starts", err, f.started())
		}
		wantState(t, s, config.Connected, "")
		f.set(func() { f.refuse = errors.New("no") })
		if e := callError(t, s.Reconnect(t.Context())); e.Kind != KindTransport {
			t.Errorf("%+v", e)
		}
	})
}

// Whoever looks after each change sees every change, with a growing number.
func TestChangesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager
		var told atomic.Int64
		m = newManager(t, Options{Changed: func() {
			told.Add(1)
			if m != nil {
				statuses(m) // must not block
			}
		}})
		f := &fake{}
		s := one(t, m, local(f))
		var last Status
		for _, step := range []func(){
			func() {}, f.die, func() { time.Sleep(second) }, func() { f.say(t, "notifications/tools/list_changed") },
		} {
			before := told.Load()
			f.set(func() {
				f.list = func(context.Context, string) (string, error) {
					return fmt.Sprintf(`{"tools":[{"name":"t%d"}]}`, told.Load()), nil
				}
			})
			step()
			synctest.Wait()
			if st := s.Status(); st.Seq <= last.Seq || told.Load() == before && last.Seq != 0 {
				t.Errorf("%+v came after %+v, told %d times", st, last, told.Load()-before)
			}
			last = s.Status()
		}
		wantState(t, s, config.Connected, "")
	})
}

// A local server that panics fails alone.
func TestLocalPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		s := one(t, m, Target{Local: func(context.Context, io.ReadWriteCloser) error { panic("ouch") }})
		if e := callError(t, s.Wait(t.Context())); e.Kind != KindTransport || e.Err.Error() != "the server ended: panic: ouch" {
			t.Errorf("%+v", e)
		}
	})
}

// One that returns neither when its stream nor when its context ends is given up.
func TestLocalThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		release := make(chan struct{})
		f := &fake{}
		s := one(t, m, Target{Local: func(ctx context.Context, rw io.ReadWriteCloser) error {
			defer func() { <-release }()
			return f.serve(ctx, rw)
		}})
		mustWait(t, s)
		begun := time.Now()
		m.Close()
		if took := time.Since(begun); took != localPatience {
			t.Errorf("closing took %v", took)
		}
		close(release)
	})
}

func TestCloseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		s := one(t, m, local(&fake{init: forever}))
		synctest.Wait()
		m.Close()
		m.Close()
		m.Apply(map[string]Target{"x": local(&fake{})})
		if _, ok := m.Server("srv", Profile{}); ok {
			t.Error("a closed manager has servers")
		}
		if e := callError(t, call(t.Context(), s)); e.Kind != KindDenied {
			t.Errorf("%+v", e)
		}
	})
}

// A server whose entry is edited is started anew for what comes, while calls under
// way come to their end; those that cannot say why.
func TestEditedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, now := &fake{call: slowly(20 * second)}, &fake{}
		m := NewManager(Options{})
		s := one(t, m, local(old))
		answered := make(chan error, 1)
		go func() { answered <- call(t.Context(), s) }()
		synctest.Wait()
		edited := local(now)
		edited.ConnectHash = "2"
		one(t, m, edited)
		mustCall(t, s)
		if now.started() != 1 || !old.running() {
			t.Errorf("%d starts, the old one runs: %v", now.started(), old.running())
		}
		if err := <-answered; err != nil {
			t.Errorf("the call under way: %v", err)
		}
		synctest.Wait()
		if old.running() {
			t.Error("the old one goes on")
		}

		now.set(func() { now.call = slowly(20 * second) })
		go func() { answered <- call(t.Context(), s) }()
		synctest.Wait()
		one(t, m, local(&fake{}))
		synctest.Wait()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := <-answered; err == nil || !strings.Contains(err.Error(), "its configuration changed") {
			t.Errorf("the call of a server that was edited and ended: %v", err)
		}
	})
}
