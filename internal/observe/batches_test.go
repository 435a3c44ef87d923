package observe

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// Records are handled together, a moment after the first.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var got []string
		b := newBatches(func(records []patchbay.CallRecord, dropped int) {
			got = append(got, fmt.Sprint(time.Since(start), len(records), records[0].Session, dropped))
		})
		b.add(someRecord("a"))
		time.Sleep(gathering / 2)
		b.add(someRecord("b"))
		time.Sleep(gathering)
		for range queueLength / 2 { // too many to wait
			b.add(someRecord("c"))
		}
		synctest.Wait()
		b.add(someRecord("d"))
		b.close()
		b.close()
		b.add(someRecord("e"))
		want := "[100ms 2a0 150ms 4096c0 150ms 1d0]"
		if fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	})
}

// A writer that hangs costs records, which are counted, and holds nobody up.
func TestBatchesOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		handled, dropped := 0, 0
		b := newBatches(func(records []patchbay.CallRecord, d int) {
			<-release
			handled, dropped = handled+len(records), dropped+d
		})
		b.add(someRecord("first"))
		time.Sleep(2 * gathering) // now it hangs
		for range queueLength + 7 {
			b.add(someRecord("further"))
		}
		close(release)
		b.close()
		if handled != queueLength+1 || dropped != 7 {
			t.Errorf("%d handled, %d dropped", handled, dropped)
		}
	})
}
