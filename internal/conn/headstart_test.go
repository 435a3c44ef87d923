package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

// A server of which a catalog is known lets others go first, but nobody who
// needs it waits for that.
func TestHeadStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := &fake{}
		target := local(f)
		target.CatalogKey = "known"
		m := newManager(t, Options{CacheDir: dir})
		mustWait(t, one(t, m, target))
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		again := func() *Server { return one(t, newManager(t, Options{CacheDir: dir}), target) }

		s := again()
		synctest.Wait()
		wantState(t, s, config.Pending, "")
		if c := s.Catalog(); c == nil || !c.Cached || f.started() != 1 {
			t.Errorf("catalog %+v after %d starts", c, f.started())
		}
		time.Sleep(headStart)
		synctest.Wait()
		wantState(t, s, config.Connected, "")

		for name, need := range map[string]func(*Server) error{
			"call":      func(s *Server) error { return call(t.Context(), s) },
			"wait":      func(s *Server) error { return s.Wait(t.Context()) },
			"client":    func(s *Server) error { _, err := s.Client(t.Context()); return err },
			"reconnect": func(s *Server) error { return s.Reconnect(t.Context()) },
		} {
			s, start := again(), time.Now()
			synctest.Wait()
			if err := need(s); err != nil || time.Since(start) > 0 {
				t.Errorf("%s took %v: %v", name, time.Since(start), err)
			}
		}

		unknown := local(&fake{})
		s = one(t, newManager(t, Options{CacheDir: dir}), unknown)
		synctest.Wait()
		wantState(t, s, config.Connected, "")
	})
}
