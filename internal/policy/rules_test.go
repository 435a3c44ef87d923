package policy

import (
	"strings"
	"testing"
)

// tool renders a tool the way the naming styles do, as far as tests need it.
func tool(server, name string, more ...string) Tool {
	return Tool{Server: server, Tool: name, Names: append(more, "mcp__"+sanitize(server)+"__"+sanitize(name))}
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
		tool    Tool
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
		{"mcp__my.server", all, tool("my.server", "x"), false},
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
		{"a/do.it", all, tool("a", "do.it"), true},
		{"a/do_it", all, tool("a", "do.it"), false},
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
		{"list_mcp_resources", all, Tool{Tool: "list_mcp_resources", Names: []string{"list_mcp_resources"}}, true},
		{"mcp__", all, Tool{Tool: "list_mcp_resources", Names: []string{"list_mcp_resources"}}, false},
		{"mcp__*", "ask deny", Tool{Tool: "list_mcp_resources", Names: []string{"list_mcp_resources"}}, false},
	}
	for _, tt := range tests {
		for _, effect := range []Effect{Allow, Ask, Deny} {
			r, err := NewRule(effect, tt.pattern, "test")
			if can := strings.Contains(tt.effects, string(effect)); (err == nil) != can {
				t.Errorf("NewRule(%s, %s): %v", effect, tt.pattern, err)
			} else if !can && r.matches(tt.tool) {
				t.Errorf("%s %s matches although it cannot be", effect, tt.pattern)
			} else if can && r.matches(tt.tool) != tt.want {
				t.Errorf("%s %s matches %s/%s: %v, want %v", effect, tt.pattern, tt.tool.Server, tt.tool.Tool, !tt.want, tt.want)
			}
		}
	}
}
