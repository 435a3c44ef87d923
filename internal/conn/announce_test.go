package conn

import (
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/config"
)

// Who waited for a server and then looks at what everybody is told sees what the
// server offers: its catalog is announced before it counts as connected.
func TestCatalogIsAnnouncedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager
		first := config.State("")
		m = newManager(t, Options{Changed: func() {
			s, ok := m.Server("srv", Profile{})
			if ok && s.Catalog() != nil && first == "" {
				first = s.Status().State
			}
		}})
		mustWait(t, one(t, m, local(&fake{})))
		synctest.Wait()
		if first != config.Connecting {
			t.Errorf("the catalog was announced when the server was %q", first)
		}
	})
}
