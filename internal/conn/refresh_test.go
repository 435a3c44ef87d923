package conn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

const toolsChanged = "notifications/tools/list_changed"

// numbered lists one tool whose name says how often the list was read.
func numbered(f *fake) func(context.Context, string) (string, error) {
	n := 0
	return func(context.Context, string) (string, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		n++
		return fmt.Sprintf(`{"tools":[{"name":"t%d"}]}`, n), nil
	}
}

// The first change is fetched at once; of a storm of changes there are two
// fetches a second, and twenty a minute.
func TestListChangedStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.list = numbered(f)
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		f.say(t, toolsChanged)
		synctest.Wait()
		if f.count("tools/list") != 2 || string(s.Catalog().Tools[0]) != `{"name":"t2"}` {
			t.Fatalf("after the first change: %d fetches", f.count("tools/list"))
		}
		begin := time.Now()
		for time.Since(begin) < 5*time.Minute {
			f.say(t, toolsChanged)
			f.say(t, toolsChanged)
			time.Sleep(50 * time.Millisecond)
			elapsed := time.Since(begin)
			most := min(3+int(elapsed/refreshDistance), 2+refreshPerWindow*(1+int(elapsed/refreshWindow)))
			if got := f.count("tools/list"); got > most {
				t.Fatalf("%d fetches after %v", got, elapsed)
			}
		}
		if got := f.count("tools/list"); got < 5*refreshPerWindow {
			t.Errorf("only %d fetches in five minutes", got)
		}
		// What came last counts in the end.
		time.Sleep(2 * time.Minute)
		if got, want := string(s.Catalog().Tools[0]), fmt.Sprintf(`{"name":"t%d"}`, f.count("tools/list")); got != want {
			t.Errorf("%s is not the last: %s", got, want)
		}
	})
}

// A change during a fetch causes one more, however many there are.
func TestListChangedDuringFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		f.set(func() {
			f.list = func(ctx context.Context, _ string) (string, error) {
				sleep(ctx, 10*second)
				return `{"tools":[{"name":"new"}]}`, nil
			}
		})
		f.say(t, toolsChanged)
		time.Sleep(second)
		for range 100 {
			f.say(t, toolsChanged)
		}
		time.Sleep(5 * time.Minute)
		if got := f.count("tools/list"); got != 3 {
			t.Errorf("%d fetches", got)
		}
	})
}

// A list that changes and then cannot be read stays as it was.
func TestRefreshFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newManager(t, Options{})
		s := one(t, m, local(f))
		mustWait(t, s)
		f.set(func() { f.list = func(context.Context, string) (string, error) { return "", errors.New("x") } })
		f.say(t, toolsChanged)
		synctest.Wait()
		wantState(t, s, config.Connected, "tools/list: internal error")
		if c := s.Catalog(); len(c.Tools) != 1 || len(c.Notes) != 1 {
			t.Errorf("%+v", c)
		}
		f.set(func() { f.list = nil })
		f.say(t, toolsChanged)
		time.Sleep(second)
		if st := wantState(t, s, config.Connected, ""); st.Reason != "" || s.Catalog().Notes != nil {
			t.Errorf("%+v", st)
		}
	})
}
