package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestTrust(t *testing.T) {
	own := config.Entry{Name: "s", Origin: config.Origin{Scope: config.ScopeProject, File: "/home/u/mcp.json"}}
	theirs := config.Entry{Name: "s", Origin: config.Origin{Scope: config.ScopeUser, File: "/src/p/.mcp.json", Project: "/src/p"}}
	var a Approvals
	a.Set("yes", Approval{Decision: Approve, Name: "s", Project: "/src/p", File: "/src/p/.mcp.json"})
	a.Set("no", Approval{Decision: Reject, Name: "s", Project: "/src/p", File: "/src/p/.mcp.json"})
	a.Set("", Approval{Decision: Approve})
	a.Set("odd", Approval{Decision: "approved", Name: "s"})
	other := theirs
	other.Name = "other"
	for _, tt := range []struct {
		name  string
		entry config.Entry
		hash  string
		want  config.State
		why   string
	}{
		{"a file outside any project needs no approval, whatever its scope is called", own, "", config.Pending, ""},
		{"approved", theirs, "yes", config.Pending, ""},
		{"rejected", theirs, "no", config.Disabled, "rejected"},
		{"a changed byte asks again, and says so", theirs, "changed", config.NeedsApproval, "changed since it was approved"},
		{"nobody was asked yet", other, "new", config.NeedsApproval, "comes from the project and is not approved yet"},
		{"no hash is no approval", other, "", config.NeedsApproval, "comes from the project and is not approved yet"},
		{"an unknown decision approves nothing", theirs, "odd", config.NeedsApproval, "changed since it was approved"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, why := Trust(tt.entry, tt.hash, a)
			if state != tt.want || why != tt.why {
				t.Errorf("%s, %q; want %s, %q", state, why, tt.want, tt.why)
			}
		})
	}
	if state, _ := Trust(theirs, "yes", Approvals{}); state != config.NeedsApproval {
		t.Errorf("without any approvals: %s", state)
	}
}

func TestApprovalsFile(t *testing.T) {
	var a Approvals
	empty, err := json.Marshal(a)
	if err != nil || string(empty) != `{"version":1,"entries":{}}` {
		t.Fatalf("%s %v", empty, err)
	}
	a.Set("h1", Approval{Approve, "s", "/src/p", "/src/p/.mcp.json", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	a.Set("h2", Approval{Reject, "t", "/src/q", "/src/q/.mcp.json", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var back Approvals
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, back, cmp.AllowUnexported(Approvals{})); diff != "" {
		t.Error(diff)
	}
	if n := back.Forget("/src/p"); n != 1 {
		t.Errorf("forgot %d", n)
	}
	if _, ok := back.Get("h1"); ok {
		t.Error("a forgotten decision is still there")
	}
	if _, ok := back.Get("h2"); !ok {
		t.Error("another project's decision is gone")
	}
	for _, bad := range []string{`{}`, `{"version":2,"entries":{}}`, `[]`, `{"version":1,"entries":[]}`, ``} {
		var a Approvals
		if err := json.Unmarshal([]byte(bad), &a); err == nil {
			t.Errorf("%q was read as approvals", bad)
		}
	}
}

// Nothing in the approvals file can approve what was not hashed, and reading it
// never panics.
func FuzzApprovals(f *testing.F) {
	f.Add(`{"version":1,"entries":{"h":{"decision":"approve"}}}`)
	f.Add(`{"version":1,"entries":{"":{"decision":"approve"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var a Approvals
		if json.Unmarshal([]byte(text), &a) != nil {
			return
		}
		e := config.Entry{Name: "s", Origin: config.Origin{Project: "/p"}}
		if state, _ := Trust(e, ApprovalHash(LaunchOf(e)), a); state == config.Pending && !strings.Contains(text, ApprovalHash(LaunchOf(e))) {
			t.Fatalf("approved by %q", text)
		}
	})
}
