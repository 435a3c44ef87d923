package cli_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

// TestReference keeps the command reference in docs/cli.md equal to the help
// the commands print.
func TestReference(t *testing.T) {
	const path, mark = "../../docs/cli.md", "<!-- The rest is the help of each command; go test ./internal/cli -update writes it. -->\n"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, got, ok := strings.Cut(string(doc), mark)
	if !ok {
		t.Fatalf("%s has no line %q", path, mark)
	}
	var want strings.Builder
	for _, name := range commandNames(t) {
		help := run(t, name, "--help")
		for _, part := range []string{"Examples:\n  patchbay " + name, "--json", "--quiet", "--no-color", "--mcp-config"} {
			if !strings.Contains(help, part) {
				t.Errorf("the help of %s has no %q", name, part)
			}
		}
		want.WriteString("\n## patchbay " + name + "\n\n```\n" + help + "```\n")
	}
	if *update {
		if err := os.WriteFile(path, []byte(head+mark+want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want.String(), got); d != "" {
		t.Errorf("docs/cli.md is not up to date; run go test ./internal/cli -update\n%s", d)
	}
}

// commandNames asks for the completion of nothing, which is every command.
func commandNames(t *testing.T) []string {
	var names []string
	for line := range strings.SplitSeq(run(t, "__complete", ""), "\n") {
		name, _, described := strings.Cut(line, "\t")
		if described && name != "help" && name != "completion" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Fatal("no commands")
	}
	return names
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(context.Background(), cli.Env{
		Args: args, Dir: t.TempDir(), Home: t.TempDir(), Environ: []string{}, Now: time.Now,
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
	})
	if code != 0 {
		t.Fatalf("patchbay %s: exit code %d\n%s", strings.Join(args, " "), code, errs.String())
	}
	return out.String()
}
