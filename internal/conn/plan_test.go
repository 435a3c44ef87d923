package conn

import (
	"maps"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestPlan(t *testing.T) {
	on := Target{State: config.Pending, ConnectHash: "a"}
	other := Target{State: config.Pending, ConnectHash: "b"}
	disabled := Target{State: config.Disabled, ConnectHash: "a"}
	unapproved := Target{State: config.NeedsApproval, ConnectHash: "a"}
	broken := Target{State: config.Failed, Reason: "no command", ConnectHash: "a"}
	lazy := Target{ConnectHash: "a", Lazy: true, IdleStop: second}

	for _, test := range []struct {
		name       string
		want, have map[string]Target
		acts       map[string]action
	}{
		{"nothing", nil, nil, map[string]action{}},
		{"new", map[string]Target{"x": on}, nil, map[string]action{"x": start}},
		{"new but off", map[string]Target{"x": disabled}, nil, map[string]action{"x": start}},
		{"gone", nil, map[string]Target{"x": on}, map[string]action{"x": stop}},
		{"same", map[string]Target{"x": on}, map[string]Target{"x": on}, map[string]action{"x": keep}},
		{"same, off", map[string]Target{"x": disabled}, map[string]Target{"x": disabled}, map[string]action{"x": keep}},
		{"reached differently", map[string]Target{"x": other}, map[string]Target{"x": on}, map[string]action{"x": restart}},
		{"reached differently, off", map[string]Target{"x": {State: config.Disabled, ConnectHash: "b"}}, map[string]Target{"x": disabled}, map[string]action{"x": keep}},
		{"switched off", map[string]Target{"x": disabled}, map[string]Target{"x": on}, map[string]action{"x": restart}},
		{"switched on", map[string]Target{"x": on}, map[string]Target{"x": disabled}, map[string]action{"x": restart}},
		{"off for another reason", map[string]Target{"x": unapproved}, map[string]Target{"x": disabled}, map[string]action{"x": restart}},
		{"broken otherwise", map[string]Target{"x": broken}, map[string]Target{"x": {State: config.Failed, ConnectHash: "a"}}, map[string]action{"x": restart}},
		{"only other circumstances", map[string]Target{"x": lazy}, map[string]Target{"x": on}, map[string]action{"x": keep}},
		{"all at once", map[string]Target{"a": on, "b": other, "c": on}, map[string]Target{"b": on, "c": on, "d": on},
			map[string]action{"a": start, "b": restart, "c": keep, "d": stop}},
	} {
		if got := plan(test.want, test.have); !maps.Equal(got, test.acts) {
			t.Errorf("%s: %v, want %v", test.name, got, test.acts)
		}
	}
}
