package bridge

import (
	"regexp"
	"slices"
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
		var got []string
		for _, style := range []config.NamingStyle{config.NamingXcsh, config.NamingOMP, "", config.NamingPlain} {
			got = append(got, Render(style, Ref{tt.server, tt.tool}))
		}
		if diff := cmp.Diff([]string{tt.xcsh, tt.omp, tt.claude, strings.TrimPrefix(tt.claude, "mcp__")}, got); diff != "" {
			t.Errorf("%q / %q:\n%s", tt.server, tt.tool, diff)
		}
	}
}

// tools reads server/tool, server/tool=name, and the same with ! before it for
// one of a project.
func tools(pairs ...string) []Exposed {
	var list []Exposed
	for _, p := range pairs {
		pair, name, _ := strings.Cut(p, "=")
		server, tool, _ := strings.Cut(pair, "/")
		server, project := strings.CutPrefix(server, "!")
		list = append(list, Exposed{Ref{server, tool}, name, project})
	}
	return list
}

// texts are what collisions say.
func texts(collisions []Collision) (all []string) {
	for _, c := range collisions {
		all = append(all, c.Text)
	}
	return all
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
			[]string{"mcp__a__b__c_qmsfdesp", "mcp__a__b__c_2fkgldal"},
			[]string{`several tools would be called mcp__a__b__c, so none is: offered are "a/b__c" as mcp__a__b__c_qmsfdesp, "a__b/c" as mcp__a__b__c_2fkgldal`}},
		{"as it is written goes first", Naming{}, tools("s/a b", "s/a_b", "my.server/pay", "my_server/pay"),
			[]string{"mcp__s__a_b_H", "mcp__s__a_b", "mcp__my_server__pay_H", "mcp__my_server__pay"},
			[]string{`tools "my_server/pay" and "my.server/pay" would both be called mcp__my_server__pay: the second is offered as mcp__my_server__pay_H`,
				`tools "s/a_b" and "s/a b" would both be called mcp__s__a_b: the second is offered as mcp__s__a_b_H`}},
		{"the user's own goes first", Naming{Style: config.NamingPlain}, tools("!a/b__c", "a__b/c"),
			[]string{"a__b__c_H", "a__b__c"},
			[]string{`tools "a__b/c" and "a/b__c" would both be called a__b__c: the second is offered as a__b__c_H`}},
		{"a project takes nothing by writing it as it is", Naming{Style: config.NamingPlain}, tools("my.server/pay", "!my_server/pay"),
			[]string{"my_server__pay_H", "my_server__pay_H"},
			[]string{`several tools would be called my_server__pay, so none is: offered are "my.server/pay" as my_server__pay_H, "my_server/pay" as my_server__pay_H`}},
		{"xcsh loses digits", Naming{Style: config.NamingXcsh}, tools("foo3/x", "foo1/x", "foo2/x"),
			[]string{"mcp_foo_x_H", "mcp_foo_x_H", "mcp_foo_x_H"},
			[]string{`several tools would be called mcp_foo_x, so none is: offered are "foo1/x" as mcp_foo_x_H, "foo2/x" as mcp_foo_x_H, "foo3/x" as mcp_foo_x_H`}},
		{"xcsh, the last wins", Naming{Style: config.NamingXcsh, LastWins: true}, tools("my.server/do-it", "my-server/do.it", "other/x"),
			[]string{"mcp_my_server_do_it", "", "mcp_other_x"},
			[]string{`tools "my-server/do.it" and "my.server/do-it" are both called mcp_my_server_do_it: only the second is offered`}},
		{"xcsh, the last of the user's own wins", Naming{Style: config.NamingXcsh, LastWins: true}, tools("!my.server/do-it", "my-server/do.it"),
			[]string{"", "mcp_my_server_do_it"},
			[]string{`tools "my.server/do-it" and "my-server/do.it" are both called mcp_my_server_do_it: only the second is offered`}},
		{"the last wins in xcsh only", Naming{Style: config.NamingOMP, LastWins: true}, tools("my-server/do.it", "my.server/do-it"),
			[]string{"mcp__my_server_do_it_H", "mcp__my_server_do_it_H"},
			[]string{`several tools would be called mcp__my_server_do_it, so none is: offered are "my-server/do.it" as mcp__my_server_do_it_H, "my.server/do-it" as mcp__my_server_do_it_H`}},
		{"the last wins over no exposed name", Naming{Style: config.NamingXcsh, LastWins: true}, tools("a/x", "b/x=mcp_a_x"),
			[]string{"mcp_a_x", "mcp_a_x_pmb3xvge"},
			[]string{`tools "a/x" and "b/x" would both be called mcp_a_x: the second is offered as mcp_a_x_pmb3xvge`}},
		{"too long", Naming{}, tools(x+"/"+y, x+"/"+y+"y"),
			[]string{"mcp__" + x[:50] + "_27gxz65d", "mcp__" + x[:50] + "_nwkrj3ro"}, nil},
		{"too long for 128", Naming{MaxLength: 128}, tools(x + "/" + y),
			[]string{"mcp__" + x + "__" + y[:22] + "_27gxz65d"}, nil},
		{"an exposed name", Naming{}, tools("github/create_issue=new_issue"), []string{"new_issue"}, nil},
		{"an exposed name displaces nothing", Naming{}, tools("a/x=mcp__b__x", "b/x"),
			[]string{"mcp__b__x_jwlzvvde", "mcp__b__x"},
			[]string{`tools "b/x" and "a/x" would both be called mcp__b__x: the second is offered as mcp__b__x_jwlzvvde`}},
		{"a hash displaces nothing", Naming{}, tools("a/b__c", "a__b/c", "a__b/c_2fkgldal"),
			[]string{"mcp__a__b__c_qmsfdesp", "mcp__a__b__c_llqknlaq", "mcp__a__b__c_2fkgldal"},
			[]string{`several tools would be called mcp__a__b__c, so none is: offered are "a/b__c" as mcp__a__b__c_qmsfdesp, "a__b/c" as mcp__a__b__c_llqknlaq`}},
		{"an unusable exposed name", Naming{}, tools("a/x=ä", "b/x="+x),
			[]string{"mcp__a__x", "mcp__b__x"},
			[]string{`tool "a/x": the name "ä" is not of 1 to 64 letters, digits, _ or -, so it is not used`,
				`tool "b/x": the name "` + x + `" is not of 1 to 64 letters, digits, _ or -, so it is not used`}},
		{"one tool twice", Naming{}, tools("a/x", "a/x"), []string{"mcp__a__x", "mcp__a__x"}, nil},
		{"a limit below the least", Naming{MaxLength: 1}, tools("github/create_issue_comment"),
			[]string{"mcp__github__create_iss_xuttnhwj"}, nil},
	} {
		names, collisions := NewNames(tt.tools, nil, tt.naming, nil)
		warnings := texts(collisions)
		var got []string
		for _, tool := range tt.tools {
			got = append(got, names.Of(tool.Ref))
		}
		if strings.Contains(strings.Join(tt.want, " "), "_H") { // any hash
			mask := func(texts []string) {
				for i := range texts {
					texts[i] = regexp.MustCompile(`_[a-z2-7]{8}\b`).ReplaceAllString(texts[i], "_H")
				}
			}
			mask(got)
			mask(warnings)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s:\n%s", tt.about, diff)
		}
		if diff := cmp.Diff(tt.warnings, warnings); diff != "" {
			t.Errorf("%s:\n%s", tt.about, diff)
		}
	}
}

// A name stays with the tool that has it: one that comes later takes nothing,
// whatever speaks for it, and what may be another server's is not given away
// while that says nothing.
func TestNamesStay(t *testing.T) {
	for _, tt := range []struct {
		about  string
		before []Exposed
		tools  []Exposed
		silent []Silent
		want   string
	}{
		{"who had it keeps it", tools("a__b/c"), tools("a__b/c", "a/b__c"), nil, "a__b__c a__b__c_H"},
		{"of two that are new nobody has it", tools("x/y"), tools("a__b/c", "a/b__c"), nil, "a__b__c_H a__b__c_H"},
		{"one that is written so, but later, takes nothing", tools("my.server/pay"), tools("my.server/pay", "my_server/pay"), nil, "my_server__pay_H my_server__pay_H"},
		{"the user's own takes it from nobody either", tools("!a/b__c"), tools("!a/b__c", "a__b/c"), nil, "a__b__c_H a__b__c_H"},
		{"one that is gone has nothing", tools("a__b/c"), tools("a/b__c"), nil, "a__b__c"},
		{"a server whose tools are not known", nil, tools("!my.server/pay", "my_other/pay"), []Silent{{"my_server", false}}, "my_server__pay_H my_other__pay"},
		{"part of a name", nil, tools("a/b__c", "a/b"), []Silent{{"a__b", false}}, "a__b__c_H a__b"},
		{"a project's server that is not known", nil, tools("a/b__c"), []Silent{{"a__b", true}}, "a__b__c"},
		{"who had it before the other fell silent", tools("a/b__c"), tools("a/b__c"), []Silent{{"a__b", false}}, "a__b__c"},
		{"what a silent one had", tools("a__b/c"), tools("a/b__c"), []Silent{{"a__b", true}}, "a__b__c_H"},
	} {
		before, _ := NewNames(tt.before, nil, Naming{Style: config.NamingPlain}, nil)
		names, _ := NewNames(tt.tools, tt.silent, Naming{Style: config.NamingPlain}, before)
		var got []string
		for _, tool := range tt.tools {
			name := names.Of(tool.Ref)
			got = append(got, strings.TrimSuffix(name, hash(tool.Ref, 0)))
			if got[len(got)-1] != name {
				got[len(got)-1] += "H"
			}
			if ref, err := names.Resolve(name); err != nil || ref != tool.Ref {
				t.Errorf("%s: %s is %v, %v", tt.about, name, ref, err)
			}
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.about, got, tt.want)
		}
	}
}

// What nobody is called, or one that is hidden or does not answer may be called,
// means no other tool, in whichever style it is written.
func TestNobodysName(t *testing.T) {
	names, _ := NewNames(tools("!my.server/pay", "my_server/pay", "a/b__c", "foo1/x", "foo2/x"), []Silent{{"a__b", false}}, Naming{Style: config.NamingPlain}, nil)
	hidden := names.Hide(func(r Ref) bool { return r.Server == "my_server" || r.Server == "foo1" })
	for name, want := range map[string]string{
		"my_server__pay":      `unknown tool "my_server__pay"`,
		"mcp__my_server__pay": `unknown tool "mcp__my_server__pay"`,
		"my_server.pay":       `unknown tool "my_server.pay"`,
		"my.server.pay":       "my.server/pay",
		"a__b__c":             `tool name "a__b__c" may mean "a/b__c", or a tool of "a__b", which is not there`,
		"mcp__a__b__c":        `tool name "mcp__a__b__c" may mean "a/b__c", or a tool of "a__b", which is not there`,
		"a/b__c":              "a/b__c",
		"mcp_foo_x":           `tool name "mcp_foo_x" may mean "foo2/x", or one that is not offered`,
		"foo1__y":             `unknown tool "foo1__y"; did you mean "foo2__x"?`,
	} {
		ref, err := hidden.Resolve(name)
		got := ref.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	if near := hidden.Suggest("foo1__y", func(server string) bool { return server == "foo1" }); near != nil {
		t.Errorf("of a server whose only tool is hidden: %q", near)
	}
	if near := hidden.Suggest("foo2__y", func(server string) bool { return server == "foo2" }); !slices.Equal(near, []string{"foo2__x"}) {
		t.Errorf("got %q", near)
	}
}

func TestBegins(t *testing.T) {
	for _, tt := range []struct {
		name, server string
		want         bool
	}{
		{"github__create", "github", true}, {"mcp__github__create", "github", true}, {"mcp_github_create", "github", true},
		{"mcp__github_create", "github", true}, {"github.create", "github", true}, {"github/create", "github", true},
		{"mcp__my_server__x", "my.server", true}, {"my.server/x", "my.server", true}, {"mcp_my_server_x", "my.server", true},
		{"github__", "github", false}, {"github", "github", false}, {"githubx__create", "github", false}, {"mcp__x__y", "", false}, {"mcp__x__y", "mcp", true},
	} {
		if got := Begins(tt.name, tt.server); got != tt.want {
			t.Errorf("%q of %q: %v", tt.name, tt.server, got)
		}
	}
}

func TestRefString(t *testing.T) {
	for want, r := range map[string]Ref{"github/create": {Server: "github", Tool: "create"}, "list_mcp_resources": {Tool: "list_mcp_resources"}} {
		if got := r.String(); got != want {
			t.Errorf("%+v is called %q", r, got)
		}
	}
}
