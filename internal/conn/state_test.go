package conn

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// The whole table: a row is where a server comes from, a column where it goes.
func TestMoves(t *testing.T) {
	states := []config.State{config.Disabled, config.NeedsApproval, config.Pending, config.Connecting, config.Connected, config.NeedsAuth, config.Failed}
	for i, row := range []string{
		"x.x....", // disabled
		".xx....", // needs-approval
		"xxxx..x", // pending
		"..xxxxx", // connecting
		"..x.xxx", // connected
		"..xx.x.", // needs-auth
		"..xx..x", // failed
	} {
		for j, to := range states {
			if got, want := mayMove(states[i], to), row[j] == 'x'; got != want {
				t.Errorf("%s to %s: %v, want %v", states[i], to, got, want)
			}
		}
	}
}

func TestIllegalMoveDoesNotTakePlace(t *testing.T) {
	var log strings.Builder
	m := newManager(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s := one(t, m, Target{State: config.Disabled, Reason: "off"})
	before := s.Status()
	l, _ := m.present("srv", Profile{})
	l.mu.Lock()
	l.update(func(st *state) { st.State, st.Reason = config.Connected, "nonsense" })
	l.mu.Unlock()
	if after := s.Status(); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v became %+v", before, after)
	}
	if !strings.Contains(log.String(), "illegal move") {
		t.Errorf("the log says %s", log.String())
	}
}
