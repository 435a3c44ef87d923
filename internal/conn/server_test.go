package conn

import (
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestConnectsAndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		f := &fake{}
		s := one(t, m, local(f))
		mustWait(t, s)
		st := wantState(t, s, config.Connected, "")
		if st.Opening == nil || st.Opening.Version != "2025-11-25" {
			t.Errorf("opening %+v", st.Opening)
		}
		if c := s.Catalog(); c == nil || len(c.Tools) != 1 || c.Cached || c.Instructions != "be kind" {
			t.Errorf("catalog %+v", c)
		}
		mustCall(t, s)
	})
}
