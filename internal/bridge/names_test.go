package bridge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestRender(t *testing.T) {
	for _, tt := range []struct{ server, tool, xcsh, omp, claude string }{
		{"github", "create_issue", "mcp_github_create_issue", "mcp__github_create_issue", "mcp__github__create_issue"},
		{"my-server", "do.it", "mcp_my_server_do_it", "mcp__my_server_do_it", "mcp__my-server__do_it"},
		{"my.server", "do-it", "mcp_my_server_do_it", "mcp__my_server_do_it", "mcp__my_server__do-it"},
		{"puppeteer", "puppeteer_screenshot", "mcp_puppeteer_screenshot", "mcp__puppeteer_screenshot", "mcp__puppeteer__puppeteer_screenshot"},
		{"context7", "query-docs", "mcp_context_query_docs", "mcp__context7_query_docs", "mcp__context7__query-docs"},
		{"foo1", "x", "mcp_foo_x", "mcp__foo1_x", "mcp__foo1__x"},
		{"foo2", "x", "mcp_foo_x", "mcp__foo2_x", "mcp__foo2__x"},
		{"123", "456", "mcp_server_tool", "mcp__123_456", "mcp__123__456"},
		{"srv", "srv_", "mcp_srv_srv", "mcp__srv_srv", "mcp__srv__srv_"},
		{"a__b", "c__d", "mcp_a_b_c_d", "mcp__a_b_c_d", "mcp__a__b__c__d"},
		{strings.Repeat("x", 90), strings.Repeat("y", 90),
			"mcp_" + strings.Repeat("x", 90) + "_" + strings.Repeat("y", 90), "mcp__" + strings.Repeat("x", 90) + "_" + strings.Repeat("y", 90),
			"mcp__" + strings.Repeat("x", 90) + "__" + strings.Repeat("y", 90)},

		{"GitHub", "CreateIssue", "mcp_github_createissue", "mcp__github_createissue", "mcp__GitHub__CreateIssue"},
		{"srv", "srv-srv-x", "mcp_srv_srv_x", "mcp__srv_srv_x", "mcp__srv__srv-srv-x"}, // once only
		{"server", "server", "mcp_server_server", "mcp__server_server", "mcp__server__server"},
		{"7", "server_x", "mcp_server_x", "mcp__7_server_x", "mcp__7__server_x"}, // the fallback counts as the server's name
		{"", "", "mcp_server_tool", "mcp__server_tool", "mcp____"},
		{"__a", "-b-", "mcp_a_b", "mcp__a_b", "mcp____a__-b-"},
		{"é", "\U0001f600", "mcp_server_tool", "mcp__server_tool", "mcp_______"},
		{"İx", "\u212Ay", "mcp_i_x_ky", "mcp__i_x_ky", "mcp___x___y"}, // lower case beyond ASCII: i with a dot above, the Kelvin sign
		{"a\xffb", "\x00", "mcp_a_b_tool", "mcp__a_b_tool", "mcp__a_b___"},
	} {
		got := []string{Render(config.NamingXcsh, Ref{tt.server, tt.tool}), Render(config.NamingOMP, Ref{tt.server, tt.tool}), Render("", Ref{tt.server, tt.tool})}
		if diff := cmp.Diff([]string{tt.xcsh, tt.omp, tt.claude}, got); diff != "" {
			t.Errorf("%q / %q:\n%s", tt.server, tt.tool, diff)
		}
	}
}

func tools(pairs ...string) []Exposed {
	var list []Exposed
	for _, p := range pairs {
		pair, name, _ := strings.Cut(p, "=")
		server, tool, _ := strings.Cut(pair, "/")
		list = append(list, Exposed{Ref{server, tool}, name})
	}
	return list
}

func TestNames(t *testing.T) {
	x, y := strings.Repeat("x", 90), strings.Repeat("y", 90)
	for _, tt := range []struct {
		about    string
		naming   Naming
		tools    []Exposed
		want     []string
		warnings []string
	}{
		{"no tools", Naming{}, nil, nil, nil},
		{"the default is claude", Naming{}, tools("github/create_issue", "my.server/do-it"),
			[]string{"mcp__github__create_issue", "mcp__my_server__do-it"}, nil},
		{"a collision", Naming{}, tools("a/b__c", "a__b/c"),
			[]string{"mcp__a__b__c", "mcp__a__b__c_2fkgldal"},
			[]string{`tools "a/b__c" and "a__b/c" are both called mcp__a__b__c: the second is offered as mcp__a__b__c_2fkgldal`}},
		{"xcsh loses digits", Naming{Style: config.NamingXcsh}, tools("foo3/x", "foo1/x", "foo2/x"),
			[]string{"mcp_foo_x_g5fwssji", "mcp_foo_x", "mcp_foo_x_hsbyfmgb"},
			[]string{`tools "foo1/x" and "foo2/x" are both called mcp_foo_x: the second is offered as mcp_foo_x_hsbyfmgb`,
				`tools "foo1/x" and "foo3/x" are both called mcp_foo_x: the second is offered as mcp_foo_x_g5fwssji`}},
		{"xcsh, the last wins", Naming{Style: config.NamingXcsh, LastWins: true}, tools("my.server/do-it", "my-server/do.it", "other/x"),
			[]string{"mcp_my_server_do_it", "", "mcp_other_x"},
			[]string{`tools "my-server/do.it" and "my.server/do-it" are both called mcp_my_server_do_it: only the last one is offered`}},
		{"the last wins in xcsh only", Naming{Style: config.NamingOMP, LastWins: true}, tools("my-server/do.it", "my.server/do-it"),
			[]string{"mcp__my_server_do_it", "mcp__my_server_do_it_ikdtw5ev"},
			[]string{`tools "my-server/do.it" and "my.server/do-it" are both called mcp__my_server_do_it: the second is offered as mcp__my_server_do_it_ikdtw5ev`}},
		{"the last wins over no exposed name", Naming{Style: config.NamingXcsh, LastWins: true}, tools("a/x", "b/x=mcp_a_x"),
			[]string{"mcp_a_x", "mcp_a_x_pmb3xvge"},
			[]string{`tools "a/x" and "b/x" are both called mcp_a_x: the second is offered as mcp_a_x_pmb3xvge`}},
		{"too long", Naming{}, tools(x+"/"+y, x+"/"+y+"y"),
			[]string{"mcp__" + x[:50] + "_27gxz65d", "mcp__" + x[:50] + "_nwkrj3ro"}, nil},
		{"too long for 128", Naming{MaxLength: 128}, tools(x + "/" + y),
			[]string{"mcp__" + x + "__" + y[:22] + "_27gxz65d"}, nil},
		{"an exposed name", Naming{}, tools("github/create_issue=new_issue"), []string{"new_issue"}, nil},
		{"an exposed name displaces nothing", Naming{}, tools("a/x=mcp__b__x", "b/x"),
			[]string{"mcp__b__x_jwlzvvde", "mcp__b__x"},
			[]string{`tools "b/x" and "a/x" are both called mcp__b__x: the second is offered as mcp__b__x_jwlzvvde`}},
		{"a hash displaces nothing", Naming{}, tools("a/b__c", "a__b/c", "a__b/c_2fkgldal"),
			[]string{"mcp__a__b__c", "mcp__a__b__c_llqknlaq", "mcp__a__b__c_2fkgldal"},
			[]string{`tools "a/b__c" and "a__b/c" are both called mcp__a__b__c: the second is offered as mcp__a__b__c_llqknlaq`}},
		{"an unusable exposed name", Naming{}, tools("a/x=ä", "b/x="+x),
			[]string{"mcp__a__x", "mcp__b__x"},
			[]string{`tool "a/x": the name "ä" is not of 1 to 64 letters, digits, _ or -, so it is not used`,
				`tool "b/x": the name "` + x + `" is not of 1 to 64 letters, digits, _ or -, so it is not used`}},
		{"one tool twice", Naming{}, tools("a/x", "a/x"), []string{"mcp__a__x", "mcp__a__x"}, nil},
		{"a limit below the least", Naming{MaxLength: 1}, tools("github/create_issue_comment"),
			[]string{"mcp__github__create_iss_xuttnhwj"}, nil},
	} {
		names, warnings := NewNames(tt.tools, tt.naming)
		var got []string
		for _, tool := range tt.tools {
			got = append(got, names.Of(tool.Ref))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s:\n%s", tt.about, diff)
		}
		if diff := cmp.Diff(tt.warnings, warnings); diff != "" {
			t.Errorf("%s:\n%s", tt.about, diff)
		}
	}
}
