package policy

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tool renders a tool the way the naming styles do, as far as tests need it.
func tool(server, name string, more ...string) *Tool {
	return NewTool(server, name, append(more, "mcp__"+sanitize(server)+"__"+sanitize(name)))
}

func rule(t *testing.T, effect Effect, pattern string) Rule {
	t.Helper()
	r, err := NewRule(effect, pattern, "test")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRuleMatches(t *testing.T) {
	const all = "allow ask deny"
	tests := []struct {
		pattern string
		effects string // those for which the rule can be
		tool    *Tool
		want    bool
	}{
		// every tool of one server
		{"mcp__github", all, tool("github", "create_issue"), true},
		{"mcp__github__*", all, tool("github", "create_issue"), true},
		{"github/*", all, tool("github", "create_issue"), true},
		{"mcp__git", all, tool("github", "create_issue"), false},
		{"mcp__git__*", all, tool("github", "create_issue"), false},
		{"mcp__git__*", all, tool("git__hub", "create_issue"), false},
		{"git/*", all, tool("git/hub", "create_issue"), false},
		{"mcp__git__hub__*", all, tool("git__hub", "create_issue"), true},
		{"mcp__git__hub", all, tool("git__hub", "create_issue"), true},
		{"mcp__my_server", all, tool("my.server", "x"), true},
		{"mcp__my.server", all, tool("my.server", "x"), true},
		{"mcp__my.server__*", all, tool("my.server", "x"), true},
		{"my_server/*", all, tool("my.server", "x"), true},
		{"mcp__my.server", all, tool("my_server", "x"), false},
		{"my.server/*", all, tool("my.server", "x"), true},
		{"my.server/*", all, tool("my", "server/x"), false},

		// one tool
		{"mcp__github__create_issue", all, tool("github", "create_issue"), true},
		{"mcp__github__create_issue", all, tool("github", "create_issues"), false},
		{"mcp__github__create", all, tool("github", "create_issue"), false},
		{"mcp__Github__create_issue", all, tool("github", "create_issue"), false},
		{"mcp__a__b__c", all, tool("a", "b__c"), true},
		{"mcp__a__b__c", all, tool("a__b", "c"), true},
		{"mcp__a__do_it", all, tool("a", "do.it"), true},
		{"mcp__a__x_____", all, NewTool("a", "x-é😀\xff", nil), false},
		{"mcp__a__x-____", all, NewTool("a", "x-é😀\xff", nil), true},
		{"a/do.it", all, tool("a", "do.it"), true},
		{"a/do_it", all, tool("a", "do.it"), true},
		{"mcp__a__do.it", all, tool("a", "do.it"), true},
		{"mcp__a.b__do.it", all, tool("a.b", "do.it"), true},
		{"mcp__a.b__do_it", all, tool("a.b", "do.it"), true},
		{"mcp__*__do.*", "ask deny", tool("a.b", "do.it"), true},
		{"a.do.it", all, tool("a", "do.it"), true},
		{"my.server.do.it", all, tool("my.server", "do.it"), true},
		{"my.server.a/b", all, tool("my.server", "a/b"), false},
		{"mcp_context_query_docs", all, tool("context7", "query-docs", "mcp_context_query_docs"), true},
		{"mcp__context7_query_docs", all, tool("context7", "query-docs", "mcp__context7_query_docs"), true},
		{"create", all, tool("github", "create_issue", "create"), true},
		{"create_issue", all, tool("github", "create_issue"), false},
		{"github", all, tool("github", "create_issue"), false},

		// wildcards
		{"mcp__github__get_*", all, tool("github", "get_issue"), true},
		{"mcp__github__get_*", all, tool("github", "delete_get_issue"), false},
		{"mcp__github__*_issue", all, tool("github", "get_issue"), true},
		{"github/get*", all, tool("github", "get issue"), true},
		{"mcp__metamcp__github__*", all, tool("metamcp", "github__get"), true},
		{"*", "ask deny", tool("github", "x"), true},
		{"mcp__*", "ask deny", tool("github", "x"), true},
		{"mcp__git*", "ask deny", tool("github", "x"), true},
		{"mcp__*__delete_*", "ask deny", tool("github", "delete_repo"), true},
		{"mcp__*__delete_*", "ask deny", tool("github", "undelete"), false},
		{"mcp__*-prod", "ask deny", tool("db-prod", "query"), true},
		{"mcp_git*", "ask deny", tool("github", "x", "mcp_github_x"), true},
		{"*/delete*", "ask deny", tool("github", "delete repo"), true},
		{"*.delete*", "ask deny", tool("github", "delete repo"), true},
		{"git*.delete", "ask deny", tool("github", "delete"), true},

		// a tool of ours
		{"list_mcp_resources", all, NewTool("", "list_mcp_resources", []string{"list_mcp_resources"}), true},
		{"mcp__", all, NewTool("", "list_mcp_resources", []string{"list_mcp_resources"}), false},
		{"mcp__*", "ask deny", NewTool("", "list_mcp_resources", []string{"list_mcp_resources"}), false},
	}
	for _, tt := range tests {
		for _, effect := range []Effect{Allow, Ask, Deny} {
			_, err := NewRule(effect, tt.pattern, "test")
			r := Rule{effect, tt.pattern, "test"} // what NewRule refuses must not allow either
			if can := strings.Contains(tt.effects, string(effect)); (err == nil) != can {
				t.Errorf("NewRule(%s, %s): %v", effect, tt.pattern, err)
			} else if !can && r.matches(tt.tool) {
				t.Errorf("%s %s matches although it cannot be", effect, tt.pattern)
			} else if can && r.matches(tt.tool) != tt.want {
				t.Errorf("%s %s matches %s/%s: %v, want %v", effect, tt.pattern, tt.tool.server, tt.tool.tool, !tt.want, tt.want)
			}
		}
	}
}

// A pattern may deny more than it may allow.
func TestRuleAllowsLess(t *testing.T) {
	tests := []struct {
		pattern string
		tool    *Tool
	}{
		{"mcp__a__b*", tool("a__bc", "x")}, // the server's name is not spelled out
		{"a/b*", tool("x", "y", "a/b/c")},
		{"github.*", tool("github", "x")}, // refused by NewRule
		{"mcp__*", tool("github", "x")},
	}
	for _, tt := range tests {
		s := tt.tool
		if (Rule{Allow, tt.pattern, ""}).matches(s) || !(Rule{Deny, tt.pattern, ""}).matches(s) {
			t.Errorf("%s allows %s/%s or does not deny it", tt.pattern, s.server, s.tool)
		}
	}
}

func TestNewRuleRefuses(t *testing.T) {
	tests := []struct {
		effect  Effect
		pattern string
		want    string
	}{
		{"grant", "mcp__github", `unknown effect "grant"`},
		{Passthrough, "mcp__github", `unknown effect "passthrough"`},
		{Deny, " ", "deny rule without a pattern"},
		{Deny, strings.Repeat("x", 1025), "deny rule of 1025 bytes"},
		{Deny, "mcp__github__push(origin*)", "leave out the parentheses"},
		{Allow, "*", `allow rule "*": in a rule that allows, * stands for tools of one server only: begin with its name, as in mcp__github__* or github/*`},
		{Allow, "mcp__*", "one server only"},
		{Allow, "mcp__git*", "one server only"},
		{Allow, "mcp__git*__x", "one server only"},
		{Allow, "mcp____*", "one server only"},
		{Allow, "mcp__git_*", "one server only"},
		{Allow, "mcp_github_*", "one server only"},
		{Allow, "github.*", "one server only"},
		{Allow, "/*", "one server only"},
		{Allow, "git*/x", "one server only"},
		{Allow, "a\x1b[2Jb*", `"a<U+001B>[2Jb*"`},
	}
	for _, tt := range tests {
		if r, err := NewRule(tt.effect, tt.pattern, "test"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("NewRule(%s, %q) = %v, %v; want an error with %q", tt.effect, tt.pattern, r, err, tt.want)
		}
	}
	if r := rule(t, Deny, " mcp__github\n"); r != (Rule{Deny, "mcp__github", "test"}) {
		t.Errorf("white space around a pattern counts: %v", r)
	}
}

func TestDeniesServer(t *testing.T) {
	tests := []struct {
		pattern, server string
		want            bool
	}{
		{"mcp__github", "github", true},
		{"mcp__github__*", "github", true},
		{"github/*", "github", true},
		{"github.*", "github", true},
		{"mcp__git*", "github", true},
		{"mcp__*hub", "github", true},
		{"mcp__*", "github", true},
		{"*", "github", true},
		{"**", "github", true},
		{"git*/*", "github", true},
		{"mcp__my_server__*", "my.server", true},
		{"mcp__my.server__*", "my.server", true},
		{"mcp__GitHub", "github", true},
		{"GITHUB/*", "github", true},
		{"mcp__git__*", "git__hub", false},
		{"mcp__git", "github", false},
		{"git/*", "git/hub", false},
		{"mcp__github__create_*", "github", false},
		{"mcp__*__delete", "github", false},
		{"github/create", "github", false},
		{"github", "github", false},
	}
	for _, tt := range tests {
		rules := []Rule{rule(t, Ask, tt.pattern), rule(t, Deny, "mcp__other"), rule(t, Deny, tt.pattern)}
		r := Settle([]*Rules{NewRules(rules, false)}, []string{tt.server}, nil).Denied[tt.server]
		if got := r != nil; got != tt.want {
			t.Errorf("deny %s removes server %s: %v", tt.pattern, tt.server, got)
		}
		if r != nil && *r != rules[2] {
			t.Errorf("deny %s: the rule is said to be %v", tt.pattern, *r)
		}
	}
}

// A name that contains the separator, or two that are written alike, must not
// let a server use the trust another one has.
func TestUnambiguous(t *testing.T) {
	tests := []struct {
		name    string
		pattern string
		servers []string
		tools   []*Tool
		clear   bool
	}{
		{"one server", "mcp__a__*", []string{"a", "b"}, []*Tool{tool("a", "x"), tool("b", "x")}, true},
		{"a longer name beside it", "mcp__a__*", []string{"a", "a__b"}, []*Tool{tool("a", "x"), tool("a__b", "x")}, true},
		{"a server or a tool", "mcp__a__b", []string{"a", "a__b"}, nil, false},
		{"the separator in the tool or the server", "mcp__a__b__c", []string{"a", "a__b"}, nil, false},
		{"the same, of many tools", "mcp__a__b__*", []string{"a", "a__b"}, nil, false},
		{"the same with a slash", "a__b/c", []string{"a", "a__b"}, []*Tool{tool("a", "b__c"), tool("a__b", "c")}, true},
		{"two servers written alike", "mcp__my_server", []string{"my.server", "my_server"}, nil, false},
		{"the same with a slash", "my.server/*", []string{"my.server", "my_server", "my"}, nil, true},
		{"a dot in the tool or the server", "my.server.x", []string{"my", "my.server"}, nil, false},
		{"two tools written alike", "mcp_foo_x", []string{"foo1", "foo2"}, []*Tool{tool("foo1", "x", "mcp_foo_x"), tool("foo2", "x", "mcp_foo_x")}, false},
		{"a server or a tool in another style", "mcp__my_server", []string{"my", "my_server"}, []*Tool{tool("my", "server", "mcp__my_server")}, false},
		{"two tools of one server", "mcp__a__do_it", []string{"a"}, []*Tool{tool("a", "do.it"), tool("a", "do_it")}, true},
		{"exposed under the name of another", "mcp__b__x", []string{"a", "b"}, []*Tool{tool("a", "y", "mcp__b__x")}, false},
		{"about nothing", "nothing", []string{"a", "b"}, []*Tool{tool("a", "x")}, true},
	}
	for _, tt := range tests {
		deny := rule(t, Deny, tt.pattern)
		ambiguous := Settle([]*Rules{NewRules([]Rule{rule(t, Allow, tt.pattern), deny}, false)}, tt.servers, tt.tools).Ambiguous
		if slices.Contains(ambiguous, deny) {
			t.Errorf("%s: a rule that denies must always stay: %v", tt.name, ambiguous)
		}
		if got := len(ambiguous) == 0; got != tt.clear {
			t.Errorf("%s: %s is clear: %v", tt.name, tt.pattern, got)
		}
	}
}

// Case does not matter where one server is meant.
func TestSettle(t *testing.T) {
	tools := []*Tool{tool("git", "read"), tool("git", "Read"), tool("Git", "read"), tool("GitHub", "Delete_Repo"), tool("my.server", "do.it")}
	servers := []string{"git", "Git", "GitHub", "my.server", "unlisted"}
	const idle, ambiguous = "idle", "ambiguous"
	for _, tt := range []struct {
		effect  Effect
		pattern string
		want    string // the tools it is about
	}{
		{Deny, "mcp__github", "GitHub/Delete_Repo"},
		{Deny, "mcp__github__delete_repo", "GitHub/Delete_Repo"},
		{Deny, "GITHUB/delete_*", "GitHub/Delete_Repo"},
		{Deny, "mcp__*__delete_*", "GitHub/Delete_Repo"},
		{Deny, "mcp__MY.SERVER__DO.IT", "my.server/do.it"},
		{Deny, "mcp__git__read", "git/read git/Read"},
		{Deny, "mcp__GIT__read", "git/read git/Read Git/read"},
		{Deny, "mcp__Git__READ", "Git/read"},
		{Ask, "mcp__git", "git/read git/Read"},
		{Allow, "mcp__github", "GitHub/Delete_Repo"},
		{Allow, "mcp__github__delete_*", "GitHub/Delete_Repo"},
		{Allow, "mcp__GitHub__delete_repo", "GitHub/Delete_Repo"},
		{Allow, "mcp__git__read", "git/read"},
		{Allow, "mcp__git__READ", "git/read git/Read"},
		{Allow, "mcp__GIT__read", ambiguous},
		{Allow, "mcp__my_server__do_it", "my.server/do.it"},
		{Deny, "mcp__gitlab", idle},
		{Deny, "mcp__git__delete", idle},
		{Allow, "nothing", idle},
		{Deny, "mcp__unlisted__thing", ""},
		{Deny, "mcp__UNLISTED__thing", ""},
		{Deny, "mcp__unlisted", ""},
	} {
		settled := Settle([]*Rules{NewRules([]Rule{rule(t, tt.effect, tt.pattern)}, false)}, servers, tools)
		var about []string
		for i, rules := range settled.About {
			if len(rules) > 0 {
				about = append(about, tools[i].server+"/"+tools[i].tool)
			}
		}
		got := strings.Join(about, " ")
		if len(settled.Idle) > 0 {
			got += idle
		}
		if len(settled.Ambiguous) > 0 {
			got += ambiguous
		}
		if got != tt.want {
			t.Errorf("%s %s: got %q, want %q", tt.effect, tt.pattern, got, tt.want)
		}
	}
}

// A tool is held against the settings' rules once, and against a name it gets
// later by that name alone.
func TestRulesAreKept(t *testing.T) {
	set := NewRules([]Rule{rule(t, Deny, "mcp__a__x"), rule(t, Deny, "Say"), rule(t, Ask, "*y")}, true)
	base := tool("a", "x")
	first := base.fits(set)
	if again := base.fits(set); len(first) != 1 || &first[0] != &again[0] {
		t.Errorf("%v, then %v", first, again)
	}
	named := base.Also("say").Also("y")
	if got := named.fits(set); !slices.Equal(got, []fit{{0, true}, {1, false}, {2, true}}) {
		t.Errorf("with more names: %v", got)
	}
	if got := NewTool("a", "x", named.names).fits(set); !slices.Equal(got, named.fits(set)) {
		t.Errorf("made with them: %v", got)
	}
}

func BenchmarkSettle(b *testing.B) {
	var rules []Rule
	for i := range 1000 {
		rules = append(rules, Rule{Deny, fmt.Sprintf("mcp__*x%d*__y*", i), "test"})
	}
	var tools []*Tool
	for i := range 1000 {
		tools = append(tools, tool(fmt.Sprint("server", i/20), fmt.Sprint("some_tool_", i)))
	}
	var servers []string
	for i := range 50 {
		servers = append(servers, fmt.Sprint("server", i))
	}
	for b.Loop() {
		Settle([]*Rules{NewRules(rules, true)}, servers, tools)
	}
}

func FuzzRule(f *testing.F) {
	f.Add("mcp__a__*", "a", "x", "a__b")
	f.Add("mcp__*__x", "a.b", "x", "a")
	f.Add("a/*b*", "a", "*b", "a/")
	f.Add("*.*", "", "", "é")
	f.Add("mcp__**", "_", "__", "__")
	f.Fuzz(func(t *testing.T, pattern, server, name, other string) {
		tl := tool(server, name, server+"/"+name)
		for _, effect := range []Effect{Allow, Ask, Deny} {
			r, err := NewRule(effect, pattern, "")
			if err != nil {
				if effect == Allow && (Rule{effect, pattern, ""}).matches(tl) {
					t.Fatalf("%q allows although it is refused: %v", pattern, err)
				}
				continue
			}
			if effect == Deny && server != "" && r.coversServer(server) && !r.matches(tl) {
				t.Fatalf("%q denies all of server %q but not its tool %q", pattern, server, name)
			}
			if deny := (Rule{Deny, r.Pattern, ""}); effect == Allow && r.matches(tl) && !deny.matches(tl) {
				t.Fatalf("%q allows %q/%q but would not deny it", pattern, server, name)
			}
		}
		// Both spellings of a whole server mean that server alone.
		for _, p := range []string{"mcp__" + sanitize(server), "mcp__" + sanitize(server) + "__*"} {
			r, err := NewRule(Deny, p, "")
			if err != nil || server == "" || other == "" {
				continue
			}
			if !r.matches(tl) || !r.coversServer(server) {
				t.Fatalf("%q does not mean server %q", p, server)
			}
			if r.coversServer(other) && sanitize(other) != sanitize(server) && other+"/*" != p && p != other+".*" {
				t.Fatalf("%q means server %q besides %q", p, other, server)
			}
		}
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("a*b*c", "aXbXXc")
	f.Add("**", "")
	f.Add("*a", "aaab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 64 || len(text) > 64 {
			return // for the sake of the regular expression
		}
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(hex.EncodeToString([]byte(parts[i])))
		}
		want := regexp.MustCompile("^" + strings.Join(parts, "(..)*") + "$").MatchString(hex.EncodeToString([]byte(text)))
		if got := glob(pattern, text); got != want {
			t.Errorf("glob(%q, %q) = %v", pattern, text, got)
		}
	})
}
