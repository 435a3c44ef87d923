//go:build unix

package discover

import (
	"go/parser"
	"go/token"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestNothingRunsOrConnects scans a home with every product's samples, in which
// each command is a canary that leaves a mark and each URL leads to a listener
// that counts.
func TestNothingRunsOrConnects(t *testing.T) {
	m := newMachine(t)
	products, err := filepath.Glob("testdata/config/[^_]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range products {
		m.lay(p)
	}
	listener, connections := countConnections(t)
	redirectURLs(t, filepath.Dir(m.env.Home), listener)

	r := Scan(t.Context(), m.env)
	if len(r.Entries) < 90 {
		t.Fatalf("only %d entries: the samples are not laid out", len(r.Entries))
	}
	bin, mark := t.TempDir(), filepath.Join(t.TempDir(), "mark")
	canary := "#!/bin/sh\necho \"$0 $*\" >> " + mark + "\n"
	plant := func(command string) {
		if !filepath.IsAbs(command) {
			command = filepath.Join(bin, command)
		} else if !strings.HasPrefix(command, filepath.Dir(m.env.Home)) {
			return
		}
		if err := os.MkdirAll(filepath.Dir(command), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(command, []byte(canary), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"sh", "bash", "mcp", "git", "cat"} {
		plant(word)
	}
	for _, e := range r.Entries {
		if e.Server.Command != "" && !strings.Contains(e.Server.Command, "${") {
			plant(e.Server.Command)
		}
		for _, line := range e.Executes {
			word, _, _ := strings.Cut(line, " ")
			plant(word)
		}
	}
	t.Setenv("PATH", bin)

	r = Scan(t.Context(), m.env)
	for _, p := range r.Problems {
		if p.Severity == "error" {
			t.Error(p)
		}
	}
	if ran, err := os.ReadFile(mark); err == nil {
		t.Errorf("the scan ran:\n%s", ran)
	}

	// The traps work: sprung on purpose, they show it.
	if err := exec.Command(filepath.Join(bin, "npx")).Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error("a canary that ran left no mark")
	}
	conn, err := net.Dial("tcp", listener)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(conn) // until it was accepted and closed
	conn.Close()
	if n := connections(); n != 1 {
		t.Errorf("%d connections besides the test's own", n-1)
	}
}

// countConnections listens on loopback; the function returned ends that and
// tells how many connections came.
func countConnections(t *testing.T) (address string, count func() int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n++
			c.Close()
		}
	}()
	stop := func() int { l.Close(); <-done; return n }
	t.Cleanup(func() { stop() })
	return l.Addr().String(), stop
}

// redirectURLs makes every URL of the files below dir lead to address.
func redirectURLs(t *testing.T, dir, address string) {
	t.Helper()
	url := regexp.MustCompile(`(https?|wss?)://[^/"'\s}]+`)
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, url.ReplaceAll(text, []byte("http://"+address)), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestImports holds the package to reading: it links nothing that could start a
// program or open a connection.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			switch path, _ := strconv.Unquote(spec.Path.Value); path {
			case "os/exec", "net", "net/http", "plugin":
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}
