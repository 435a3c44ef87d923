package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// silent never answers a call.
func silent(ctx context.Context, _ *wire.Request) (json.RawMessage, error) { return nil, forever(ctx) }

// A call has the limits it comes with, and no others. The server is told when one
// is exceeded, and stays.
func TestTimeLimits(t *testing.T) {
	for _, test := range []struct {
		name   string
		method string
		entry  *int64 // timeout of the entry, which is for those to heed who make calls
		call   wire.Call
		after  time.Duration // 0 means no limit
	}{
		{"a call", "tools/call", nil, wire.Call{}, 0},
		{"a list", "tools/list", nil, wire.Call{}, 0},
		{"what we do not know", "x/y", new(int64(5000)), wire.Call{}, 0},
		{"silence", "tools/call", new(int64(5000)), wire.Call{Timeout: second}, second},
		{"a list that takes long", "tools/list", nil, wire.Call{MaxTimeout: time.Hour}, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			target := local(f)
			target.Entry.Server.Timeout = test.entry
			m := newManager(t, Options{})
			s := one(t, m, target)
			if limit, said := s.Timeout(); said != (test.entry != nil) || said && limit != 5*second {
				t.Errorf("%s: the entry says %v, %v", test.name, limit, said)
			}
			mustWait(t, s)
			f.set(func() {
				f.call = silent
				f.list = func(ctx context.Context, _ string) (string, error) { return "", forever(ctx) }
				f.other = forever
			})
			ctx, stop := context.WithTimeout(t.Context(), 48*time.Hour)
			defer stop()
			begin := time.Now()
			test.call.Method = test.method
			_, err := s.Call(ctx, test.call)
			if test.after == 0 {
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 48*time.Hour {
					t.Errorf("%s: %v after %v", test.name, err, time.Since(begin))
				}
				return
			}
			synctest.Wait()
			e := callError(t, err)
			if e.Kind != KindTimeout || time.Since(begin) != test.after || !errors.Is(e, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v", test.name, e, time.Since(begin))
			}
			if e.RetrySafe != wire.SafeToRepeat(test.method) || f.count("cancelled") != 1 {
				t.Errorf("%s: safe %v, %d cancellations", test.name, e.RetrySafe, f.count("cancelled"))
			}
			wantState(t, s, config.Connected, "")
		})
	}
}

// A server that waits for a person is not silent.
func TestCallThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{call: func(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
			return r.Link.Call(ctx, wire.Call{Method: "elicitation/create"})
		}}
		h := &handler{thinks: 5 * time.Minute}
		m := newManager(t, Options{Handler: func(*Shared) wire.Handler { return h }})
		s := one(t, m, local(f))
		mustCall(t, s)
	})
}

// Three calls in a row without an answer make a server show that it lives. If
// it does, it stays; if not, it is started again. It makes no difference whether
// a limit ends them or their callers do.
func TestUnresponsive(t *testing.T) {
	for name, giveUp := range map[string]func(*testing.T, *Server){
		"limit": func(t *testing.T, s *Server) {
			_, err := s.Call(t.Context(), wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"echo"}`), Timeout: 30 * second})
			callError(t, err)
		},
		"caller": func(t *testing.T, s *Server) {
			ctx, stop := context.WithTimeout(t.Context(), 30*second)
			defer stop()
			if err := call(ctx, s); err != context.DeadlineExceeded {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { testUnresponsive(t, giveUp) })
	}
}

func testUnresponsive(t *testing.T, giveUp func(*testing.T, *Server)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{call: silent}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		for round := range 2 {
			for i := range 3 {
				if f.count("ping") != round {
					t.Fatalf("pinged %d times after %d calls", f.count("ping"), i)
				}
				giveUp(t, s)
				synctest.Wait()
			}
		}
		if f.count("ping") != 2 || f.started() != 1 {
			t.Fatalf("%d pings, %d starts", f.count("ping"), f.started())
		}
		// An answer begins the count anew.
		giveUp(t, s)
		giveUp(t, s)
		f.set(func() { f.call = nil })
		mustCall(t, s)
		f.set(func() { f.call, f.pings = silent, forever })
		giveUp(t, s)
		synctest.Wait()
		if f.count("ping") != 2 {
			t.Errorf("%d pings", f.count("ping"))
		}
		giveUp(t, s)
		giveUp(t, s)
		synctest.Wait()
		if f.count("ping") != 3 || f.started() != 1 {
			t.Errorf("%d pings, %d starts", f.count("ping"), f.started())
		}
		time.Sleep(pingPatience)
		synctest.Wait()
		wantState(t, s, config.Failed, "no answer to a ping within 10s")
		f.set(func() { f.call, f.pings = nil, nil })
		mustCall(t, s)
		if f.started() != 2 {
			t.Errorf("%d starts", f.started())
		}
	})
}

// One who gives up early says nothing about the server, nor does one who gives up
// while others wait: it may be at work for them.
func TestBusyIsNotUnresponsive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{call: silent, pings: forever}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		giveUp := func(after time.Duration) {
			for range 2 * maxTimeouts {
				ctx, stop := context.WithTimeout(t.Context(), after)
				_ = call(ctx, s)
				stop()
			}
		}
		giveUp(29 * second)
		long, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- call(long, s) }()
		giveUp(time.Minute)
		end()
		if err := <-ended; err != context.Canceled || f.count("ping") != 0 || f.started() != 1 {
			t.Errorf("%v, %d pings, %d starts", err, f.count("ping"), f.started())
		}
	})
}

// Who calls when the server dies is told so, and whether to try again.
func TestCrashDuringCall(t *testing.T) {
	for _, test := range []struct {
		tool string
		safe bool
	}{
		{`{"name":"echo"}`, false},
		{`{"name":"echo","annotations":{"readOnlyHint":true}}`, true},
		{`{"name":"echo","annotations":{"idempotentHint":true}}`, true},
		{`{"name":"echo","annotations":{"readOnlyHint":false,"idempotentHint":null}}`, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{list: func(context.Context, string) (string, error) { return `{"tools":[` + test.tool + `]}`, nil }}
			f.call = func(ctx context.Context, _ *wire.Request) (json.RawMessage, error) {
				f.die()
				return nil, forever(ctx)
			}
			m := newManager(t, Options{})
			s := one(t, m, local(f))
			mustWait(t, s)
			begin := time.Now()
			err := call(t.Context(), s)
			e := callError(t, err)
			if e.Kind != KindTransport || e.RetrySafe != test.safe || e.Method != "tools/call" || f.count("tools/call") != 1 || time.Since(begin) != 0 {
				t.Errorf("%+v after %v", e, time.Since(begin))
			}
			said := "the call may have taken effect"
			if test.safe {
				said = "it is safe to try again"
			}
			if !strings.Contains(err.Error(), said) || !strings.Contains(err.Error(), `server "srv"`) {
				t.Error(err)
			}
		})
	}
}

// A read that dies is made once more, on a new connection; not twice.
func TestReadsAreRetried(t *testing.T) {
	for _, deaths := range []int64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			m := newManager(t, Options{})
			s := one(t, m, local(f))
			mustWait(t, s)
			var died atomic.Int64
			f.set(func() {
				f.read = func(ctx context.Context) (string, error) {
					if died.Add(1) <= deaths {
						f.die()
						return "", forever(ctx)
					}
					return `{"contents":[]}`, nil
				}
			})
			result, err := s.Call(t.Context(), wire.Call{Method: "resources/read", Params: json.RawMessage(`{"uri":"x:y"}`)})
			if deaths == 1 {
				if err != nil || string(result) != `{"contents":[]}` {
					t.Errorf("%s, %v", result, err)
				}
				return
			}
			if e := callError(t, err); !e.RetrySafe || e.Kind != KindTransport || f.count("resources/read") != 2 {
				t.Errorf("%+v, read %d times", e, f.count("resources/read"))
			}
		})
	}
}

func TestAnswerThatIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{call: func(context.Context, *wire.Request) (json.RawMessage, error) {
			return nil, &wire.Error{Code: -32042, Message: "go there", Data: json.RawMessage(`{"url":"x"}`)}
		}}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		err := call(t.Context(), s)
		if e, ok := err.(*wire.Error); !ok || e.Code != -32042 || string(e.Data) != `{"url":"x"}` {
			t.Errorf("%T %v", err, err)
		}
	})
}

func TestCancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{call: silent}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		why := errors.New("no longer needed")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(second, func() { cancel(why) })
		if err := call(ctx, s); err != why {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if f.count("cancelled") != 1 {
			t.Error("the server was not told")
		}
		wantState(t, s, config.Connected, "")
	})
}

func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		if err := s.Notify(t.Context(), "notifications/roots/list_changed", nil); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if f.count("notifications/roots/list_changed") != 1 {
			t.Error("the server was not told")
		}
	})
}

func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		s := one(t, m, local(&fake{}))
		c, err := s.Client(t.Context())
		if err != nil || c.Opening().Version != "2025-11-25" {
			t.Fatalf("%v", err)
		}
		broken := one(t, newManager(t, Options{}), local(&fake{refuse: errors.New("no")}))
		if _, err := broken.Client(t.Context()); callError(t, err).Kind != KindTransport {
			t.Error(err)
		}
	})
}

// What servers send by themselves reaches the handler of the options.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{}
		f := &fake{}
		m := newManager(t, Options{Handler: func(*Shared) wire.Handler { return h }})
		s := one(t, m, local(f))
		mustWait(t, s)
		f.say(t, "notifications/message")
		synctest.Wait()
		if len(h.heard) != 1 || h.heard[0] != "notifications/message" {
			t.Errorf("heard %v", h.heard)
		}
		result, err := f.peer.Call(t.Context(), wire.Call{Method: "roots/list"})
		if err != nil || string(result) != `{"roots":[]}` {
			t.Errorf("%s, %v", result, err)
		}
	})
}

type handler struct {
	thinks time.Duration
	heard  []string
}

func (h *handler) HandleRequest(ctx context.Context, _ *wire.Request) (json.RawMessage, error) {
	sleep(ctx, h.thinks)
	return json.RawMessage(`{"roots":[]}`), nil
}

func (h *handler) HandleNotification(_ context.Context, n *wire.Notification) {
	h.heard = append(h.heard, n.Method)
}

// A call that depends on the lists is made once those of its own connection are
// in, and not at all if they are not acceptable: a server that was started anew
// may offer something else.
func TestCallListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := one(t, newManager(t, Options{}), local(f))
		refused := errors.New("refused")
		accept := func(c *Catalog) error {
			if strings.Contains(string(c.Tools[0]), "changed") {
				return refused
			}
			return nil
		}
		listed := func() error {
			_, err := s.CallListed(t.Context(), wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"echo"}`)}, accept)
			return err
		}
		if err := listed(); err != nil {
			t.Fatal(err)
		}
		f.set(func() {
			f.list = func(ctx context.Context, _ string) (string, error) {
				sleep(ctx, second) // the connection is there before its lists
				return `{"tools":[{"name":"echo","description":"changed"}]}`, nil
			}
		})
		f.die()
		synctest.Wait()
		if err := listed(); err != refused {
			t.Errorf("%v, want it refused", err)
		}
		if n := f.count("tools/call"); n != 1 {
			t.Errorf("%d calls reached the server, want 1", n)
		}
	})
}

// Between the news that the tools have changed and the new list nobody knows
// what a call would be of, so it waits, however many lists there were lately.
func TestCallListedWaitsForChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := one(t, newManager(t, Options{}), local(f))
		mustWait(t, s)
		version := 1
		f.set(func() {
			f.list = func(ctx context.Context, _ string) (string, error) {
				sleep(ctx, second)
				f.mu.Lock()
				defer f.mu.Unlock()
				return fmt.Sprintf(`{"tools":[{"name":"v%d"}]}`, version), nil
			}
		})
		call := func(ctx context.Context) (seen string, err error) {
			_, err = s.CallListed(ctx, wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"echo"}`)}, func(c *Catalog) error {
				seen, _ = wire.StringMember(c.Tools[0], "name")
				return nil
			})
			return seen, err
		}
		for range 2 * refreshPerWindow {
			f.set(func() { version++ })
			f.say(t, toolsChanged)
			synctest.Wait()
			if seen, err := call(t.Context()); err != nil || seen != fmt.Sprint("v", version) {
				t.Fatalf("called as %s, %v; now it is v%d", seen, err, version)
			}
		}

		// The wait is the caller's, and ends with the connection.
		f.say(t, toolsChanged)
		synctest.Wait()
		impatient, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		if _, err := call(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		starts := f.started()
		time.AfterFunc(time.Millisecond, f.die)
		if _, err := call(t.Context()); err != nil || f.started() != starts+1 {
			t.Errorf("%v after %d starts", err, f.started()-starts)
		}
	})
}
