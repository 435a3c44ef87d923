package control_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// counted are views that only count how many of them there are.
type counted struct {
	opened, closed atomic.Int32
	fails          atomic.Bool
}

func (n *counted) open(_ context.Context, _ control.Caller, beside *patchbay.Host) (*control.View, error) {
	if n.fails.Load() {
		return nil, errors.New("it cannot be opened")
	}
	n.opened.Add(1)
	return &control.View{Close: func() error {
		n.closed.Add(1)
		return nil
	}}, nil
}

func (n *counted) expect(t *testing.T, opened, closed int32) {
	t.Helper()
	if n.opened.Load() != opened || n.closed.Load() != closed {
		t.Errorf("%d were opened and %d closed, want %d and %d", n.opened.Load(), n.closed.Load(), opened, closed)
	}
}

// A view is there as long as somebody uses it, and a while longer.
func TestViewsOfNobodyAreClosed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var n counted
		v := control.NewViews(n.open)
		defer v.Close()
		use := func() func() {
			t.Helper()
			_, release, err := v.View(t.Context(), control.Caller{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		first, second := use(), use()
		n.expect(t, 1, 0)
		first()
		first() // once is enough
		time.Sleep(time.Hour)
		synctest.Wait()
		n.expect(t, 1, 0)
		second()
		time.Sleep(9 * time.Minute)
		use()()
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		n.expect(t, 1, 0)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		n.expect(t, 1, 1)
		use()
		n.expect(t, 2, 1)
		v.Close()
		n.expect(t, 2, 2)
		if _, _, err := v.View(t.Context(), control.Caller{Dir: dir}); kindOf(err) != patchbay.KindDenied {
			t.Errorf("after Close: %v", err)
		}
	})
}

// There is a limit to how many can be, and those that nobody uses give way.
func TestViewsAreLimited(t *testing.T) {
	root := t.TempDir()
	dir := func(i int) string {
		t.Helper()
		path := filepath.Join(root, fmt.Sprint(i))
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var n counted
	v := control.NewViews(n.open)
	defer v.Close()
	var release func()
	for i := range 64 {
		var err error
		if _, release, err = v.View(t.Context(), control.Caller{Dir: dir(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := v.View(t.Context(), control.Caller{Dir: dir(64)}); kindOf(err) != patchbay.KindDenied {
		t.Errorf("one too many: %v", err)
	}
	release()
	if _, _, err := v.View(t.Context(), control.Caller{Dir: dir(64)}); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
	v.Close()
	n.expect(t, 65, 65)
}

// Many who come at once share one, and what cannot be opened is tried again.
func TestViewsAreOpenedOnce(t *testing.T) {
	dir := t.TempDir()
	var n counted
	n.fails.Store(true)
	v := control.NewViews(n.open)
	defer v.Close()
	if _, _, err := v.View(t.Context(), control.Caller{Dir: dir}); err == nil {
		t.Error("a view that cannot be opened was opened")
	}
	n.fails.Store(false)
	var work sync.WaitGroup
	for range 50 {
		work.Go(func() {
			_, release, err := v.View(t.Context(), control.Caller{Dir: dir})
			if err != nil {
				t.Error(err)
				return
			}
			release()
		})
	}
	work.Wait()
	n.expect(t, 1, 0)
}
