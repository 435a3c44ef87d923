//go:build unix

package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

// What every command prints on a terminal, and piped: testdata/transcript has it.
// serve, whose picture is testdata/serve.txt, and what needs a daemon have tests of
// their own.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	commands := [][]string{
		{"version"}, {"list"}, {"get", "notes"}, {"tools", "notes"}, {"call", "notes.echo", "text=hi"}, {"call", "notes.nosuch"}, {"why", "notes.echo"},
		{"resources", "notes"}, {"read", "notes", "note://one"}, {"prompts", "notes"}, {"prompt", "notes", "greet", "name=Ada"}, {"test", "notes"}, {"logs", "notes"},
		{"add", "-s", "user", "mine", "--", "mcptest-server"}, {"add-json", "json", `{"type": "http", "url": "https://example.test/mcp"}`},
		{"import", "cursor"}, {"disable", "mine"}, {"enable", "mine"}, {"share", "mine"}, {"rename", "mine", "own"}, {"remove", "own"},
		{"approve", "docs", "--yes"}, {"reject", "docs"}, {"reset-project-choices"}, {"doctor"}, {"list", "--sources"},
		{"install", "cursor"}, {"uninstall", "cursor"}, {"adopt", "cursor", "--dry-run"}, {"release", "cursor"}, {"inputs", "notes"},
		{"token"}, {"reconnect", "notes"}, {"reload"}, {"status"}, {"daemon", "stop"}, {"get", "nobody"}, {"lsit"}, {"list", "--sorces"},
	}
	elsewhere := []string{"serve", "daemon", "help", "completion"}
	for _, name := range commandNames(t) {
		if !slices.Contains(elsewhere, name) && !slices.ContainsFunc(commands, func(args []string) bool { return args[0] == name }) {
			t.Errorf("there is no transcript of %s", name)
		}
	}
	volatile := []struct{ pattern, stands string }{
		{`pbgw_[A-Za-z0-9_-]+`, "pbgw_TOKEN"}, {` +\d+(\.\d+)?(µs|ms|s)\b`, " TIME"}, {`\d{8}T\d{6}\.\d{3}Z`, "STAMP"}, {`\b[0-9a-f]{32}\b`, "HASH"},
		{`/[^ ]*/bin/mcptest-server`, "/bin/mcptest-server"},
	}
	for name, terminal := range map[string]bool{"terminal": true, "piped": false} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			project := filepath.Join(home, "project")
			for path, content := range map[string]string{
				"project/.git/HEAD":         "",
				"project/.mcp.json":         `{"mcpServers": {"docs": {"type": "http", "url": "https://docs.example.test/mcp"}}}`,
				".config/patchbay/mcp.json": `{"mcpServers": {"notes": {"command": "mcptest-server", "env": {"GORACE": "` + quickExit + `"}}}}`,
				".cursor/mcp.json":          `{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@acme/files"], "env": {"KEY": "k-12345678"}}}}`,
			} {
				write(t, filepath.Join(home, path), content)
			}
			width := 0
			if terminal {
				width = 80
			}
			var got bytes.Buffer
			for _, args := range commands {
				var out bytes.Buffer
				code := cli.Main(t.Context(), cli.Env{
					Args: args, Dir: project, Home: home, Environ: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=xterm"}, Now: time.Now,
					Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Colorful: terminal, Width: width, ErrWidth: width,
				})
				text := strings.ReplaceAll(strings.ReplaceAll(out.String(), home, "/home/ada"), "\x1b", "^[")
				for _, v := range volatile {
					text = regexp.MustCompile(v.pattern).ReplaceAllString(text, v.stands)
				}
				if args[0] == "version" {
					text = "(of this build)\n"
				}
				fmt.Fprintf(&got, "$ patchbay %s\n%s[%d]\n\n", strings.Join(args, " "), text, code)
				if !terminal && args[0] != "logs" && strings.Contains(text, "^[") { // logs passes on what a server wrote
					t.Errorf("patchbay %s: there is an escape in what is piped: %s", strings.Join(args, " "), text)
				}
			}
			file := filepath.Join("testdata", "transcript", name+".txt")
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
