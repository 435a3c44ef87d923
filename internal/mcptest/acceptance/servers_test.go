//go:build acceptance

package acceptance

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// published are servers that list their tools without a network and without an
// account, if they are given a key of any kind.
var published = []struct {
	name, from, script string // from an npm package that MODULES or SERVERS has
	args, env          []string
}{
	{"airtable", "MODULES/airtable-mcp-server", "dist/main.js", nil, []string{"AIRTABLE_API_KEY=none"}},
	{"aws-kb", "MODULES/@modelcontextprotocol/server-aws-kb-retrieval", "dist/index.js", nil, nil},
	{"brave", "MODULES/@brave/brave-search-mcp-server", "dist/index.js", []string{"--transport", "stdio"}, []string{"BRAVE_API_KEY=none"}},
	{"brave-search", "MODULES/@modelcontextprotocol/server-brave-search", "dist/index.js", nil, []string{"BRAVE_API_KEY=none"}},
	{"browsermcp", "MODULES/@browsermcp/mcp", "dist/index.js", nil, nil},
	{"chrome-devtools", "MODULES/chrome-devtools-mcp", "build/src/bin/chrome-devtools-mcp.js", []string{"--no-usage-statistics"}, nil},
	{"code-runner", "MODULES/mcp-server-code-runner", "dist/cli.js", nil, nil},
	{"commands", "MODULES/mcp-server-commands", "build/index.js", nil, nil},
	{"context7", "MODULES/@upstash/context7-mcp", "dist/index.js", nil, nil},
	{"eslint", "MODULES/@eslint/mcp", "src/mcp-cli.js", nil, nil},
	{"everart", "MODULES/@modelcontextprotocol/server-everart", "dist/index.js", nil, []string{"EVERART_API_KEY=none"}},
	{"everything", "SERVERS/@modelcontextprotocol/server-everything", "dist/index.js", []string{"stdio"}, nil},
	{"figma", "MODULES/figma-developer-mcp", "dist/bin.js", []string{"--stdio", "--figma-api-key=none"}, nil},
	{"filesystem", "SERVERS/@modelcontextprotocol/server-filesystem", "dist/index.js", []string{"."}, nil},
	{"github", "MODULES/@modelcontextprotocol/server-github", "dist/index.js", nil, nil},
	{"gitlab", "MODULES/@modelcontextprotocol/server-gitlab", "dist/index.js", nil, []string{"GITLAB_PERSONAL_ACCESS_TOKEN=none"}},
	{"google-maps", "MODULES/@modelcontextprotocol/server-google-maps", "dist/index.js", nil, []string{"GOOGLE_MAPS_API_KEY=none"}},
	{"memory", "SERVERS/@modelcontextprotocol/server-memory", "dist/index.js", nil, nil},
	{"notion", "MODULES/@notionhq/notion-mcp-server", "bin/cli.mjs", nil, []string{"NOTION_TOKEN=none"}},
	{"playwright", "MODULES/@playwright/mcp", "cli.js", nil, nil},
	{"postgres", "MODULES/@modelcontextprotocol/server-postgres", "dist/index.js", []string{"postgresql://127.0.0.1:9/none"}, nil},
	{"sequential-thinking", "MODULES/@modelcontextprotocol/server-sequential-thinking", "dist/index.js", nil, nil},
	{"slack", "MODULES/@modelcontextprotocol/server-slack", "dist/index.js", nil, []string{"SLACK_BOT_TOKEN=none", "SLACK_TEAM_ID=none"}},
	{"tavily", "MODULES/tavily-mcp", "build/index.js", nil, []string{"TAVILY_API_KEY=none"}},
}

// script is the path of a file in an npm package.
func script(t *testing.T, from, file string) string {
	t.Helper()
	which, pkg, _ := strings.Cut(from, "/")
	return filepath.Join(modules(t, which), filepath.FromSlash(pkg), filepath.FromSlash(file))
}

// TestServers asks servers for their tools directly and through the gateway. What
// they say is the same to the byte at an endpoint of their own, and but for the
// names at that of all.
func TestServers(t *testing.T) {
	w := newWorld(t, func(w *world, t *testing.T) {
		w.project = w.home // some tell where they run, which is to be the same
		for _, s := range published {
			var args []string
			for _, variable := range s.env {
				args = append(args, "-e", variable)
			}
			w.add(t, s.name, append(append(args, "--", "node", script(t, s.from, s.script)), s.args...)...)
		}
	})
	direct := make([][]string, len(published))
	took := make([]time.Duration, len(published))
	t.Run("each", func(t *testing.T) {
		for i, s := range published {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				cmd := w.command(t.Context(), "node", append([]string{script(t, s.from, s.script)}, s.args...)...)
				cmd.Env = append(slices.Clone(cmd.Env), s.env...)
				begun := time.Now()
				direct[i] = listed(t, wire.Stream(mcptest.Start(t, cmd, nil).Conn, nil))
				took[i] = time.Since(begun)
				if len(direct[i]) == 0 {
					t.Error("it has no tools")
				}
				if through := listed(t, w.over("/"+s.name)); !slices.Equal(direct[i], through) {
					t.Errorf("it has\n%.2000s\nand through the gateway\n%.2000s", direct[i], through)
				}
			})
		}
	})
	t.Run("all", func(t *testing.T) {
		nameless := func(tools []string) []string {
			var all []string
			for _, tool := range tools {
				all = append(all, string(wire.DeleteMember([]byte(tool), "name")))
			}
			slices.Sort(all)
			return all
		}
		through := listed(t, w.over(""))
		for i, s := range published {
			of := slices.DeleteFunc(slices.Clone(through), func(tool string) bool {
				name, _ := wire.StringMember([]byte(tool), "name")
				return !strings.HasPrefix(name, s.name+"__")
			})
			if want, got := nameless(direct[i]), nameless(of); !slices.Equal(want, got) {
				t.Errorf("%s has %d tools\n%.2000s\nand among all %d\n%.2000s", s.name, len(want), want, len(got), got)
			}
		}
		if want := len(slices.Concat(direct...)); len(through) != want {
			t.Errorf("%d tools of all servers, want %d", len(through), want)
		}
	})
	var table bytes.Buffer
	for i, s := range published {
		_, pkg, _ := strings.Cut(s.from, "/")
		fmt.Fprintf(&table, "\n%3d tools in %6.2fs: %s", len(direct[i]), took[i].Seconds(), pkg)
	}
	t.Logf("%d servers, asked directly and through the gateway; directly:%s", len(published), table.String())
}

// over leads to an endpoint of the gateway.
func (w *world) over(endpoint string) wire.Transport {
	header := http.Header{"Authorization": {"Bearer " + w.token}}
	return wire.HTTP(w.url+endpoint, &wire.HTTPClientOptions{Header: func(context.Context) (http.Header, error) { return header, nil }})
}

// listed are the tools that a server lists for a client that cannot be asked
// anything.
func listed(t *testing.T, over wire.Transport) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := wire.Connect(ctx, over, &wire.ClientOptions{ProtocolVersion: wire.Version20251125})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := c.ListTools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var tools []string
	for _, tool := range list.Items {
		tools = append(tools, string(tool))
	}
	return tools
}
