//go:build soak

package proc

import (
	"os"
	"testing"
	"time"
)

// Row 16: ten thousand children leave nothing behind. A run of less than a minute
// has as many as there is time for.
func TestSoakChildren(t *testing.T) {
	limit := time.Minute
	if text := os.Getenv("PATCHBAY_SOAK"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	end, started := time.Now().Add(limit), 0
	manyChildren(t, func(i int) bool {
		started = i
		return i < 10_000 && (limit >= time.Minute || time.Now().Before(end))
	})
	t.Logf("%d children", started)
}
