//go:build unix

package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

// What commands print fits the terminal, at every width; testdata/width has what
// it looks like.
func TestWidth(t *testing.T) {
	commands := [][]string{
		{"help"}, {"list"}, {"list", "--sources"}, {"get", "wrong"}, {"tools", "notes"}, {"tools", "notes", "--schema"}, {"doctor"}, {"get", "nobody"},
		{"serve", "--help"}, {"add", "--help"},
	}
	for _, columns := range []int{60, 80, 200} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			home := t.TempDir()
			project := filepath.Join(home, "project")
			for path, content := range map[string]string{
				"project/.git/HEAD": "",
				"project/.mcp.json": `{"mcpServers": {
  "docs": {"type": "http", "url": "https://docs.example.test/a/rather/long/path/to/mcp"},
  "wrong": {"command": "x", "argz": ["y"], "timeout": "soon"}
}}`,
				".config/patchbay/mcp.json": `{"mcpServers": {
  "notes": {"command": "mcptest-server", "args": ["-definition", "${HOME}/about"], "env": {"GORACE": "` + quickExit + `"}},
  "off": {"command": "npx", "args": ["-y", "@acme/a-server-with-a-long-name", "--root", "/srv/data", "--read-only"], "enabled": false},
  "unset": {"type": "http", "url": "https://example.test/mcp", "headers": {"Authorization": "Bearer ${ACME_TOKEN}"}}
}}`,
				".cursor/mcp.json": `{"mcpServers": {"a-server-with-quite-a-long-name": {"command": "npx", "args": ["-y", "@acme/files"]}}}`,
				"about":            "Answers with the text it is given, word for word, which takes a description of more than eighty columns",
			} {
				write(t, filepath.Join(home, path), content)
			}
			var got bytes.Buffer
			for _, args := range commands {
				var out bytes.Buffer
				cli.Main(t.Context(), cli.Env{
					Args: args, Dir: project, Home: home, Environ: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "NO_COLOR=1"}, Now: time.Now,
					Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Colorful: true, Width: columns, ErrWidth: columns,
				})
				text := strings.ReplaceAll(out.String(), home, "/home/ada")
				for line := range strings.SplitSeq(text, "\n") {
					// What is there to be copied stays whole.
					if n := utf8.RuneCountInString(line); n > columns && !strings.HasPrefix(line, "  ") {
						t.Errorf("patchbay %s prints a line of %d columns: %s", strings.Join(args, " "), n, line)
					}
				}
				fmt.Fprintf(&got, "$ patchbay %s\n%s\n", strings.Join(args, " "), text)
			}
			file := filepath.Join("testdata", "width", fmt.Sprintf("%d.txt", columns))
			if *update {
				write(t, file, got.String())
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got.String()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
