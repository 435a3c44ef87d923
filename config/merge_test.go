package config_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

// A declaration in the short form of the table below.
func declared(provider string, priority int, scope config.Scope, state config.State, untrusted bool) config.Candidate {
	return config.Candidate{
		Entry: config.Entry{Name: "s", Server: config.Server{Command: provider + string(scope)},
			Origin: config.Origin{Provider: provider, Product: provider, Priority: priority, Scope: scope, File: "/" + provider + "/" + string(scope)}},
		State: state, Untrusted: untrusted,
	}
}

func TestMergeOneName(t *testing.T) {
	const user, local, project = config.ScopeUser, config.ScopeLocal, config.ScopeProject
	claude := func(scope config.Scope, state config.State, untrusted bool) config.Candidate {
		return declared("claude", 80, scope, state, untrusted)
	}
	cursor := declared("cursor", 50, user, config.Pending, false)
	tests := []struct {
		name  string
		given []config.Candidate
		want  []string // in order of precedence: command, and whether it is in force or shadowed
	}{
		{"priority", []config.Candidate{cursor, claude(user, config.Pending, false)}, []string{"claudeuser in force", "cursoruser shadowed"}},
		{"scope", []config.Candidate{claude(user, config.Pending, false), claude(project, config.Pending, false), claude(local, config.Pending, false)},
			[]string{"claudelocal in force", "claudeproject shadowed", "claudeuser shadowed"}},
		{"provider name breaks a tie", []config.Candidate{declared("zed", 40, user, config.Pending, false), declared("amp", 40, user, config.Pending, false)},
			[]string{"ampuser in force", "zeduser shadowed"}},
		{"failed never shadows", []config.Candidate{claude(user, config.Failed, false), cursor}, []string{"claudeuser", "cursoruser in force"}},
		{"unapproved never shadows", []config.Candidate{claude(project, config.NeedsApproval, true), cursor}, []string{"claudeproject", "cursoruser in force"}},
		{"disabled keeps its name", []config.Candidate{claude(user, config.Disabled, false), cursor}, []string{"claudeuser in force", "cursoruser shadowed"}},
		{"disabled by an unapproved project", []config.Candidate{claude(project, config.Disabled, true), cursor}, []string{"claudeproject", "cursoruser in force"}},
		{"nothing usable", []config.Candidate{claude(project, config.NeedsApproval, true), claude(user, config.Failed, false)},
			[]string{"claudeproject in force", "claudeuser shadowed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, m := range config.Merge(tt.given) {
				s := m.Entry.Server.Command
				if m.InForce {
					s += " in force"
				}
				if m.ShadowedBy != nil {
					s += " shadowed"
					if m.Why == "" {
						t.Errorf("%s: no reason given", s)
					}
				}
				got = append(got, s)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSkippedOwnsNoName(t *testing.T) {
	skipped := declared("claude", 80, config.ScopeUser, config.Pending, false)
	skipped.Entry.Skip = "this is Patchbay itself"
	merged := config.Merge([]config.Candidate{skipped, declared("cursor", 50, config.ScopeUser, config.Pending, false)})
	if merged[0].InForce || !merged[1].InForce {
		t.Errorf("in force: %v, %v; want the second alone", merged[0].InForce, merged[1].InForce)
	}
}

func TestSameConnectionIsReported(t *testing.T) {
	a := declared("claude", 80, config.ScopeUser, config.Pending, false)
	b := a
	b.Entry.Name = "t"
	c := declared("claude", 80, config.ScopeLocal, config.Pending, false)
	c.Entry.Name = "u"
	other := a // with credentials of its own
	other.Entry.Name, other.Entry.Server.Env = "v", map[string]config.Secret{"TOKEN": config.NewSecret("1")}
	another := other
	another.Entry.Name, another.Entry.Server.Env = "w", map[string]config.Secret{"TOKEN": config.NewSecret("2")}
	merged := config.Merge([]config.Candidate{a, b, c, other, another})
	got := map[string][]string{}
	for _, m := range merged {
		got[m.Entry.Name] = m.SameAs
	}
	if d := cmp.Diff(map[string][]string{"s": {"t"}, "t": {"s"}, "u": nil, "v": nil, "w": nil}, got); d != "" {
		t.Error(d)
	}
}

// A file of nothing but copies costs no more than another.
func TestManyCopies(t *testing.T) {
	var all []config.Candidate
	for i := range 2_000 {
		all = append(all, config.Candidate{State: config.Pending, Entry: config.Entry{Name: fmt.Sprint("s", i), Server: config.Server{Command: "x"}}})
	}
	for _, m := range config.Merge(all) {
		if len(m.SameAs) != 8 || slices.Contains(m.SameAs, m.Entry.Name) {
			t.Fatalf("%s is the same as %v", m.Entry.Name, m.SameAs)
		}
	}
}
