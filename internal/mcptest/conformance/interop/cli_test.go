//go:build conformance

package interop

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandLine uses the real servers as a person would: the binary, a fresh
// home, the commands of the README.
func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "patchbay")
	if out, err := exec.Command("go", "build", "-o", program, "../../../../cmd/patchbay").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	project := filepath.Join(dir, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(project, "note.txt")
	if err := os.WriteFile(note, []byte("remember the milk"), 0o644); err != nil {
		t.Fatal(err)
	}
	patchbay := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = project, append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "XDG_CACHE_HOME=")
		var out, diagnostics bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &diagnostics
		if err := cmd.Run(); err != nil {
			t.Fatalf("patchbay %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), diagnostics.String())
		}
		return out.String()
	}
	for name, cmd := range map[string]*exec.Cmd{
		"everything": server(t, "everything", "stdio"),
		"files":      server(t, "filesystem", project),
		"memory":     server(t, "memory"),
	} {
		add := []string{"add", "-s", "user", name}
		if name == "memory" {
			add = append(add, "-e", "MEMORY_FILE_PATH="+filepath.Join(dir, "memory.json"))
		}
		patchbay(append(append(add, "--"), cmd.Args...)...)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"test", "everything"}, "MCP 2025-11-25"},
		{[]string{"call", "everything.echo", "message=hello"}, "Echo: hello"},
		{[]string{"call", "mcp__everything__get-sum", "a:=2", "b:=3"}, "5"},
		{[]string{"call", "files.read_text_file", "path=" + note}, "remember the milk"},
		{[]string{"call", "memory.create_entities", "--args", `{"entities":[{"name":"Ada","entityType":"person","observations":["likes looms"]}]}`}, "Ada"},
		{[]string{"call", "memory.read_graph"}, "likes looms"},
		{[]string{"tools", "memory"}, "mcp__memory__read_graph"},
		{[]string{"resources", "everything"}, "demo://"},
		{[]string{"prompts", "everything"}, "simple-prompt"},
		{[]string{"prompt", "everything", "simple-prompt"}, "simple prompt"},
	} {
		if got := patchbay(tt.args...); !strings.Contains(got, tt.want) {
			t.Errorf("patchbay %s:\n%s\nwant %q in it", strings.Join(tt.args, " "), got, tt.want)
		}
	}
}
