package policy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// about are those of the rules that are about a tool.
func about(t *Tool, rules []Rule) []*Rule {
	return Settle([]*Rules{NewRules(rules, false)}, []string{t.server}, []*Tool{t}).About[0]
}

func TestDecide(t *testing.T) {
	own := config.Origin{File: "/home/u/mcp.json", Line: 7}
	project := config.Origin{File: "/p/.mcp.json", Line: 3, Project: "/p"}
	policies := func(name string, list ...config.PermissionPolicy) (rules []config.ToolRule) {
		for _, p := range list {
			rules = append(rules, config.ToolRule{Name: name, PermissionPolicy: p})
		}
		return rules
	}
	allow, ask, deny := Rule{Allow, "mcp__github", "a.json"}, Rule{Ask, "mcp__github__*", "b.json"}, Rule{Deny, "github/create_issue", "c.json"}
	tests := []struct {
		name   string
		rules  []Rule
		entry  []config.ToolRule
		origin config.Origin
		want   Effect
		by     *Rule
		reason string
	}{
		{"nothing", nil, nil, own, Passthrough, nil, "no rule is about it"},
		{"of another tool", []Rule{{Allow, "mcp__github__get_issue", "a.json"}}, policies("get_issue", config.AlwaysDeny), own, Passthrough, nil, "no rule is about it"},
		{"allow", []Rule{allow}, nil, own, Allow, &allow, "the rule mcp__github in a.json allows it"},
		{"ask wins over allow", []Rule{allow, ask}, nil, own, Ask, &ask, "the rule mcp__github__* in b.json wants it asked about"},
		{"deny wins over both", []Rule{allow, ask, deny}, nil, own, Deny, &deny, "the rule github/create_issue in c.json denies it"},
		{"in any order", []Rule{deny, ask, allow}, nil, own, Deny, &deny, "the rule github/create_issue in c.json denies it"},
		{"the first of several", []Rule{deny, {Deny, "*", "d.json"}}, nil, own, Deny, &deny, "the rule github/create_issue in c.json denies it"},
		{"the entry allows", nil, policies("create_issue", config.AlwaysAllow), own, Allow, &Rule{Allow, "github/create_issue", "/home/u/mcp.json:7"}, "the rule github/create_issue in /home/u/mcp.json:7 allows it"},
		{"the entry of no file allows", nil, policies("create_*", config.AlwaysAllow), config.Origin{}, Allow, &Rule{Allow, "github/create_*", "entry"}, "the rule github/create_* in entry allows it"},
		{"the entry asks", []Rule{allow}, policies("*", config.AlwaysAsk), own, Ask, &Rule{Ask, "github/*", "/home/u/mcp.json:7"}, "the rule github/* in /home/u/mcp.json:7 wants it asked about"},
		{"the entry denies", []Rule{allow}, policies("create_issue", config.AlwaysAllow, config.AlwaysDeny), own, Deny, &Rule{Deny, "github/create_issue", "/home/u/mcp.json:7"}, "the rule github/create_issue in /home/u/mcp.json:7 denies it"},
		{"the entry cannot undo", []Rule{deny}, policies("create_issue", config.AlwaysAllow), own, Deny, &deny, "the rule github/create_issue in c.json denies it"},
		{"a policy nobody understands", []Rule{allow}, policies("create_issue", "sometimes"), own, Deny, &Rule{Deny, "github/create_issue", "/home/u/mcp.json:7"}, "the rule github/create_issue in /home/u/mcp.json:7 denies it"},
		{"a project cannot allow", nil, policies("create_issue", config.AlwaysAllow), project, Passthrough, nil, "no rule is about it, as /p/.mcp.json:3 cannot allow it: a project does not give permission"},
		{"a project can deny", []Rule{allow}, policies("create_issue", config.AlwaysDeny), project, Deny, &Rule{Deny, "github/create_issue", "/p/.mcp.json:3"}, "the rule github/create_issue in /p/.mcp.json:3 denies it"},
		{"a rule that cannot be", []Rule{{Allow, "*", "a.json"}, {"grant", "mcp__github", "a.json"}, {Passthrough, "*", ""}}, nil, own, Passthrough, nil, "no rule is about it"},
		{"what deceives the eye", []Rule{{Deny, "*\u202e", ""}, {Deny, "*", "\x1b]0;x\a"}}, nil, own, Deny, &Rule{Deny, "*", "\x1b]0;x\a"}, "the rule * in <U+001B>]0;x<U+0007> denies it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := config.Entry{Name: "github", Server: config.Server{Command: "x", Tools: tt.entry}, Origin: tt.origin}
			tl := tool("github", "create_issue")
			v := Decide(tl, about(tl, tt.rules), e)
			if v.Effect != tt.want || v.Reason != tt.reason || (v.Rule == nil) != (tt.by == nil) || v.Rule != nil && *v.Rule != *tt.by {
				t.Errorf("got %+v by %+v\nwant %s by %+v: %s", v, v.Rule, tt.want, tt.by, tt.reason)
			}
		})
	}
}

// Whatever is added, in whatever order: what is denied stays denied and hidden,
// and what is to be asked about is never merely allowed.
func TestDenyCannotBeUndone(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 2))
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	strength := map[Effect]int{Allow: 0, Passthrough: 0, Ask: 1, Deny: 2}
	denied := 0
	for range 5000 {
		tl := tool(pick("a", "a__b", "b.c"), pick("x", "b__x", "y.z"))
		e := config.Entry{Server: config.Server{Command: "x"}}
		if rnd.IntN(3) == 0 {
			e.Server.Tools = []config.ToolRule{{Name: pick("x", "*", "y.z"), PermissionPolicy: config.PermissionPolicy(pick("always_allow", "always_ask", "always_deny"))}}
		}
		var rules []Rule
		add := func(effect Effect) {
			server := pick("mcp__a", "mcp__a__b", "mcp__b_c")
			pattern := pick(server, server+"__*", server+"__x", server+"__*z", "a/x", "b.c/*", "a.b__x", "mcp__*", "*x", "*")
			if r, err := NewRule(effect, pattern, ""); err == nil {
				rules = append(rules, r)
			}
		}
		for range rnd.IntN(4) {
			add(Effect(pick("ask", "deny")))
		}
		before := Decide(tl, about(tl, rules), e).Effect
		for range 5 {
			add(Allow)
		}
		e.Server.Tools = append(e.Server.Tools, config.ToolRule{Name: "*", PermissionPolicy: config.AlwaysAllow})
		rnd.Shuffle(len(rules), func(i, k int) { rules[i], rules[k] = rules[k], rules[i] })
		after := Decide(tl, about(tl, rules), e).Effect
		if strength[after] < strength[before] {
			t.Fatalf("%+v: %s became %s by %+v", tl, before, after, rules)
		}
		if before == Deny {
			denied++
			if _, hidden := Hidden(tl, about(tl, rules), e.Server); !hidden {
				t.Fatalf("%+v is denied but not hidden: %+v", tl, rules)
			}
		}
	}
	if denied < 500 {
		t.Errorf("only %d of the cases deny anything", denied)
	}
}

func TestHidden(t *testing.T) {
	deny := []Rule{{Deny, "mcp__files", "s.json"}, {Ask, "*", ""}, {Allow, "mcp__github", ""}}
	tests := []struct {
		name    string
		tool    *Tool
		server  config.Server
		visible []string
		want    string // the reason; empty if it is shown
	}{
		{"nothing said", tool("github", "get"), config.Server{}, nil, ""},
		{"nothing enabled", tool("github", "get"), config.Server{EnabledTools: []string{}}, nil, "enabledTools of its entry does not have it"},
		{"enabled", tool("github", "get"), config.Server{EnabledTools: []string{"put", "g*"}}, nil, ""},
		{"not enabled", tool("github", "get"), config.Server{EnabledTools: []string{"put"}}, nil, "enabledTools of its entry does not have it"},
		{"disabled wins", tool("github", "get"), config.Server{EnabledTools: []string{"get"}, DisabledTools: []string{"put", "*t"}}, nil, "disabledTools of its entry has *t"},
		{"disabled by the name of another", tool("github", "get"), config.Server{DisabledTools: []string{"ge", "mcp__github__get"}}, nil, ""},
		{"denied by a rule", tool("files", "read"), config.Server{}, []string{"*"}, "the rule mcp__files in s.json denies it"},
		{"denied by its entry", tool("github", "get"), config.Server{Tools: []config.ToolRule{{Name: "get", PermissionPolicy: config.AlwaysDeny}}}, nil, "the rule github/get in entry denies it"},
		{"asked about by its entry", tool("github", "get"), config.Server{Tools: []config.ToolRule{{Name: "get", PermissionPolicy: config.AlwaysAsk}}}, nil, ""},
		{"nothing visible", tool("github", "get"), config.Server{}, []string{}, "it is not among the tools that are visible"},
		{"visible by server", tool("github", "get"), config.Server{}, []string{"mcp__other", "mcp__github"}, ""},
		{"visible by pattern", tool("github", "get"), config.Server{}, []string{"mcp__*__get"}, ""},
		{"visible by another rendering", tool("github", "get", "mcp_github_get"), config.Server{}, []string{"mcp_github_get"}, ""},
		{"not visible", tool("github", "get"), config.Server{}, []string{"mcp__github__put", ""}, "it is not among the tools that are visible"},
		{"a tool of ours", NewTool("", "x", []string{"read_mcp_resource"}), config.Server{}, []string{"read_mcp_resource"}, ""},
	}
	for _, tt := range tests {
		if reason, hidden := Hidden(tt.tool, about(tt.tool, deny), tt.server, Shown{}, Shown{Patterns: tt.visible}); reason != tt.want || hidden != (tt.want != "") {
			t.Errorf("%s: got %q, %v; want %q", tt.name, reason, hidden, tt.want)
		}
	}
}

// A tool has to be on every list.
func TestHiddenByAFile(t *testing.T) {
	project := Shown{[]string{"mcp__files"}, ".patchbay/settings.json"}
	for _, lists := range [][]Shown{{{[]string{"*"}, "mine.json"}, project}, {project, {}}} {
		if reason, hidden := Hidden(tool("github", "get"), nil, config.Server{}, lists...); !hidden || reason != "tools in .patchbay/settings.json does not have it" {
			t.Errorf("got %q, %v", reason, hidden)
		}
		if reason, hidden := Hidden(tool("files", "read"), nil, config.Server{}, lists...); hidden {
			t.Errorf("got %q", reason)
		}
	}
}

func TestCheckShown(t *testing.T) {
	for pattern, want := range map[string]string{
		" mcp__files ": "", "*": "", "files/read": "",
		" ":                               "an empty text shows no tool: name a tool or a server, as in mcp__github",
		"mcp__x(y)":                       `"mcp__x(y)" shows no tool: rules are about tools, not about their arguments: leave out the parentheses`,
		strings.Repeat("x", 1+maxPattern): "a text of 1025 bytes shows no tool: a pattern has at most 1024",
	} {
		got := ""
		if err := CheckShown(pattern); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.20q: %s", pattern, got)
		}
	}
}

func TestMissingToolRules(t *testing.T) {
	server := config.Server{
		EnabledTools:  []string{"get", "gte", "p*"},
		DisabledTools: []string{"x*", "gte"},
		Tools:         []config.ToolRule{{Name: "put"}, {Name: "putt"}},
	}
	if got, want := MissingToolRules(server, []string{"get", "put"}), []string{"gte", "x*", "putt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := MissingToolRules(config.Server{}, nil); got != nil {
		t.Errorf("an entry that says nothing misses %q", got)
	}
}
