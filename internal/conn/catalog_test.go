package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

func toolList(names ...string) string {
	var tools []string
	for _, name := range names {
		tools = append(tools, fmt.Sprintf(`{"name":%q}`, name))
	}
	return `{"tools":[` + strings.Join(tools, ",") + `]}`
}

// Whatever a server lists, what is kept of it is bounded, and the server works.
func TestListsAreBounded(t *testing.T) {
	huge := strings.Repeat("x", maxDefinition)
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for _, test := range []struct {
		name  string
		list  func(ctx context.Context, cursor string) (string, error)
		tools int
		note  string
	}{
		{"none", func(context.Context, string) (string, error) { return `{"tools":[]}`, nil }, 0, ""},
		{"too many", func(context.Context, string) (string, error) { return toolList(many...), nil }, maxTools, "more than 512 tools"},
		{"exactly as many", func(context.Context, string) (string, error) { return toolList(many[:maxTools]...), nil }, maxTools, ""},
		{"a huge one", func(context.Context, string) (string, error) {
			return `{"tools":[{"name":"a"},{"name":"b","x":"` + huge + `"},{"name":"c"}]}`, nil
		}, 2, `name "b" is left out: its definition is over 256 KiB`},
		{"too much", func(_ context.Context, cursor string) (string, error) {
			return fmt.Sprintf(`{"tools":[{"name":"t%s","x":"%s"}],"nextCursor":"%s."}`, cursor, huge[100:], cursor), nil
		}, 32, "more than 8 MiB of tools"},
		{"endless", func(_ context.Context, cursor string) (string, error) {
			return fmt.Sprintf(`{"tools":[{"name":"t%s"}],"nextCursor":"%s."}`, cursor, cursor), nil
		}, maxPages, "more than 64 pages of tools"},
		{"in a circle", func(_ context.Context, cursor string) (string, error) {
			return fmt.Sprintf(`{"tools":[{"name":"t%s"}],"nextCursor":"again"}`, cursor), nil
		}, 2, "repeats itself"},
		{"a last page that is none", func(context.Context, string) (string, error) {
			return `{"tools":[{"name":"a"}],"nextCursor":null}`, nil
		}, 1, ""},
		{"twice the same", func(context.Context, string) (string, error) { return toolList("a", "b", "a"), nil }, 2, `name "a" is there twice`},
		{"without a name", func(context.Context, string) (string, error) {
			return `{"tools":[{"name":"a"},{},{"name":7},"x",null]}`, nil
		}, 1, "without name"},
		{"no list", func(context.Context, string) (string, error) { return `{"tools":{"a":1}}`, nil }, 0, "no such list"},
		{"nothing", func(context.Context, string) (string, error) { return `{}`, nil }, 0, "no such list"},
		{"an error", func(context.Context, string) (string, error) { return "", errors.New("x") }, 0, "tools/list: internal error"},
		{"an error later", func(_ context.Context, cursor string) (string, error) {
			if cursor != "" {
				return "", errors.New("x")
			}
			return `{"tools":[{"name":"a"}],"nextCursor":"x"}`, nil
		}, 1, "tools ends early"},
		{"no answer", func(ctx context.Context, _ string) (string, error) { return "", forever(ctx) }, 0, "not complete after 30s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newManager(t, Options{})
			s := one(t, m, local(&fake{list: test.list}))
			mustWait(t, s)
			st := wantState(t, s, config.Connected, test.note)
			c := s.Catalog()
			if len(c.Tools) != test.tools || (st.Reason == "") != (test.note == "") || (len(c.Notes) == 0) != (test.note == "") {
				t.Errorf("%s: %d tools, %q, notes %q", test.name, len(c.Tools), st.Reason, c.Notes)
			}
			mustCall(t, s)
		})
	}
}

// A server can be called as soon as it answers, even if it cannot list.
func TestCallBeforeListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{})
		s := one(t, m, local(&fake{list: func(ctx context.Context, _ string) (string, error) { return "", forever(ctx) }}))
		begin := time.Now()
		mustCall(t, s)
		if took := time.Since(begin); took != 0 {
			t.Errorf("the call took %v", took)
		}
		wantState(t, s, config.Connecting, "")
		if s.Catalog() != nil {
			t.Errorf("%+v", s.Catalog())
		}
	})
}
