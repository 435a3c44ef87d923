package bridge

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestResolve(t *testing.T) {
	x, y := strings.Repeat("x", 90), strings.Repeat("y", 90)
	set := tools("github/create_issue", "context7/query-docs", "my-server/do.it", "my.server/do-it", "a/b__c", "a__b/c", "a.b/c", "a/b.c", "a_b/c",
		"play/play_stop", "mail/send=send_mail", x+"/"+y)
	for _, tt := range []struct {
		style      config.NamingStyle
		name, want string // a pair, or the error
	}{
		{"", "mcp__github__create_issue", "github/create_issue"},
		{"", "mcp_github_create_issue", "github/create_issue"},
		{"", "mcp__github_create_issue", "github/create_issue"},
		{"", "github__create_issue", "github/create_issue"},
		{config.NamingPlain, "mcp__github__create_issue", "github/create_issue"},
		{config.NamingPlain, "mcp_github_create_issue", "github/create_issue"},
		{config.NamingPlain, "github.create_issue", "github/create_issue"},
		{"", "github/create_issue", "github/create_issue"},
		{"", "github.create_issue", "github/create_issue"},
		{"", "mcp_context_query_docs", "context7/query-docs"},
		{"", "mcp_play_stop", "play/play_stop"},
		{"", "send_mail", "mail/send"},
		{"", "mcp__mail__send", "mail/send"},
		{"", "mcp__my-server__do_it", "my-server/do.it"},
		{"", "mcp_my_server_do_it", `tool name "mcp_my_server_do_it" is ambiguous: it may mean "my-server/do.it" or "my.server/do-it"`},
		{config.NamingXcsh, "mcp_my_server_do_it", `tool name "mcp_my_server_do_it" is ambiguous: it may mean "my-server/do.it" or "my.server/do-it"`},
		{"", "mcp__a__b__c", `tool name "mcp__a__b__c" is ambiguous: it may mean "a/b__c" or "a__b/c"`},
		{config.NamingXcsh, "mcp__a__b__c", `tool name "mcp__a__b__c" is ambiguous: it may mean "a/b__c" or "a__b/c"`},
		{"", "a_b__c", "a_b/c"}, // as it is written, though a.b/c is written so, too
		{"", "a.b.c", `tool name "a.b.c" is ambiguous: it may mean "a/b.c" or "a.b/c"`},
		{"", "a.b/c", "a.b/c"},

		// Names with hashes, in another style or cut elsewhere.
		{"", "mcp_my_server_do_it_" + hash(Ref{"my.server", "do-it"}, 0), "my.server/do-it"},
		{"", "mcp__a__b__c_2fkgldal", "a__b/c"},
		{config.NamingXcsh, "mcp__a__b__c_2fkgldal", "a__b/c"},
		{"", "mcp__" + x + "__" + y, x + "/" + y},
		{"", "mcp__" + x[:50] + "_27gxz65d", x + "/" + y},
		{config.NamingXcsh, "mcp__" + x + "__" + y[:22] + "_27gxz65d", x + "/" + y},
		{"", "mcp__" + x[:40] + "y_27gxz65d", `unknown tool "mcp__` + x[:40] + `y_27gxz65d"`},

		{"", "github.create_isue", `unknown tool "github.create_isue"; did you mean "github.create_issue"?`},
		{"", "mcp_github_create-issue", `unknown tool "mcp_github_create-issue"; did you mean "mcp_github_create_issue"?`},
		{"", "create_issue", `unknown tool "create_issue"; did you mean "mcp__github__create_issue"?`},
		{"", "MCP__GITHUB__CREATE_ISSUE", `unknown tool "MCP__GITHUB__CREATE_ISSUE"; did you mean "mcp__github__create_issue"?`},
		{"", "mcp_my_server_do_its", `unknown tool "mcp_my_server_do_its"; did you mean "mcp_my_server_do_it"?`},
		{"", "Github/create_issue", `unknown tool "Github/create_issue"; did you mean "github/create_issue"?`},
		{"", "", `unknown tool ""`},
		{"", "\x1b[31mnothing", `unknown tool "\x1b[31mnothing"`},
		{"", strings.Repeat("n", 1000), `unknown tool "` + strings.Repeat("n", 128) + `…"`},
	} {
		names, _ := NewNames(set, nil, Naming{Style: tt.style}, nil)
		ref, err := names.Resolve(tt.name)
		got := ref.String()
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s %q:\n got %s\nwant %s", tt.style, tt.name, got, tt.want)
		}
	}
}

func TestResolveErrors(t *testing.T) {
	var set []Exposed
	for i := range 8 {
		set = append(set, Exposed{Ref: Ref{fmt.Sprint("s", i), "same"}})
	}
	names, _ := NewNames(set, nil, Naming{}, nil)

	_, err := names.Resolve("mcp_s_same")
	ambiguous, ok := errors.AsType[*AmbiguousError](err)
	if !ok || len(ambiguous.Refs) != 8 || ambiguous.Refs[0] != (Ref{"s0", "same"}) {
		t.Fatalf("got %#v", err)
	}
	const want = `tool name "mcp_s_same" is ambiguous: it may mean "s0/same", "s1/same", "s2/same", "s3/same", "s4/same" or 3 others`
	if err.Error() != want {
		t.Errorf("got %s", err)
	}

	_, err = names.Resolve("same")
	unknown, ok := errors.AsType[*UnknownError](err)
	if !ok || !slices.Equal(unknown.Suggestions, []string{"mcp__s0__same", "mcp__s1__same", "mcp__s2__same"}) {
		t.Errorf("got %#v", err)
	}
}

func TestDroppedToolIsGone(t *testing.T) {
	names, _ := NewNames(tools("foo1/x", "foo2/x"), nil, Naming{Style: config.NamingXcsh, LastWins: true}, nil)
	for _, name := range []string{"foo1/x", "mcp__foo1__x"} {
		if ref, err := names.Resolve(name); err == nil {
			t.Errorf("%s is %v", name, ref)
		}
	}
	if ref, err := names.Resolve("mcp_foo_x"); err != nil || ref.Server != "foo2" {
		t.Errorf("got %v, %v", ref, err)
	}
}

func TestResolveConcurrently(t *testing.T) {
	names, _ := NewNames(tools("a/x", "b/x"), nil, Naming{}, nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if ref, err := names.Resolve("mcp_b_x"); err != nil || ref.Server != "b" {
				t.Errorf("got %v, %v", ref, err)
			}
		})
	}
	wg.Wait()
}

// FuzzNames names tools made of arbitrary text: each line is server, tool and
// perhaps the name that is asked for, separated by tabs.
func FuzzNames(f *testing.F) {
	f.Add("github\tcreate_issue\nmy-server\tdo.it\nmy.server\tdo-it", uint8(0), 0)
	f.Add("foo1\tx\nfoo2\tx\nfoo2\tx\nfoo3\tx\tmcp_foo_x", uint8(1), 32)
	f.Add("a\tb__c\na__b\tc\na__b\tc_2fkgldal\na.b\tc\na\tb.c", uint8(2), 64)
	f.Add(strings.Repeat("x", 90)+"\t"+strings.Repeat("y", 90)+"\n"+strings.Repeat("x", 90)+"\t"+strings.Repeat("y", 91), uint8(3), 128)
	f.Add("\t\n\t\tn\n\xff\t\U0001f600\nİ\tß", uint8(0), -1)
	f.Fuzz(func(t *testing.T, text string, style uint8, limit int) {
		var set []Exposed
		for line := range strings.SplitSeq(text, "\n") {
			part := append(strings.Split(line, "\t"), "", "")
			set = append(set, Exposed{Ref{part[0], part[1]}, part[2], strings.HasPrefix(part[0], "p")})
		}
		naming := Naming{Style: append(styles[:], "")[style%5], MaxLength: limit}
		names, warnings := NewNames(set, nil, naming, nil)
		most := 64
		if limit > 0 {
			most = max(32, limit)
		}
		pattern := regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
		owners := map[string]Ref{}
		for _, tool := range set {
			name := names.Of(tool.Ref)
			if !pattern.MatchString(name) || len(name) > most {
				t.Errorf("%q has the name %q", tool.Ref, name)
			}
			if owner, taken := owners[name]; taken && owner != tool.Ref {
				t.Errorf("%q and %q have the name %q", owner, tool.Ref, name)
			}
			owners[name] = tool.Ref
			if ref, err := names.Resolve(name); err != nil || ref != tool.Ref {
				t.Errorf("%q is %q, %v; want %q", name, ref, err, tool.Ref)
			}
			checkAliases(t, names, tool.Ref)
		}

		// The order of the tools does not matter.
		shuffled := slices.Clone(set)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again, warningsAgain := NewNames(shuffled, nil, naming, nil)
		if diff := cmp.Diff(names.names, again.names); diff != "" {
			t.Errorf("in another order:\n%s", diff)
		}
		if diff := cmp.Diff(warnings, warningsAgain); diff != "" {
			t.Errorf("in another order:\n%s", diff)
		}
	})
}

// checkAliases checks that another way to write a tool means it, or is said to
// be ambiguous with it among the meanings, unless it is a name of another.
func checkAliases(t *testing.T, names *Names, r Ref) {
	forms := []string{r.Server + "/" + r.Tool, r.Server + "." + r.Tool}
	for _, style := range styles {
		plain := Render(style, r)
		forms = append(forms, plain, withHash(plain, hash(r, 0), 64), withHash(plain, hash(r, 0), 128))
	}
	for _, form := range forms {
		got, err := names.Resolve(form)
		if ambiguous, ok := errors.AsType[*AmbiguousError](err); ok && slices.Contains(ambiguous.Refs, r) {
			continue
		}
		if err != nil || got != r && names.Of(got) != form {
			t.Errorf("%q is %q, %v; want %q", form, got, err, r)
		}
	}
}

func FuzzDistance(f *testing.F) {
	f.Add("create_isue", "create_issue", 3)
	f.Add("", "x", 1)
	f.Fuzz(func(t *testing.T, a, b string, limit int) {
		if len(a) > 64 || len(b) > 64 {
			return
		}
		exact := Distance(a, b, len(a)+len(b)+1)
		if exact != Distance(b, a, len(a)+len(b)+1) {
			t.Errorf("distance of %q and %q depends on the order", a, b)
		}
		if (exact == 0) != slices.EqualFunc([]byte(a), []byte(b), func(x, y byte) bool { return lower(x) == lower(y) }) {
			t.Errorf("distance of %q and %q is %d", a, b, exact)
		}
		if limit > 0 {
			if got := Distance(a, b, limit); got < limit && got != exact || got >= limit && exact < limit {
				t.Errorf("distance of %q and %q below %d is %d, it is %d", a, b, limit, got, exact)
			}
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	var set []Exposed
	for i := range 1000 {
		set = append(set, Exposed{Ref: Ref{fmt.Sprint("server", i/20), fmt.Sprint("some_tool_", i)}})
	}
	names, _ := NewNames(set, nil, Naming{}, nil)
	for _, name := range []string{"mcp__server20__some_tool_400", "server20.some_tool_400", "server20.some_tol_400"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				names.Resolve(name)
			}
		})
	}
	b.Run("NewNames", func(b *testing.B) {
		for b.Loop() {
			NewNames(set, nil, Naming{}, nil)
		}
	})
}
