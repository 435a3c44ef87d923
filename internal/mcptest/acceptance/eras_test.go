//go:build acceptance

package acceptance

import (
	"path/filepath"
	"testing"
)

// TestEras has clients of both eras use a server of both, which asks them back.
func TestEras(t *testing.T) {
	absolute := func(name string) string {
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	w := newWorld(t, func(w *world, t *testing.T) {
		w.add(t, "both", "--", "node", absolute("both.cjs"), modules(t, "MODULES"))
	})
	out := w.run(t, "node", absolute("eras.cjs"), modules(t, "CLIENTS"), w.url, w.patchbay)
	has(t, "clients of both eras", out, "everything works")
	t.Log(out)
}
